// Weights that come next, brought to L2 at the end of a kernel.
#pragma once
#include <cstdint>

// Ahead is what a block brings of each of up to three weights: `bytes` of them, a multiple of 16, from at + block*apart
// on. 0 bytes: nothing. aheadArgs of args.go mirrors it.
struct Ahead {
	const char *at[3];
	uint32_t apart[3], bytes[3];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// bring_ahead begins to bring them, in a warp. Nothing waits for it.
__device__ __forceinline__ void bring_ahead(const Ahead &a, uint32_t block) {
	constexpr uint32_t PIECE = 2048;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		const char *const from = a.at[i] + (size_t)block * a.apart[i];
#pragma unroll 1
		for (uint32_t at = threadIdx.x % 32 * PIECE; at < a.bytes[i]; at += 32 * PIECE)
			asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from + at), "r"(min(PIECE, a.bytes[i] - at))
				: "memory");
	}
}
#endif
