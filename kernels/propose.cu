#include "ptx/math.cuh"
#include "ptx/pdl.cuh"

// A block is one group. A thread has PROPOSE_LOADS logits in flight.
constexpr int PROPOSE_THREADS = 1024, PROPOSE_WARPS = PROPOSE_THREADS / 32, PROPOSE_LOADS = 16;

struct ProposeArgs {
	const float *logits;            // [groups][cols]
	const int32_t *tokens;          // [cols], or null
	const int32_t *slot, *position; // [T]
	int32_t *token;                 // out: [T]
	int32_t *history;               // out: [slots][context]
	int32_t queries, draft, cols, vocab, context, trash;
};

// ProposeBest is a largest logit with the lowest token that has it. A logit that is no number is no best.
struct ProposeBest {
	float most;
	int token;

	__device__ __forceinline__ void take(float logit, int id) {
		if (logit > most || logit == most && id < token) most = logit, token = id;
	}
	// take_warp takes the bests of the other lanes.
	__device__ __forceinline__ void take_warp() {
#pragma unroll
		for (int apart = 16; apart > 0; apart /= 2) {
			const float logit = __shfl_xor_sync(~0u, most, apart);
			take(logit, __shfl_xor_sync(~0u, token, apart));
		}
	}
};

// Takes the draft of group blockIdx.x as Propose.Host does.
extern "C" __global__ void __launch_bounds__(PROPOSE_THREADS) reel_propose(const __grid_constant__ ProposeArgs a) {
	__shared__ float most[PROPOSE_WARPS];
	__shared__ int token[PROPOSE_WARPS];
	const int row = blockIdx.x * a.queries + a.draft, thread = threadIdx.x;
	pdl_begin();
	const int slot = a.slot[row];
	if (slot == a.trash) return;
	const float *logits = a.logits + (size_t)blockIdx.x * a.cols;
	ProposeBest best = {-INFINITY, 0};
	for (int from = thread; from < a.vocab; from += PROPOSE_LOADS * PROPOSE_THREADS) {
		float l[PROPOSE_LOADS];
#pragma unroll
		for (int i = 0; i < PROPOSE_LOADS; i++) l[i] = __ldcg(logits + min(from + i * PROPOSE_THREADS, a.vocab - 1));
#pragma unroll
		for (int i = 0; i < PROPOSE_LOADS; i++) // ids rise: the first of equals stays
			if (l[i] > best.most) best = {l[i], min(from + i * PROPOSE_THREADS, a.vocab - 1)};
	}
	best.take_warp();
	if (thread % 32 == 0) most[thread / 32] = best.most, token[thread / 32] = best.token;
	__syncthreads();
	if (thread >= 32) return;
	best = {most[thread], token[thread]};
	best.take_warp();
	if (thread > 0) return;
	if (a.tokens) best.token = a.tokens[best.token];
	a.token[row] = a.history[(size_t)slot * a.context + a.position[row]] = best.token;
}
