// What the kernels of a step's bookkeeping share. All .cu files are compiled
// together, so each name is there once.
#pragma once
#include "common.cuh"

// step_begin waits until what the kernels before this one wrote is there. These
// kernels read nothing before that, so the next one may be brought in at once.
__device__ __forceinline__ void step_begin() {
	let_next_begin();
	await_previous();
}

// from_host reads pinned memory past every cache: the host rewrites it between launches.
__device__ __forceinline__ int32_t from_host(const int32_t *p) {
	int32_t v;
	asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}
