// Formats of quantised weights in the layout Codes: the registers of a lane, how they become A operands in bfloat16,
// and their scales. kernels/codes.go states the bytes of a brick and packs it on the host.
//
// A format is Format<columns of a brick, code, scales>. To add one: its brick in codes.go; the line of its Format
// below, with a code and scales of its own if it needs them; its source in pack_codes.cu; its name in REEL_FORMATS
// and, if its bricks have 64 columns, in REEL_CODES_RING (product.cuh).
// A code has the static members
//
//   BITS                       4, 5, 6 or 8
//   ORDER                      where the four bits of a code are in a word (codes.go)
//   operand(q, step, scales, group)   the A operand of a step: exact values of the codes
//   raw(q, step)               the same before the zero is subtracted, and times 2^-EXPONENT; in rows 8 to 15 also times
//                              LOWER. It takes fewer instructions, because bfloat16 with exponents 0 and 1 (subnormal
//                              numbers and those above) are the integers from 0 to 255, times 2^-133
//   EXPONENT, LOWER            as above
//   ZERO                       value = code - ZERO; OF_GROUP: scales.zero(g)
//
// and scales, of which a lane holds those of rows l/4 and l/4+8 of a brick,
//
//   BYTES                      of the scales of a brick
//   STEPS                      mma steps of a quarter that share a scale: 1, 2 or 4
//   MINIMUMS                   EACH: acc += minimum(g) · Σ activations of the group; BRICK: minimum_operand and
//                              minimum_scale for 8 groups at once; or NONE
//   load<From>(when, p, lane)  loads them if `when`; p is the address of the scales in the brick
//   zero(g)                    zeros of both rows, as float32, if codes have ZERO OF_GROUP
//   scale(g)                   float32 scales of both rows for group g, g-th of STEPS steps of the brick
//   minimum(p, lane, g)        what the reference adds to scale·code; only embed calls it for BRICK
#pragma once
#include "gemm/operands.cuh"
#include "ptx/memory.cuh"

constexpr int QUARTER_STEPS = 4, QUARTER_COLUMNS = QUARTER_STEPS * MMA_K;
enum Minimums { NONE, EACH, BRICK };
enum NibbleOrder { BY_REGISTER, FOR_LOOKUPS, SIGNS_APART };
constexpr int OF_GROUP = -1;
constexpr int INTEGERS = 133; // bfloat16 with the bits of 0 to 255 are integers times 2^-133

// FromGlobal loads a lane's part of a brick from global memory, if `when`.
struct FromGlobal {
	template <class V, class P> static __device__ __forceinline__ void load(bool when, V &v, const P *p) {
		load_weights_if(when, v, p);
	}
};
// FromShared does from shared memory, at any rate. Its pointers are shared addresses (from_shared).
struct FromShared {
	static __device__ __forceinline__ uint32_t at(const void *p) {
		return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p));
	}
	static __device__ __forceinline__ void load(bool, uint4 &v, const uint4 *p) {
		asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at(p)));
	}
	static __device__ __forceinline__ void load(bool, uint2 &v, const uint2 *p) {
		asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at(p)));
	}
	static __device__ __forceinline__ void load(bool, uint32_t &v, const uint32_t *p) {
		asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at(p)));
	}
	static __device__ __forceinline__ void load(bool, uint32_t &v, const uint16_t *p) {
		asm volatile("{ .reg .u16 s; ld.shared.u16 s, [%1]; cvt.u32.u16 %0, s; }" : "=r"(v) : "r"(at(p)));
	}
};
__device__ __forceinline__ const char *from_shared(uint32_t address) {
	return reinterpret_cast<const char *>(static_cast<uintptr_t>(address));
}

