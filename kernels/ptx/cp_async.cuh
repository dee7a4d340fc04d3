// cp.async: copies from global to shared memory that run while the thread goes on.
#pragma once
#include "ptx/memory.cuh"

// cp_async begins to copy N bytes: 4 and 8 through L1, 16 past it.
template <int N> __device__ __forceinline__ void cp_async(void *to, const void *from) {
	if (N == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(N)
			: "memory");
}

// cp_async_zero_fill begins to write 16 bytes: the first `bytes` of them copied, the rest zeros.
__device__ __forceinline__ void cp_async_zero_fill(void *to, const void *from, int bytes) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
		: "memory");
}

// cp_async_commit ends a group: this thread's copies since the last commit.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp_async_wait returns when all of this thread's groups but the last OPEN are complete.
template <int OPEN> __device__ __forceinline__ void cp_async_wait() {
	asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}

// cp_async_wait_all returns when all of this thread's copies are complete, uncommitted ones too.
__device__ __forceinline__ void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
