// Products of the rows of a step with the experts that they chose (kernels/experts.go), for any number of rows.
//
// group.cu sorts the places of a step, the pairs of a row and one of its experts, into segments: an expert and up to
// 8 places that chose it, or up to 64 in steps of many rows. There are at most as many segments as the grid has in z,
// and blocks of the others end at once; over quantised weights blocks divide the segments that there are. A block multiplies the expert's tiles by the rows of its segment with the parts
// of the other products. So a sum has the order of those (operands.cuh, codes_multiply.cuh), whatever rows share the
// segment.
#pragma once
#include "gemm/product.cuh"
#include <type_traits>

template <class Op> using SpreadCodesArgs = SpreadArgs<Op, CodesArgs<Op>>;

// ChosenArgs are where group.cu leaves the segments. Its parts follow each other in one buffer.
struct ChosenArgs {
	const float *weights;  // [places]
	const int32_t *count;  // [1]: segments in use
	const int32_t *expert; // [segments]
	const int32_t *place;  // [segments][places]; -1: none, which come last
	const int32_t *row;    // the same: the place's row of X, or -1
	int32_t segments, places; // at most; of a segment
};

// sync_threads waits for the first THREADS threads of a block, or for all with 0.
template <int THREADS> __device__ __forceinline__ void sync_threads() {
	if constexpr (THREADS > 0)
		named_barrier_sync<THREADS>(1);
	else
		__syncthreads();
}

// Segment is what a block computes. It is in shared memory, since products have no registers to spare.
struct Segment {
	static constexpr int MOST_PLACES = 64;

	Activations in;                                  // with the rows of the segment; n is 0 if the segment is not in use
	int32_t place[MOST_PLACES], row[MOST_PLACES]; // as ChosenArgs has them
	int expert;

	// find returns segment i, in place of the block's last one. Rows of its activations are those of places, or of X.
	// THREADS threads call it (sync_threads), after the wait for the kernels before. The loads do not wait for each other.
	template <int THREADS> static __device__ __forceinline__ const Segment &find(
		const ChosenArgs &a, const Activations &in, bool ofPlaces, int i) {
		__shared__ Segment segment;
		sync_threads<THREADS>(); // all threads have read the last one
		if (threadIdx.x < a.places) {
			const int32_t place = a.place[i * a.places + threadIdx.x], row = a.row[i * a.places + threadIdx.x];
			if (threadIdx.x == 0) {
				const int count = *a.count, expert = a.expert[i];
				const bool used = i < count;
				segment.in = in;
				segment.in.rows = ofPlaces ? segment.place : segment.row;
				segment.in.n = used ? a.places : 0;
				segment.expert = used ? expert : 0;
			}
			segment.place[threadIdx.x] = place;
			segment.row[threadIdx.x] = row;
		}
		sync_threads<THREADS>();
		return segment;
	}
};

// Ranks are the experts of a step of one row. Its segments are its ranks, with one place each.
struct Ranks {
	Activations in; // that row alone; n is 0 if it is padding
	int expert[32];

	// find returns them. The loads do not wait for each other. THREADS threads call it (sync_threads), after the wait for
	// the kernels before.
	template <int THREADS> static __device__ __forceinline__ const Ranks &find(const ChosenArgs &a, const Activations &in) {
		__shared__ Ranks ranks;
		if (threadIdx.x < 32) {
			const int count = *a.count, row = *a.row;
			if (threadIdx.x < a.segments) ranks.expert[threadIdx.x] = a.expert[threadIdx.x];
			if (threadIdx.x == 0)
				ranks.in = {in.x + (size_t)max(row, 0) * in.cols, in.norm, nullptr, in.cols, count ? 1 : 0, in.eps};
		}
		sync_threads<THREADS>();
		return ranks;
	}
};

