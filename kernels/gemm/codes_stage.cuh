// Quantised weights (formats.cuh) in a stage of the stream-K prefill GEMM: a row tile's quarter of a brick and the
// brick's scales behind it, and how a warp makes A operands of them. Here a weight is its value, code times scale less
// minimum, rounded to binary16: it has 11 bits, where activations in bfloat16 would have 8. Scaling sums of exact codes
// instead, as products of few rows do, takes longer than multiplying (notes/codes_prefill.md).
#pragma once
#include "gemm/formats.cuh"
#include "gemm/rounded.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// load_shared_if loads from shared memory if `when`, and else leaves v as it is.
__device__ __forceinline__ void load_shared_if(bool when, uint2 &v, uint32_t from) {
	asm volatile("{ .reg .pred when; setp.ne.b32 when, %3, 0; @when ld.shared.v2.u32 {%0,%1}, [%2]; }"
		: "+r"(v.x), "+r"(v.y)
		: "r"(from), "r"((int)when)
		: "memory");
}
// load_ushort_if loads 16 bits.
__device__ __forceinline__ void load_ushort_if(bool when, uint32_t &v, uint32_t from) {
	asm volatile("{ .reg .pred when; .reg .u16 s; setp.ne.b32 when, %2, 0; @when ld.shared.u16 s, [%1]; "
				 "@when cvt.u32.u16 %0, s; }"
		: "+r"(v)
		: "r"(from), "r"((int)when)
		: "memory");
}

// half_twice returns half i of v in both halves of a register. By moves, as operands of HMUL2 and HFMA2 take halves so:
// those of a PRMT they do not.
__device__ __forceinline__ uint32_t half_twice(uint32_t v, int i) {
	uint32_t lower, upper;
	asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; mov.b32 %0, {l, l}; mov.b32 %1, {h, h}; }"
		: "=r"(lower), "=r"(upper)
		: "r"(v));
	return i ? upper : lower;
}

// An integer n from 0 to 1023 in the fraction of 1024, which has the bits 0x6400, gives 1024+n.
constexpr uint32_t K1024 = 0x64006400, MINUS_1024 = 0xe400e400, MINUS_1152 = 0xe480e480;

// byte_pair returns the bytes i and i+1 of v, unsigned, as binary16 less what minus has beyond 1024.
__device__ __forceinline__ uint32_t byte_pair(uint32_t v, int i, uint32_t minus = MINUS_1024) {
	return add_f16x2(__byte_perm(v, 0x64, i ? 0x4342 : 0x4140), minus);
}
__device__ __forceinline__ uint32_t float_twice(float v) { return F16::pack(v, v); }

// Two is a value for row l/4 and one for row l/4+8, each binary16 twice.
struct Two {
	uint32_t upper, lower;
};

// StageScales<S> are a lane's scales of a brick, of rows l/4 and l/4+8. S is the brick's scales in formats.cuh. load
// loads them from p, their shared address, if `when`, and then turns to a quarter. scale(g) is that of the quarter's
// group g, minimum(g) what is added to code times scale, and zero() the code of 0 of ZeroPoint.
template <class S> struct StageScales;

template <> struct StageScales<Halves> {
	uint2 v; // binary16 [2 groups][2 rows]

	__device__ __forceinline__ void load(bool, uint32_t p, int lane, int) {
		FromShared::load(true, v, reinterpret_cast<const uint2 *>(from_shared(p)) + lane / 4);
	}
	__device__ __forceinline__ Two scale(int g) const {
		const uint32_t w = g ? v.y : v.x;
		return {half_twice(w, 0), half_twice(w, 1)};
	}
};

template <> struct StageScales<Floats> {
	uint2 v;

	__device__ __forceinline__ void load(bool when, uint32_t p, int lane, int) { load_shared_if(when, v, p + lane / 4 * 8); }
	// scale is 256 times the scale, as E4M3 leaves codes 256 times too small.
	__device__ __forceinline__ Two scale(int) const {
		return {float_twice(__fmul_rn(__uint_as_float(v.x), 256.f)),
			float_twice(__fmul_rn(__uint_as_float(v.y), 256.f))};
	}
};

