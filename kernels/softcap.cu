#include <cstdint>

#include "ptx/pdl.cuh"

struct SoftcapArgs {
	float *logits;         // in and out: [N][vocab]
	const int32_t *sample; // [N]
	int32_t vocab;
	float limit;
};

// Bounds logits: limit·tanh(x/limit). A thread has one; samples of padding have none.
extern "C" __global__ void reel_softcap(const __grid_constant__ SoftcapArgs a) {
	pdl_begin();
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= a.vocab || a.sample[blockIdx.y] < 0) return;
	float *const x = a.logits + (size_t)blockIdx.y * a.vocab + i;
	*x = __fmul_rn(a.limit, tanhf(__fdiv_rn(*x, a.limit)));
}
