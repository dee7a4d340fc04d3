#include "step.cuh"

struct TurnArgs {
	float *q;                       // [T][heads][dim], changed in place
	const float *kv;                // [T][k, v][kvHeads][dim]
	const float *bias;              // [q, k, v][heads][dim], or null
	const float *norms;             // [q's, k's][dim], or null
	const float2 *rope;             // [context][dim/2] cos, sin
	const int32_t *slot, *position; // [T]
	const int32_t *table;           // [slots][pages]
	void *pool;                     // [page][layer][key, value][kvHeads][pageTokens][dim]
	int32_t T, heads, kvHeads, dim, pages;
	int32_t layer, layers, pageTokens, kvType;
	float eps;
};

constexpr int TURN_WARPS = 4, TURN_PAIRS = 2; // a lane has so many pairs: dim is at most 64*TURN_PAIRS

// Keeps an element of the pool; the numbers are those of DType in weight.go.
__device__ __forceinline__ void turn_store(const TurnArgs &a, int64_t at, float v) {
	if (a.kvType == 1)
		static_cast<uint16_t *>(a.pool)[at] = BF16::pack(v, 0);
	else if (a.kvType == 3)
		static_cast<uint16_t *>(a.pool)[at] = F16::pack(v, 0);
	else
		static_cast<float *>(a.pool)[at] = v;
}

// For each head of q, k and v: x += bias; of q and k also x = rope(rmsnorm(x)). q stays
// where it is, k and v go to the row's page. A warp is one head of one row; a lane has
// the pairs (e, e+dim/2) of e = lane, lane+32, … The order of its sum depends on dim alone.
extern "C" __global__ void __launch_bounds__(32 * TURN_WARPS) reel_turn(const __grid_constant__ TurnArgs a) {
	begin_product<true>(); // attention comes next
	const int all = a.heads + 2 * a.kvHeads, lane = threadIdx.x % 32, half = a.dim / 2;
	const int i = blockIdx.x * TURN_WARPS + threadIdx.x / 32, t = i / all, head = i % all;
	if (t >= a.T) return;
	const int kind = head < a.heads ? 0 : head < a.heads + a.kvHeads ? 1 : 2; // q, k, v
	float *q = a.q + ((size_t)t * a.heads + head) * a.dim;
	const float *x = kind ? a.kv + ((size_t)t * 2 * a.kvHeads + head - a.heads) * a.dim : q;
	float low[TURN_PAIRS], high[TURN_PAIRS];
#pragma unroll
	for (int n = 0; n < TURN_PAIRS; n++) {
		const int e = lane + 32 * n;
		low[n] = e < half ? __ldcg(x + e) : 0;
		high[n] = e < half ? __ldcg(x + half + e) : 0;
		if (a.bias && e < half) {
			low[n] = __fadd_rn(low[n], a.bias[head * a.dim + e]);
			high[n] = __fadd_rn(high[n], a.bias[head * a.dim + half + e]);
		}
	}
	const int position = a.position[t];
	if (kind < 2 && a.norms) {
		float squares = 0;
#pragma unroll
		for (int n = 0; n < TURN_PAIRS; n++) squares = __fmaf_rn(high[n], high[n], __fmaf_rn(low[n], low[n], squares));
#pragma unroll
		for (int apart = 16; apart > 0; apart /= 2) squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, apart));
		const float scale = __frsqrt_rn(__fadd_rn(__fdiv_rn(squares, a.dim), a.eps)), *g = a.norms + kind * a.dim;
#pragma unroll
		for (int n = 0; n < TURN_PAIRS; n++) {
			const int e = min(lane + 32 * n, half - 1);
			low[n] = __fmul_rn(__fmul_rn(low[n], scale), g[e]);
			high[n] = __fmul_rn(__fmul_rn(high[n], scale), g[half + e]);
		}
	}
	if (kind < 2) {
#pragma unroll
		for (int n = 0; n < TURN_PAIRS; n++) {
			const float2 by = a.rope[(size_t)position * half + min(lane + 32 * n, half - 1)];
			const float l = low[n], h = high[n];
			low[n] = __fsub_rn(__fmul_rn(l, by.x), __fmul_rn(h, by.y));
			high[n] = __fadd_rn(__fmul_rn(h, by.x), __fmul_rn(l, by.y));
		}
	}
	int64_t to = 0;
	if (kind) {
		const int64_t page = a.table[(size_t)a.slot[t] * a.pages + position / a.pageTokens];
		to = (((page * a.layers + a.layer) * 2 * a.kvHeads + head - a.heads) * a.pageTokens + position % a.pageTokens) * a.dim;
	}
#pragma unroll
	for (int n = 0; n < TURN_PAIRS; n++) {
		const int e = lane + 32 * n;
		if (e >= half) break;
		if (kind) {
			turn_store(a, to + e, low[n]);
			turn_store(a, to + half + e, high[n]);
		} else {
			q[e] = low[n];
			q[half + e] = high[n];
		}
	}
}
