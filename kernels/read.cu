#include <cstdint>

#include "ptx/memory.cuh"

struct ReadArgs {
	const uint4 *data; // [n]
	uint32_t *out;     // [1]
	int64_t n;
};

// out ^= the exclusive or of all words of data. Each thread has 8 loads of 16 bytes in flight.
extern "C" __global__ void reel_read(const __grid_constant__ ReadArgs a) {
	const int in_flight = 8;
	uint32_t x = 0;
	int64_t run = (int64_t)in_flight * blockDim.x;
	for (int64_t at = blockIdx.x * run; at < a.n; at += gridDim.x * run) {
		uint4 v[in_flight];
#pragma unroll
		for (int i = 0; i < in_flight; i++) {
			int64_t k = at + (int64_t)i * blockDim.x + threadIdx.x;
			v[i] = k < a.n ? load_weights(a.data + k) : make_uint4(0, 0, 0, 0);
		}
#pragma unroll
		for (int i = 0; i < in_flight; i++) x ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
	}
	for (int lane = 16; lane > 0; lane /= 2) x ^= __shfl_xor_sync(0xffffffff, x, lane);
	if (threadIdx.x % 32 == 0) atomicXor(a.out, x);
}
