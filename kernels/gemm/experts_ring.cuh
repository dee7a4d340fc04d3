// Products of experts over quantised weights on Hopper, with the bits of experts.cuh. A producer thread copies row tiles
// to a ring in shared memory as soon as the choice is known, and goes on from one expert to the next, while the others
// fetch and round rows, multiply, and finish.
#pragma once
#include "gemm/experts.cuh"
#include "gemm/tile_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// ExpertRing is one thread's part of a block. A warp has one partial sum of a row tile. Only as many partial sums as there
// are bricks have warps, so 16 warps compute `apart` units at a time.
template <class Op, class F> struct ExpertRing {
	static constexpr int R = Op::R, WARPS = CODES_WARPS, CONSUMERS = WARPS * 32;
	static constexpr int THREADS = CONSUMERS + 128; // producers are a warpgroup, which gives registers to the others
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	static constexpr int PART = TOKEN_TILE * TOKEN_PITCH; // floats of a partial sum of a row tile
	using Ring = TileRing<F>;

	struct Shared {
		float partials[2][WARPS * PART];         // of a batch: [row tiles][parts]; warps go on while one is read
		float squares[TOKEN_TILE][PARTIALS];     // of a segment
		float scales[2][TOKEN_TILE];             // of results; those of the segment before are read while one is found
		typename Ring::Barriers barriers;
	};
	const CodesArgs<Op> &a;
	Shared &shared;
	const Ring ring; // then come rounded rows
	const int parts, blocks; // blocks that compute units

	__device__ __forceinline__ ExpertRing(const CodesArgs<Op> &a, Shared &shared, char *ring, int blocks)
		: a(a), shared(shared), ring{shared.barriers, ring, a.stages, F::bricks(a.op.in.cols)},
		  parts(min(CODE_PARTS, this->ring.bricks)), blocks(blocks) {}

	__device__ __forceinline__ int apart() const { return WARPS / parts / R; }

	// A block's units are consecutive in the list of all segments' units.
	struct Span {
		int at, end;
	};
	__device__ __forceinline__ Span span(int segments) const {
		const int all = segments * a.units;
		return {(int)((int64_t)all * blockIdx.x / blocks), (int)((int64_t)all * (blockIdx.x + 1) / blocks)};
	}

	__device__ __forceinline__ void produce() const {
		const Span s = span(Op::segments(a.op));
		typename Ring::Place p = {0, 0};
		for (int at = s.at; at < s.end; at++) {
			const char *from[R];
#pragma unroll
			for (int r = 0; r < R; r++) {
				const RowTile t = Op::tile_of(a.op, at / a.units, at % a.units, r);
				from[r] = static_cast<const char *>(t.weight) + (size_t)t.index * ring.bricks * F::BYTES;
			}
			ring.fill(p, from);
		}
	}

	template <class Results> __device__ __forceinline__ void consume(const Results &results) {
		const int tile = threadIdx.x / 32 / parts, part = threadIdx.x / 32 % parts, each = ring.slices() * R;
		const Span s = span(Op::segments(a.op));
		typename Ring::Place p = {0, 0};
		p.move(tile / R * each + tile % R, ring.stages);
		for (int at = s.at, batch = 0, found = 0; at < s.end; found ^= 1) {
			const int segment = at / a.units, end = min(s.end, (segment + 1) * a.units);
			const auto op = results.of(Op::template of<CONSUMERS>(a.op, segment));
			const Activations &in = op.activations();
			const SharedRows<Op::NORMED, SUMS, WARPS, SUMS ? 2 : 4, SUMS ? 2 : 1, 2> rounder = {
				in, ring.ring + ring.stages * ring.stage_bytes(), shared.squares, a.at_once};
			const int live = live_rows(in, 0, a.at_once);
			round_rows(op, rounder, 0, live);
			results.choose(s);
			named_barrier_sync<CONSUMERS>(1);
			if (threadIdx.x < TOKEN_TILE)
				shared.scales[found][threadIdx.x] = Op::NORMED
					? Sums<F>::RESTORE * rms_scale(in, sum_in_order(shared.squares[threadIdx.x], 1)) : Sums<F>::RESTORE;
			const Rows rows = rounder.rows(max(live, 1));
			for (; at < end; at += apart(), batch ^= 1) {
				const int units = min(apart(), end - at);
				float *const partials = shared.partials[batch];
				if (tile < units * R) {
					float sum[1][1][4] = {};
					ring.multiply(sum, p, R, part, rows);
					share_sums<F>(partials + (tile * parts + part) * PART, sum[0][0], live);
				}
				p.move(units * each, ring.stages);
				named_barrier_sync<CONSUMERS>(1);
				// Other warps finish each batch than the last.
				for (int i = (threadIdx.x + (batch ? CONSUMERS / 2 : 0)) % CONSUMERS; i < units * TOKEN_TILE * 16; i += CONSUMERS)
					finish(op, partials, found, at - segment * a.units, i / (TOKEN_TILE * 16), i / 16 % TOKEN_TILE, i % 16, live);
			}
			at = end;
		}
	}
	// finish stores output `row` of unit first+i for a token.
	template <class Finishes> __device__ __forceinline__ void finish(const Finishes &op, const float *partials, int found,
		int first, int i, int token, int row, int live) const {
		if (token >= live) return;
		const float scale = shared.scales[found][token];
		float y[R];
#pragma unroll
		for (int r = 0; r < R; r++)
			y[r] = __fmul_rn(scale, sum_of_first(partials + (i * R + r) * parts * PART + token * TOKEN_PITCH + row, PART, parts));
		op.finish(first + i, row, token, y);
	}
};