// Quarter holds a lane's codes of a quarter.
template <int BITS> struct Quarter {
	static constexpr int BYTES = 128 * BITS;
	uint4 low;
	uint2 high; // 5 bits: only x

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, low, reinterpret_cast<const uint4 *>(p) + lane);
		if (BITS == 5) From::load(when, high.x, reinterpret_cast<const uint32_t *>(p + 512) + lane);
		if (BITS == 6) From::load(when, high, reinterpret_cast<const uint2 *>(p + 512) + lane);
	}
	__device__ __forceinline__ uint32_t word(int step) const {
		return step == 0 ? low.x : step == 1 ? low.y : step == 2 ? low.z : low.w;
	}
	// biased returns 128 + code of both codes of a register, as bfloat16.
	__device__ __forceinline__ uint32_t biased(int step, int r) const {
		if (BITS == 6) return raw(step, r) | 0x43004300;
		const uint32_t v = and_or(word(step) >> 4 * r, 0x000f000f, 0x43004300);
		return BITS == 5 ? v | shift(high.x, 4 * step + r - 4) & 0x00100010 : v;
	}
	// raw returns both codes of a register as bits. Four bits are not shifted to the end where that takes an
	// instruction.
	static constexpr int LOWER = BITS == 4 ? 16 : 1;
	__device__ __forceinline__ uint32_t raw(int step, int r) const {
		if (BITS == 4) return r % 2 == 0 ? word(step) >> 4 * r & 0x000f000f : word(step) >> 4 * (r - 1) & 0x00f000f0;
		if (BITS == 5) return word(step) >> 4 * r & 0x000f000f | shift(high.x, 4 * step + r - 4) & 0x00100010;
		const uint32_t other = step < 2 ? high.x : high.y;
		if (r == 3) return and_or(other >> 8 + step % 2 * 2, 0x00300030, word(step) >> 12 & 0x000f000f);
		return (r == 2 ? other >> step % 2 * 6 : word(step) >> r * 6) & 0x003f003f;
	}
	__device__ __forceinline__ uint4 raw(int step) const { return {raw(step, 0), raw(step, 1), raw(step, 2), raw(step, 3)}; }
	// shift shifts right by n, or left by -n.
	static __device__ __forceinline__ uint32_t shift(uint32_t v, int n) { return n < 0 ? v << -n : v >> n; }
};
template <> struct Quarter<8> {
	static constexpr int BYTES = 1024;
	uint4 first, second; // steps 0 and 1, steps 2 and 3

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, first, reinterpret_cast<const uint4 *>(p) + lane);
		From::load(when, second, reinterpret_cast<const uint4 *>(p) + 32 + lane);
	}
	// word returns the codes of registers 2i and 2i+1.
	__device__ __forceinline__ uint32_t word(int step, int i) const {
		const uint4 &v = step < 2 ? first : second;
		return step % 2 == 0 ? (i == 0 ? v.x : v.y) : (i == 0 ? v.z : v.w);
	}
};

constexpr uint32_t ONES = 0x3f803f80; // 1 as bfloat16, twice

// Offset is code - ZERO.
template <int B, int Z> struct Offset {
	static constexpr int BITS = B, ZERO = Z, EXPONENT = INTEGERS, LOWER = Quarter<B>::LOWER;
	static constexpr NibbleOrder ORDER = BY_REGISTER;
	static __device__ __forceinline__ uint4 raw(const Quarter<B> &q, int step) { return q.raw(step); }
	template <class S> static __device__ __forceinline__ uint4 operand(const Quarter<B> &q, int step, const S &, int) {
		constexpr uint32_t BIAS = (0xc300u | ZERO) * 0x10001u; // -(128 + ZERO)
		return {fma_bf16x2(q.biased(step, 0), ONES, BIAS), fma_bf16x2(q.biased(step, 1), ONES, BIAS),
			fma_bf16x2(q.biased(step, 2), ONES, BIAS), fma_bf16x2(q.biased(step, 3), ONES, BIAS)};
	}
};

// ZeroPoint is code - zero, with a zero of the group.
struct ZeroPoint {
	static constexpr int BITS = 4, ZERO = OF_GROUP, EXPONENT = INTEGERS, LOWER = Quarter<4>::LOWER;
	static constexpr NibbleOrder ORDER = BY_REGISTER;
	static __device__ __forceinline__ uint4 raw(const Quarter<4> &q, int step) { return q.raw(step); }
	template <class S> static __device__ __forceinline__ uint4 operand(const Quarter<4> &q, int step, const S &s, int g) {
		const uint2 bias = s.bias(g);
		return {fma_bf16x2(q.biased(step, 0), ONES, bias.x), fma_bf16x2(q.biased(step, 1), ONES, bias.y),
			fma_bf16x2(q.biased(step, 2), ONES, bias.x), fma_bf16x2(q.biased(step, 3), ONES, bias.y)};
	}
};

