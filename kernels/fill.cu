#include <cstdint>

struct FillArgs {
	uint32_t *data; // [n]
	int64_t n;
	uint32_t value;
	uint32_t pad;
};

// data[i] = value
extern "C" __global__ void reel_fill(const __grid_constant__ FillArgs a) {
	int64_t stride = (int64_t)gridDim.x * blockDim.x;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += stride) a.data[i] = a.value;
}