// expert_ring computes the units of so many blocks. results.begin waits for the kernels before. Where they have not chosen,
// the others choose when rows are rounded, and the producer's warp awaits that. results.of(op) takes what the op's finish
// takes, and results.end is called by all threads that have passed results on.
template <class Op, class F, class Results>
__device__ __forceinline__ void expert_ring(const CodesArgs<Op> &a, int blocks, const Results &results) {
	using Block = ExpertRing<Op, F>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows), blocks);
	if (threadIdx.x == Block::CONSUMERS) b.ring.start(b.parts);
	__syncthreads();
	results.template begin<Op>();
	if (threadIdx.x >= Block::CONSUMERS) {
		decrease_registers<24>();
		if (threadIdx.x / 32 == CODES_WARPS) {
			results.await_choice();
			if (elect_one()) b.produce();
		}
	} else {
		increase_registers<112>();
		b.consume(results);
		results.template end<Block::CONSUMERS>();
	}
}

// WaitingResults are those of rows and a choice that earlier kernels stored.
struct WaitingResults {
	template <class Op> __device__ __forceinline__ void begin() const { begin_product<Op::ATTENTION_NEXT, true>(); }
	template <class Span> __device__ __forceinline__ void choose(const Span &) const {}
	__device__ __forceinline__ void await_choice() const {}
};

// StoredResults are those that the op stores.
struct StoredResults : WaitingResults {
	template <class Op> __device__ __forceinline__ Op of(const Op &op) const { return op; }
	template <int THREADS> __device__ __forceinline__ void end() const {}
};
template <class Op, class F> __device__ __forceinline__ void expert_ring(const CodesArgs<Op> &a) {
	expert_ring<Op, F>(a, gridDim.x, StoredResults());
}

// SentResults are those of one row that go to all ranks.
template <class Op> struct SentResults : WaitingResults {
	const SpreadCodesArgs<Op> &a;

	__device__ __forceinline__ SentResults(const SpreadCodesArgs<Op> &a) : a(a) {}
	__device__ __forceinline__ Spreading<Op> of(const Op &op) const {
		Spreading<Op> sent(a, op);
		sent.number = a.to.packets.number();
		return sent;
	}
	template <int THREADS> __device__ __forceinline__ void end() const {
		named_barrier_sync<THREADS>(1); // all threads know the number
		if (threadIdx.x == 0) a.to.packets.begun();
	}
};
template <class Op, class F> __device__ __forceinline__ void expert_ring_spread(const SpreadCodesArgs<Op> &a) {
	if (receives(a)) return;
	begin_product<Op::ATTENTION_NEXT, true>();
	if (Op::segments(a.op.op)) return expert_ring<Op, F>(a.op, computing_blocks(a), SentResults<Op>(a));
	skip_units(Spreading<Op>(a, Op::template of<0>(a.op.op, 0))); // a row of padding
	__syncthreads();
	if (threadIdx.x == 0) a.to.packets.begun();
}
#endif