// signed_bytes returns bytes 0 and 2 of a word, which are signed, as bfloat16: the low seven bits count from 128, and
// the sign subtracts another 128.
__device__ __forceinline__ uint32_t signed_bytes(uint32_t w) {
	return fma_bf16x2(and_or(w, 0x007f007f, 0x43004300), ONES, and_or(w, 0x00800080, 0xc300c300));
}

// offset_bytes returns bytes 0 and 2 of a word plus 128, as bits.
__device__ __forceinline__ uint32_t offset_bytes(uint32_t w) {
	uint32_t v;
	asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(v) : "r"(w), "r"(0x00ff00ff), "r"(0x00800080)); // w & 0x00ff00ff ^ …
	return v;
}

// Signed is a signed byte.
struct Signed {
	static constexpr int BITS = 8, ZERO = 128, EXPONENT = INTEGERS, LOWER = 1;
	static constexpr NibbleOrder ORDER = BY_REGISTER;
	static __device__ __forceinline__ uint4 raw(const Quarter<8> &q, int step) {
		const uint32_t v = q.word(step, 0), w = q.word(step, 1);
		return {offset_bytes(v), offset_bytes(v >> 8), offset_bytes(w), offset_bytes(w >> 8)};
	}
	template <class S> static __device__ __forceinline__ uint4 operand(const Quarter<8> &q, int step, const S &, int) {
		const uint32_t v = q.word(step, 0), w = q.word(step, 1);
		return {signed_bytes(v), signed_bytes(v >> 8), signed_bytes(w), signed_bytes(w >> 8)};
	}
};

// E4M3 becomes a bfloat16 with its exponent and fraction, 2^120 times too small. That factor also makes subnormal
// codes right.
struct E4M3 {
	static constexpr int BITS = 8, ZERO = 0, EXPONENT = 120, LOWER = 1;
	static constexpr NibbleOrder ORDER = BY_REGISTER;
	static __device__ __forceinline__ uint32_t bits(uint32_t sign, uint32_t rest) {
		return sign & 0x80008000 | rest & 0x07f007f0;
	}
	static __device__ __forceinline__ uint32_t scaled(uint32_t sign, uint32_t rest) {
		return fma_bf16x2(bits(sign, rest), 0x7b807b80, 0x80008000);
	}
	static __device__ __forceinline__ uint4 raw(const Quarter<8> &q, int step) {
		const uint32_t v = q.word(step, 0), w = q.word(step, 1);
		return {bits(v << 8, v << 4), bits(v, v >> 4), bits(w << 8, w << 4), bits(w, w >> 4)};
	}
	template <class S> static __device__ __forceinline__ uint4 operand(const Quarter<8> &q, int step, const S &, int) {
		const uint32_t v = q.word(step, 0), w = q.word(step, 1);
		return {scaled(v << 8, v << 4), scaled(v, v >> 4), scaled(w << 8, w << 4), scaled(w, w >> 4)};
	}
};

