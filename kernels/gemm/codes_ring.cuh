// codes_ring: products of up to 8 rows over quantised weights on Hopper, with the bits of codes.cuh. A producer warp
// copies bricks to a ring in shared memory, so that the bytes in flight need no registers, and no warp waits for a
// later load than the one whose values it uses. The ring is filled before the earlier kernels have ended, and goes on
// from unit to unit.
//
// A block computes two row tiles at a time. Each of its eight consumer warps has a partial sum of both.
#pragma once
#include "gemm/codes.cuh"
#include "ptx/mbarrier.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Op, class F> struct CodesRing {
	static constexpr int R = Op::R, M = 2, UNITS = M / R; // row tiles and units of a block at a time
	static constexpr int CONSUMERS = CODE_PARTS * 32, THREADS = CONSUMERS + 32;
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	// A stage has one brick of each of PARTS partial sums, of TILES row tiles: all of both if bricks are small.
	static constexpr bool LARGE = F::BYTES > 1200;
	static constexpr int PARTS = LARGE ? CODE_PARTS / 2 : CODE_PARTS, TILES = LARGE ? 1 : M;
	static constexpr int TILE = PARTS * F::BYTES, STAGE = TILES * TILE;
	static constexpr int BETWEEN = CODE_PARTS / PARTS; // from a warp's stage to its next
	static constexpr int MOST_STAGES = 24;

	struct Shared {
		float squares[TOKEN_TILE][PARTIALS];
		float scales[TOKEN_TILE]; // 1/rms
		typename Op::Prefetched prefetched[UNITS * 16 * TOKEN_TILE];
		uint2 barriers[MOST_STAGES][2]; // full and empty
	};

	// Cursor is a stage of the ring: the shared addresses of its bricks and of its barriers, and the parity of the times
	// that it was used.
	struct Cursor {
		uint32_t bricks, barriers;
		int stage, phase;

		__device__ __forceinline__ uint32_t full() const { return barriers; }
		__device__ __forceinline__ uint32_t empty() const { return barriers + 8; }
		__device__ __forceinline__ void next(int stages, int by) {
			bricks += by * STAGE, barriers += by * 16, stage += by;
			if (stage < stages) return;
			bricks -= stages * STAGE, barriers -= stages * 16;
			stage -= stages, phase ^= 1;
		}
	};

	const CodesArgs<Op> &a;
	Op op;
	const Activations &in;
	Shared &shared;
	char *const ring; // shared [stages][STAGE], then rounded rows, then partial sums
	const int lane, warp, bricks, rounds;

	__device__ __forceinline__ CodesRing(const CodesArgs<Op> &a, Shared &shared, char *ring)
		: a(a),
		  op(a.op),
		  in(op.activations()),
		  shared(shared),
		  ring(ring),
		  lane(threadIdx.x & 31),
		  warp(threadIdx.x >> 5),
		  bricks(F::bricks(in.cols)),
		  rounds((bricks + CODE_PARTS - 1) / CODE_PARTS) {}

	__device__ __forceinline__ int batches() const { return (a.units + UNITS - 1) / UNITS; }
	__device__ __forceinline__ Cursor begin(int phase) const {
		return {opaque(shared_address(ring)), opaque(shared_address(shared.barriers)), 0, phase};
	}
	__device__ __forceinline__ SharedRows<Op::NORMED, SUMS, CODE_PARTS, 4, 2, Op::NORMED ? 4 : 8> rows() const {
		return {in, ring + a.stages * STAGE, shared.squares, a.at_once};
	}
	// partials returns shared float [2][8][M][at_once][TOKEN_PITCH]: warps go on while one half is read.
	__device__ __forceinline__ float *partials() const {
		return rows().sums() + (SUMS ? padded_columns(in.cols) / Sums<F>::COLUMNS * TOKEN_TILE : 0);
	}

	__device__ __forceinline__ void start_barriers() const {
		if (threadIdx.x == CONSUMERS) {
			Cursor c = begin(0);
			for (int s = 0; s < a.stages; s++, c.next(a.stages, 1)) {
				mbarrier_init(c.full(), 1);
				mbarrier_init(c.empty(), PARTS * WARP_ARRIVALS);
			}
			mbarrier_fence_init();
		}
		__syncthreads();
	}

	// produce copies all bricks of the block's units, in one thread. Past the last unit it copies that one again.
	__device__ __forceinline__ void produce() const {
		Cursor c = begin(1);
		for (int batch = blockIdx.x; batch < batches(); batch += gridDim.x) {
			const char *from[M];
#pragma unroll
			for (int m = 0; m < M; m++)
				from[m] = bricks_of<Op, F>(op, a.first + min(batch * UNITS + m / R, a.units - 1), m % R);
#pragma unroll 1
			for (int round = 0; round < bricks; round += CODE_PARTS) {
#pragma unroll
				for (int m = 0; m < M; m += TILES)
#pragma unroll
					for (int brick = round; brick < round + CODE_PARTS; brick += PARTS, c.next(a.stages, 1)) {
						const int bytes = max(min(bricks - brick, PARTS), 0) * F::BYTES;
						mbarrier_wait(c.empty(), c.phase);
						mbarrier_expect(c.full(), bytes * TILES);
						if (bytes == 0) continue;
#pragma unroll
						for (int t = 0; t < TILES; t++)
							bulk_copy(EVICT_FIRST, c.bricks + t * TILE, from[m + t] + (size_t)brick * F::BYTES, bytes, c.full());
					}
			}
		}
	}

	// multiply adds the products of one round of bricks of both row tiles, and frees their places in the ring.
	__device__ __forceinline__ void multiply(float (&sum)[M][1][4], Cursor &c, int brick, const Rows &rows) const {
		typename F::Codes codes[M];
		typename F::Scales scales[M];
		uint32_t from[M];
		Cursor at[M];
#pragma unroll
		for (int m = 0; m < M; m++) {
			at[m] = c;
			from[m] = c.bricks + m % TILES * TILE;
			if (m % TILES == 0) mbarrier_wait(c.full(), c.phase);
			if (m % TILES == TILES - 1) c.next(a.stages, BETWEEN);
		}
		if (brick < bricks) {
			const int column = brick * (F::COLUMNS / GROUP_COLUMNS);
#pragma unroll
			for (int m = 0; m < M; m++) scales[m].template load<FromShared>(true, from_shared(from[m] + F::BYTES - F::Scales::BYTES), lane);
#pragma unroll
			for (int q = 0; q < F::QUARTERS; q++) {
#pragma unroll
				for (int m = 0; m < M; m++)
					codes[m].template load<FromShared>(true, from_shared(from[m] + q * F::Codes::BYTES), lane);
				if (q == F::QUARTERS - 1) release(at);
#pragma unroll
				for (int g = 0; g < F::GROUPS; g++) multiply_group<F>(sum, codes, scales, rows, q, g, column);
			}
			add_minimums<F>(sum, scales, rows, column);
		} else {
			release(at);
		}
	}
	__device__ __forceinline__ void release(const Cursor (&at)[M]) const {
		__syncwarp();
#pragma unroll
		for (int m = 0; m < M; m += TILES) mbarrier_arrive_warp_if(true, at[m].empty());
	}

	// consume computes the block's units for all rows.
	__device__ __forceinline__ void consume() {
		const int live = max(live_rows(in, 0, a.at_once), 1), part = warp;
		rows().round(0, live);
		named_barrier_sync<CONSUMERS>(1);
		const Rows rounded = rows().rows(live);
		const int row = threadIdx.x % 16, token = threadIdx.x / 16 % TOKEN_TILE, which = threadIdx.x / (16 * TOKEN_TILE);
		const bool mine = token < live && which < UNITS && in.row(token) >= 0;
		typename Op::Prefetched *const prefetched = shared.prefetched + (mine ? threadIdx.x : 0);
		if (Op::NORMED && token < live && which == 0 && row == 0)
			shared.scales[token] = rms_scale(in, sum_in_order(shared.squares[token], 1));
		if (mine) prepare(blockIdx.x * UNITS + which, row, token, prefetched);
		Cursor c = begin(0);
		c.next(a.stages, part / PARTS);
		c.bricks += part % PARTS * F::BYTES;
		const int tiles = a.at_once * TOKEN_PITCH, parts = M * tiles; // floats of a row tile's sums, of a partial sum
		for (int batch = blockIdx.x, buffer = 0; batch < batches(); batch += gridDim.x, buffer ^= 1) {
			float sum[M][1][4] = {};
#pragma unroll 1
			for (int brick = 0; brick < bricks; brick += CODE_PARTS) multiply(sum, c, brick + part, rounded);
			float *const partials = this->partials() + buffer * CODE_PARTS * parts;
#pragma unroll
			for (int m = 0; m < M; m++) share_sums<F>(partials + part * parts + m * tiles, sum[m][0], live);
			named_barrier_sync<CONSUMERS>(1);
			if (!mine) continue;
			finish(batch * UNITS + which, row, token, partials + which * R * tiles, *prefetched);
			prepare((batch + gridDim.x) * UNITS + which, row, token, prefetched);
		}
	}

	// finish adds the partial sums of an output and passes the results to the op.
	__device__ __forceinline__ void finish(
		int unit, int row, int token, const float *partials, const typename Op::Prefetched &prefetched) {
		if (unit >= a.units) return;
		const int tiles = a.at_once * TOKEN_PITCH;
		const float scale = Op::NORMED ? Sums<F>::RESTORE * shared.scales[token] : Sums<F>::RESTORE;
		float y[R];
#pragma unroll
		for (int r = 0; r < R; r++)
			y[r] = __fmul_rn(scale, sum_of_parts(partials + r * tiles + token * TOKEN_PITCH + row, M * tiles));
		cp_async_wait_all();
		if constexpr (!Op::PREPARES_EARLY) op.use_prefetched(a.first + unit, row, token, prefetched);
		op.finish(a.first + unit, row, token, y);
	}
	__device__ __forceinline__ void prepare(int unit, int row, int token, typename Op::Prefetched *to) {
		if (unit >= a.units) return;
		if constexpr (Op::PREPARES_EARLY)
			op.prepare(a.first + unit, row, token);
		else
			op.prefetch(a.first + unit, row, token, to);
	}
};

template <class Op, class F> __device__ __forceinline__ void codes_ring(const CodesArgs<Op> &a) {
	using Block = CodesRing<Op, F>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows));
	b.start_barriers();
	if (threadIdx.x >= Block::CONSUMERS) {
		if (elect_one()) b.produce();
		return;
	}
	begin_product<Op::ATTENTION_NEXT, true>();
	b.consume();
}
#endif
