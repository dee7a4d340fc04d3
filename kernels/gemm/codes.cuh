// Products over quantised weights (gemm/formats.cuh), for any number of rows. Codes are unpacked to bfloat16 exactly
// and multiplied by activations that are rounded to bfloat16, on tensor cores; scales and minimums are applied to the
// float32 sums of their groups.
//
// Inside, activations are multiplied by 2^64 before they are rounded, and codes by 2^-EXPONENT (formats.cuh), so sums
// are those of the values times 2^(64-EXPONENT). A result is multiplied by the inverse. What is subtracted from all
// codes of a group, its zero, is the value that the group's sum begins at: - zero · Σ activations.
//
// The order of a sum, for all kernels: brick b belongs to partial sum b % 8, which adds its groups of columns in
// ascending order, each as one fused multiply-add: partial += scale · (sum of the group). Then, for Q4_K and Q5_K,
// the brick's minimums are subtracted likewise; Q4_1 and Q5_1 add them after each group. At the end
// sum = ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7)).
//
// Activations are rounded once a block, or once for all blocks in a kernel of their own, and then lie in the order of
// B operands: token by token, in each 32 columns four chunks of 16 bytes. Chunk j has columns 4j to 4j+3 of the first
// 16 and of the second 16, the B operands of lane j of two steps.
#pragma once
#include "gemm/formats.cuh"
#include "gemm/skinny.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

constexpr int CODE_PARTS = 8;           // partial sums of a product over codes
constexpr int TOKEN_TILE = 8;           // tokens of a B operand
constexpr int CHUNK_COLUMNS = 128;      // columns that a warp rounds at a time
constexpr int GROUP_COLUMNS = 32;
constexpr float ACTIVATIONS = 0x1p64f;  // what activations are multiplied by
constexpr int GROUP_CHUNKS = GROUP_COLUMNS * 2;

// CodesArgs are the arguments of a product over codes.
template <class Op> struct CodesArgs {
	typename Op::Args op;
	// Rounded activations of all rows [tokens/8][padded/32][8 tokens][64 bytes], 1/rms of each, and their sums
	// [tokens/8][padded/32 or 16][8 tokens] over as many columns (SumColumns); null: each block rounds them. padded:
	// cols, rounded up to a multiple of 128.
	const char *rows;
	const float *scales, *sums;
	int32_t first, units; // of the op's units, those to compute
	int32_t at_once;      // rows that a block rounds at a time, at most 8
	int32_t stages;       // of the ring of codes_ring.cuh
};

