#include "ptx/pdl.cuh"

// Words of a record, and the word with the count; sample.go defines the layout.
constexpr int RECORD_WORDS = 8 + 2 * 20, RECORD_COUNT = 4;

struct AcceptArgs {
	const int32_t *slot, *position, *token; // [T]
	const int32_t *sample, *drawn;          // [T]
	const int32_t *number;                  // [2]: the step number
	int32_t *last;                          // out: [slots], the last sampled token
	int32_t *length;                        // out: [slots]
	int32_t *results;                       // out: [ringSlots][maxSamples][RECORD_WORDS], pinned
	int32_t T, queries, ringSlots, maxSamples;
};

// accept_count returns how many rows of the group from row first on have results. Each lane compares a row's draft.
// Padding rows are sampled too, and have another slot.
__device__ __forceinline__ int accept_count(const AcceptArgs &a, int first, int slot) {
	for (int count = 1;; count += 32) {
		const int i = count + threadIdx.x, t = first + i;
		const bool stands = i < a.queries && a.slot[t] == slot && a.token[t] == a.drawn[t - 1];
		const unsigned fall = ~__ballot_sync(~0u, stands);
		if (fall) return count + __ffs(fall) - 1;
	}
}

// Accepts the drafts of group blockIdx.x as Accept.Host does. A block is one warp. Sample has published the records;
// the host reads them when the step has ended.
extern "C" __global__ void __launch_bounds__(32) reel_accept(const __grid_constant__ AcceptArgs a) {
	const int first = blockIdx.x * a.queries;
	pdl_begin();
	if (a.sample[first] < 0) return;
	const int slot = a.slot[first], count = accept_count(a, first, slot);
	if (threadIdx.x > 0) return;
	const size_t record = (size_t)((uint32_t)a.number[0] % (uint32_t)a.ringSlots) * a.maxSamples + first;
	a.results[record * RECORD_WORDS + RECORD_COUNT] = count;
	a.last[slot] = a.drawn[first + count - 1];
	a.length[slot] = a.position[first] + count;
}
