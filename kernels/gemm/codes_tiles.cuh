// codes_tiles: products of 2 to 8 rows over quantised weights on Hopper, with the bits of codes.cuh. A producer thread
// copies row tiles to a ring in shared memory and goes on while the others round the rows, which takes 3 to 5 us; then
// sixteen warps multiply faster than memory is read.
#pragma once
#include "gemm/tile_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// CodesTiles is one thread's part of a block. Two row tiles are computed at a time, of one unit or two; each of their
// partial sums has a warp.
template <class Op, class F> struct CodesTiles {
	static constexpr int R = Op::R, TILES = 2, UNITS = TILES / R, CONSUMERS = TILES * CODE_PARTS * 32;
	static constexpr int THREADS = CONSUMERS + 128; // producers are a warpgroup, which gives registers to the others
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	static constexpr int PART = TOKEN_TILE * TOKEN_PITCH; // floats of a partial sum of a row tile
	using Ring = TileRing<F>;

	struct Shared {
		float partials[2][TILES * CODE_PARTS * PART]; // of a batch; warps go on while one is read
		float squares[TOKEN_TILE][PARTIALS];
		float scales[TOKEN_TILE]; // of results
		typename Ring::Barriers barriers;
		typename Op::Prefetched prefetched[UNITS * 16 * TOKEN_TILE];
	};

	const CodesArgs<Op> &a;
	Op op;
	const Activations &in;
	Shared &shared;
	const Ring ring; // then come rounded rows

	__device__ __forceinline__ CodesTiles(const CodesArgs<Op> &a, Shared &shared, char *ring)
		: a(a), op(a.op), in(op.activations()), shared(shared),
		  ring{shared.barriers, ring, a.stages, F::bricks(in.cols)} {}

	__device__ __forceinline__ int batches() const { return (a.units + UNITS - 1) / UNITS; }

	// produce copies the row tiles of batches blockIdx.x, blockIdx.x + gridDim.x, …, slice by slice. Past the last unit it
	// copies that one again.
	__device__ __forceinline__ void produce() const {
		typename Ring::Place p = {0, 0};
		for (int batch = blockIdx.x; batch < batches(); batch += gridDim.x) {
			const char *from[TILES];
#pragma unroll
			for (int t = 0; t < TILES; t++)
				from[t] = bricks_of<Op, F>(op, a.first + min(batch * UNITS + t / R, a.units - 1), t % R);
			ring.fill(p, from);
		}
	}

	__device__ __forceinline__ void consume() {
		const SharedRows<Op::NORMED, SUMS, 16, 4, 1, 2> rounder = {
			in, ring.ring + ring.stages * ring.stage_bytes(), shared.squares, a.at_once};
		const int live = max(live_rows(in, 0, a.at_once), 1);
		rounder.round(0, live);
		named_barrier_sync<CONSUMERS>(1);
		if (threadIdx.x < TOKEN_TILE)
			shared.scales[threadIdx.x] = Op::NORMED
				? Sums<F>::RESTORE * rms_scale(in, sum_in_order(shared.squares[threadIdx.x], 1)) : Sums<F>::RESTORE;
		const Rows rows = rounder.rows(live);
		const int tile = threadIdx.x / (CODE_PARTS * 32), part = threadIdx.x / 32 % CODE_PARTS;
		const int row = threadIdx.x % 16, token = threadIdx.x / 16 % TOKEN_TILE, which = threadIdx.x / (16 * TOKEN_TILE);
		const bool mine = token < live && which < UNITS && in.row(token) >= 0;
		typename Op::Prefetched *const prefetched = shared.prefetched + (mine ? threadIdx.x : 0);
		if (mine) prepare(blockIdx.x * UNITS + which, row, token, prefetched);
		typename Ring::Place p = {0, 0};
		p.move(tile, ring.stages);
		for (int batch = blockIdx.x, buffer = 0; batch < batches(); batch += gridDim.x, buffer ^= 1) {
			float sum[1][1][4] = {};
			float *const partials = shared.partials[buffer];
			ring.multiply(sum, p, TILES, part, rows);
			p.move(TILES * ring.slices(), ring.stages);
			share_sums<F>(partials + (tile * CODE_PARTS + part) * PART, sum[0][0], live);
			named_barrier_sync<CONSUMERS>(1);
			const int unit = batch * UNITS + which;
			if (!mine || unit >= a.units) continue;
			float y[R];
#pragma unroll
			for (int r = 0; r < R; r++)
				y[r] = __fmul_rn(shared.scales[token], sum_of_parts(
					partials + (which * R + r) * CODE_PARTS * PART + token * TOKEN_PITCH + row, PART));
			cp_async_wait_all();
			if constexpr (!Op::PREPARES_EARLY) op.use_prefetched(a.first + unit, row, token, *prefetched);
			op.finish(a.first + unit, row, token, y);
			prepare(unit + gridDim.x * UNITS, row, token, prefetched);
		}
	}
	__device__ __forceinline__ void prepare(int unit, int row, int token, typename Op::Prefetched *to) {
		if (unit >= a.units) return;
		if constexpr (Op::PREPARES_EARLY)
			op.prepare(a.first + unit, row, token);
		else
			op.prefetch(a.first + unit, row, token, to);
	}
};

template <class Op, class F> __device__ __forceinline__ void codes_tiles(const CodesArgs<Op> &a) {
	using Block = CodesTiles<Op, F>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows));
	if (threadIdx.x == Block::CONSUMERS) b.ring.start(CODE_PARTS);
	__syncthreads();
	if (threadIdx.x >= Block::CONSUMERS) {
		decrease_registers<24>();
		if (threadIdx.x / 32 == Block::CONSUMERS / 32 && elect_one()) b.produce();
	} else {
		increase_registers<112>();
		begin_product<Op::ATTENTION_NEXT, true>();
		b.consume();
	}
}
#endif