// E2M1 is twice the value of an E2M1 code, in the same way: 2^127. Signs and the other three bits have places of their
// own in a word (codes.go). So registers 0 and 1 take one mask, and most shifts are to the left, which units for products
// also compute: unpacking is bound by those for masks and shifts to the right.
struct E2M1 {
	static constexpr int BITS = 4, ZERO = 0, EXPONENT = 127, LOWER = 1;
	static constexpr NibbleOrder ORDER = SIGNS_APART;
	// sign_at and rest_at are the first bits of a sign and of the rest of a code in a half of a word.
	static __device__ __forceinline__ constexpr int sign_at(int r) { return r == 0 ? 15 : 11 + r; }
	static __device__ __forceinline__ constexpr int rest_at(int r) { return r == 3 ? 9 : 6 - 3 * r; }
	// sign and rest return those of register r, the rest from bit `to` of each half on.
	static __device__ __forceinline__ uint32_t sign(uint32_t w, int r) { return w << (15 - sign_at(r)) & 0x80008000; }
	static __device__ __forceinline__ uint32_t rest(uint32_t w, int r, int to) {
		return Quarter<4>::shift(w, rest_at(r) - to) & 0x00070007 << to;
	}
	static __device__ __forceinline__ uint32_t bits(uint32_t w, int r) {
		if (r < 2) return w << 3 * r & 0x81c081c0; // both are moved as far
		return sign(w, r) | rest(w, r, 6);
	}
	static __device__ __forceinline__ uint32_t scaled(uint32_t w, int r) { return fma_bf16x2(bits(w, r), 0x7f007f00, 0); }
	static __device__ __forceinline__ uint4 raw(const Quarter<4> &q, int step) {
		const uint32_t w = q.word(step);
		return {bits(w, 0), bits(w, 1), bits(w, 2), bits(w, 3)};
	}
	template <class S> static __device__ __forceinline__ uint4 operand(const Quarter<4> &q, int step, const S &, int) {
		const uint32_t w = q.word(step);
		return {scaled(w, 0), scaled(w, 1), scaled(w, 2), scaled(w, 3)};
	}
};

// IQ4 is a value from a table of 16 signed bytes.
struct IQ4 {
	static constexpr int BITS = 4, ZERO = 128, EXPONENT = INTEGERS, LOWER = 1;
	static constexpr NibbleOrder ORDER = FOR_LOOKUPS;
	static __device__ __forceinline__ uint4 raw(const Quarter<4> &q, int step) {
		const uint32_t v = look_up(q.word(step)), w = look_up(q.word(step) >> 16);
		return {offset_bytes(v), offset_bytes(v >> 8), offset_bytes(w), offset_bytes(w >> 8)};
	}
	// look_up returns the values of the low four nibbles of w.
	static __device__ __forceinline__ uint32_t look_up(uint32_t w) {
		const uint32_t at = w & 0x7777;
		const uint32_t low = __byte_perm(0xbfad9881, 0xf6eaddcf, at), high = __byte_perm(0x26190d01, 0x71594535, at);
		return __byte_perm(low, high, and_or(w >> 1, 0x4444, 0x3210));
	}
	template <class S> static __device__ __forceinline__ uint4 operand(const Quarter<4> &q, int step, const S &, int) {
		const uint32_t v = look_up(q.word(step)), w = look_up(q.word(step) >> 16);
		return {signed_bytes(v), signed_bytes(v >> 8), signed_bytes(w), signed_bytes(w >> 8)};
	}
};

// both returns two binary16 as float32.
__device__ __forceinline__ float2 both(uint32_t v) { return {F16::low(v), F16::high(v)}; }
__device__ __forceinline__ uint32_t byte_of(uint32_t v, int i) { return v >> 8 * i & 0xff; }
__device__ __forceinline__ float2 times(const float2 &v, float x, float y) {
	return {__fmul_rn(v.x, x), __fmul_rn(v.y, y)};
}

// with_byte returns 32768 plus byte i of a word.
__device__ __forceinline__ float with_byte(uint32_t v, int i) {
	return __uint_as_float(__byte_perm(v, 0x47000000, 0x7404 | i << 4));
}
// times_bytes returns d times byte i of each word, and times_signed_bytes of bytes whose signs were flipped: exactly,
// because d has 11 bits. minus is -32768·d, or -32896·d.
__device__ __forceinline__ float2 times_bytes(const float2 &d, const float2 &minus, uint32_t v, uint32_t w, int i) {
	return {__fmaf_rn(d.x, with_byte(v, i), minus.x), __fmaf_rn(d.y, with_byte(w, i), minus.y)};
}

// Halves are binary16 for 32 columns.
struct Halves {
	static constexpr int BYTES = 64, STEPS = 2;
	static constexpr Minimums MINIMUMS = NONE;
	uint2 v;

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, v, reinterpret_cast<const uint2 *>(p) + lane / 4);
	}
	__device__ __forceinline__ float2 scale(int g) const { return both(g ? v.y : v.x); }
	__device__ __forceinline__ float2 minimum(const char *, int, int) const { return {0, 0}; }
};

