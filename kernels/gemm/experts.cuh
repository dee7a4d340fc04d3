// Products of the rows of a step with the experts that they chose (kernels/experts.go), for any number of rows.
//
// group.cu sorts the places of a step, the pairs of a row and one of its experts, into segments: an expert and up to
// 8 places that chose it, or up to 64 in steps of many rows. There are at most as many segments as the grid has in z;
// blocks of the others end at once. A block multiplies the expert's tiles by the rows of its segment with the parts
// of the other products. So a sum has the order of those (operands.cuh, codes_multiply.cuh), whatever rows share the
// segment.
#pragma once
#include "gemm/product.cuh"

// ChosenArgs are where group.cu leaves the segments. Its parts follow each other in one buffer.
struct ChosenArgs {
	const float *weights;  // [places]
	const int32_t *count;  // [1]: segments in use
	const int32_t *expert; // [segments]
	const int32_t *place;  // [segments][places]; -1: none, which come last
	const int32_t *row;    // the same: the place's row of X, or -1
	int32_t segments, places; // at most; of a segment
};

// Segment is what a block computes. It is in shared memory, since products have no registers to spare.
struct Segment {
	Activations in;       // with the rows of the segment; n is 0 if the segment is not in use
	const int32_t *place; // of each row
	int expert;

	// find waits for the kernels before and returns the block's segment. Rows of its activations are those of places,
	// or of X. Every thread of the block calls it.
	static __device__ __forceinline__ const Segment &find(const ChosenArgs &a, const Activations &in, bool ofPlaces) {
		__shared__ Segment segment;
		begin_product<false, true>();
		if (threadIdx.x == 0) {
			const int i = blockIdx.z;
			const bool used = i < *a.count;
			segment.in = in;
			segment.place = a.place + i * a.places;
			segment.in.rows = ofPlaces ? segment.place : a.row + i * a.places;
			segment.in.n = used ? a.places : 0;
			segment.expert = used ? a.expert[i] : 0;
		}
		__syncthreads();
		return segment;
	}
};

// expert_gemv computes a unit of an expert for a segment with one place, expert_skinny for up to 8, and expert_tiled
// several units for up to 64.
template <class Op, class D, int U> __device__ __forceinline__ void expert_gemv(const typename Op::Args &a) {
	const Op op(a);
	if (op.segment.in.n) gemv<Op, D, U>(op);
}
template <class Op, class D, int U, int X> __device__ __forceinline__ void expert_skinny(const typename Op::Args &a) {
	const Op op(a);
	if (op.segment.in.n) skinny<Op, D, 1, U, X, true>(op);
}

template <class Op, class D> __device__ __forceinline__ void expert_tiled(const typename Op::Args &a) {
	const Op op(a);
	if (op.segment.in.n) tiled<Op, D, 1>(op);
}

// expert_codes computes units of an expert over quantised weights for a segment, at_once of its places at a time.
template <class Op, class F, int WARPS> __device__ __forceinline__ void expert_codes(const CodesArgs<Op> &a) {
	using Block = CodesBlock<Op, F, WARPS>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows));
	for (int first = 0; first < b.in.n; first += a.at_once) {
		const int live = live_rows(b.in, first, min(a.at_once, b.in.n - first));
		if (live == 0) return;
		if (first > 0) __syncthreads(); // all threads have read the rows before
		b.begin_weights();
		b.shared_rows().round(first, live);
		__syncthreads();
		b.multiply(first, live);
	}
}

#define REEL_EXPERTS_OF(name, Op, D, U)                                                            \
	REEL_OP_KERNEL(name##_gemv, Op, FEW_ROWS_THREADS, 2, (expert_gemv<Op, D, U>(a)))               \
	REEL_OP_KERNEL(name##_skinny8, Op, FEW_ROWS_THREADS, 1, (expert_skinny<Op, D, 4, 4>(a)))       \
	REEL_OP_KERNEL(name##_tiled64, Op, TILED_THREADS, 1, (expert_tiled<Op, D>(a)))
#define REEL_EXPERT_CODES(format, F, name, Op)                                                                  \
	REEL_KERNEL(name##_##format##_codes8, CODES_WARPS * 32, 1, (expert_codes<Op, F, CODES_WARPS>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)
// REEL_EXPERTS makes an op's kernels for all formats.
#define REEL_EXPERTS(name, Op, U)            \
	REEL_EXPERTS_OF(name##_bf16, Op, BF16, U) \
	REEL_EXPERTS_OF(name##_f16, Op, F16, U)   \
	REEL_FORMATS(REEL_EXPERT_CODES, name, Op)
