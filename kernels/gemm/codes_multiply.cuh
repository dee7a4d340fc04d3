// The products of a warp's bricks, from registers, and the order of their sums.
//
// Inside, activations are multiplied by 2^64 before they are rounded, and codes by 2^-EXPONENT (formats.cuh), so sums
// are those of the values times 2^(64-EXPONENT). A result is multiplied by the inverse. What is subtracted from all
// codes of a group, its zero, is the value that the group's sum begins at: - zero · Σ activations.
//
// The order of a sum, for all kernels: brick b belongs to partial sum b % 8, which adds its groups of columns in
// ascending order, each as one fused multiply-add: partial += scale · (sum of the group). Then, for Q4_K and Q5_K,
// the brick's minimums are subtracted likewise; Q4_1 and Q5_1 add them after each group. At the end
// sum = ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7)).
#pragma once
#include "gemm/codes_rows.cuh"
#include "gemm/skinny.cuh"

constexpr int CODE_PARTS = 8; // partial sums of a product over codes

// sum_of_parts adds p[0], p[stride], …, one for each partial sum.
__device__ __forceinline__ float sum_of_parts(const float *p, int stride) {
	float pair[4];
#pragma unroll
	for (int i = 0; i < 4; i++) pair[i] = __fadd_rn(p[2 * i * stride], p[(2 * i + 1) * stride]);
	return __fadd_rn(__fadd_rn(pair[0], pair[1]), __fadd_rn(pair[2], pair[3]));
}

// sum_of_first does so of the first `parts`; the others are zeros.
__device__ __forceinline__ float sum_of_first(const float *p, int stride, int parts) {
	float part[CODE_PARTS], pair[4];
#pragma unroll
	for (int i = 0; i < CODE_PARTS; i++) part[i] = i < parts ? p[i * stride] : 0;
#pragma unroll
	for (int i = 0; i < 4; i++) pair[i] = __fadd_rn(part[2 * i], part[2 * i + 1]);
	return __fadd_rn(__fadd_rn(pair[0], pair[1]), __fadd_rn(pair[2], pair[3]));
}

// subtract_minimums adds by · Σ minimum · (sum of the group's activations) over eight groups, of which this lane has
// two sums. A float32 is the sum of three bfloat16, so the products are exact.
__device__ __forceinline__ void subtract_minimums(float (&sum)[4], const uint4 &a, const float2 &by, const float2 &v) {
	const uint32_t high = BF16::pack(v.x, v.y);
	const float2 w = {__fsub_rn(v.x, BF16::low(high)), __fsub_rn(v.y, BF16::high(high))};
	const uint32_t middle = BF16::pack(w.x, w.y);
	const uint32_t low = BF16::pack(__fsub_rn(w.x, BF16::low(middle)), __fsub_rn(w.y, BF16::high(middle)));
	float part[4];
	mma_bf16_first(part, a, high, middle);
	mma_bf16(part, a.x, a.y, 0, 0, low, 0);
	sum[0] = __fmaf_rn(by.x, part[0], sum[0]);
	sum[1] = __fmaf_rn(by.x, part[1], sum[1]);
	sum[2] = __fmaf_rn(by.y, part[2], sum[2]);
	sum[3] = __fmaf_rn(by.y, part[3], sum[3]);
}

// add_minimums does so for M row tiles and `tiles` token tiles; own are the sums of each.
template <class F, int N, int M> __device__ __forceinline__ void add_minimums(
	float (&sum)[M][N][4], const typename F::Scales (&scales)[M], const float2 (&own)[N], int tiles) {
#pragma unroll
	for (int m = 0; m < M; m++) {
		const float2 by = scales[m].minimum_scale();
		const uint4 a = scales[m].minimum_operand();
#pragma unroll
		for (int n = 0; n < N; n++)
			if (N == 1 || n < tiles) subtract_minimums(sum[m][n], a, {by.x, by.y * F::Code::LOWER}, own[n]);
	}
}

// scale_and_add adds a group's sums of two rows and two tokens.
__device__ __forceinline__ void scale_and_add(float (&sum)[4], const float2 &by, const float (&part)[4]) {
	sum[0] = __fmaf_rn(by.x, part[0], sum[0]);
	sum[1] = __fmaf_rn(by.x, part[1], sum[1]);
	sum[2] = __fmaf_rn(by.y, part[2], sum[2]);
	sum[3] = __fmaf_rn(by.y, part[3], sum[3]);
}