__host__ __device__ constexpr int padded_columns(int cols) {
	return (cols + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS * CHUNK_COLUMNS;
}

// Sums says which sums of activations products over a format need.
template <class F> struct Sums {
	static constexpr bool NEEDED = F::Code::ZERO != 0 || F::Scales::MINIMUMS != NONE;
	static constexpr int COLUMNS = F::Scales::STEPS == 1 ? 16 : 32;
	// RESTORE is what a result is multiplied by.
	static constexpr float RESTORE = F::Code::EXPONENT == INTEGERS ? 0x1p69f : F::Code::EXPONENT == 127 ? 0x1p63f : 0x1p56f;
	static_assert(F::Code::EXPONENT == INTEGERS || F::Code::EXPONENT == 127 || F::Code::EXPONENT == 120);
};

// sum_of_parts adds p[0], p[stride], …, one for each partial sum.
__device__ __forceinline__ float sum_of_parts(const float *p, int stride) {
	float pair[4];
#pragma unroll
	for (int i = 0; i < 4; i++) pair[i] = __fadd_rn(p[2 * i * stride], p[(2 * i + 1) * stride]);
	return __fadd_rn(__fadd_rn(pair[0], pair[1]), __fadd_rn(pair[2], pair[3]));
}

// RowRounder rounds parts of rows: chunks of 128 columns from `first` on, every WARPS-th (16 or 8). Lanes have four
// columns each. Squares are those of 16 partial sums, to which chunks belong in turn: a warp has 16/WARPS of them.
struct RowRounder {
	const Activations &in;
	const int lane, first;

	// round rounds ROWS rows, with loads of BATCH chunks of each in flight. It passes each four columns to put(i,
	// column, values) for the i-th row, and their sums over 16 columns, 32 or both (SUMS: 48), for codes that are
	// integers, to sum(i, columns, index, value). It adds the squares that this lane has. A row below 0 is zeros.
	template <bool NORMED, int SUMS, int ROWS, int BATCH, int WARPS, class Put, class Sum>
	__device__ __forceinline__ void round(
		const int (&row)[ROWS], float (&squares)[ROWS][PARTIALS / WARPS], Put put, Sum sum) const {
		static_assert(BATCH % (PARTIALS / WARPS) == 0, "the partial sum of a chunk is known");
		const int chunks = padded_columns(in.cols) / CHUNK_COLUMNS;
		for (int chunk = first; chunk < chunks; chunk += WARPS * BATCH) {
			float4 v[BATCH][ROWS], norm[BATCH];
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const int k = (chunk + b * WARPS) * CHUNK_COLUMNS + lane * 4;
				if (NORMED) norm[b] = k < in.cols ? load_constant(in.norm + k) : float4{0, 0, 0, 0};
#pragma unroll
				for (int i = 0; i < ROWS; i++) {
					v[b][i] = {0, 0, 0, 0};
					if (row[i] >= 0 && k < in.cols) v[b][i] = load_activation(in.x + (size_t)row[i] * in.cols + k);
				}
			}
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const int k = (chunk + b * WARPS) * CHUNK_COLUMNS + lane * 4;
				if (chunk + b * WARPS >= chunks) break;
#pragma unroll
				for (int i = 0; i < ROWS; i++) {
					if (NORMED) {
						float &s = squares[i][b % (PARTIALS / WARPS)];
						s = add_squares(s, v[b][i]);
						v[b][i] = times(v[b][i], norm[b]);
					}
					const uint2 rounded = pack4<BF16>(times(v[b][i], {ACTIVATIONS, ACTIVATIONS, ACTIVATIONS, ACTIVATIONS}));
					put(i, k, rounded);
					if (!SUMS) continue;
					float s = sum_of_16(rounded);
					if (SUMS & 16 && lane % 4 == 0) sum(i, 16, k / 16, s);
					if (!(SUMS & 32)) continue;
					s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 4));
					if (lane % 8 == 0) sum(i, 32, k / 32, s);
				}
			}
		}
	}
	// sum_of_16 adds the values of four lanes, times 2^-133.
	static __device__ __forceinline__ float sum_of_16(const uint2 &v) {
		float s = __fadd_rn(__fadd_rn(BF16::low(v.x), BF16::high(v.x)), __fadd_rn(BF16::low(v.y), BF16::high(v.y)));
		s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
		return __fmul_rn(__fadd_rn(s, __shfl_xor_sync(~0u, s, 2)), 0x1p-133f);
	}
	// fold adds a value over the lanes.
	static __device__ __forceinline__ float fold(float s) {
#pragma unroll
		for (int i = 1; i < 32; i *= 2) s = __fadd_rn(s, __shfl_xor_sync(~0u, s, i));
		return s;
	}
	// chunk_of returns the place of columns k to k+3 in a token's row of 64 bytes for each 32 columns, `stride` apart.
	static __device__ __forceinline__ int chunk_of(int k, int stride) {
		return k / GROUP_COLUMNS * stride + k / 4 % 4 * 16 + k / 16 % 2 * 8;
	}
};

// Rows are the rounded activations as a lane reads them.
struct Rows {
	const char *operands; // of token l/4, chunk l%4
	const float *sums;    // [groups][8 tokens], from token 2*(l%4) on, which a lane's results are of
	int stride;           // bytes from 32 columns to the next
	int tileBytes;        // from a token tile to the next
	int tileSums;         // floats from a token tile's sums to the next
	int tiles;            // token tiles

