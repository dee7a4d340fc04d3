// mbarriers in shared memory, and the bulk copies (TMA without a tensor map) that complete on them.
// A barrier's phase ends when all arrivals and all expected bytes have come.
#pragma once
#include "ptx/memory.cuh"

// fence_reads comes between a thread's ordinary loads from shared memory and the arrival that lets a bulk copy write there.
// An arrival alone does not order them: it may be counted while loads before it still wait for the SM's load unit, and if
// that is busy for as long as a copy takes, the copy overwrites what they are to read (notes/rings.md). Loads whose values
// are known to have come need no fence: a wgmma is issued once the registers that it reads have theirs. A test removes
// the fence (-DREEL_NO_READ_FENCE) and must notice.
__device__ __forceinline__ void fence_reads() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(REEL_NO_READ_FENCE)
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// mbarrier_fence_init makes initialised barriers visible to bulk copies.
__device__ __forceinline__ void mbarrier_fence_init() {
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// mbarrier_arrive_warp arrives for a warp when all of its lanes are done. Racecheck does not follow
// one lane that arrives for the others, so kernels built for it (-DREEL_EVERY_LANE) have
// every lane arrive.
#ifdef REEL_EVERY_LANE
constexpr int WARP_ARRIVALS = 32;
__device__ __forceinline__ void mbarrier_arrive_warp(uint32_t barrier) { mbarrier_arrive(barrier); }
#else
constexpr int WARP_ARRIVALS = 1;
__device__ __forceinline__ void mbarrier_arrive_warp(uint32_t barrier) {
	__syncwarp();
	if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}
#endif
// mbarrier_arrive_warp_if does so if `any`, without a branch.
__device__ __forceinline__ void mbarrier_arrive_warp_if(bool any, uint32_t barrier) {
	const int arrives = any && threadIdx.x % (32 / WARP_ARRIVALS) == 0;
	__syncwarp();
	asm volatile(
		"{ .reg .pred arrives; setp.ne.b32 arrives, %1, 0; @arrives mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(
			barrier),
		"r"(arrives)
		: "memory");
}

// mbarrier_free_warp frees a place for bulk copies, as a warp that has read it with ordinary loads.
__device__ __forceinline__ void mbarrier_free_warp(uint32_t barrier) {
	fence_reads();
	mbarrier_arrive_warp_if(true, barrier);
}

// mbarrier_arrive_in_pair_if arrives for a warp at a barrier of both blocks of a cluster, if `any`, without a branch.
__device__ __forceinline__ void mbarrier_arrive_in_pair_if(bool any, uint32_t barrier) {
	const int lane = threadIdx.x % 32, arrives = any && lane < 2;
	__syncwarp();
	asm volatile("{ .reg .pred arrives; .reg .b32 there; setp.ne.b32 arrives, %1, 0; mapa.shared::cluster.u32 there, %0, %2; "
				 "@arrives mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
		"r"(arrives), "r"(lane & 1)
		: "memory");
}

// mbarrier_expect arrives, and adds bytes that bulk copies must bring before the phase ends.
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, int bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// mbarrier_wait returns when the phase of this parity has ended.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, int phase) {
	asm volatile(
		"{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(
			barrier),
		"r"(phase)
		: "memory");
}

// bulk_copy begins to copy bytes, a multiple of 16, to shared memory and counts them at barrier.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void *from, int bytes, uint32_t barrier) {
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
		"l"(from), "r"(bytes), "r"(barrier)
		: "memory");
}
// The same with an L2 policy: EVICT_FIRST or EVICT_LAST.
__device__ __forceinline__ void bulk_copy(uint64_t policy, uint32_t to, const void *from, int bytes, uint32_t barrier) {
	asm volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
			"r"(to),
		"l"(from), "r"(bytes), "r"(barrier), "l"(policy)
		: "memory");
}

// bulk_copy_to_pair copies to the same place of both blocks of a cluster, and counts the bytes at the barrier of each.
__device__ __forceinline__ void bulk_copy_to_pair(
	uint64_t policy, uint32_t to, const void *from, int bytes, uint32_t barrier) {
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
				 "[%0], [%1], %2, [%3], %4, %5;" ::"r"(to),
		"l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)3), "l"(policy)
		: "memory");
}

// Fences between ordinary accesses and the async proxy, by which bulk copies and wgmma read:
// of shared memory of this block, and of global memory that another block wrote.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
#endif