// HalvesAndMinimums has a minimum, to be added, beside each scale.
struct HalvesAndMinimums {
	static constexpr int BYTES = 128, STEPS = 2;
	static constexpr Minimums MINIMUMS = EACH;
	uint4 v;

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, v, reinterpret_cast<const uint4 *>(p) + lane / 4);
	}
	__device__ __forceinline__ float2 scale(int g) const { return both(g ? v.y : v.x); }
	__device__ __forceinline__ float2 minimum(int g) const { return both(g ? v.w : v.z); }
	__device__ __forceinline__ float2 minimum(const char *, int, int g) const { return minimum(g); }
};

// Exponents are E8M0 for 32 columns, for values times two: 2^(e-128), which is subnormal for e of 0 and 1.
struct Exponents {
	static constexpr int BYTES = 32, STEPS = 2;
	static constexpr Minimums MINIMUMS = NONE;
	uint32_t v;

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, v, reinterpret_cast<const uint32_t *>(p) + lane / 4);
	}
	// power is that of byte i; the maximum is for e of 0. No weight has e of 255.
	__device__ __forceinline__ float power(int i) const {
		const uint32_t bits = (i == 3 ? v >> 1 : v << (23 - 8 * i)) & 0x7f800000;
		return __fmul_rn(0.5f, fmaxf(__uint_as_float(bits), 0x1p-127f));
	}
	__device__ __forceinline__ float2 scale(int g) const { return {power(2 * g), power(2 * g + 1)}; }
	__device__ __forceinline__ float2 minimum(const char *, int, int) const { return {0, 0}; }
};

// KScales are those of Q4_K and Q5_K: d·scale and -dmin·minimum for 32 columns, with bytes of 6 bits.
struct KScales {
	static constexpr int BYTES = 320, STEPS = 2;
	static constexpr Minimums MINIMUMS = BRICK;
	uint4 scales;      // bytes [2 rows][8 groups]
	uint2 d;           // binary16 [2 rows][d, dmin]
	uint32_t minimums; // bytes [2 rows][2 groups, from 2·(lane%4) on]

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, scales, reinterpret_cast<const uint4 *>(p) + lane / 4);
		From::load(when, minimums, reinterpret_cast<const uint32_t *>(p + 128) + lane);
		From::load(when, d, reinterpret_cast<const uint2 *>(p + 256) + lane / 4);
	}
	__device__ __forceinline__ float2 scale(int g) const {
		const float2 v = {F16::low(d.x), F16::low(d.y)};
		return times_bytes(v, times(v, -32768.f, -32768.f), g < 4 ? scales.x : scales.y, g < 4 ? scales.z : scales.w, g % 4);
	}
	// minimum_operand returns minimums as an A operand: columns 0 to 7 are the groups, and again columns 8 to 15.
	__device__ __forceinline__ uint4 minimum_operand() const {
		const uint32_t x = fma_bf16x2(__byte_perm(minimums, 0x43, 0x4140), ONES, 0xc300c300);
		const uint32_t y = fma_bf16x2(__byte_perm(minimums, 0x43, 0x4342), ONES, 0xc300c300);
		return {x, y, x, y};
	}
	__device__ __forceinline__ float2 minimum_scale() const { return {-F16::high(d.x), -F16::high(d.y)}; }
	__device__ __forceinline__ float2 minimum(const char *p, int lane, int g) const {
		const char *m = p + 128 + lane / 4 * 16 + g / 2 * 4 + g % 2;
		return times(minimum_scale(), m[0], m[2]);
	}
};

// Q6Scales are those of Q6_K: d·scale for 16 columns, with signed bytes.
struct Q6Scales {
	static constexpr int BYTES = 288, STEPS = 1;
	static constexpr Minimums MINIMUMS = NONE;
	uint4 upper, lower; // bytes [16 groups] of the two rows
	uint32_t d;

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, upper, reinterpret_cast<const uint4 *>(p) + lane / 4 * 2);
		From::load(when, lower, reinterpret_cast<const uint4 *>(p) + lane / 4 * 2 + 1);
		From::load(when, d, reinterpret_cast<const uint32_t *>(p + 256) + lane / 4);
	}
	static __device__ __forceinline__ uint32_t of(const uint4 &v, int g) {
		return (g < 4 ? v.x : g < 8 ? v.y : g < 12 ? v.z : v.w) ^ 0x80808080;
	}
	__device__ __forceinline__ float2 scale(int g) const {
		return times_bytes(both(d), times(both(d), -32896.f, -32896.f), of(upper, g), of(lower, g), g % 4);
	}
	__device__ __forceinline__ float2 minimum(const char *, int, int) const { return {0, 0}; }
};

