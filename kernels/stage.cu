#include "step.cuh"

// The words of a descriptor, as step.go has them.
constexpr int HEAD_WORDS = 8, ROW_WORDS = 3, PAGE_WORDS = 3, PARAM_WORDS = 10, INIT_WORDS = 1 + PARAM_WORDS;
constexpr int FROM_DEVICE = -1;

struct StageArgs {
	const int32_t *ring; // [ringSlots][words], pinned
	uint32_t *counter;   // [1]
	int32_t *blockTable; // [count][pages]
	int32_t *length;     // [count]
	const int32_t *last; // [count]: the token sampled last
	int32_t *history;    // [count][context]
	int32_t *params;     // [count][PARAM_WORDS]
	int32_t *slot, *position, *token; // out: [T]
	int32_t *sample;     // out: [N]
	int32_t *number;     // out: [2]
	int32_t ringSlots, words, sampleAt, initAt, pageAt;
	int32_t count, pages, context, T, N;
};

// Prepares slots for new sequences. d is the descriptor.
__device__ static void stage_inits(const StageArgs &a, const int32_t *d, int inits) {
	for (int i = threadIdx.x; i < inits * INIT_WORDS; i += blockDim.x) {
		const int32_t *in = d + a.initAt + i / INIT_WORDS * INIT_WORDS;
		int slot = from_host(in), word = i % INIT_WORDS;
		if (word == 0)
			a.length[slot] = 0;
		else
			a.params[slot * PARAM_WORDS + word - 1] = from_host(in + word);
	}
}

// Sets entries of block tables; of several for one place the last one holds.
// places is room for [pages].
__device__ static void stage_pages(const StageArgs &a, const int32_t *d, int pages, int32_t *places) {
	for (int i = threadIdx.x; i < pages; i += blockDim.x) {
		const int32_t *p = d + a.pageAt + i * PAGE_WORDS;
		int slot = from_host(p), index = from_host(p + 1);
		places[i] = slot * a.pages + index;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < pages; i += blockDim.x) {
		bool holds = true;
		for (int later = i + 1; later < pages; later++) holds = holds && places[later] != places[i];
		if (holds) a.blockTable[places[i]] = from_host(d + a.pageAt + i * PAGE_WORDS + 2);
	}
}

// The position of row t: its own, or one more than that of the row before it in
// the same slot, or the slot's length. slots and positions are the step's [T].
__device__ static int stage_position(const StageArgs &a, const int32_t *slots, const int32_t *positions, int t) {
	int after = 0;
	for (int before = t; before >= 0; before--) {
		if (slots[before] != slots[t]) continue;
		if (positions[before] != FROM_DEVICE) return positions[before] + after;
		after++;
	}
	return a.length[slots[t]] + after - 1;
}

// Whether row t is the last one of its slot.
__device__ static bool stage_ends(const StageArgs &a, const int32_t *slots, int t) {
	for (int later = t + 1; later < a.T; later++)
		if (slots[later] == slots[t]) return false;
	return true;
}

// Applies the descriptor number `counter` of the ring, as Stage.Host does. One block.
// Shared: int32 slots[T], positions[T] as the host gave them, places[all that fit].
extern "C" __global__ void reel_stage(const __grid_constant__ StageArgs a) {
	extern __shared__ int32_t stage_rows[];
	int32_t *slots = stage_rows, *positions = stage_rows + a.T;
	step_begin();
	const uint32_t step = *a.counter;
	const int32_t *d = a.ring + (size_t)(step % (uint32_t)a.ringSlots) * a.words;
	// All reads of the first kind go over the bus together, whatever is live.
	int rows = from_host(d), samples = from_host(d + 1), inits = from_host(d + 2), pages = from_host(d + 3);
	for (int i = threadIdx.x; i < a.N; i += blockDim.x) {
		int row = from_host(d + a.sampleAt + i);
		a.sample[i] = i < samples ? row : -1;
	}
	for (int t = threadIdx.x; t < a.T; t += blockDim.x) {
		const int32_t *r = d + HEAD_WORDS + t * ROW_WORDS;
		int slot = from_host(r), position = from_host(r + 1), token = from_host(r + 2);
		bool live = t < rows;
		slots[t] = live ? slot : a.count - 1;
		positions[t] = live ? position : 0;
		a.token[t] = live ? token : 0;
	}
	if (threadIdx.x < 2) a.number[threadIdx.x] = from_host(d + 4 + threadIdx.x);
	stage_inits(a, d, inits);
	stage_pages(a, d, pages, positions + a.T);
	__syncthreads(); // every thread has read the counter; lengths are set
	if (threadIdx.x == 0) *a.counter = step + 1;
	for (int t = threadIdx.x; t < a.T; t += blockDim.x) a.position[t] = stage_position(a, slots, positions, t);
	__syncthreads(); // lengths are read
	for (int t = threadIdx.x; t < a.T; t += blockDim.x) {
		int slot = slots[t], position = a.position[t], token = a.token[t];
		if (token == FROM_DEVICE) a.token[t] = token = a.last[slot];
		a.slot[t] = slot;
		a.history[(size_t)slot * a.context + position] = token;
		if (stage_ends(a, slots, t)) a.length[slot] = position + 1;
	}
}
