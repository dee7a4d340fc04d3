#include "step.cuh"

struct TurnArgs {
	float *q;                       // [T][heads][dim], turned in place
	const float *k;                 // [T][kvHeads][dim]
	const float *norms;             // [q's, k's][dim]
	const float2 *rope;             // [context][dim/2] cos, sin
	const int32_t *slot, *position; // [T]
	const int32_t *table;           // [slots][pages]
	void *pool;                     // [page][layer][key, value][kvHeads][pageTokens][dim]
	int32_t T, heads, kvHeads, dim, pages;
	int32_t layer, layers, pageTokens, kvType;
	float eps;
};

constexpr int TURN_WARPS = 4, TURN_PAIRS = 4; // a lane has so many pairs: dim is at most 64*TURN_PAIRS

// Keeps an element of the pool.
__device__ __forceinline__ void turn_store(const TurnArgs &a, int64_t at, float v) {
	if (a.kvType == 1) // BF16 of DType
		static_cast<uint16_t *>(a.pool)[at] = BF16::pack(v, 0);
	else if (a.kvType == 3) // F16
		static_cast<uint16_t *>(a.pool)[at] = F16::pack(v, 0);
	else
		static_cast<float *>(a.pool)[at] = v;
}

// x = rope(rmsnorm(x)) for a head of q, in place, or of k, to its page. A warp is one
// head of one row; the order of its sum depends on dim alone.
extern "C" __global__ void __launch_bounds__(32 * TURN_WARPS) reel_turn(const __grid_constant__ TurnArgs a) {
	step_begin();
	const int heads = a.heads + a.kvHeads, lane = threadIdx.x % 32, half = a.dim / 2;
	const int i = blockIdx.x * TURN_WARPS + threadIdx.x / 32, t = i / heads, head = i % heads, key = head >= a.heads;
	if (t >= a.T) return;
	float *q = a.q + ((size_t)t * a.heads + head) * a.dim;
	const float *x = key ? a.k + ((size_t)t * a.kvHeads + head - a.heads) * a.dim : q;
	float low[TURN_PAIRS], high[TURN_PAIRS], squares = 0;
#pragma unroll
	for (int n = 0; n < TURN_PAIRS; n++) {
		const int e = lane + 32 * n;
		low[n] = e < half ? __ldcg(x + e) : 0;
		high[n] = e < half ? __ldcg(x + half + e) : 0;
		squares = __fmaf_rn(low[n], low[n], squares);
		squares = __fmaf_rn(high[n], high[n], squares);
	}
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2) squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, apart));
	const float scale = __frsqrt_rn(squares / a.dim + a.eps);
	const int position = a.position[t];
	const float *g = a.norms + key * a.dim;
	const float2 *turn = a.rope + (size_t)position * half;
	int64_t to = 0;
	if (key) {
		const int64_t page = a.table[(size_t)a.slot[t] * a.pages + position / a.pageTokens];
		to = (((page * a.layers + a.layer) * 2 * a.kvHeads + head - a.heads) * a.pageTokens + position % a.pageTokens) * a.dim;
	}
#pragma unroll
	for (int n = 0; n < TURN_PAIRS; n++) {
		const int e = lane + 32 * n;
		if (e >= half) break;
		const float2 by = turn[e];
		const float l = __fmul_rn(__fmul_rn(low[n], scale), g[e]), h = __fmul_rn(__fmul_rn(high[n], scale), g[half + e]);
		const float first = __fsub_rn(__fmul_rn(l, by.x), __fmul_rn(h, by.y)), second = __fadd_rn(__fmul_rn(h, by.x), __fmul_rn(l, by.y));
		if (key) {
			turn_store(a, to + e, first);
			turn_store(a, to + half + e, second);
		} else {
			q[e] = first;
			q[half + e] = second;
		}
	}
}
