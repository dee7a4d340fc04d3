// Approximate functions of one instruction each.
#pragma once

// exp2_approx returns 2^x; denormals count as 0.
__device__ __forceinline__ float exp2_approx(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// reciprocal_approx returns 1/x; denormals count as 0.
__device__ __forceinline__ float reciprocal_approx(float x) {
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}
