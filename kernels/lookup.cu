#include "ptx/pdl.cuh"

struct LookupArgs {
	const int32_t *slot, *position; // [T]
	int32_t *token;                 // out: [T]
	int32_t *history;               // [slots][context]; out: the drafts
	const int32_t *masked;          // a word of each slot, `stride` words apart: its drafts are those of the host
	int32_t queries, context, trash, stride;
};

// A block is one group. A thread has LOOKUP_LOADS tokens in flight.
constexpr int LOOKUP_THREADS = 1024, LOOKUP_WARPS = LOOKUP_THREADS / 32, LOOKUP_LOADS = 16;
constexpr int LOOKUP_MATCH = 16; // LookupMatch of lookup.go
// A match is its length and its end in one number: the largest is the longest, and the last among equals.
constexpr int LOOKUP_END_BITS = 27; // lookupContext of lookup_cuda.go
constexpr uint32_t LOOKUP_END = (1u << LOOKUP_END_BITS) - 1;

// lookup_match returns the longer of a match and the one that ends at e, where the token is the last one. tail has the
// last tokens, the newest first. A match is seldom longer than the longest so far, which one comparison shows.
__device__ __forceinline__ uint32_t lookup_match(const int32_t *history, const int32_t *tail, int e, uint32_t best) {
	const int most = best >> LOOKUP_END_BITS, longest = min(LOOKUP_MATCH, e + 1);
	if (most >= longest || history[e - most] != tail[most]) return best;
	int m = 1;
	while (m < longest && history[e - m] == tail[m]) m++;
	return m > most ? (uint32_t)m << LOOKUP_END_BITS | e : best;
}

// lookup_scan returns the thread's longest match. A thread goes from the end to the beginning, so among equals its first
// match is the last one.
__device__ __forceinline__ uint32_t lookup_scan(const int32_t *history, const int32_t *tail, int p) {
	uint32_t best = 0;
	const int32_t newest = tail[0];
	for (int from = p - 1 - (int)threadIdx.x; from >= 0; from -= LOOKUP_LOADS * LOOKUP_THREADS) {
		int32_t token[LOOKUP_LOADS];
#pragma unroll
		for (int i = 0; i < LOOKUP_LOADS; i++) token[i] = history[max(from - i * LOOKUP_THREADS, 0)];
#pragma unroll
		for (int i = 0; i < LOOKUP_LOADS; i++) {
			const int e = from - i * LOOKUP_THREADS;
			if (e >= 0 && token[i] == newest) best = lookup_match(history, tail, e, best);
		}
	}
	return best;
}

// Guesses the drafts of group blockIdx.x as Lookup.Host does.
extern "C" __global__ void __launch_bounds__(LOOKUP_THREADS) reel_lookup(const __grid_constant__ LookupArgs a) {
	__shared__ int32_t tail[LOOKUP_MATCH];
	__shared__ uint32_t best[LOOKUP_WARPS];
	const int first = blockIdx.x * a.queries, i = threadIdx.x;
	pdl_begin();
	const int slot = a.slot[first], p = a.position[first];
	if (slot == a.trash || a.masked[slot * a.stride]) return;
	int32_t *const history = a.history + (size_t)slot * a.context;
	if (i < LOOKUP_MATCH) tail[i] = history[max(p - i, 0)];
	__syncthreads();
	const uint32_t mine = __reduce_max_sync(~0u, lookup_scan(history, tail, p));
	if (i % 32 == 0) best[i / 32] = mine;
	__syncthreads();
	if (i >= 32) return;
	const uint32_t match = __reduce_max_sync(~0u, best[i]);
	const int end = match ? match & LOOKUP_END : p - 1; // without a match the last token follows itself
	for (int j = 1 + i; j < a.queries; j += 32) {
		const int t = first + j;
		if (a.slot[t] != slot) return;
		// Behind the last token the drafts follow, so the text from end+1 to p repeats.
		const int32_t draft = history[end + 1 + (j - 1) % (p - end)];
		a.token[t] = history[a.position[t]] = draft;
	}
}
