// Warps and registers: named barriers, the elected lane, registers that move between warpgroups.
#pragma once

// named_barrier_sync waits for THREADS threads at barrier `id` (0 is __syncthreads).
template <int THREADS> __device__ __forceinline__ void named_barrier_sync(int id) {
	asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// named_barrier_arrive counts this thread at a barrier without waiting.
template <int THREADS> __device__ __forceinline__ void named_barrier_arrive(int id) {
	asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

// elect_one is true for one lane of a warp, and the compiler knows that it is one.
__device__ __forceinline__ bool elect_one() {
	int v;
	asm volatile("{ .reg .pred one; elect.sync _|one, 0xffffffff; selp.b32 %0, 1, 0, one; }" : "=r"(v));
	return v;
}

// setmaxnreg moves registers between the warpgroups of a block; a whole warpgroup calls it.
template <int REGISTERS> __device__ __forceinline__ void decrease_registers() {
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void increase_registers() {
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// opaque returns v, about which the compiler then knows nothing: it cannot recompute values that
// depend on v, nor compute them earlier.
template <class V> __device__ __forceinline__ V opaque(V v) {
	if constexpr (sizeof v == 8)
		asm volatile("" : "+l"(v));
	else
		asm volatile("" : "+r"(v));
	return v;
}
#endif
