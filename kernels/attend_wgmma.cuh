// The tensor-core steps of attention over prompts on Hopper: a block's keys and values are
// read from shared memory by the tensor cores themselves.
#pragma once
#include "attend.cuh"
#include "deep.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// c[64][64] += A[64][16] · B[16][64] for four warps, A and c in registers as mma has
// them. B is [64][16] in shared memory, or with TURNED [16][64]: rows of 128 bytes, as
// tile_of describes them.
template <int TURNED> __device__ __forceinline__ void attend_wgmma(float *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, %37;"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
		: "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(TURNED));
}

// Keeps registers where they are until the tensor cores have written them.
template <int N> __device__ __forceinline__ void attend_hold(float (&c)[N]) {
#pragma unroll
	for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

// What ordinary code wrote to shared memory, and has in registers, is for the tensor cores to read.
__device__ __forceinline__ void attend_shared_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void attend_wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void attend_wgmma_end() {
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
	asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
#endif
