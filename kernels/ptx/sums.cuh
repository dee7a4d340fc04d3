// Sums over a block.
#pragma once

// block_sum returns the sum of v over all THREADS threads, each of which gets it. Every thread of the block calls it.
template <int THREADS> __device__ __forceinline__ float block_sum(float v) {
	__shared__ float warps[THREADS / 32];
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(~0u, v, apart);
	__syncthreads(); // the sums of a call before have been read
	if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
	__syncthreads();
	float sum = 0;
#pragma unroll
	for (int i = 0; i < THREADS / 32; i++) sum += warps[i];
	return sum;
}

__device__ __forceinline__ float sum_of_squares(const float4 &v) {
	return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}

__device__ __forceinline__ float4 scaled(const float4 &v, float by) { return {v.x * by, v.y * by, v.z * by, v.w * by}; }

__device__ __forceinline__ float4 product(const float4 &v, const float4 &w) {
	return {v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w};
}
