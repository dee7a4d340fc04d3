// Decode attention (attend.cu) of 2 to 8 rows before an output projection over quantised weights, on Hopper: it hands
// its results over as products do (gemm/codes_handover.cuh).
#pragma once
#include "attention/splits.cuh"
#include "gemm/codes_handover.cuh"

// AttendHandingArgs are those of rows that are handed over, columns [heads][dim], without a norm.
template <class Args> struct AttendHandingArgs {
	Args of;
	CodesHandover to;
};

// AttendHand hands results over instead of storing them. Heads are multiples of 16 elements, so lanes of one warp that
// store 16 columns of a row store them together.
struct AttendHand {
	const CodesHandover &to;

	__device__ __forceinline__ void begin() {}
	// row returns the row of query head `index` among those of all rows, and column its first column.
	static __device__ __forceinline__ uint32_t row(const AttendArgs &a, size_t index) {
		return (uint32_t)index / a.heads;
	}
	static __device__ __forceinline__ int column(const AttendArgs &a, size_t index) {
		return ((uint32_t)index - row(a, index) * a.heads) * a.dim;
	}
	__device__ __forceinline__ void store(const AttendArgs &a, size_t index, int element, float v) const {
		HandingOver(to).put(column(a, index) + element, row(a, index), v);
	}
	// store_pair stores elements `element` and element+1. Eight lanes have 16 columns.
	__device__ __forceinline__ void store_pair(
		const AttendArgs &a, size_t index, int element, float v, float next) const {
		const uint32_t lanes = 0xffu << (threadIdx.x & 24);
		const int k = column(a, index) + element, token = row(a, index);
		const uint32_t pair = BF16::pack(__fmul_rn(v, ACTIVATIONS), __fmul_rn(next, ACTIVATIONS));
		const uint32_t other = __shfl_xor_sync(lanes, pair, 1); // both lanes of four columns get both registers
		const uint2 four = k & 2 ? uint2{other, pair} : uint2{pair, other};
		const float sum = RowRounder::sum_of_16(four, 2, lanes);
		if (k % 4 == 0) *reinterpret_cast<uint2 *>(HandingOver(to).place(k, token)) = four;
		if (k % 16 == 0) to.sums[k / 16 * TOKEN_TILE + token] = sum;
	}
};
template <> constexpr int TOGETHER<AttendHand> = 16;
