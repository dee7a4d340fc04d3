// Programmatic dependent launch (PDL): a kernel may start before the one before it has ended,
// and reads its results only after pdl_wait.
#pragma once
#include <cstdint>

// inject_delay delays some warps by up to 30 us in kernels built for a test (-DREEL_LATE).
// Data that the next kernel reads without waiting for it is then not written yet.
__device__ __forceinline__ void inject_delay() {
#ifdef REEL_LATE
	uint32_t now;
	asm volatile("mov.u32 %0, %clock;" : "=r"(now));
	uint32_t h = (now >> 5 ^ blockIdx.x * 0x9e3779b9u ^ threadIdx.x / 32 * 0x85ebca6bu) * 0xc2b2ae35u >> 16;
	if (h % 4 == 0) __nanosleep(h / 4 % 16 * 2000);
	__syncwarp(__activemask());
#endif
}

// pdl_launch_dependents lets the next kernel start on the GPU. Call it when the first loads of
// weights are in flight.
__device__ __forceinline__ void pdl_launch_dependents() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
	inject_delay();
}

// pdl_wait returns when everything that earlier kernels wrote is visible. Before it a kernel
// reads only weights; attention also reads all that QKV does not write (pdl_begin_product,
// Attend.AfterQKV). Every thread that reads anything else calls it.
__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
	inject_delay();
}

// pdl_begin starts a kernel that reads nothing before the wait: the next one may start at once.
__device__ __forceinline__ void pdl_begin() {
	pdl_launch_dependents();
	pdl_wait();
}