	// operand returns the B operands of two steps.
	__device__ __forceinline__ uint4 operand(int n, int group) const {
		return *reinterpret_cast<const uint4 *>(operands + (size_t)n * tileBytes + (size_t)group * stride);
	}
	// operand returns that of one step.
	__device__ __forceinline__ uint2 operand(int n, int group, int step) const {
		return *reinterpret_cast<const uint2 *>(operands + (size_t)n * tileBytes + (size_t)group * stride + step * 8);
	}
	// sum returns the sums of a lane's two tokens.
	__device__ __forceinline__ float2 sum(int n, int group) const {
		return *reinterpret_cast<const float2 *>(sums + n * tileSums + group * TOKEN_TILE);
	}
	// own returns the sums of token l/4 over two of the eight groups from `group` on, those of lane l%4.
	__device__ __forceinline__ float2 own(int n, int group) const {
		const int token = threadIdx.x % 32 / 4, mine = threadIdx.x % 4 * 2;
		const float *const p = sums + n * tileSums + (group + mine) * TOKEN_TILE + token - mine;
		return {p[0], p[TOKEN_TILE]};
	}
};

// subtract_minimums adds by · Σ minimum · (sum of the group's activations) over eight groups, of which this lane has two
// sums. A float32 is the sum of three bfloat16, so the products are exact.
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
	const typename F::Codes (&codes)[M], const typename F::Scales (&scales)[M], const Rows &rows, int q, int g, int column) {
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

// Stream is the bricks of M row tiles that a warp multiplies. Codes of CODES bricks and scales of SCALES are in flight:
// those of a brick are loaded to the registers of an earlier one as soon as that is multiplied, so that no load is
// waited for before its values are used.
template <class F, int N, int M, int CODES, int SCALES> struct Stream {
	static_assert(SCALES % CODES == 0, "SCALES bricks are one iteration");
	using Codes = typename F::Codes;
	using Scales = typename F::Scales;

	const int lane, part, bricks;
	Codes codes[CODES][F::QUARTERS][M];
	Scales scales[SCALES][M];

	__device__ __forceinline__ Stream(int cols)
		: lane(threadIdx.x & 31), part(threadIdx.x / 32 % CODE_PARTS), bricks(F::bricks(cols)) {}

	__device__ __forceinline__ void load_codes(bool when, int slot, int q, const char *const (&tile)[M], int offset) {
#pragma unroll
		for (int m = 0; m < M; m++) codes[slot][q][m].load(when, tile[m] + offset + q * Codes::BYTES, lane);
	}
	__device__ __forceinline__ void load_scales(bool when, int slot, const char *const (&tile)[M], int offset) {
#pragma unroll
		for (int m = 0; m < M; m++) scales[slot][m].load(when, F::scales_of(tile[m] + offset), lane);
	}

	// begin loads the first bricks of row tiles.
	__device__ __forceinline__ void begin(const char *const (&from)[M]) {
#pragma unroll
		for (int j = 0; j < SCALES; j++) {
			const int b = part + j * CODE_PARTS;
#pragma unroll
			for (int q = 0; q < (j < CODES ? F::QUARTERS : 0); q++) load_codes(b < bricks, j, q, from, b * F::BYTES);
			load_scales(b < bricks, j, from, b * F::BYTES);
		}
	}

	// run multiplies row tiles whose first bricks are in flight. If others follow it loads their first ones.
	__device__ __forceinline__ void run(float (&sum)[M][N][4], const char *const (&from)[M],
		const char *const (&following)[M], const Rows &rows) {
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int n = 0; n < N; n++) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
		for (int first = part; first < bricks; first += SCALES * CODE_PARTS) {
#pragma unroll
			for (int j = 0; j < SCALES; j++) {
				const int b = first + j * CODE_PARTS;
				if (b >= bricks) break;
				multiply(sum, j, b, from, following, rows);
			}
		}
	}

	// multiply adds the products of brick b, the j-th of an iteration.
	__device__ __forceinline__ void multiply(float (&sum)[M][N][4], int j, int b, const char *const (&from)[M],
		const char *const (&following)[M], const Rows &rows) {
		const int column = b * (F::COLUMNS / GROUP_COLUMNS), codesLater = b + CODES * CODE_PARTS;
		const bool more = codesLater < bricks;
		const char *next[M];
#pragma unroll
		for (int m = 0; m < M; m++) next[m] = more ? from[m] : following[m];
		const int offset = (more ? codesLater : part + j % CODES * CODE_PARTS) * F::BYTES;
#pragma unroll
		for (int q = 0; q < F::QUARTERS; q++) {
#pragma unroll
			for (int g = 0; g < F::GROUPS; g++)
				multiply_group<F>(sum, codes[j % CODES][q], scales[j], rows, q, g, column);
			load_codes(next[0], j % CODES, q, next, offset);
		}
		if constexpr (Scales::MINIMUMS == BRICK) {
			float2 own[N];
#pragma unroll
			for (int n = 0; n < N; n++)
				if (N == 1 || n < rows.tiles) own[n] = rows.own(n, column);
			add_minimums<F>(sum, scales[j], own, rows.tiles);
		}
		const int scalesLater = b + SCALES * CODE_PARTS;
		const bool moreScales = scalesLater < bricks;
#pragma unroll
		for (int m = 0; m < M; m++) next[m] = moreScales ? from[m] : following[m];
		load_scales(next[0], j, next, (moreScales ? scalesLater : part + j * CODE_PARTS) * F::BYTES);
	}
};

