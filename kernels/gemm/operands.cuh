// Operands of all product kernels: packed weights, activations, and the order in which sums are
// added.
//
// A packed weight is [ceil(rows/16)][cols/16][32 lanes][8 elements]. Each 512 bytes are one A
// operand of mma.m16n8k16 and each lane's 16 bytes are its registers: lane l holds rows l/4 and
// l/4+8 of the row tile, and in both the four columns from 4*(l%4) on, as {row, cols 0 1}, {row+8,
// cols 0 1}, {row, cols 2 3}, {row+8, cols 2 3}. Activations use the same order of columns, so that
// a lane's four are 16 contiguous bytes.
#pragma once
#include "ptx/mma.cuh"
#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"

// pdl_wait_rows is pdl_wait in the kernels of few rows. A test removes it (-DREEL_NO_WAIT) and must
// detect the missing wait. Sums are then wrong, but addresses and the counters at which blocks meet
// stay valid: a list of rows also follows this wait, but holds valid rows at any time.
__device__ __forceinline__ void pdl_wait_rows() {
#ifndef REEL_NO_WAIT
	pdl_wait();
#else
	inject_delay();
#endif
}

// begin_product lets the next kernel start and waits for the earlier ones. If attention comes next
// it waits first, so that all that earlier kernels wrote is visible when attention starts. FEW: the
// kernel is one of few rows.
template <bool ATTENTION_NEXT, bool FEW = false> __device__ __forceinline__ void begin_product() {
	if (ATTENTION_NEXT) {
		pdl_wait();
		pdl_launch_dependents();
		return;
	}
	pdl_launch_dependents();
	if (FEW)
		pdl_wait_rows();
	else
		pdl_wait();
}
// begin_op is that of an op's kernel of few rows; gemm/tagged.cuh has another. first: it is the first one of the op's
// kernels.
template <class Op> __device__ __forceinline__ void begin_op(Op &, bool /*first*/ = true) {
	begin_product<Op::ATTENTION_NEXT, true>();
}

// The order of a sum over the columns of a weight of 16 bits, for any number of rows. stream_k.cuh,
// which whole.cuh follows, and grouped.cuh state orders of their own, and codes_multiply.cuh that of
// quantised weights. 16 columns are a step and 4 steps a K block. K block b belongs to partial sum
// b % 16, which adds its steps in ascending order. Then sum = ((g0 + g1) + g2) + g3 with
// gq = ((p[4q] + p[4q+1]) + p[4q+2]) + p[4q+3].
constexpr int MMA_K = 16;                    // columns of one mma step
constexpr int BLOCK_STEPS = 4;               // mma steps of a K block
constexpr int K_BLOCK = BLOCK_STEPS * MMA_K; // columns of a K block
constexpr int PARTIALS = 16;
constexpr int GROUPS = 4; // groups of partial sums
constexpr int PER_GROUP = PARTIALS / GROUPS;

// Floats between tokens of a row tile in shared memory: 16 rows, and 4 against bank conflicts.
constexpr int TOKEN_PITCH = 20;

// sum_in_order adds p[0], p[stride], …, one for each partial sum.
__device__ __forceinline__ float sum_in_order(const float *p, int stride) {
	float sum = 0;
#pragma unroll
	for (int q = 0; q < GROUPS; q++) {
		float group = p[q * PER_GROUP * stride];
#pragma unroll
		for (int i = 1; i < PER_GROUP; i++) group = __fadd_rn(group, p[(q * PER_GROUP + i) * stride]);
		sum = q ? __fadd_rn(sum, group) : group;
	}
	return sum;
}

// RowTile is a tile of 16 rows of a packed weight.
struct RowTile {
	const void *weight;
	int index; // of the tile
};

// Activations are the input rows of a product: element k of row t is x[rows ? rows[t] : t][k],
// times norm[k] if there is a norm.
struct Activations {
	const float *x;      // [T][cols]
	const float *norm;   // [cols], or null: rows are read as they are
	const int32_t *rows; // [n], or null; -1: no row
	int32_t cols, n;
	float eps;
	int32_t unused;

	// row returns the row of x that t stands for, or -1.
	__device__ __forceinline__ int row(int t) const { return t >= n ? -1 : rows ? rows[t] : t; }
};

// fragments returns row tile r of a unit in the layout above.
template <class Op> __device__ __forceinline__ const uint4 *fragments(const Op &op, int unit, int r) {
	const RowTile t = op.row_tile(unit, r);
	return static_cast<const uint4 *>(t.weight) + (size_t)t.index * (op.activations().cols / MMA_K) * 32;
}

// rms_scale returns 1/sqrt(mean(x²)+eps) of a row whose squares sum to `squares`, and 1 if eps is negative. It multiplies the
// finished dot product; norm weights multiply x before rounding: y = scale * Σ W[r][k]
// round(x[k]*norm[k]).
__device__ __forceinline__ float rms_scale(const Activations &in, float squares) {
	if (in.eps < 0) return 1; // NoNorm in weight.go
	return __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, (float)in.cols), in.eps)));
}

// add_squares adds a lane's four squares in order.
__device__ __forceinline__ float add_squares(float sum, const float4 &v) {
	return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum))));
}

// fold_squares adds the squares of a partial sum over 16 lanes, each of which holds four columns of
// a K block: first over the steps of the block, then over the columns of a step.
__device__ __forceinline__ float fold_squares(float s) {
	s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 4));
	s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 8));
	s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
	return __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
}

// pack4 rounds a lane's four activations to the two registers of the B operand.
template <class D> __device__ __forceinline__ uint2 pack4(const float4 &v) {
	return {D::pack(v.x, v.y), D::pack(v.z, v.w)};
}

__device__ __forceinline__ float4 add(const float4 &x, const float4 &y) {
	return {__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y), __fadd_rn(x.z, y.z), __fadd_rn(x.w, y.w)};
}
__device__ __forceinline__ float4 times(const float4 &v, const float4 &g) {
	return {__fmul_rn(v.x, g.x), __fmul_rn(v.y, g.y), __fmul_rn(v.z, g.z), __fmul_rn(v.w, g.w)};
}
