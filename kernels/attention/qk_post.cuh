// QK post-processing for model families with biases or head norms: the steps between the QKV
// product and attention. A kernel of its own does them (qkpost.cu), or attention does
// (deferred_rope.cuh), with the same bits.
#pragma once
#include <cstdint>

struct QKPostArgs {
	float *q;                       // [T][heads][dim]
	const float *kv;                // [T][k, v][kvHeads][dim]
	const float *bias;              // [q, k, v][heads][dim], or null
	const float *norms;             // [q, k, with valueNorms v][dim], or null
	const float2 *rope;             // [context][dim/2] cos, sin
	const int32_t *slot, *position; // [T]
	const int32_t *table;           // [slots][pages]
	void *pool;                     // [page][layer][key, value][kvHeads][pageTokens][dim]
	int32_t T, heads, kvHeads, dim, pages;
	int32_t layer, layers, pageTokens, kvType;
	float eps;
	int32_t valueNorms;
};

// QKPost is one lane's part of a head: the pairs (e, e+dim/2) for e = lane, lane+32, …, with the
// constants for them. kind is 0 for q, 1 for k, 2 for v; head counts through the heads of all
// three. DIM is a.dim, or 0 if the compiler does not know it, and MOST at least as large.
template <int DIM, int MOST> struct QKPost {
	static constexpr int PAIRS = MOST > 256 ? 8 : MOST > 128 ? 4 : 2; // of a lane

	float bias[2][PAIRS], norm[2][PAIRS]; // [0] of the first elements of the pairs, [1] of the second
	float2 rope[PAIRS];
	float low[PAIRS], high[PAIRS];

	static __device__ __forceinline__ int size(const QKPostArgs &a) { return DIM ? DIM : a.dim; }
	static __device__ __forceinline__ bool norms(const QKPostArgs &a, int kind) {
		return (kind < 2 || a.valueNorms) && a.norms;
	}

	__device__ __forceinline__ void look_up(const QKPostArgs &a, int kind, int head, int position, int lane) {
		const int dim = size(a), half = dim / 2;
#pragma unroll
		for (int n = 0; n < PAIRS; n++) {
			const int e = min(lane + 32 * n, half - 1);
			if (kind < 2) rope[n] = a.rope[(size_t)position * half + e];
#pragma unroll
			for (int k = 0; k < 2; k++) {
				if (a.bias) bias[k][n] = a.bias[head * dim + k * half + e];
				if (norms(a, kind)) norm[k][n] = a.norms[kind * dim + k * half + e];
			}
		}
	}
	// mean divides by the head size. For a power of two a product has the same bits.
	static __device__ __forceinline__ float mean(const QKPostArgs &a, float sum) {
		return DIM && (DIM & DIM - 1) == 0 ? __fmul_rn(sum, 1.f / max(DIM, 1)) : __fdiv_rn(sum, size(a));
	}
	__device__ __forceinline__ void load(const QKPostArgs &a, const float *x, int lane) {
		const int half = size(a) / 2;
#pragma unroll
		for (int n = 0; n < PAIRS; n++) {
			const int e = lane + 32 * n;
			low[n] = e < half ? __ldcg(x + e) : 0;
			high[n] = e < half ? __ldcg(x + half + e) : 0;
		}
	}
	// apply: x += bias; for q and k then x = rope(rmsnorm(x)), for v with valueNorms x = rmsnorm(x). A warp has one
	// head. The order of its sum depends on dim alone.
	__device__ __forceinline__ void apply(const QKPostArgs &a, int kind, int lane) {
#pragma unroll
		for (int n = 0; n < PAIRS; n++) {
			if (!a.bias || lane + 32 * n >= size(a) / 2) continue;
			low[n] = __fadd_rn(low[n], bias[0][n]);
			high[n] = __fadd_rn(high[n], bias[1][n]);
		}
		if (norms(a, kind)) {
			float squares = 0;
#pragma unroll
			for (int n = 0; n < PAIRS; n++)
				squares = __fmaf_rn(high[n], high[n], __fmaf_rn(low[n], low[n], squares));
#pragma unroll
			for (int apart = 16; apart > 0; apart /= 2)
				squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, apart));
			const float scale = __frsqrt_rn(__fadd_rn(mean(a, squares), a.eps));
#pragma unroll
			for (int n = 0; n < PAIRS; n++) {
				low[n] = __fmul_rn(__fmul_rn(low[n], scale), norm[0][n]);
				high[n] = __fmul_rn(__fmul_rn(high[n], scale), norm[1][n]);
			}
		}
		if (kind < 2) {
#pragma unroll
			for (int n = 0; n < PAIRS; n++) {
				const float l = low[n], h = high[n];
				low[n] = __fsub_rn(__fmul_rn(l, rope[n].x), __fmul_rn(h, rope[n].y));
				high[n] = __fadd_rn(__fmul_rn(h, rope[n].x), __fmul_rn(l, rope[n].y));
			}
		}
	}
};
