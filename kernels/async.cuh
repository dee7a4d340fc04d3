// What a block does not wait for itself: copies of 16 bytes to shared memory, and other
// blocks; and registers that go from one warpgroup to another.
#pragma once
#include "common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// copy_once_or_zero begins to copy 16 bytes of weights to shared memory past L1, or writes
// zeros there.
__device__ __forceinline__ void copy_once_or_zero(uint32_t to, const void *from, bool there) {
	asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from), "r"(there ? 16 : 0), "l"(ONCE) : "memory");
}

// Cursor is where a thread is in a ring of stages, and the phase of their barriers.
template <int SIZE> struct Cursor {
	int at = 0, phase = 0;
	__device__ __forceinline__ void next() {
		if (++at == SIZE) at = 0, phase ^= 1;
	}
};

// Waits until `count` blocks came.
__device__ __forceinline__ void await_count(const uint32_t *came, uint32_t count) {
	uint32_t now;
	do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(came) : "memory");
	while (now < count);
}

// Where the sums take many registers a whole warpgroup brings activations, and gives up its own.
template <int T> __device__ __forceinline__ void give_registers() {
	if (T > 56) asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
}
template <int T> __device__ __forceinline__ void take_registers() {
	if (T > 56) asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
}
#endif
