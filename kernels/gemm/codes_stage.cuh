// Quantised weights (formats.cuh) in a stage of the stream-K prefill GEMM: a row tile's quarter of a brick and the
// brick's scales behind it, and how a warp reads them from there.
#pragma once
#include "gemm/formats.cuh"
#include "gemm/rounded.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ uint2 load_shared_uint2(uint32_t from) {
	uint2 v;
	asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
	return v;
}
__device__ __forceinline__ uint32_t load_shared_uint(uint32_t from) {
	uint32_t v;
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
	return v;
}
__device__ __forceinline__ uint32_t load_shared_ushort(uint32_t from) {
	uint32_t v;
	asm volatile("{ .reg .u16 s; ld.shared.u16 s, [%1]; cvt.u32.u16 %0, s; }" : "=r"(v) : "r"(from) : "memory");
	return v;
}

// load_codes loads a lane's codes from a quarter at shared address p.
template <int BITS> __device__ __forceinline__ void load_codes(Quarter<BITS> &q, uint32_t p, int lane) {
	q.low = load_shared(p + lane * 16);
	if (BITS == 5) q.high.x = load_shared_uint(p + 512 + lane * 4);
	if (BITS == 6) q.high = load_shared_uint2(p + 512 + lane * 8);
}
__device__ __forceinline__ void load_codes(Quarter<8> &q, uint32_t p, int lane) {
	q.first = load_shared(p + lane * 16);
	q.second = load_shared(p + 512 + lane * 16);
}

// StageScales<S> are a lane's scales of a quarter, of rows l/4 and l/4+8. S is the brick's scales in formats.cuh; p is
// their shared address. scale(g) is that of the quarter's group g.
template <class S> struct StageScales;

template <> struct StageScales<Halves> : Halves {
	__device__ __forceinline__ void load(uint32_t p, int, int lane) { v = load_shared_uint2(p + lane / 4 * 8); }
};

template <> struct StageScales<Exponents> : Exponents {
	__device__ __forceinline__ void load(uint32_t p, int, int lane) { v = load_shared_uint(p + lane / 4 * 4); }
};

template <> struct StageScales<Floats> : Floats {
	__device__ __forceinline__ void load(uint32_t p, int, int lane) { v = load_shared_uint2(p + lane / 4 * 8); }
};

template <int GROUPS> struct StageScales<FloatsAndZeros<GROUPS>> : FloatsAndZeros<GROUPS> {
	__device__ __forceinline__ void load(uint32_t p, int, int lane) {
#pragma unroll
		for (int g = 0; g < GROUPS; g++) {
			this->v[g] = load_shared_uint2(p + g * 64 + lane / 4 * 8);
			this->zeros[g] = load_shared_ushort(p + GROUPS * 64 + g * 16 + lane / 4 * 2);
		}
	}
};

template <> struct StageScales<KScales> : KScales {
	uint32_t upper, lower; // bytes [2 groups] of the two rows

	__device__ __forceinline__ void load(uint32_t p, int quarter, int lane) {
		upper = load_shared_ushort(p + lane / 4 * 16 + quarter * 2);
		lower = load_shared_ushort(p + lane / 4 * 16 + 8 + quarter * 2);
		minimums = load_shared_uint(p + 128 + lane * 4);
		d = load_shared_uint2(p + 256 + lane / 4 * 8);
	}
	__device__ __forceinline__ float2 scale(int g) const {
		return times({F16::low(d.x), F16::low(d.y)}, byte_of(upper, g), byte_of(lower, g));
	}
	// minimum_operand returns the brick's minimums, but zeros for quarters other than from `first` to `last`.
	__device__ __forceinline__ uint4 minimum_operand(int first, int last) {
		const int mine = threadIdx.x % 4;
		if (mine < first || mine > last) minimums = 0;
		return KScales::minimum_operand();
	}
};