// expert_gemv computes units of all ranks, expert_skinny units of a segment with up to 8 places, and expert_tiled
// several units for up to 64.
template <class Op, class D, int U> __device__ __forceinline__ void expert_gemv(const typename Op::Args &a) {
	begin_product<Op::ATTENTION_NEXT, true>();
	const Op op = Op::template of<0>(a, 0);
	if (op.ranks.in.n) gemv<Op, D, U>(op);
}
// expert_gemv_spread sends the results to all ranks. They wait for those of a row of padding too.
template <class Op, class D, int U> __device__ __forceinline__ void expert_gemv_spread(const SpreadArgs<Op> &a) {
	spread(a, [&] {
		begin_product<Op::ATTENTION_NEXT, true>();
		const Spreading<Op> op(a, Op::template of<0>(a.op, 0));
		if (op.ranks.in.n) return gemv<Spreading<Op>, D, U>(op);
		skip_units(op);
	});
}
template <class Op, class D, int U, int X> __device__ __forceinline__ void expert_skinny(const typename Op::Args &a) {
	begin_product<Op::ATTENTION_NEXT, true>();
	const Op op = Op::template of<0>(a, blockIdx.z);
	if (op.segment.in.n) skinny<Op, D, 1, U, X>(op);
}
template <class Op, class D> __device__ __forceinline__ void expert_tiled(const typename Op::Args &a) {
	begin_product<Op::ATTENTION_NEXT, true>();
	const Op op = Op::template of<0>(a, blockIdx.z);
	if (op.segment.in.n) tiled<Op, D, 1>(op);
}

// ExpertStream is a Stream of M row tiles for ops of experts, which need registers of their own: of large bricks one is in
// flight, and an expert's row has hardly more for a partial sum.
template <class Op, class F, int M> struct ExpertStream {
	using Type = typename std::conditional<M == 1 && BrickRegisters<F>::BOTH <= 15, typename StreamOf<Op, F, 1, 1>::Type,
		Stream<F, 1, M, 1, 1>>::type;
};

// ExpertCodes is one thread's part of a block's product of up to 8 places over quantised weights, with the bits of
// CodesBlock. A warp has one partial sum of M row tiles of a unit: of both, so that their bricks are in flight together,
// if it has registers for them. Only as many partial sums as there are bricks have warps, since experts may be narrow.
// So a block computes units in batches of 16 warps.
template <class Op, class F> struct ExpertCodes {
	static constexpr int R = Op::R, WARPS = CODES_WARPS;
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	static constexpr int M = BrickRegisters<F>::BOTH <= 25 ? R : 1, TEAM = R / M; // warps of a partial sum
	static constexpr int PART = R * TOKEN_TILE * TOKEN_PITCH; // floats of a partial sum
	using Bricks = typename ExpertStream<Op, F, M>::Type;

	struct Shared {
		float partials[WARPS / TEAM * PART]; // of a batch: [units][parts]
		float squares[TOKEN_TILE][PARTIALS];
		int parts, apart; // partial sums of a unit; units of a batch
	};

	// What can be had from threadIdx, shared memory or the arguments is in no register: there are none to spare.
	const CodesArgs<Op> &a;
	const Op &op;
	const Activations &in;
	Shared &shared;
	Bricks stream;
	const SharedRows<Op::NORMED, SUMS, WARPS, SUMS ? 2 : 4, 1, 2> rounder;

	static __device__ __forceinline__ int parts_of(int cols) { return min(CODE_PARTS, F::bricks(cols)); }
	static __device__ __forceinline__ int batches(int units, int cols) {
		const int apart = WARPS / TEAM / parts_of(cols);
		return (units + apart - 1) / apart;
	}

	__device__ __forceinline__ ExpertCodes(const CodesArgs<Op> &a, const Op &op, Shared &shared, char *rounded)
		: a(a), op(op), in(op.activations()), shared(shared), stream(in.cols, threadIdx.x / 32 % parts_of(in.cols)),
		  rounder{in, rounded, shared.squares, a.at_once} {
		if (threadIdx.x == 0) shared.parts = parts_of(in.cols), shared.apart = WARPS / TEAM / parts_of(in.cols);
		__syncthreads();
	}

	// unit and tile are this warp's in a batch, from row tile `tile` on; a unit of at least `apart`: none.
	__device__ __forceinline__ int unit() const { return threadIdx.x / 32 / shared.parts / TEAM; }
	__device__ __forceinline__ int tile() const { return TEAM == 1 ? 0 : threadIdx.x / 32 / shared.parts % TEAM; }

	// Tiles are the bricks of this warp's row tiles of a unit, or null.
	struct Tiles {
		const char *of[M];
	};
	// tiles returns those in a batch, if it comes before batch `end`.
	__device__ __forceinline__ Tiles tiles(int batch, int end) const {
		const int mine = unit(), u = batch * shared.apart + mine;
		Tiles t;
#pragma unroll
		for (int m = 0; m < M; m++)
			t.of[m] = batch < end && mine < shared.apart && u < a.units ? bricks_of<Op, F>(op, u, tile() + m) : nullptr;
		return t;
	}

	// run computes batches `batch` to end-1 for rows `first` to first+live-1.
	__device__ __forceinline__ void run(int batch, int end, int first, int live) {
		Tiles from = tiles(batch, end);
		if (from.of[0]) stream.begin(from.of);
		rounder.round(first, live);
		__syncthreads();
		const Rows rows = rounder.rows(live);
		for (; batch < end; batch++) {
			const Tiles following = tiles(batch + 1, end);
			if (from.of[0]) {
				float sum[M][1][4];
				stream.run(sum, from.of, following.of, rows);
				float *const to = shared.partials + (unit() * shared.parts + stream.part) * PART +
					tile() * TOKEN_TILE * TOKEN_PITCH;
#pragma unroll
				for (int m = 0; m < M; m++) share_sums<F>(to + m * TOKEN_TILE * TOKEN_PITCH, sum[m][0]);
			}
			from = following;
			__syncthreads();
			for (int i = threadIdx.x; i < shared.apart * TOKEN_TILE * 16; i += WARPS * 32)
				finish(batch * shared.apart, i / (TOKEN_TILE * 16), i / 16 % TOKEN_TILE, i % 16, first, live);
			__syncthreads();
		}
	}
	// finish stores output `row` of unit first+i for a token.
	__device__ __forceinline__ void finish(int firstUnit, int i, int token, int row, int first, int live) const {
		if (token >= live || firstUnit + i >= a.units) return;
		const float scale = Op::NORMED
			? Sums<F>::RESTORE * rms_scale(in, sum_in_order(shared.squares[token], 1)) : Sums<F>::RESTORE;
		float y[R];
#pragma unroll
		for (int r = 0; r < R; r++)
			y[r] = __fmul_rn(scale,
				sum_of_first(shared.partials + i * shared.parts * PART + (r * TOKEN_TILE + token) * TOKEN_PITCH + row,
					PART, shared.parts));
		op.finish(firstUnit + i, row, first + token, y);
	}
};

