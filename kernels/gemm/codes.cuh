// Products over quantised weights (gemm/formats.cuh), for any number of rows. Codes are unpacked to bfloat16 exactly
// and multiplied by activations that are rounded to bfloat16, on tensor cores; scales, zeros and minimums are applied
// to the float32 sums of their groups (codes_multiply.cuh). On Hopper bricks for more than 8 rows, and some for
// one row, come through a ring in shared memory instead (codes_many.cuh, codes_ring.cuh), and a product may hand few
// rounded rows over to the next one (codes_handover.cuh).
#pragma once
#include "gemm/codes_handover.cuh"
#include "gemm/codes_multiply.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

// CodesArgs are the arguments of a product over codes.
template <class Op> struct CodesArgs {
	typename Op::Args op;
	// Rounded activations of all rows [tokens/8][padded/32][8 tokens][64 bytes], 1/rms of each, and their sums
	// [tokens/8][padded/32 or 16][8 tokens] over as many columns (Sums); null: each block rounds them. padded:
	// cols, rounded up to a multiple of 128. In kernels of up to 8 rows they are what the product before handed over
	// (codes_handover.cuh).
	const char *rows;
	const float *scales, *sums;
	CodesHandover handover;
	int32_t first, units; // of the op's units, those to compute
	int32_t at_once;      // rows that a block rounds at a time, at most 8
	int32_t stages;       // of a ring of bricks (brick_ring.cuh)
};

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

	__device__ __forceinline__ Stream(int cols) : Stream(cols, threadIdx.x / 32 % CODE_PARTS) {}
	__device__ __forceinline__ Stream(int cols, int part)
		: lane(threadIdx.x & 31), part(part), bricks(F::bricks(cols)) {}

	__device__ __forceinline__ void load_codes(bool when, int slot, int q, const char *const (&tile)[M], int offset) {
#pragma unroll
		for (int m = 0; m < M; m++) codes[slot][q][m].load(when, F::codes_of(tile[m] + offset, q), lane);
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

	// run multiplies row tiles whose first bricks are in flight. If others follow it loads their first ones. Before a
	// brick it calls ready(the brick's first column).
	__device__ __forceinline__ void run(float (&sum)[M][N][4], const char *const (&from)[M],
		const char *const (&following)[M], const Rows &rows) {
		run(sum, from, following, rows, [](int) {});
	}
	template <class Ready> __device__ __forceinline__ void run(float (&sum)[M][N][4], const char *const (&from)[M],
		const char *const (&following)[M], const Rows &rows, Ready ready) {
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int n = 0; n < N; n++) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
		for (int first = part; first < bricks; first += SCALES * CODE_PARTS) {
#pragma unroll
			for (int j = 0; j < SCALES; j++) {
				const int b = first + j * CODE_PARTS;
				if (b >= bricks) break;
				ready(b * F::COLUMNS);
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
	static constexpr int MOST = Op::NORMED && Op::PREPARES_EARLY ? 24 : 23; // registers of a brick if two are in flight
	static constexpr int CODES = EACH > MOST ? 1 : EACH > 15 ? 2 : EACH > 10 ? 3 : EACH > 6 ? 4 : 6;
	static constexpr int SCALES = CODES == 1 ? 2 : CODES;
	using Type = Stream<F, N, M, CODES, SCALES>;
};

// bricks_of returns the bricks of row tile r of a unit.
template <class Op, class F> __device__ __forceinline__ const char *bricks_of(const Op &op, int unit, int r) {
	const RowTile t = op.row_tile(unit, r);
	return static_cast<const char *>(t.weight) + (size_t)t.index * F::bricks(op.activations().cols) * F::BYTES;
}

// CodesBlock is one thread's part of a block's product over at most 8 rows at a time. Warps are in groups of 8·R, one
// for each partial sum of each row tile; a group computes every (gridDim.x · GROUPS)-th unit. TAKES: the product before
// has rounded the rows (codes_handover.cuh).
template <class Op, class F, int WARPS, bool TAKES> struct CodesBlock {
	static constexpr int R = Op::R, GROUP_WARPS = CODE_PARTS * R, GROUPS = WARPS / GROUP_WARPS;
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	static constexpr int PART = R * TOKEN_TILE * TOKEN_PITCH; // floats of a partial sum

	struct Shared {
		float partials[GROUPS][2][CODE_PARTS * PART]; // warps go on while one buffer is read
		float squares[TOKEN_TILE][PARTIALS];
		float scales[GROUPS][TOKEN_TILE]; // 1/rms
		typename Op::Prefetched prefetched[GROUPS][16 * TOKEN_TILE];
		uint64_t arriving[Arriving::PIECES];
	};

	const CodesArgs<Op> &a;
	Op op;
	const Activations &in;
	Shared &shared;
	char *const rounded; // shared [at_once] rows of row_pitch bytes, then sums
	const int lane, warp;
	typename StreamOf<Op, F, 1, 1>::Type stream;
	HandingOver handing;

	__device__ __forceinline__ CodesBlock(const CodesArgs<Op> &a, Shared &shared, char *rounded)
		: a(a),
		  op(a.op),
		  in(op.activations()),
		  shared(shared),
		  rounded(rounded),
		  lane(threadIdx.x & 31),
		  warp(threadIdx.x >> 5),
		  stream(in.cols),
		  handing(a.handover) {}

	__device__ __forceinline__ int tile() const { return warp / CODE_PARTS % R; }
	__device__ __forceinline__ int group() const { return warp / GROUP_WARPS; }
	__device__ __forceinline__ int first_unit() const { return blockIdx.x + gridDim.x * group(); }
	__device__ __forceinline__ int units_apart() const { return gridDim.x * GROUPS; }

#ifdef REEL_EVERY_LANE
	// rounds returns how many units a group computes.
	__device__ __forceinline__ int rounds(int group) const {
		return (a.units - (int)(blockIdx.x + gridDim.x * group) + units_apart() - 1) / units_apart();
	}
#endif

	// tile_of returns the bricks of this warp's row tile of a unit, or null if there is no such unit.
	__device__ __forceinline__ const char *tile_of(int unit) const {
		return unit < a.units ? bricks_of<Op, F>(op, a.first + unit, tile()) : nullptr;
	}

	// Registers are few: norm weights take some, and sums.
	static constexpr int BATCH = Op::NORMED || SUMS ? 1 : 2, ROWS = SUMS && !Op::NORMED ? 2 : 4;
	// Q5_K leaves GateUp none for a second chunk of a single row.
	static constexpr bool FULL = Op::NORMED && Op::PREPARES_EARLY && F::Scales::MINIMUMS == BRICK && F::Code::BITS == 5;
	__device__ __forceinline__ SharedRows<Op::NORMED, SUMS, WARPS, ROWS, BATCH, FULL ? BATCH : 2 * BATCH>
	shared_rows() const {
		return {in, rounded, shared.squares, a.at_once};
	}

	// begin does what may come before pdl_wait.
	__device__ __forceinline__ void begin() {
		begin_weights();
		if (!TAKES) return;
		if (threadIdx.x == 0) arriving().begin();
		__syncthreads();
	}
	// begin_weights starts loads of weights.
	__device__ __forceinline__ void begin_weights() {
		if (const char *const from = tile_of(first_unit())) stream.begin({from});
	}

	// multiply computes this group's units for rows `first` to first+live-1, which are rounded.
	__device__ __forceinline__ void multiply(int first, int live) {
		const int id = threadIdx.x % (GROUP_WARPS * 32), row = id % 16, token = id / 16;
		const bool mine = token < live;
		typename Op::Prefetched *const prefetched = shared.prefetched[group()] + (mine ? id : 0);
		const Rows rows = TAKES ? shared_rows().taken(live) : shared_rows().rows(live);
		if (!TAKES && Op::NORMED && mine && row == 0)
			shared.scales[group()][token] = shared_rows().scale(token);
		const char *from = tile_of(first_unit());
		if (from && mine) prepare(first_unit(), row, first + token, prefetched);
		for (int unit = first_unit(), buffer = 0; unit < a.units; unit += units_apart(), buffer ^= 1) {
			const char *const following = tile_of(unit + units_apart());
			float *const partials = shared.partials[group()][buffer];
			float sum[1][1][4];
			run(sum, from, following, rows, first);
			if (TAKES && Op::NORMED && mine && row == 0 && unit == first_unit())
				shared.scales[group()][token] = await_scale(a.scales + first + token);
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
			handing.finish(op, a.first + unit, row, first + token, y);
			if (following) prepare(unit + units_apart(), row, first + token, prefetched);
		}
#ifdef REEL_EVERY_LANE
		// Racecheck reports races that there are not between threads that have passed different numbers of barriers. So
		// in kernels built for it a group that has a unit less passes a barrier of its own instead.
		if (rounds(0) > rounds(group())) named_barrier_sync<GROUP_WARPS * 32>(1 + group());
#endif
	}

	__device__ __forceinline__ Arriving arriving() const { return {shared.arriving, in.cols}; }
	// run multiplies a row tile with rows `first` and following. Rows that are taken arrive meanwhile.
	__device__ __forceinline__ void run(
		float (&sum)[1][1][4], const char *from, const char *following, const Rows &rows, int first) {
		if constexpr (TAKES) {
			const Arriving arriving = this->arriving();
			const int phase = first / a.at_once & 1;
			stream.run(sum, {from}, {following}, rows, [&](int column) { arriving.wait(column, phase); });
		} else {
			stream.run(sum, {from}, {following}, rows);
		}
	}

	__device__ __forceinline__ void prepare(int unit, int row, int token, typename Op::Prefetched *to) {
		if (Op::HANDOVER_NORMED && HANDS_CODES_OVER) handing.prepare((a.first + unit) * 16 + row);
		if constexpr (Op::PREPARES_EARLY)
			op.prepare(a.first + unit, row, token);
		else
			op.prefetch(a.first + unit, row, token, to);
	}
};

// ONE_ROW says of which ops there is a single row; of others there may be any number.
template <class Op> constexpr bool ONE_ROW = false;
// round_rows rounds a block's rows `first` to first+live-1; codes_tagged.cuh has another.
template <class Op, class Rows>
__device__ __forceinline__ void round_rows(const Op &, const Rows &rows, int first, int live) {
	rows.round(first, live);
}

// codes computes all rows, at_once of them at a time. Each further at_once rows read the weights again. TAKES: the rows
// are rounded.
template <class Op, class F, int WARPS, bool TAKES> __device__ __forceinline__ void codes(const CodesArgs<Op> &a) {
	using Block = CodesBlock<Op, F, WARPS, TAKES>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows));
	b.begin();
	begin_op(b.op, a.first == 0);
	// Blocks wait for scales, and so must not run while those are reset, not even without pdl_wait_rows.
	if (TAKES || Op::HANDS_OVER && HANDS_CODES_OVER && a.handover.rows) pdl_wait();
	for (int first = 0; first < b.in.n; first += a.at_once) {
		const int live = live_rows(b.in, first, a.at_once);
		if (live == 0) return;
		if (first > 0) {
			if (TAKES) fence_reads();
			__syncthreads(); // all threads have read the rows before
			b.begin_weights();
		}
		if (TAKES)
			b.shared_rows().take(b.arriving(), a.rows, a.sums, first, live);
		else
			round_rows(b.op, b.shared_rows(), first, live);
		__syncthreads();
		if (TAKES && Op::NORMED && first == 0) give_scales(a.scales, b.shared_rows(), WARPS * 32);
		b.multiply(first, ONE_ROW<Op> ? 1 : live);
		if (ONE_ROW<Op>) return; // which leaves registers for the bricks
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