// IQ4Scales are those of IQ4_XS: d·scale for 32 columns, with signed bytes.
struct IQ4Scales {
	static constexpr int BYTES = 160, STEPS = 2;
	static constexpr Minimums MINIMUMS = NONE;
	uint4 scales; // bytes [2 rows][8 groups]
	uint32_t d;

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, scales, reinterpret_cast<const uint4 *>(p) + lane / 4);
		From::load(when, d, reinterpret_cast<const uint32_t *>(p + 128) + lane / 4);
	}
	__device__ __forceinline__ float2 scale(int g) const {
		const uint32_t v = (g < 4 ? scales.x : scales.y) ^ 0x80808080, w = (g < 4 ? scales.z : scales.w) ^ 0x80808080;
		return times_bytes(both(d), times(both(d), -32896.f, -32896.f), v, w, g % 4);
	}
	__device__ __forceinline__ float2 minimum(const char *, int, int) const { return {0, 0}; }
};

// Floats are one float32 for all columns of a brick.
struct Floats {
	static constexpr int BYTES = 64, STEPS = 4;
	static constexpr Minimums MINIMUMS = NONE;
	uint2 v;

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
		From::load(when, v, reinterpret_cast<const uint2 *>(p) + lane / 4);
	}
	__device__ __forceinline__ float2 scale(int) const { return {__uint_as_float(v.x), __uint_as_float(v.y)}; }
	__device__ __forceinline__ float2 minimum(const char *, int, int) const { return {0, 0}; }
};

// FloatsAndZeros are a float32 and a zero, from 0 to 15, for 32 columns (GROUPS = 2) or all columns of a brick (1).
template <int GROUPS> struct FloatsAndZeros {
	static constexpr int BYTES = 80 * GROUPS, STEPS = 4 / GROUPS;
	static constexpr Minimums MINIMUMS = NONE;
	uint2 v[GROUPS];
	uint32_t zeros[GROUPS]; // bytes [2 rows]

	template <class From = FromGlobal> __device__ __forceinline__ void load(bool when, const char *p, int lane) {
#pragma unroll
		for (int g = 0; g < GROUPS; g++) {
			From::load(when, v[g], reinterpret_cast<const uint2 *>(p) + g * 8 + lane / 4);
			From::load(when, zeros[g], reinterpret_cast<const uint16_t *>(p + GROUPS * 64) + g * 8 + lane / 4);
		}
	}
	__device__ __forceinline__ float2 scale(int g) const {
		const uint2 &w = v[GROUPS == 1 ? 0 : g];
		return {__uint_as_float(w.x), __uint_as_float(w.y)};
	}
	__device__ __forceinline__ float2 zero(int g) const {
		const uint32_t z = zeros[GROUPS == 1 ? 0 : g];
		return {__fsub_rn(with_byte(z, 0), 32768.f), __fsub_rn(with_byte(z, 1), 32768.f)};
	}
	// bias returns -(128 + zero) of both rows as bfloat16, each twice.
	__device__ __forceinline__ uint2 bias(int g) const {
		const uint32_t z = zeros[GROUPS == 1 ? 0 : g];
		return {__byte_perm(z, 0xc3, 0x4040), __byte_perm(z, 0xc3, 0x4141)};
	}
	__device__ __forceinline__ float2 minimum(const char *, int, int) const { return {0, 0}; }
};

