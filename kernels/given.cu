#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"

struct GivenArgs {
	const int32_t *slot, *position; // [T]
	const int32_t *tokens;          // [slots][context], pinned
	int32_t *token;                 // out: [T]
	int32_t *history;               // out: [slots][context]
	const int32_t *masked;          // a word of each slot, `stride` words apart: its drafts are those of the host
	int32_t T, queries, context, trash, stride, unused;
};

// Takes the drafts of a pass as Given.Host does. A thread is one row.
extern "C" __global__ void reel_given(const __grid_constant__ GivenArgs a) {
	const int t = blockIdx.x * blockDim.x + threadIdx.x;
	pdl_begin();
	if (t >= a.T || t % a.queries == 0) return;
	const int slot = a.slot[t];
	if (slot == a.trash || a.masked[slot * a.stride]) return;
	const size_t at = (size_t)slot * a.context + a.position[t];
	a.token[t] = a.history[at] = load_from_host(a.tokens + at);
}
