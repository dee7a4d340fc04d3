#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"

struct GivenArgs {
	const int32_t *slot, *position; // [T]
	const int32_t *tokens;          // [slots][context], pinned
	int32_t *token;                 // out: [T]
	int32_t *history;               // out: [slots][context]
	int32_t T, queries, context, trash;
};

// Takes the drafts of a pass as Given.Host does. A thread is one row.
extern "C" __global__ void reel_given(const __grid_constant__ GivenArgs a) {
	const int t = blockIdx.x * blockDim.x + threadIdx.x;
	pdl_begin();
	if (t >= a.T || t % a.queries == 0 || a.slot[t] == a.trash) return;
	const size_t at = (size_t)a.slot[t] * a.context + a.position[t];
	a.token[t] = a.history[at] = load_from_host(a.tokens + at);
}
