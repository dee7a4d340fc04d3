// The 16-bit element types, with mma.sync and ldmatrix.
#pragma once
#include <cstdint>

// ldmatrix reads four 8×8 matrices of 16-bit values; each lane gives the shared address of one row.
__device__ __forceinline__ uint4 ldmatrix(uint32_t address) {
	uint4 v;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		: "r"(address)
		: "memory");
	return v;
}
// ldmatrix_transposed is ldmatrix of the transposed matrices.
__device__ __forceinline__ uint4 ldmatrix_transposed(uint32_t address) {
	uint4 v;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		: "r"(address)
		: "memory");
	return v;
}

// mma_bf16 computes c[16][8] += A[16][16] · B[16][8] in float32. The compiler may move it, unlike
// BF16::mma, whose order among the loads of weights is fixed.
__device__ __forceinline__ void mma_bf16(
	float *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// mma_bf16_first is mma_bf16 with a sum that begins at 0.
__device__ __forceinline__ void mma_bf16_first(float *c, const uint4 &a, uint32_t b0, uint32_t b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
	    : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
	    : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(0.f));
}

// mma_bf16_from is mma_bf16 with a sum that begins at `from`.
__device__ __forceinline__ void mma_bf16_from(
	float *c, const uint4 &a, uint32_t b0, uint32_t b1, const float (&from)[4]) {
	asm volatile(
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
		: "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
		: "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(from[0]), "f"(from[1]), "f"(from[2]),
		"f"(from[3]));
}

// and_or computes a & mask | bits in one instruction, which the compiler does not for two constants.
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
	uint32_t v;
	asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(v) : "r"(a), "r"(mask), "r"(bits));
	return v;
}

// fma_bf16x2 computes a·b + c of two bfloat16 each.
__device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
	uint32_t v;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
	return v;
}

// The same for binary16: a + b, a·b and a·b + c, each rounded once.
__device__ __forceinline__ uint32_t add_f16x2(uint32_t a, uint32_t b) {
	uint32_t v;
	asm("add.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
	return v;
}
__device__ __forceinline__ uint32_t mul_f16x2(uint32_t a, uint32_t b) {
	uint32_t v;
	asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
	return v;
}
__device__ __forceinline__ uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
	uint32_t v;
	asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
	return v;
}

struct BF16 {
	// pack rounds two values to nearest; low goes to the lower half.
	static __device__ __forceinline__ uint32_t pack(float low, float high) {
		uint32_t v;
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
		return v;
	}
	static __device__ __forceinline__ float low(uint32_t v) { return __uint_as_float(v << 16); }
	static __device__ __forceinline__ float high(uint32_t v) { return __uint_as_float(v & 0xffff0000); }
	// mma computes c[row][token] += Σ a[row][k] b[k][token] over 16 k, in float32.
	static __device__ __forceinline__ void mma(float (&c)[4], const uint4 &a, uint32_t b0, uint32_t b1) {
		asm volatile(
			"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			: "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
	}
};

struct F16 {
	// clamp limits an activation to ±65504, the largest float16. NaN stays NaN.
	static __device__ __forceinline__ float clamp(float v) {
		return v > 65504.f ? 65504.f : v < -65504.f ? -65504.f : v;
	}
	static __device__ __forceinline__ uint32_t pack(float low, float high) {
		uint32_t v;
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(clamp(high)), "f"(clamp(low)));
		return v;
	}
	static __device__ __forceinline__ float low(uint32_t v) {
		float f;
		asm("{ .reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(f) : "r"(v));
		return f;
	}
	static __device__ __forceinline__ float high(uint32_t v) {
		float f;
		asm("{ .reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "r"(v));
		return f;
	}
	static __device__ __forceinline__ void mma(float (&c)[4], const uint4 &a, uint32_t b0, uint32_t b1) {
		asm volatile(
			"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			: "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
	}
};