template <> struct StageScales<Q6Scales> {
	uint32_t upper, lower; // bytes [4 groups] of the two rows
	uint32_t d;            // binary16 [2 rows]

	__device__ __forceinline__ void load(uint32_t p, int quarter, int lane) {
		upper = load_shared_uint(p + lane / 4 * 32 + quarter * 4);
		lower = load_shared_uint(p + lane / 4 * 32 + 16 + quarter * 4);
		d = load_shared_uint(p + 256 + lane / 4 * 4);
	}
	__device__ __forceinline__ float2 scale(int g) const {
		return times(both(d), static_cast<int8_t>(byte_of(upper, g)), static_cast<int8_t>(byte_of(lower, g)));
	}
};

template <> struct StageScales<IQ4Scales> {
	uint32_t upper, lower; // bytes [2 groups] of the two rows
	uint32_t d;            // binary16 [2 rows]

	__device__ __forceinline__ void load(uint32_t p, int quarter, int lane) {
		upper = load_shared_ushort(p + lane / 4 * 16 + quarter * 2);
		lower = load_shared_ushort(p + lane / 4 * 16 + 8 + quarter * 2);
		d = load_shared_uint(p + 128 + lane / 4 * 4);
	}
	__device__ __forceinline__ float2 scale(int g) const {
		return times(both(d), static_cast<int8_t>(byte_of(upper, g)), static_cast<int8_t>(byte_of(lower, g)));
	}
};

// CodesOf is a format as weights of the stream-K GEMM.
template <class F> struct CodesOf {
	using Code = typename F::Code;
	using Scales = typename F::Scales;
	static constexpr bool QUANTISED = true, SUMS = Scales::MINIMUMS == BRICK;
	static_assert(Scales::MINIMUMS != EACH, "stream-K adds minimums brick by brick");
	static constexpr int CODE_BYTES = F::Codes::BYTES;
	static constexpr int TILE_BYTES = CODE_BYTES + Scales::BYTES; // of a row tile in a stage
	// Sums are scaled every 1 or 2 steps, also if more have one scale: so a K block has at least two of them.
	static constexpr int STEPS = Scales::STEPS < 2 ? 1 : 2, SCALED = BLOCK_STEPS / STEPS;

	typename F::Codes codes;
	StageScales<Scales> scales;

	// CodesOf loads a lane's registers of K block p from a stage.
	__device__ __forceinline__ CodesOf(uint32_t stage, int p) {
		const int lane = threadIdx.x % 32;
		load_codes(codes, stage, lane);
		scales.load(stage + CODE_BYTES, p % F::QUARTERS, lane);
	}
	// operand returns the A operand of a step.
	__device__ __forceinline__ uint4 operand(int step) const {
		return Code::operand(codes, step, scales, step / Scales::STEPS);
	}
	// scale is that of the i-th of SCALED sums.
	__device__ __forceinline__ float2 scale(int i) const { return scales.scale(i * STEPS / Scales::STEPS); }

	// tile returns the address of a row tile of cols columns.
	static __device__ __forceinline__ const char *tile(const RowTile &t, int cols) {
		return static_cast<const char *>(t.weight) + (size_t)t.index * F::bricks(cols) * F::BYTES;
	}
	// copy starts the copies of K block p of a row tile to a stage, and counts them at a barrier.
	static __device__ __forceinline__ void copy(uint32_t stage, const char *tile, int p, uint32_t barrier) {
		if (F::QUARTERS == 1) {
			bulk_copy(EVICT_FIRST, stage, tile + (size_t)p * F::BYTES, TILE_BYTES, barrier);
			return;
		}
		const char *const brick = tile + (size_t)(p / F::QUARTERS) * F::BYTES;
		bulk_copy(EVICT_FIRST, stage, brick + p % F::QUARTERS * CODE_BYTES, CODE_BYTES, barrier);
		bulk_copy(stage + CODE_BYTES, F::scales_of(brick), Scales::BYTES, barrier);
	}
};
#endif

// Elements are weights of 16 bits.
template <class D> struct Elements {
	static constexpr bool QUANTISED = false, SUMS = false;
	static constexpr int TILE_BYTES = TILE_BLOCK_BYTES, STEPS = 1;
};
