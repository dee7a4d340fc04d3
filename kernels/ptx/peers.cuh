// Flags between GPUs of one machine, in memory that each of them addresses.
#pragma once
#include <cstdint>

constexpr int MOST_RANKS = 8;

// raise_flag stores a number in a peer's memory. Whoever sees it there sees all that this thread wrote before, and what
// threads of its block wrote before a __syncthreads.
__device__ __forceinline__ void raise_flag(uint32_t *flag, uint32_t number) {
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(number) : "memory");
}

// await_flag returns when a peer has raised the flag to the number, or to a later one: numbers wrap around.
__device__ __forceinline__ void await_flag(const uint32_t *flag, uint32_t number) {
	uint32_t seen;
	do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
	while ((int32_t)(seen - number) < 0);
}