// BrickRegisters are those of the codes and of the scales of a brick.
template <class F> struct BrickRegisters {
	static constexpr int CODES = F::QUARTERS * F::Code::BITS, SCALES = sizeof(typename F::Scales) / 4;
	static constexpr int BOTH = CODES + SCALES;
};

// StreamOf is a Stream with as many bricks in flight as 48 registers hold, or 46 in ops that need more of their own.
template <class Op, class F, int N, int M> struct StreamOf {
	static constexpr int EACH = M * BrickRegisters<F>::BOTH;
	static constexpr int CODES = EACH > (Op::NORMED && Op::PREPARES_EARLY ? 24 : 23) ? 1 : EACH > 15 ? 2 : EACH > 10 ? 3 : EACH > 6 ? 4 : 6;
	static constexpr int SCALES = CODES == 1 ? 2 : CODES;
	using Type = Stream<F, N, M, CODES, SCALES>;
};

// share_sums writes a lane's sums of `tokens` tokens to a partial sum in shared memory, float [tokens][TOKEN_PITCH].
template <class F> __device__ __forceinline__ void share_sums(float *to, const float (&sum)[4], int tokens = TOKEN_TILE) {
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

// bricks_of returns the bricks of row tile r of a unit.
template <class Op, class F> __device__ __forceinline__ const char *bricks_of(const Op &op, int unit, int r) {
	const RowTile t = op.row_tile(unit, r);
	return static_cast<const char *>(t.weight) + (size_t)t.index * F::bricks(op.activations().cols) * F::BYTES;
}

// row_pitch is the bytes of a rounded row in shared memory. The last 64 keep a token and the next in other banks.
__host__ __device__ constexpr int row_pitch(int cols) { return padded_columns(cols) * 2 + GROUP_CHUNKS; }

// live_rows returns how many of `n` rows from `first` on exist. Padding comes last.
__device__ __forceinline__ int live_rows(const Activations &in, int first, int n) {
	if (!in.rows) return min(n, in.n - first);
	const int lane = threadIdx.x % 32;
	return 32 - __clz(__ballot_sync(~0u, lane < n && in.row(first + lane) >= 0));
}

// SharedRows are rounded rows in shared memory: [at_once] of row_pitch bytes, then their sums [groups][8 tokens] over
// SUMS columns.
// WARPS warps round ROWS rows at a time, with loads of BATCH chunks of each in flight, or a single row with ONE.
template <bool NORMED, int SUMS, int WARPS, int ROWS, int BATCH, int ONE> struct SharedRows {
	const Activations &in;
	char *const rounded;
	float (&squares)[TOKEN_TILE][PARTIALS];
	const int at_once;

	__device__ __forceinline__ float *sums() const { return reinterpret_cast<float *>(rounded + at_once * row_pitch(in.cols)); }

	// round_rows rounds ROWS_ rows from row `first` on, each as row `to` and the following. Rows past `live` are not
	// stored.
	template <int ROWS_, int BATCH_> __device__ __forceinline__ void round_rows(int first, int to, int live) const {
		constexpr int EACH = PARTIALS / WARPS; // partial sums of squares that a warp has
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
		const int pitch = row_pitch(in.cols);
		int row[ROWS_];
		float sum[ROWS_][EACH];
#pragma unroll
		for (int i = 0; i < ROWS_; i++) {
			row[i] = to + i < live ? in.row(first + to + i) : -1;
#pragma unroll
			for (int e = 0; e < EACH; e++) sum[i][e] = 0;
		}
		RowRounder{in, lane, warp}.template round<NORMED, SUMS, ROWS_, BATCH_, WARPS>(
			row, sum,
			[&](int i, int k, uint2 v) {
				if (to + i < live)
					*reinterpret_cast<uint2 *>(rounded + (to + i) * pitch + RowRounder::chunk_of(k, GROUP_CHUNKS)) = v;
			},
			[&](int i, int, int g, float v) {
				if (to + i < live) sums()[g * TOKEN_TILE + to + i] = v;
			});
#pragma unroll
		for (int i = 0; i < (NORMED ? ROWS_ : 0); i++)
#pragma unroll
			for (int e = 0; e < EACH; e++) {
				const float folded = RowRounder::fold(sum[i][e]);
				if (lane == 0 && to + i < live) squares[to + i][warp + e * WARPS] = folded;
			}
	}
	// round rounds rows `first` to first+live-1.
	__device__ __forceinline__ void round(int first, int live) const {
		if (live == 1)
			round_rows<1, ONE>(first, 0, 1);
		else
			for (int t = 0; t < live; t += ROWS) round_rows<ROWS, BATCH>(first, t, live);
	}

	// rows returns the rounded rows. Tokens past the last read those of the last.
	__device__ __forceinline__ Rows rows(int live) const {
		const int lane = threadIdx.x % 32, own = min(lane / 4, live - 1);
		return {rounded + own * row_pitch(in.cols) + lane % 4 * 16, sums() + lane % 4 * 2, GROUP_CHUNKS, 0, 0, 1};
	}
};

// CodesBlock is one thread's part of a block's product over at most 8 rows at a time. Warps are in groups of 8·R, one
// for each partial sum of each row tile; a group computes every (gridDim.x · GROUPS)-th unit.
template <class Op, class F, int WARPS> struct CodesBlock {
	static constexpr int R = Op::R, GROUP_WARPS = CODE_PARTS * R, GROUPS = WARPS / GROUP_WARPS;
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	static constexpr int PART = R * TOKEN_TILE * TOKEN_PITCH; // floats of a partial sum

	struct Shared {
		float partials[GROUPS][2][CODE_PARTS * PART]; // warps go on while one buffer is read
		float squares[TOKEN_TILE][PARTIALS];
		float scales[GROUPS][TOKEN_TILE]; // 1/rms
		typename Op::Prefetched prefetched[GROUPS][16 * TOKEN_TILE];
	};

	const CodesArgs<Op> &a;
	Op op;
	const Activations &in;
	Shared &shared;
	char *const rounded; // shared [at_once] rows of row_pitch bytes, then sums
	const int lane, warp;
	typename StreamOf<Op, F, 1, 1>::Type stream;

	__device__ __forceinline__ CodesBlock(const CodesArgs<Op> &a, Shared &shared, char *rounded)
		: a(a),
		  op(a.op),
		  in(op.activations()),
		  shared(shared),
		  rounded(rounded),
		  lane(threadIdx.x & 31),
		  warp(threadIdx.x >> 5),
		  stream(in.cols) {}

	__device__ __forceinline__ int tile() const { return warp / CODE_PARTS % R; }
	__device__ __forceinline__ int group() const { return warp / GROUP_WARPS; }
	__device__ __forceinline__ int first_unit() const { return blockIdx.x + gridDim.x * group(); }
	__device__ __forceinline__ int units_apart() const { return gridDim.x * GROUPS; }

	// tile_of returns the bricks of this warp's row tile of a unit, or null if there is no such unit.
	__device__ __forceinline__ const char *tile_of(int unit) const {
		return unit < a.units ? bricks_of<Op, F>(op, a.first + unit, tile()) : nullptr;
	}

	// Registers are few: norm weights take some, and sums.
	static constexpr int BATCH = Op::NORMED || SUMS ? 1 : 2;
	__device__ __forceinline__ SharedRows<Op::NORMED, SUMS, WARPS, SUMS && !Op::NORMED ? 2 : 4, BATCH, 2 * BATCH>
	shared_rows() const {
		return {in, rounded, shared.squares, a.at_once};
	}

	// begin_weights starts loads of weights, which may come before pdl_wait.
	__device__ __forceinline__ void begin_weights() {
		if (const char *const from = tile_of(first_unit())) stream.begin({from});
	}

	// multiply computes this group's units for rows `first` to first+live-1, which are rounded.
	__device__ __forceinline__ void multiply(int first, int live) {
		const int id = threadIdx.x % (GROUP_WARPS * 32), row = id % 16, token = id / 16;
		const bool mine = token < live;
		typename Op::Prefetched *const prefetched = shared.prefetched[group()] + (mine ? id : 0);
		const Rows rows = shared_rows().rows(live);
		if (Op::NORMED && mine && row == 0)
			shared.scales[group()][token] = rms_scale(in, sum_in_order(shared.squares[token], 1));
		const char *from = tile_of(first_unit());
		if (from && mine) prepare(first_unit(), row, first + token, prefetched);
		for (int unit = first_unit(), buffer = 0; unit < a.units; unit += units_apart(), buffer ^= 1) {
			const char *const following = tile_of(unit + units_apart());
			float *const partials = shared.partials[group()][buffer];
			float sum[1][1][4];
			stream.run(sum, {from}, {following}, rows);
			share_sums<F>(partials + stream.part * PART + tile() * TOKEN_TILE * TOKEN_PITCH, sum[0][0]);
			named_barrier_sync<GROUP_WARPS * 32>(1 + group());
			from = following;
			if (!mine) continue;
			const float scale = Op::NORMED ? Sums<F>::RESTORE * shared.scales[group()][token] : Sums<F>::RESTORE;
			float y[R];
#pragma unroll
			for (int r = 0; r < R; r++)
				y[r] = __fmul_rn(scale, sum_of_parts(partials + (r * TOKEN_TILE + token) * TOKEN_PITCH + row, PART));
			cp_async_wait_all();
			if constexpr (!Op::PREPARES_EARLY) op.use_prefetched(a.first + unit, row, first + token, *prefetched);
			op.finish(a.first + unit, row, first + token, y);
			if (following) prepare(unit + units_apart(), row, first + token, prefetched);
		}
	}

	__device__ __forceinline__ void prepare(int unit, int row, int token, typename Op::Prefetched *to) {
		if constexpr (Op::PREPARES_EARLY)
			op.prepare(a.first + unit, row, token);
		else
			op.prefetch(a.first + unit, row, token, to);
	}
};

// codes computes all rows, at_once of them at a time. Each further at_once rows read the weights again.
template <class Op, class F, int WARPS> __device__ __forceinline__ void codes(const CodesArgs<Op> &a) {
	using Block = CodesBlock<Op, F, WARPS>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows));
	b.begin_weights();
	begin_product<Op::ATTENTION_NEXT, true>();
	for (int first = 0; first < b.in.n; first += a.at_once) {
		const int live = live_rows(b.in, first, a.at_once);
		if (live == 0) return;
		if (first > 0) {
			__syncthreads(); // all threads have read the rows before
			b.begin_weights();
		}
		b.shared_rows().round(first, live);
		__syncthreads();
		b.multiply(first, live);
	}
}