template <int C, class Code_, class Scales_> struct Format {
	using Code = Code_;
	using Scales = Scales_;
	using Codes = Quarter<Code::BITS>;
	static constexpr int COLUMNS = C, QUARTERS = C / QUARTER_COLUMNS, BYTES = QUARTERS * Codes::BYTES + Scales::BYTES;
	static constexpr int GROUPS = QUARTER_STEPS / Scales::STEPS; // of a quarter

	// Where a brick's codes and its scales begin. Scales of two quarters come first: so they and the first quarter's codes
	// are one copy (codes_stage.cuh).
	static constexpr bool SCALES_FIRST = QUARTERS == 2;
	static constexpr int CODES_AT = SCALES_FIRST ? Scales::BYTES : 0, SCALES_AT = SCALES_FIRST ? 0 : QUARTERS * Codes::BYTES;

	// scales_of returns the address of a brick's scales, codes_of that of the codes of its quarter q.
	static __device__ __forceinline__ const char *scales_of(const char *brick) { return brick + SCALES_AT; }
	static __device__ __forceinline__ const char *codes_of(const char *brick, int q) {
		return brick + CODES_AT + q * Codes::BYTES;
	}
	static __device__ __forceinline__ int bricks(int cols) { return (cols + COLUMNS - 1) / COLUMNS; }
};

using Q4_0 = Format<64, Offset<4, 8>, Halves>;
using Q4_1 = Format<64, Offset<4, 0>, HalvesAndMinimums>;
using Q5_0 = Format<64, Offset<5, 16>, Halves>;
using Q5_1 = Format<64, Offset<5, 0>, HalvesAndMinimums>;
using Q8_0 = Format<64, Signed, Halves>;
using Q4_K = Format<256, Offset<4, 0>, KScales>;
using Q5_K = Format<256, Offset<5, 0>, KScales>;
using Q6_K = Format<256, Offset<6, 32>, Q6Scales>;
using IQ4_XS = Format<256, IQ4, IQ4Scales>;
using MXFP4 = Format<64, E2M1, Exponents>;
using F8 = Format<128, E4M3, Floats>;
using G4_32 = Format<64, ZeroPoint, FloatsAndZeros<2>>;
using G4_64 = Format<64, ZeroPoint, FloatsAndZeros<1>>;
using G4_128 = Format<128, ZeroPoint, FloatsAndZeros<1>>;

// REEL_USUAL_FORMATS applies each(name, format, …) to the usual formats, usualFormats of codes.go: there are kernels for
// prompts by stream-K and for tagged values. Bricks of 64 columns have a ring in gate and up of one row.
#define REEL_USUAL_FORMATS_OF_64(each, ...) \
	each(q4_0, Q4_0, ##__VA_ARGS__)         \
	each(q8_0, Q8_0, ##__VA_ARGS__)
#define REEL_USUAL_FORMATS_OF_MORE(each, ...) \
	each(q4_k, Q4_K, ##__VA_ARGS__)           \
	each(q5_k, Q5_K, ##__VA_ARGS__)           \
	each(q6_k, Q6_K, ##__VA_ARGS__)           \
	each(f8, F8, ##__VA_ARGS__)               \
	each(g4_128, G4_128, ##__VA_ARGS__)
#define REEL_USUAL_FORMATS(each, ...)                 \
	REEL_USUAL_FORMATS_OF_64(each, ##__VA_ARGS__) \
	REEL_USUAL_FORMATS_OF_MORE(each, ##__VA_ARGS__)

// REEL_FORMATS applies each(name, format, …) to all formats.
#define REEL_FORMATS(each, ...)          \
	each(q4_0, Q4_0, ##__VA_ARGS__)      \
	each(q4_1, Q4_1, ##__VA_ARGS__)      \
	each(q5_0, Q5_0, ##__VA_ARGS__)      \
	each(q5_1, Q5_1, ##__VA_ARGS__)      \
	each(q8_0, Q8_0, ##__VA_ARGS__)      \
	each(q4_k, Q4_K, ##__VA_ARGS__)      \
	each(q5_k, Q5_K, ##__VA_ARGS__)      \
	each(q6_k, Q6_K, ##__VA_ARGS__)      \
	each(iq4_xs, IQ4_XS, ##__VA_ARGS__)  \
	each(mxfp4, MXFP4, ##__VA_ARGS__)    \
	each(f8, F8, ##__VA_ARGS__)          \
	each(g4_32, G4_32, ##__VA_ARGS__)    \
	each(g4_64, G4_64, ##__VA_ARGS__)    \
	each(g4_128, G4_128, ##__VA_ARGS__)
