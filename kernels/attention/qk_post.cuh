// What stands between the products q, k and v of a layer and attention over them, where a
// family has biases or head norms: by a kernel of its own (turn.cu), or by attention
// (attend_turned.cuh), element for element alike.
#pragma once
#include <cstdint>

struct QKPostArgs {
	float *q;                       // [T][heads][dim]
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

constexpr int QK_PAIRS = 2; // a lane has so many pairs: dim is at most 64*QK_PAIRS

// A lane's part of a head: the pairs (e, e+dim/2) of e = lane, lane+32, …, and what is
// looked up for them, of which nothing comes from the product. kind is 0 of q, 1 of k, 2 of
// v, and head counts those of all three. DIM is a.dim, or 0 where the compiler does not know it.
template <int DIM> struct QKPost {
	float bias[2][QK_PAIRS], norm[2][QK_PAIRS]; // of the first elements of its pairs, and of the second
	float2 rope[QK_PAIRS];
	float low[QK_PAIRS], high[QK_PAIRS];

	static __device__ __forceinline__ int size(const QKPostArgs &a) { return DIM ? DIM : a.dim; }

	__device__ __forceinline__ void look_up(const QKPostArgs &a, int kind, int head, int position, int lane) {
		const int dim = size(a), half = dim / 2;
#pragma unroll
		for (int n = 0; n < QK_PAIRS; n++) {
			const int e = min(lane + 32 * n, half - 1);
			if (kind < 2) rope[n] = a.rope[(size_t)position * half + e];
#pragma unroll
			for (int k = 0; k < 2; k++) {
				if (a.bias) bias[k][n] = a.bias[head * dim + k * half + e];
				if (kind < 2 && a.norms) norm[k][n] = a.norms[kind * dim + k * half + e];
			}
		}
	}
	// The quotient's bits: of a power of two a product has them too.
	static __device__ __forceinline__ float mean(const QKPostArgs &a, float sum) {
		return DIM && (DIM & DIM - 1) == 0 ? __fmul_rn(sum, 1.f / max(DIM, 1)) : __fdiv_rn(sum, size(a));
	}
	__device__ __forceinline__ void load(const QKPostArgs &a, const float *x, int lane) {
		const int half = size(a) / 2;
#pragma unroll
		for (int n = 0; n < QK_PAIRS; n++) {
			const int e = lane + 32 * n;
			low[n] = e < half ? __ldcg(x + e) : 0;
			high[n] = e < half ? __ldcg(x + half + e) : 0;
		}
	}
	// x += bias; of q and k also x = rope(rmsnorm(x)). A warp has one head; the order of
	// its sum depends on dim alone.
	__device__ __forceinline__ void apply(const QKPostArgs &a, int kind, int lane) {
#pragma unroll
		for (int n = 0; n < QK_PAIRS; n++) {
			if (!a.bias || lane + 32 * n >= size(a) / 2) continue;
			low[n] = __fadd_rn(low[n], bias[0][n]);
			high[n] = __fadd_rn(high[n], bias[1][n]);
		}
		if (kind < 2 && a.norms) {
			float squares = 0;
#pragma unroll
			for (int n = 0; n < QK_PAIRS; n++) squares = __fmaf_rn(high[n], high[n], __fmaf_rn(low[n], low[n], squares));
#pragma unroll
			for (int apart = 16; apart > 0; apart /= 2) squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, apart));
			const float scale = __frsqrt_rn(__fadd_rn(mean(a, squares), a.eps));
#pragma unroll
			for (int n = 0; n < QK_PAIRS; n++) {
				low[n] = __fmul_rn(__fmul_rn(low[n], scale), norm[0][n]);
				high[n] = __fmul_rn(__fmul_rn(high[n], scale), norm[1][n]);
			}
		}
		if (kind < 2) {
#pragma unroll
			for (int n = 0; n < QK_PAIRS; n++) {
				const float l = low[n], h = high[n];
				low[n] = __fsub_rn(__fmul_rn(l, rope[n].x), __fmul_rn(h, rope[n].y));
				high[n] = __fadd_rn(__fmul_rn(h, rope[n].x), __fmul_rn(l, rope[n].y));
			}
		}
	}
};