// expert_codes computes all segments over quantised weights. Blocks take equal parts of the list of all their batches,
// so that none waits for others, whatever rows choose. Each further at_once places read weights again.
template <class Op, class F> __device__ __forceinline__ void expert_codes(const CodesArgs<Op> &a) {
	using Block = ExpertCodes<Op, F>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	begin_product<Op::ATTENTION_NEXT, true>();
	const int batches = Block::batches(a.units, a.op.in.cols), all = Op::segments(a.op) * batches;
	const int end = all * (blockIdx.x + 1) / gridDim.x;
	for (int at = all * blockIdx.x / gridDim.x; at < end;) {
		const int segment = at / batches, next = min(end, (segment + 1) * batches);
		const Op op = Op::template of<0>(a.op, segment);
		Block b(a, op, shared, reinterpret_cast<char *>(roundedRows));
		for (int first = 0; first < b.in.n; first += a.at_once) {
			const int live = live_rows(b.in, first, min(a.at_once, b.in.n - first));
			if (live == 0) break;
			b.run(at - segment * batches, next - segment * batches, first, live);
		}
		at = next;
	}
}

#define REEL_EXPERTS_OF(name, Op, D)                                                               \
	REEL_OP_KERNEL(name##_skinny8, Op, FEW_ROWS_THREADS, 1, (expert_skinny<Op, D, 4, 4>(a)))       \
	REEL_OP_KERNEL(name##_tiled64, Op, TILED_THREADS, 1, (expert_tiled<Op, D>(a)))
#define REEL_EXPERT_CODES(format, F, name, Op, suffix)                                        \
	REEL_KERNEL(name##_##format##suffix, CODES_WARPS * 32, 1, (expert_codes<Op, F>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)
// REEL_EXPERTS makes an op's kernels for all formats.
#define REEL_EXPERTS(name, Op)             \
	REEL_EXPERTS_OF(name##_bf16, Op, BF16) \
	REEL_EXPERTS_OF(name##_f16, Op, F16)   \
	REEL_FORMATS(REEL_EXPERT_CODES, name, Op, _codes8)
