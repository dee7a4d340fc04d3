#include "ptx/pdl.cuh"

struct GatherArgs {
	const float *x;        // [T][cols]
	const int32_t *sample; // [N]
	float *out;            // out: [N][cols]
	int32_t *index;        // out: [N]
	int32_t cols, unused;
};

// Out[i] = X[sample[i]], Index[i] = i, or -1 if sample i is padding. A block is one sample.
extern "C" __global__ void reel_gather(const __grid_constant__ GatherArgs a) {
	pdl_begin();
	const int row = a.sample[blockIdx.x];
	if (threadIdx.x == 0) a.index[blockIdx.x] = row < 0 ? -1 : (int)blockIdx.x;
	if (row < 0) return;
	const float4 *x = reinterpret_cast<const float4 *>(a.x + (size_t)row * a.cols);
	float4 *out = reinterpret_cast<float4 *>(a.out + (size_t)blockIdx.x * a.cols);
	for (int i = threadIdx.x; i < a.cols / 4; i += blockDim.x) out[i] = x[i];
}
