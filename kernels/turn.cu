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
	int32_t early; // whether slots, positions and the table are there before the product has ended
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

// What a lane looks up for its elements of a head: nothing of it comes from the product.
struct Turning {
	float bias[2][TURN_PAIRS], norm[2][TURN_PAIRS]; // of the first elements of its pairs, and of the second
	float2 by[TURN_PAIRS];
	int64_t page;
	int position;

	__device__ __forceinline__ void look_up(const TurnArgs &a, int kind, int head, int t, int lane) {
		const int half = a.dim / 2;
		position = a.position[t];
		page = kind ? a.table[(size_t)a.slot[t] * a.pages + position / a.pageTokens] : 0;
#pragma unroll
		for (int n = 0; n < TURN_PAIRS; n++) {
			const int e = min(lane + 32 * n, half - 1);
			if (kind < 2) by[n] = a.rope[(size_t)position * half + e];
#pragma unroll
			for (int k = 0; k < 2; k++) {
				if (a.bias) bias[k][n] = a.bias[head * a.dim + k * half + e];
				if (kind < 2 && a.norms) norm[k][n] = a.norms[kind * a.dim + k * half + e];
			}
		}
	}
};

// For each head of q, k and v: x += bias; of q and k also x = rope(rmsnorm(x)). q stays
// where it is, k and v go to the row's page. A warp is one head of one row; a lane has
// the pairs (e, e+dim/2) of e = lane, lane+32, … The order of its sum depends on dim alone.
extern "C" __global__ void __launch_bounds__(32 * TURN_WARPS) reel_turn(const __grid_constant__ TurnArgs a) {
	const int all = a.heads + 2 * a.kvHeads, lane = threadIdx.x % 32, half = a.dim / 2;
	const int i = blockIdx.x * TURN_WARPS + threadIdx.x / 32, t = i / all, head = i % all;
	const int kind = head < a.heads ? 0 : head < a.heads + a.kvHeads ? 1 : 2; // q, k, v
	Turning turning;
	if (a.early && t < a.T) turning.look_up(a, kind, head, t, lane);
	begin_product<true>(); // attention comes next
	if (t >= a.T) return;
	float *q = a.q + ((size_t)t * a.heads + head) * a.dim;
	const float *x = kind ? a.kv + ((size_t)t * 2 * a.kvHeads + head - a.heads) * a.dim : q;
	float low[TURN_PAIRS], high[TURN_PAIRS];
#pragma unroll
	for (int n = 0; n < TURN_PAIRS; n++) {
		const int e = lane + 32 * n;
		low[n] = e < half ? __ldcg(x + e) : 0;
		high[n] = e < half ? __ldcg(x + half + e) : 0;
	}
	if (!a.early) turning.look_up(a, kind, head, t, lane);
#pragma unroll
	for (int n = 0; n < TURN_PAIRS; n++) {
		if (!a.bias || lane + 32 * n >= half) continue;
		low[n] = __fadd_rn(low[n], turning.bias[0][n]);
		high[n] = __fadd_rn(high[n], turning.bias[1][n]);
	}
	if (kind < 2 && a.norms) {
		float squares = 0;
#pragma unroll
		for (int n = 0; n < TURN_PAIRS; n++) squares = __fmaf_rn(high[n], high[n], __fmaf_rn(low[n], low[n], squares));
#pragma unroll
		for (int apart = 16; apart > 0; apart /= 2) squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, apart));
		const float scale = __frsqrt_rn(__fadd_rn(__fdiv_rn(squares, a.dim), a.eps));
#pragma unroll
		for (int n = 0; n < TURN_PAIRS; n++) {
			low[n] = __fmul_rn(__fmul_rn(low[n], scale), turning.norm[0][n]);
			high[n] = __fmul_rn(__fmul_rn(high[n], scale), turning.norm[1][n]);
		}
	}
	if (kind < 2) {
#pragma unroll
		for (int n = 0; n < TURN_PAIRS; n++) {
			const float2 by = turning.by[n];
			const float l = low[n], h = high[n];
			low[n] = __fsub_rn(__fmul_rn(l, by.x), __fmul_rn(h, by.y));
			high[n] = __fadd_rn(__fmul_rn(h, by.x), __fmul_rn(l, by.y));
		}
	}
	const int64_t to = (((turning.page * a.layers + a.layer) * 2 * a.kvHeads + head - a.heads) * a.pageTokens + turning.position % a.pageTokens) * a.dim;
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
