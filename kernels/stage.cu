#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"

// Words of a step descriptor; step.go defines the layout.
constexpr int HEAD_WORDS = 8, ROW_WORDS = 3, PAGE_WORDS = 3, PARAM_WORDS = 14, INIT_WORDS = 1 + PARAM_WORDS;
constexpr int FROM_DEVICE = -1, FROM_DRAFT = -2, NO_SLOT = -1;

struct StageArgs {
	const int32_t *ring;              // [ringSlots][words], pinned
	uint32_t *counter;                // [1]
	int32_t *blockTable;              // [count][pages]
	int32_t *length;                  // [count]
	const int32_t *last;              // [count]: the last sampled token
	int32_t *history;                 // [count][context]
	int32_t *params;                  // [count][PARAM_WORDS]
	int32_t *slot, *position, *token; // out: [T]
	int32_t *sample;                  // out: [N]
	int32_t *number;                  // out: [2]
	int32_t ringSlots, words, sampleAt, initAt, pageAt;
	int32_t count, pages, context, T, N;
};

// Shared memory of the block.
struct StageShared {
	int32_t *head;        // [HEAD_WORDS] of the descriptor
	int32_t *rows;        // [T][ROW_WORDS] of the descriptor; later slot, position, token of each row
	int32_t *first, *end; // [count]: a slot's first and last row in this step
	int32_t *entries;     // [T + MaxMoves of step.go]: indices of block-table entries
};

// stage_inits prepares slots for new sequences. d is the descriptor.
__device__ static void stage_inits(const StageArgs &a, const int32_t *d, int inits) {
	for (int i = threadIdx.x; i < inits * INIT_WORDS; i += blockDim.x) {
		const int32_t *in = d + a.initAt + i / INIT_WORDS * INIT_WORDS;
		int word = i % INIT_WORDS, slot = load_from_host(in), value = load_from_host(in + word);
		if (word == 0)
			a.length[slot] = 0;
		else
			a.params[slot * PARAM_WORDS + word - 1] = value;
	}
}

// stage_pages sets block-table entries. The last of several for one entry wins.
__device__ static void stage_pages(const StageArgs &a, const int32_t *d, int pages, int32_t *entries) {
	for (int i = threadIdx.x; i < pages; i += blockDim.x) {
		const int32_t *p = d + a.pageAt + i * PAGE_WORDS;
		int slot = load_from_host(p), index = load_from_host(p + 1);
		entries[i] = slot * a.pages + index;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < pages; i += blockDim.x) {
		bool holds = true;
		for (int later = i + 1; later < pages; later++) holds = holds && entries[later] != entries[i];
		if (holds) a.blockTable[entries[i]] = load_from_host(d + a.pageAt + i * PAGE_WORDS + 2);
	}
}

// stage_position returns the position of row t: its own, or one more than that of the row before it
// in the same slot, or the slot's length.
__device__ static int stage_position(const StageArgs &a, const StageShared &s, int t) {
	const int slot = s.rows[t * ROW_WORDS];
	int after = 0;
	for (int before = t; before >= s.first[slot]; before--) {
		if (s.rows[before * ROW_WORDS] != slot) continue;
		int position = s.rows[before * ROW_WORDS + 1];
		if (position != FROM_DEVICE) return position + after;
		after++;
	}
	return a.length[slot] + after - 1;
}

// stage_read reads the fixed parts of a descriptor. All loads go over the bus at the same time,
// whether or not they are needed.
__device__ static void stage_read(const StageArgs &a, const StageShared &s, const int32_t *d) {
	const int t = threadIdx.x;
	int head = t < HEAD_WORDS ? load_from_host(d + t) : 0;
	int row = t < a.T * ROW_WORDS ? load_from_host(d + HEAD_WORDS + t) : 0;
	int sample = t < a.N ? load_from_host(d + a.sampleAt + t) : 0;
	for (int i = t + blockDim.x; i < a.T * ROW_WORDS; i += blockDim.x) s.rows[i] = load_from_host(d + HEAD_WORDS + i);
	for (int i = t; i < a.count; i += blockDim.x) s.first[i] = a.T, s.end[i] = -1;
	if (t < HEAD_WORDS) s.head[t] = head;
	if (t < a.T * ROW_WORDS) s.rows[t] = row;
	__syncthreads();
	for (int i = t; i < a.N; i += blockDim.x)
		a.sample[i] = i >= s.head[1] ? -1 : i == t ? sample : load_from_host(d + a.sampleAt + i);
	if (t < 2) a.number[t] = s.head[4 + t];
}

// Applies the step descriptor that counter points to, as Stage.Host does, with one block of
// threads.
extern "C" __global__ void reel_stage(const __grid_constant__ StageArgs a) {
	extern __shared__ int32_t stage_shared[];
	StageShared s;
	s.head = stage_shared, s.rows = s.head + HEAD_WORDS, s.first = s.rows + a.T * ROW_WORDS;
	s.end = s.first + a.count, s.entries = s.end + a.count;
	pdl_begin();
	const uint32_t step = *a.counter;
	const int32_t *d = a.ring + (size_t)(step % (uint32_t)a.ringSlots) * a.words;
	stage_read(a, s, d);
	if (threadIdx.x == 0) *a.counter = step + 1; // all threads have read it
	stage_inits(a, d, s.head[2]);
	if (s.head[3] > 0) stage_pages(a, d, s.head[3], s.entries);
	for (int t = threadIdx.x; t < a.T; t += blockDim.x) {
		int32_t *row = s.rows + t * ROW_WORDS;
		if (t >= s.head[0] || row[0] == NO_SLOT) row[0] = a.count - 1, row[1] = row[2] = 0;
		atomicMin(s.first + row[0], t);
		atomicMax(s.end + row[0], t);
	}
	__syncthreads(); // all rows and lengths are set
	for (int t = threadIdx.x; t < a.T; t += blockDim.x) a.position[t] = stage_position(a, s, t);
	__syncthreads(); // all lengths were read
	for (int t = threadIdx.x; t < a.T; t += blockDim.x) {
		int slot = s.rows[t * ROW_WORDS], token = s.rows[t * ROW_WORDS + 2], position = a.position[t];
		if (token == FROM_DEVICE) token = a.last[slot];
		if (token == FROM_DRAFT) token = 0; // a drafter writes it
		a.slot[t] = slot, a.token[t] = token;
		a.history[(size_t)slot * a.context + position] = token;
		if (s.end[slot] == t) a.length[slot] = position + 1;
	}
}