__device__ __forceinline__ float2 add(const float2 &x, const float2 &y) {
	return {__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y)};
}

// begin_at sets the values that a group's sums begin at.
template <class Code> __device__ __forceinline__ void begin_at(float (&from)[4], const float2 &of, const float2 &zero) {
	from[0] = __fmul_rn(-zero.x, of.x);
	from[1] = __fmul_rn(-zero.x, of.y);
	from[2] = __fmul_rn(-Code::LOWER * zero.y, of.x);
	from[3] = __fmul_rn(-Code::LOWER * zero.y, of.y);
}

// multiply_group adds the products of a group of columns that share scales, group g of quarter q: `column` counts the
// brick's first column in groups of 32. M row tiles use the same activations.
template <class F, int N, int M> __device__ __forceinline__ void multiply_group(float (&sum)[M][N][4],
	const typename F::Codes (&codes)[M], const typename F::Scales (&scales)[M], const Rows &rows, int q, int g,
	int column) {
	using Scales = typename F::Scales;
	using Code = typename F::Code;
	constexpr int STEPS = Scales::STEPS;
	constexpr bool BEGINS = Code::ZERO != 0; // sums begin at another value than 0
	const int step = q * QUARTER_STEPS + g * STEPS, group = column + step / 2;
	uint4 a[M][STEPS];
	float2 by[M], zero[M];
#pragma unroll
	for (int m = 0; m < M; m++) {
#pragma unroll
		for (int s = 0; s < STEPS; s++) a[m][s] = Code::raw(codes[m], g * STEPS + s);
		by[m] = scales[m].scale(q * F::GROUPS + g);
		if constexpr (Code::ZERO == OF_GROUP) zero[m] = scales[m].zero(q * F::GROUPS + g);
	}
#pragma unroll
	for (int n = 0; n < N; n++) {
		if (N > 1 && n >= rows.tiles) break;
		float2 of = {0, 0}; // sums of the group's activations
		if constexpr (BEGINS || Scales::MINIMUMS == EACH) {
			of = rows.sum(n, STEPS == 1 ? 2 * column + step : group);
			if (STEPS == 4) of = add(of, rows.sum(n, group + 1));
		}
		float from[4], part[M][4];
		if constexpr (BEGINS && Code::ZERO != OF_GROUP) begin_at<Code>(from, of, {Code::ZERO, Code::ZERO});
		uint4 b = {};
#pragma unroll
		for (int s = 0; s < STEPS; s++) {
			if (STEPS == 1) {
				const uint2 one = rows.operand(n, group, step % 2);
				b.x = one.x, b.y = one.y;
			} else if (s % 2 == 0) {
				b = rows.operand(n, group + s / 2);
			}
#pragma unroll
			for (int m = 0; m < M; m++) {
				if constexpr (Code::ZERO == OF_GROUP)
					if (s == 0) begin_at<Code>(from, of, zero[m]);
				if (s > 0)
					BF16::mma(part[m], a[m][s], s % 2 ? b.z : b.x, s % 2 ? b.w : b.y);
				else if (BEGINS)
					mma_bf16_from(part[m], a[m][s], b.x, b.y, from);
				else
					mma_bf16_first(part[m], a[m][s], b.x, b.y);
			}
		}
#pragma unroll
		for (int m = 0; m < M; m++) {
			scale_and_add(sum[m][n], by[m], part[m]);
			if constexpr (Scales::MINIMUMS == EACH)
				scale_and_add(
					sum[m][n], scales[m].minimum(g), {of.x, of.y, of.x * Code::LOWER, of.y * Code::LOWER});
		}
	}
}

// share_sums writes a lane's sums of `tokens` tokens to a partial sum in shared memory, float [tokens][TOKEN_PITCH].
template <class F>
__device__ __forceinline__ void share_sums(float *to, const float (&sum)[4], int tokens = TOKEN_TILE) {
	constexpr float LOWER = 1.f / F::Code::LOWER;
	const int token = threadIdx.x % 4 * 2;
	float *const p = to + token * TOKEN_PITCH + threadIdx.x % 32 / 4;
	if (token < tokens) {
		p[0] = sum[0];
		p[8] = sum[2] * LOWER;
	}
	if (token + 1 < tokens) {
		p[TOKEN_PITCH] = sum[1];
		p[TOKEN_PITCH + 8] = sum[3] * LOWER;
	}
}