// They are rounded, and the zeros made what is added to codes, once for a brick and not again in each of its K blocks.
template <> struct StageScales<FloatsAndZeros<1>> {
	Two scales, zeros;

	__device__ __forceinline__ void load(bool when, uint32_t p, int lane, int) {
		if (!when) return;
		uint2 v;
		uint32_t z; // bytes [2 rows]
		FromShared::load(true, v, reinterpret_cast<const uint2 *>(from_shared(p)) + lane / 4);
		FromShared::load(true, z, reinterpret_cast<const uint16_t *>(from_shared(p + 64)) + lane / 4);
		scales = {float_twice(__uint_as_float(v.x)), float_twice(__uint_as_float(v.y))};
		zeros = {__byte_perm(z, 0xe4, 0x4040), __byte_perm(z << 4, 0xd4, 0x4141)};
	}
	__device__ __forceinline__ Two scale(int) const { return scales; }
	// zero returns -(1024+zero) and -(64+zero).
	__device__ __forceinline__ Two zero() const { return zeros; }
};

// Of bricks of four quarters a lane makes the scales of quarter l%4 once for a brick, and gets those of a K block's quarter
// from the lane that has them: four exchanges take fewer instructions than choosing bytes and converting them each time.
__device__ __forceinline__ uint32_t of_quarter(uint32_t v, int quarter) {
	return __shfl_sync(~0u, v, (threadIdx.x & 28) | quarter);
}

template <> struct StageScales<KScales> {
	Two scales, minimums;     // of quarter l%4, binary16 [2 groups] of each row
	Two scaleNow, minimumNow; // of this K block's quarter

	__device__ __forceinline__ void load(bool when, uint32_t p, int lane, int quarter) {
		if (when) {
			const char *const at = from_shared(p + lane / 4 * 16 + lane % 4 * 2);
			uint32_t upper, lower, m;
			uint2 d; // binary16 [2 rows][d, dmin]
			FromShared::load(true, upper, reinterpret_cast<const uint16_t *>(at));
			FromShared::load(true, lower, reinterpret_cast<const uint16_t *>(at + 8));
			FromShared::load(true, m, reinterpret_cast<const uint32_t *>(from_shared(p + 128)) + lane);
			FromShared::load(true, d, reinterpret_cast<const uint2 *>(from_shared(p + 256)) + lane / 4);
			scales = {mul_f16x2(byte_pair(upper, 0), half_twice(d.x, 0)),
				mul_f16x2(byte_pair(lower, 0), half_twice(d.y, 0))};
			minimums = {mul_f16x2(byte_pair(m, 0), half_twice(d.x, 1) ^ 0x80008000),
				mul_f16x2(byte_pair(m, 2), half_twice(d.y, 1) ^ 0x80008000)};
		}
		scaleNow = {of_quarter(scales.upper, quarter), of_quarter(scales.lower, quarter)};
		minimumNow = {of_quarter(minimums.upper, quarter), of_quarter(minimums.lower, quarter)};
	}
	__device__ __forceinline__ Two scale(int g) const { return {half_twice(scaleNow.upper, g), half_twice(scaleNow.lower, g)}; }
	__device__ __forceinline__ Two minimum(int g) const {
		return {half_twice(minimumNow.upper, g), half_twice(minimumNow.lower, g)};
	}
};

template <> struct StageScales<Q6Scales> {
	Two scales[2], now[2]; // of quarter l%4 and of this K block's, binary16 [2 groups] of each row

	__device__ __forceinline__ void load(bool when, uint32_t p, int lane, int quarter) {
		if (when) {
			uint32_t upper, lower, d; // signed bytes [4 groups] of the two rows; binary16 [2 rows]
			FromShared::load(true, upper, reinterpret_cast<const uint32_t *>(from_shared(p + lane / 4 * 32)) + lane % 4);
			FromShared::load(true, lower, reinterpret_cast<const uint32_t *>(from_shared(p + lane / 4 * 32 + 16)) + lane % 4);
			FromShared::load(true, d, reinterpret_cast<const uint32_t *>(from_shared(p + 256)) + lane / 4);
#pragma unroll
			for (int i = 0; i < 2; i++)
				scales[i] = {mul_f16x2(byte_pair(upper ^ 0x80808080, 2 * i, MINUS_1152), half_twice(d, 0)),
					mul_f16x2(byte_pair(lower ^ 0x80808080, 2 * i, MINUS_1152), half_twice(d, 1))};
		}
#pragma unroll
		for (int i = 0; i < 2; i++)
			now[i] = {of_quarter(scales[i].upper, quarter), of_quarter(scales[i].lower, quarter)};
	}
	__device__ __forceinline__ Two scale(int g) const {
		return {half_twice(now[g / 2].upper, g & 1), half_twice(now[g / 2].lower, g & 1)};
	}
};

