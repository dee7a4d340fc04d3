// Activations of gates: act(a) = a/(1 + 2^(a slope(a))), of Activation in kernels/gateup.go.
#pragma once

// slope returns linear + cubic a². With cubic 0 it is linear, whatever a is: an infinite square, and one that is no
// number, become the largest number.
__device__ __forceinline__ float slope(float a, float linear, float cubic) {
	constexpr float MOST = 3.4e38f;
	return __fmaf_rn(cubic, fminf(__fmul_rn(a, a), MOST), linear);
}
