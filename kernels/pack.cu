#include "gemm/operands.cuh"

struct PackArgs {
	const void *src; // [rows][cols]: float32, or elements of 16 bits
	uint4 *dst;      // out: packed as in gemm/operands.cuh; rows past the last are zero
	int32_t rows, cols;
};

// pack_four reads four columns of a row as 16-bit values.
__device__ __forceinline__ uint2 pack_four(const uint16_t *p) { return *reinterpret_cast<const uint2 *>(p); }
__device__ __forceinline__ uint2 pack_four(const float *p) { return pack4<BF16>(*reinterpret_cast<const float4 *>(p)); }

// pack: dst = src in the packed layout. A thread makes one lane's 16 bytes.
template <class T> __device__ __forceinline__ void pack(const PackArgs &a) {
	const T *src = static_cast<const T *>(a.src);
	const int64_t steps = a.cols / MMA_K, n = (int64_t)(a.rows + 15) / 16 * steps * 32;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
		const int lane = i % 32;
		const int64_t step = i / 32 % steps, row = i / 32 / steps * 16 + lane / 4, at = step * MMA_K + lane % 4 * 4;
		uint2 upper = {0, 0}, lower = {0, 0};
		if (row < a.rows) upper = pack_four(src + row * a.cols + at);
		if (row + 8 < a.rows) lower = pack_four(src + (row + 8) * a.cols + at);
		a.dst[i] = {upper.x, lower.x, upper.y, lower.y};
	}
}

// 16-bit elements keep their bits; float32 is rounded to bfloat16.
extern "C" __global__ void reel_pack_16(const __grid_constant__ PackArgs a) { pack<uint16_t>(a); }
extern "C" __global__ void reel_pack_32(const __grid_constant__ PackArgs a) { pack<float>(a); }