// Of a word with codes of 4 or 5 bits, magic makes 1024+code of registers 0 and 2, and 1024+16·code of 1 and 3, which
// saves shifts.
template <int BITS> __device__ __forceinline__ uint32_t magic(const Quarter<BITS> &q, int step, int r) {
	const uint32_t w = r < 2 ? q.word(step) : q.word(step) >> 8;
	const uint32_t v = r % 2 ? and_or(w, 0x00f000f0, K1024) : and_or(w, 0x000f000f, K1024);
	const int up = r % 2 * 4; // where the code begins
	return BITS == 5 ? v | q.shift(q.high.x, 4 * step + r - 4 - up) & 0x00100010 << up : v;
}
constexpr uint32_t SIXTEENTH = 0x2c002c00; // 1/16 as binary16, twice
// less returns what magic returned as code less zero; zero has -(1024+zero) and -(64+zero).
__device__ __forceinline__ uint32_t less(uint32_t v, int r, const Two &zero) {
	return r % 2 ? fma_f16x2(v, SIXTEENTH, zero.lower) : add_f16x2(v, zero.upper);
}

// Integer<C, S> makes integers of codes C with scales S.
//
// of returns register r of a step as binary16 (E4M3: 256 times too small). Odd r is of row l/4+8.
template <class C, class S> struct Integer;
template <int B, int ZERO, class S> struct Integer<Offset<B, ZERO>, S> {
	static __device__ __forceinline__ uint32_t of(const Quarter<B> &q, const S &, int step, int r) {
		return less(magic(q, step, r), r, {(0xe400u | ZERO) * 0x10001u, (0xd400u | ZERO << 4) * 0x10001u});
	}
};
template <int ZERO, class S> struct Integer<Offset<6, ZERO>, S> {
	static __device__ __forceinline__ uint32_t of(const Quarter<6> &q, const S &, int step, int r) {
		return add_f16x2(with_1024(q, step, r), (0xe400u | ZERO) * 0x10001u);
	}
	static __device__ __forceinline__ uint32_t with_1024(const Quarter<6> &q, int step, int r) {
		const uint32_t other = step < 2 ? q.high.x : q.high.y;
		if (r == 3)
			return other >> 8 + step % 2 * 2 & 0x00300030 | and_or(q.word(step) >> 12, 0x000f000f, K1024);
		return and_or(r == 2 ? other >> step % 2 * 6 : q.word(step) >> r * 6, 0x003f003f, K1024);
	}
};
template <class S> struct Integer<ZeroPoint, S> {
	static __device__ __forceinline__ uint32_t of(const Quarter<4> &q, const S &s, int step, int r) {
		return less(magic(q, step, r), r, s.zero());
	}
};
template <class S> struct Integer<Signed, S> {
	static __device__ __forceinline__ uint32_t of(const Quarter<8> &q, const S &, int step, int r) {
		const uint32_t w = q.word(step, r / 2), v = r % 2 ? w >> 8 : w;
		return add_f16x2((v & 0x00ff00ff) ^ 0x64806480, MINUS_1152);
	}
};
template <class S> struct Integer<E4M3, S> {
	static __device__ __forceinline__ uint32_t of(const Quarter<8> &q, const S &, int step, int r) {
		const uint32_t w = q.word(step, r / 2), v = r % 2 ? w : w << 8;
		return v & 0x80008000 | v >> 1 & 0x3f803f80;
	}
};

