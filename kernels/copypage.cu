#include <cstdint>

struct CopyPageArgs {
	const uint4 *from; // [words]
	uint4 *to;         // [words]
	int64_t words;     // of 16 bytes
};

// to[i] = from[i]
extern "C" __global__ void reel_copypage(const __grid_constant__ CopyPageArgs a) {
	int64_t stride = (int64_t)gridDim.x * blockDim.x;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.words; i += stride) a.to[i] = a.from[i];
}
