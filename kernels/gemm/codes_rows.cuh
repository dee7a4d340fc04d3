// Rows of products over quantised weights: activations rounded to bfloat16, in the order of B operands, and their sums.
//
// They are multiplied by 2^64 before they are rounded, because codes are multiplied by 2^-133 (formats.cuh).
//
// Activations are rounded once a block, or once for all blocks in a kernel of their own, and then lie in the order of
// B operands: token by token, in each 32 columns four chunks of 16 bytes. Chunk j has columns 4j to 4j+3 of the first
// 16 and of the second 16, the B operands of lane j of two steps.
#pragma once
#include "gemm/formats.cuh"
#include "gemm/operands.cuh"

constexpr int TOKEN_TILE = 8;          // tokens of a B operand
constexpr int CHUNK_COLUMNS = 128;     // columns that a warp rounds at a time
constexpr int GROUP_COLUMNS = 32;
constexpr int GROUP_CHUNKS = GROUP_COLUMNS * 2;
constexpr float ACTIVATIONS = 0x1p64f; // what activations are multiplied by

__host__ __device__ constexpr int padded_columns(int cols) {
	return (cols + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS * CHUNK_COLUMNS;
}

// Sums says which sums of activations products over a format need.
template <class F> struct Sums {
	static constexpr bool NEEDED = F::Code::ZERO != 0 || F::Scales::MINIMUMS != NONE;
	static constexpr int COLUMNS = F::Scales::STEPS == 1 ? 16 : 32;
	// RESTORE is what a result is multiplied by.
	static constexpr float RESTORE =
		F::Code::EXPONENT == INTEGERS ? 0x1p69f : F::Code::EXPONENT == 127 ? 0x1p63f : 0x1p56f;
	static_assert(F::Code::EXPONENT == INTEGERS || F::Code::EXPONENT == 127 || F::Code::EXPONENT == 120);
};

// RowsInMemory is where RowRounder has rows from: those that earlier kernels stored. codes_tagged.cuh has others. ROUNDED
// ones come as rounded(four, k), without a norm.
struct RowsInMemory {
	static constexpr bool ROUNDED = false;
	using Four = float4; // columns of a row
	const Activations &in;

	__device__ __forceinline__ Four load(int row, int k) const {
		return load_activation(in.x + (size_t)row * in.cols + k);
	}
	__device__ __forceinline__ float4 &values(Four &v, int) const { return v; }
};

// RowRounder rounds parts of rows: chunks of 128 columns from `first` on, every WARPS-th (16 or 8). Lanes have four
// columns each. Squares are those of 16 partial sums, to which chunks belong in turn: a warp has 16/WARPS of them.
struct RowRounder {
	const Activations &in;
	const int lane, first;

	// round rounds ROWS rows of `from`, with loads of BATCH chunks of each in flight. It passes each four columns to put(i,
	// column, values) for the i-th row, and their sums over 16 columns, 32 or both (SUMS: 48), for codes that are
	// integers, to sum(i, columns, index, value). It adds the squares that this lane has. A row below 0 is zeros.
	template <bool NORMED, int SUMS, int ROWS, int BATCH, int WARPS, class From, class Put, class Sum>
	__device__ __forceinline__ void round(const From &from, const int (&row)[ROWS],
		float (&squares)[ROWS][PARTIALS / WARPS], Put put, Sum sum) const {
		static_assert(BATCH % (PARTIALS / WARPS) == 0, "the partial sum of a chunk is known");
		const int chunks = padded_columns(in.cols) / CHUNK_COLUMNS;
		for (int chunk = first; chunk < chunks; chunk += WARPS * BATCH) {
			typename From::Four v[BATCH][ROWS];
			float4 norm[BATCH];
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const int k = (chunk + b * WARPS) * CHUNK_COLUMNS + lane * 4;
				if (NORMED) norm[b] = k < in.cols ? load_constant(in.norm + k) : float4{0, 0, 0, 0};
#pragma unroll
				for (int i = 0; i < ROWS; i++) {
					v[b][i] = {};
					if (row[i] >= 0 && k < in.cols) v[b][i] = from.load(row[i], k);
				}
			}
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const int k = (chunk + b * WARPS) * CHUNK_COLUMNS + lane * 4;
				if (chunk + b * WARPS >= chunks) break;
#pragma unroll
				for (int i = 0; i < ROWS; i++) {
					uint2 rounded;
					if constexpr (From::ROUNDED) {
						rounded = from.rounded(v[b][i], k);
					} else {
						auto &&x = from.values(v[b][i], k); // no copy, which took codes_ring 9 registers
						if (NORMED) {
							float &s = squares[i][b % (PARTIALS / WARPS)];
							s = add_squares(s, x);
							x = times(x, norm[b]);
						}
						rounded = pack4<BF16>(times(x, {ACTIVATIONS, ACTIVATIONS, ACTIVATIONS, ACTIVATIONS}));
					}
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
	// sum_of_16 adds the values of four lanes, which are `apart` from one another, times 2^-133.
	static __device__ __forceinline__ float sum_of_16(const uint2 &v, int apart = 1, uint32_t lanes = ~0u) {
		float s = __fadd_rn(__fadd_rn(BF16::low(v.x), BF16::high(v.x)), __fadd_rn(BF16::low(v.y), BF16::high(v.y)));
		s = __fadd_rn(s, __shfl_xor_sync(lanes, s, apart));
		return __fmul_rn(__fadd_rn(s, __shfl_xor_sync(lanes, s, 2 * apart)), 0x1p-133f);
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

	__device__ __forceinline__ float *sums() const {
		return reinterpret_cast<float *>(rounded + at_once * row_pitch(in.cols));
	}

	// round_rows rounds ROWS_ rows of `from` from row `first` on, each as row `to` and the following. Rows past `live`
	// are not stored.
	template <int ROWS_, int BATCH_, class From>
	__device__ __forceinline__ void round_rows(const From &from, int first, int to, int live) const {
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
			from, row, sum,
			[&](int i, int k, uint2 v) {
				if (to + i < live)
					*reinterpret_cast<uint2 *>(rounded + (to + i) * pitch + RowRounder::chunk_of(k, GROUP_CHUNKS)) = v;
			},
			[&](int i, int, int g, float v) {
				if (to + i < live) sums()[g * TOKEN_TILE + to + i] = v;
			});
#pragma unroll
		for (int i = 0; i < (NORMED ? ROWS_ : 0); i++)
			if (to + i < live) store_squares(to + i, sum[i]);
	}
	// store_squares stores the sums of a warp's squares of a row.
	__device__ __forceinline__ void store_squares(int to, const float (&sum)[PARTIALS / WARPS]) const {
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
		for (int e = 0; e < PARTIALS / WARPS; e++) {
			const float folded = RowRounder::fold(sum[e]);
			if (lane == 0) squares[to][warp + e * WARPS] = folded;
		}
	}
	// round rounds rows `first` to first+live-1.
	__device__ __forceinline__ void round(int first, int live) const {
		if (live == 1)
			round_one(RowsInMemory{in}, first);
		else
			for (int t = 0; t < live; t += ROWS) round_rows<ROWS, BATCH>(RowsInMemory{in}, first, t, live);
	}
	// round_one rounds a single row.
	template <class From> __device__ __forceinline__ void round_one(const From &from, int row) const {
		round_rows<1, ONE>(from, row, 0, 1);
	}

	// take starts to copy rows `first` to first+live-1, which the product before has rounded. The last blocks, which may
	// have a unit less, also add the squares of a row of all each.
	template <class Copies>
	__device__ __forceinline__ void take(
		const Copies &copies, const char *from, const float *sums, int first, int live) const {
		copies.copy(shared_address(rounded), from + (size_t)first * in.cols * 2, live);
		if (SUMS) take_sums(sums, first, live);
		if constexpr (NORMED)
			for (int t = first_square(); t < in.n && first == 0; t += gridDim.x) square(t);
	}
	static __device__ __forceinline__ int first_square() { return gridDim.x - 1 - blockIdx.x; }
	// take_sums takes their sums, from [columns/16][8 tokens].
	__device__ __forceinline__ void take_sums(const float *from, int first, int live) const {
		constexpr int EACH = SUMS == 32 ? 2 : 1;
		const int token = threadIdx.x % TOKEN_TILE;
		if (token >= live) return;
#pragma unroll 4
		for (int i = threadIdx.x; i < in.cols / (16 * EACH) * TOKEN_TILE; i += WARPS * 32) {
			const float *const p = from + i / TOKEN_TILE * EACH * TOKEN_TILE + first + token;
			sums()[i] = EACH == 2 ? __fadd_rn(__ldcg(p), __ldcg(p + TOKEN_TILE)) : __ldcg(p);
		}
	}
	// square adds the squares of row t.
	__device__ __forceinline__ void square(int t) const {
		float sum[1][PARTIALS / WARPS] = {};
		RowRounder{in, (int)threadIdx.x % 32, (int)threadIdx.x / 32}.template round<true, 0, 1, ONE, WARPS>(
			RowsInMemory{in}, {t}, sum, [](int, int, uint2) {}, [](int, int, int, float) {});
		store_squares(t, sum[0]);
	}
	// scale returns 1/rms of a row, when all threads have stored its squares.
	__device__ __forceinline__ float scale(int row) const {
		return rms_scale(in, sum_in_order(squares[row], 1));
	}

	// rows returns the rounded rows. Tokens past the last read those of the last.
	__device__ __forceinline__ Rows rows(int live) const {
		const int lane = threadIdx.x % 32, own = min(lane / 4, live - 1);
		return {rounded + own * row_pitch(in.cols) + lane % 4 * 16, sums() + lane % 4 * 2, GROUP_CHUNKS, 0, 0, 1};
	}
	// taken returns those that were taken.
	__device__ __forceinline__ Rows taken(int live) const {
		const int lane = threadIdx.x % 32, own = min(lane / 4, live - 1);
		return {rounded + own * GROUP_CHUNKS + lane % 4 * 16, sums() + lane % 4 * 2, live * GROUP_CHUNKS, 0, 0, 1};
	}
};
