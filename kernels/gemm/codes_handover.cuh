// Rows that a product over quantised weights hands over to the next one, of up to 8 rows on Hopper: rounded once by the
// blocks that make them, not by each block that reads them. Attention hands its results over so too
// (attention/hand_codes.cuh).
//
// Rows lie as blocks have them in shared memory: [columns/32][n][64 bytes], for each 32 columns four chunks of each row
// (RowRounder::chunk_of). Of more rows than fit there come first `at_once` rows so, then the others. Columns are a
// multiple of 128. The sums of activations are those over 16 columns. 1/rms follows from float32 results of all
// blocks, so the next product computes it, each row in one block, while the others multiply.
#pragma once
#include "gemm/codes_rows.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warp.cuh"

// HANDS_CODES_OVER says whether kernels for this GPU can.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool HANDS_CODES_OVER = true;
#else
constexpr bool HANDS_CODES_OVER = false;
#endif

// CodesHandover is where a product leaves its rounded results; all null: nowhere.
struct CodesHandover {
	char *rows;        // as above
	float *sums;       // [columns/16][8 tokens]
	float *scales;     // [8]: set to NO_SCALE if there is a norm
	const float *norm; // [columns], or null: of the next product, by which results are multiplied
	int32_t columns;
	int16_t n, at_once;
};

constexpr float NO_SCALE = -1; // in place of 1/rms that is not known yet

// HandingOver is a thread's part of a handover: an output at a time, of which half a warp has 16 columns of a token.
struct HandingOver {
	const CodesHandover &to;
	float norm;

	__device__ __forceinline__ HandingOver(const CodesHandover &to) : to(to), norm(1) {}

	// prepare loads the norm of column k.
	__device__ __forceinline__ void prepare(int k) {
		if (to.norm) norm = __ldg(to.norm + k);
	}
	// finish passes the sums of an output to the op, and hands the result over if the op does.
	template <class Op>
	__device__ __forceinline__ void finish(Op &op, int unit, int row, int token, const float (&y)[Op::R]) const {
		if constexpr (Op::HANDS_OVER && HANDS_CODES_OVER) {
			const float v = op.finish(unit, row, token, y);
			if (to.rows) put(unit * 16 + row, token, v);
		} else {
			op.finish(unit, row, token, y);
		}
	}
	// put rounds and stores column k of a token.
	__device__ __forceinline__ void put(int k, int token, float v) const {
		const uint32_t lanes = 0xffffu << (threadIdx.x & 16);
		v = __fmul_rn(__fmul_rn(v, norm), ACTIVATIONS);
		// All four lanes of four columns get both registers.
		const float other = __shfl_xor_sync(lanes, v, 1);
		const uint32_t pair = k & 1 ? BF16::pack(other, v) : BF16::pack(v, other);
		const uint32_t next = __shfl_xor_sync(lanes, pair, 2);
		const uint2 four = k & 2 ? uint2{next, pair} : uint2{pair, next};
		const float sum = RowRounder::sum_of_16(four, 4, lanes);
		if (k % 4 == 0) *reinterpret_cast<uint2 *>(place(k, token)) = four;
		if (k % 16 == 0) to.sums[k / 16 * TOKEN_TILE + token] = sum;
		if (k == 0 && to.norm) to.scales[token] = NO_SCALE;
	}
	// place returns the place of columns k to k+3 of a token.
	__device__ __forceinline__ char *place(int k, int token) const {
		const int first = token < to.at_once ? 0 : to.at_once, together = min(to.n - first, to.at_once);
		return to.rows + (size_t)first * to.columns * 2 + (token - first) * GROUP_CHUNKS +
			RowRounder::chunk_of(k, together * GROUP_CHUNKS);
	}
};

// give_scale passes 1/rms of a row to all blocks, which await it. The value itself says that it is there.
__device__ __forceinline__ void give_scale(const float *to, float scale) {
	asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(scale) : "memory");
}
__device__ __forceinline__ float await_scale(const float *from) {
	float scale;
	do asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(scale) : "l"(from) : "memory");
	while (scale == NO_SCALE);
	return scale;
}

// give_scales gives those of the rows whose squares this block has added, with `threads` threads.
template <class Rows> __device__ __forceinline__ void give_scales(const float *to, const Rows &rows, int threads) {
	for (int t = rows.first_square() + threadIdx.x * gridDim.x; t < rows.in.n; t += gridDim.x * threads)
		give_scale(to + t, rows.scale(t));
}

// Arriving are handed-over rows on their way to shared memory. Pieces of 2^shift columns complete at a barrier each.
struct Arriving {
	static constexpr int PIECES = 8, LEAST = 10; // pieces at most, and their shift at least

	const uint32_t barriers; // shared [PIECES]
	const int cols;
	int shift = LEAST;

	__device__ __forceinline__ Arriving(const uint64_t (&barriers)[PIECES], int cols)
		: barriers(shared_address(barriers)), cols(cols) {
		while (PIECES << shift < cols) shift++;
	}

	// begin initialises the barriers, in one thread.
	__device__ __forceinline__ void begin() const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
		for (int i = 0; i < PIECES; i++) mbarrier_init(barriers + 8 * i, 1);
		mbarrier_fence_init();
#endif
	}
	// copy starts to copy `live` rows, a piece in each warp.
	__device__ __forceinline__ void copy(uint32_t to, const char *from, int live) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
		const int piece = threadIdx.x / 32, first = piece << shift, bytes = min(1 << shift, cols - first) * 2 * live;
		if (bytes <= 0 || !elect_one()) return;
		fence_async_global();
		mbarrier_expect(barriers + 8 * piece, bytes);
		bulk_copy(EVICT_LAST, to + first * 2 * live, from + (size_t)first * 2 * live, bytes, barriers + 8 * piece);
#endif
	}
	// wait returns when the piece that has a column is there.
	__device__ __forceinline__ void wait(int column, int phase) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
		mbarrier_wait(barriers + 8 * (column >> shift), phase);
#endif
	}
};
