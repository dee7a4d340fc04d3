// codes_ring: products of up to 8 rows, but only launched for one, over quantised weights with bricks of 64 columns on
// Hopper, with the bits of codes.cuh. A producer warp copies bricks to a ring in shared memory, so that the bytes in flight need no registers,
// and no warp waits for a later load than the one whose values it uses. The ring is filled before the earlier kernels
// have ended, and goes on from unit to unit.
//
// A block computes two row tiles at a time. Each of its eight consumer warps has a partial sum of both.
#pragma once
#include "gemm/brick_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Op, class F> struct CodesRing {
	static constexpr int M = 2; // row tiles of a block at a time
	using Ring = BrickRing<Op, F, M>;
	static constexpr int R = Op::R, UNITS = Ring::UNITS, CONSUMERS = Ring::CONSUMERS, THREADS = Ring::THREADS;
	static_assert(F::QUARTERS == 1 && !Ring::LARGE, "a brick is a quarter, without minimums of its own");
	static_assert(Op::PREPARES_EARLY, "nothing is prefetched");
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;

	struct Shared {
		float squares[TOKEN_TILE][PARTIALS];
		float scales[TOKEN_TILE]; // 1/rms
		typename Ring::Barriers barriers;
	};

	const CodesArgs<Op> &a;
	Op op;
	const Activations &in;
	Shared &shared;
	const Ring ring; // in shared memory; then come rounded rows, then partial sums

	__device__ __forceinline__ CodesRing(const CodesArgs<Op> &a, Shared &shared, char *ring)
		: a(a), op(a.op), in(op.activations()), shared(shared), ring(a, ring, shared.barriers) {}

	__device__ __forceinline__ SharedRows<Op::NORMED, SUMS, CODE_PARTS, 4, 2, Op::NORMED ? 4 : 8> rows() const {
		return {in, ring.ring + a.stages * Ring::STAGE, shared.squares, a.at_once};
	}
	// partials returns shared float [2][8][M][at_once][TOKEN_PITCH]: warps go on while one half is read.
	__device__ __forceinline__ float *partials() const {
		return rows().sums() + (SUMS ? padded_columns(in.cols) / Sums<F>::COLUMNS * TOKEN_TILE : 0);
	}

	// multiply adds the products of a warp's bricks of one round.
	__device__ __forceinline__ void multiply(
		float (&sum)[M][1][4], const typename Ring::Bricks &bricks, int brick, const Rows &rows) const {
		typename F::Codes codes[M];
		typename F::Scales scales[M];
		bricks.load_scales(scales);
		bricks.load_codes(codes, 0);
		bricks.release();
#pragma unroll
		for (int g = 0; g < F::GROUPS; g++)
			multiply_group<F>(sum, codes, scales, rows, 0, g, brick * (F::COLUMNS / GROUP_COLUMNS));
	}

	// consume computes the block's units for all rows.
	__device__ __forceinline__ void consume() {
		const int live = max(live_rows(in, 0, a.at_once), 1), part = threadIdx.x / 32;
		round_rows(op, rows(), 0, live);
		named_barrier_sync<CONSUMERS>(1);
		const Rows rounded = rows().rows(live);
		const int row = threadIdx.x % 16, token = threadIdx.x / 16 % TOKEN_TILE, which = threadIdx.x / (16 * TOKEN_TILE);
		const bool mine = token < live && which < UNITS && in.row(token) >= 0;
		if (Op::NORMED && token < live && which == 0 && row == 0)
			shared.scales[token] = rows().scale(token);
		if (mine) prepare(blockIdx.x * UNITS + which, row, token);
		typename Ring::Cursor c = ring.begin_part(part);
		const int tiles = a.at_once * TOKEN_PITCH, parts = M * tiles; // floats of a row tile's sums, of a partial sum
		for (int batch = blockIdx.x, buffer = 0; batch < ring.batches(); batch += gridDim.x, buffer ^= 1) {
			float sum[M][1][4] = {};
#pragma unroll 1
			for (int brick = part; brick - part < ring.bricks; brick += CODE_PARTS) {
				const typename Ring::Bricks bricks = ring.take(c);
				if (brick < ring.bricks)
					multiply(sum, bricks, brick, rounded);
				else
					bricks.release();
			}
			float *const partials = this->partials() + buffer * CODE_PARTS * parts;
#pragma unroll
			for (int m = 0; m < M; m++) share_sums<F>(partials + part * parts + m * tiles, sum[m][0], live);
			named_barrier_sync<CONSUMERS>(1);
			if (!mine) continue;
			finish(batch * UNITS + which, row, token, partials + which * R * tiles);
			prepare((batch + gridDim.x) * UNITS + which, row, token);
		}
	}

	// finish adds the partial sums of an output and passes the results to the op.
	__device__ __forceinline__ void finish(int unit, int row, int token, const float *partials) {
		if (unit >= a.units) return;
		const int tiles = a.at_once * TOKEN_PITCH;
		const float scale = Op::NORMED ? Sums<F>::RESTORE * shared.scales[token] : Sums<F>::RESTORE;
		float y[R];
#pragma unroll
		for (int r = 0; r < R; r++)
			y[r] = __fmul_rn(scale, sum_of_parts(partials + r * tiles + token * TOKEN_PITCH + row, M * tiles));
		cp_async_wait_all();
		if constexpr (!Op::PREPARES_EARLY) op.use_prefetched(a.first + unit, row, token);
		op.finish(a.first + unit, row, token, y); // a single row is not handed over
	}
	__device__ __forceinline__ void prepare(int unit, int row, int token) {
		if (unit < a.units) op.prepare(a.first + unit, row, token);
	}
};

template <class Op, class F> __device__ __forceinline__ void codes_ring(const CodesArgs<Op> &a) {
	using Block = CodesRing<Op, F>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows));
	b.ring.start_barriers();
	if (threadIdx.x >= Block::CONSUMERS) {
		if (elect_one()) b.ring.produce(b.op, blockIdx.x, gridDim.x);
		return;
	}
	begin_op(b.op, a.first == 0);
	b.consume();
}
#endif