// CodesOf is a format as weights of the stream-K GEMM.
template <class F> struct CodesOf {
	using Code = typename F::Code;
	using Scales = typename F::Scales;
	static constexpr bool QUANTISED = true;
	static constexpr int CODE_BYTES = F::Codes::BYTES;
	// Of a row tile in a stage: scales come first as in the brick, otherwise behind the codes.
	static constexpr int TILE_BYTES = CODE_BYTES + Scales::BYTES, CODES_AT = F::CODES_AT,
						 SCALES_AT = F::SCALES_FIRST ? 0 : CODE_BYTES;
	static_assert(Scales::MINIMUMS != EACH);

	typename F::Codes codes;
	StageScales<Scales> scales;

	// begins_scales reports whether K block p of a part that begins with K block `first` comes with scales; a lane
	// keeps them for the others of the brick.
	static __device__ __forceinline__ bool begins_scales(int p, int first) {
		return (unsigned)p % F::QUARTERS == 0 || p == first;
	}
	static __device__ __forceinline__ int bytes(int p, int first) {
		return CODE_BYTES + (begins_scales(p, first) ? Scales::BYTES : 0);
	}

	// load loads a lane's registers of K block p from a stage.
	__device__ __forceinline__ void load(uint32_t stage, int p, int first) {
		const int lane = threadIdx.x % 32;
		codes.template load<FromShared>(true, from_shared(stage + CODES_AT), lane);
		scales.load(begins_scales(p, first), stage + SCALES_AT, lane, (unsigned)p % F::QUARTERS);
	}
	// operand returns the A operand of a step.
	__device__ __forceinline__ uint4 operand(int step) const {
		const int g = step / Scales::STEPS;
		const Two scale = scales.scale(g);
		uint32_t v[4];
#pragma unroll
		for (int r = 0; r < 4; r++) {
			const uint32_t code = Integer<Code, StageScales<Scales>>::of(codes, scales, step, r),
						   by = r % 2 ? scale.lower : scale.upper;
			if constexpr (Scales::MINIMUMS == BRICK) {
				const Two minimum = scales.minimum(g);
				v[r] = fma_f16x2(code, by, r % 2 ? minimum.lower : minimum.upper);
			} else {
				v[r] = mul_f16x2(code, by);
			}
		}
		return {v[0], v[1], v[2], v[3]};
	}

	// tile returns the address of a row tile of cols columns.
	static __device__ __forceinline__ const char *tile(const RowTile &t, int cols) {
		return static_cast<const char *>(t.weight) + (size_t)t.index * F::bricks(cols) * F::BYTES;
	}
	// Piece says what is copied of each row tile for a K block, if a brick has several: bytes from `from` of the tile to `to` of its part of a
	// stage, then, if scales come by a copy of their own, those from scalesFrom.
	struct Piece {
		uint32_t from, to, bytes, scalesFrom;
		bool scalesApart;
	};
	static __device__ __forceinline__ Piece piece(int p, int first) {
		const uint32_t q = (unsigned)p % F::QUARTERS, brick = (unsigned)p / F::QUARTERS * F::BYTES;
		const bool together = F::SCALES_FIRST && q == 0;
		return {brick + (together ? 0 : F::CODES_AT + q * CODE_BYTES), together ? 0 : (uint32_t)CODES_AT,
			(uint32_t)(together ? TILE_BYTES : CODE_BYTES), brick + F::SCALES_AT, begins_scales(p, first) && !together};
	}
	// copy starts the copies of K block p of N row tiles to a stage, and counts them at a barrier.
	template <int N> static __device__ __forceinline__ void copy(
		uint32_t stage, const char *const (&tile)[N], int p, int first, uint32_t barrier) {
		if constexpr (F::QUARTERS == 1) {
#pragma unroll
			for (int i = 0; i < N; i++)
				bulk_copy(EVICT_FIRST, stage + i * TILE_BYTES, tile[i] + (size_t)p * F::BYTES, TILE_BYTES, barrier);
			return;
		}
		const Piece piece = CodesOf::piece(p, first);
#pragma unroll
		for (int i = 0; i < N; i++)
			bulk_copy(EVICT_FIRST, stage + i * TILE_BYTES + piece.to, tile[i] + piece.from, piece.bytes, barrier);
		if (!piece.scalesApart) return;
#pragma unroll
		for (int i = 0; i < N; i++)
			bulk_copy(EVICT_FIRST, stage + i * TILE_BYTES + SCALES_AT, tile[i] + piece.scalesFrom, Scales::BYTES, barrier);
	}
};
#endif

// Elements are weights of 16 bits.
template <class D> struct Elements {
	static constexpr bool QUANTISED = false;
	static constexpr int TILE_BYTES = TILE_BLOCK_BYTES;
};