// codes_rounded computes 8·N rows, which are rounded, of M/R units. Its eight warps are the partial sums.
template <class Op, class F, int N, int M> __device__ __forceinline__ void codes_rounded(const CodesArgs<Op> &a) {
	constexpr int R = Op::R, UNITS = M / R;
	constexpr int PART = M * TOKEN_TILE * TOKEN_PITCH;
	__shared__ float partials[2][CODE_PARTS * PART];
	Op op(a.op);
	const Activations &in = op.activations();
	const int lane = threadIdx.x % 32, firstUnit = blockIdx.y * UNITS, first = blockIdx.x * N * TOKEN_TILE;
	const int groups = padded_columns(in.cols) / GROUP_COLUMNS;
	typename StreamOf<Op, F, N, M>::Type stream(in.cols);
	const char *from[M], *none[M];
#pragma unroll
	for (int m = 0; m < M; m++) {
		from[m] = bricks_of<Op, F>(op, a.first + min(firstUnit + m / R, a.units - 1), m % R);
		none[m] = nullptr;
	}
	stream.begin(from);
	begin_product<Op::ATTENTION_NEXT, true>();
	const int sums = padded_columns(in.cols) / Sums<F>::COLUMNS;
	const Rows rows = {a.rows + (size_t)first * groups * GROUP_CHUNKS + lane * 16,
		a.sums + (size_t)first * sums + lane % 4 * 2, TOKEN_TILE * GROUP_CHUNKS, TOKEN_TILE * GROUP_CHUNKS * groups,
		TOKEN_TILE * sums, min(N, (in.n - first + TOKEN_TILE - 1) / TOKEN_TILE)};
	float sum[M][N][4];
	stream.run(sum, from, none, rows);
	const int row = threadIdx.x % 16, token = threadIdx.x / 16 % TOKEN_TILE, which = threadIdx.x / (16 * TOKEN_TILE);
#pragma unroll
	for (int n = 0; n < N; n++) {
		if (n >= rows.tiles) return;
		float *const buffer = partials[n % 2];
#pragma unroll
		for (int m = 0; m < M; m++)
			share_sums<F>(buffer + stream.part * PART + m * TOKEN_TILE * TOKEN_PITCH, sum[m][n]);
		__syncthreads();
		const int t = first + n * TOKEN_TILE + token, unit = firstUnit + which;
		if (which >= UNITS || unit >= a.units || in.row(t) < 0) continue;
		op.prepare(a.first + unit, row, t);
		const float scale = Op::NORMED ? Sums<F>::RESTORE * a.scales[t] : Sums<F>::RESTORE;
		float y[R];
#pragma unroll
		for (int r = 0; r < R; r++)
			y[r] = __fmul_rn(
				scale, sum_of_parts(buffer + ((which * R + r) * TOKEN_TILE + token) * TOKEN_PITCH + row, PART));
		op.finish(a.first + unit, row, t, y);
	}
}
