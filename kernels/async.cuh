// What a prompt's products have beside others: words to L2 of what leaves first and last, one lane
// that acts for a warp, rings, waits for other blocks, and registers that go from one warpgroup to another.
#pragma once
#include "common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// How L2 is told that a weight is not read again soon: it is the first to leave, so that what
// all kernels of a pass use, their code too, stays. (What createpolicy makes of
// L2::evict_first for all of an access.)
constexpr uint64_t ONCE = 0x12f0000000000000;
// The same of what is read again soon, which is the last to leave (L2::evict_last).
constexpr uint64_t AGAIN = 0x14f0000000000000;

// bring_as is bring of what L2 lets go of first (ONCE) or last (AGAIN).
__device__ __forceinline__ void bring_as(uint64_t policy, uint32_t to, const void *from, int bytes, uint32_t barrier) {
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}
// store_again stores what another block reads soon.
__device__ __forceinline__ void store_again(float4 *to, const float4 &v) {
	asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(AGAIN) : "memory");
}
__device__ __forceinline__ void store_zeros(uint32_t to) { asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to), "r"(0) : "memory"); }

// elected is true for one lane of a warp, as the compiler knows.
__device__ __forceinline__ bool elected() {
	int v;
	asm volatile("{ .reg .pred one; elect.sync _|one, 0xffffffff; selp.b32 %0, 1, 0, one; }" : "=r"(v));
	return v;
}

// opaque is v, of which the compiler knows nothing: what is made of it is not made again.
template <class V> __device__ __forceinline__ V opaque(V v) {
	if constexpr (sizeof v == 8)
		asm volatile("" : "+l"(v));
	else
		asm volatile("" : "+r"(v));
	return v;
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

// Where the sums take many registers a whole warpgroup helps, and gives up its own.
template <int T> __device__ __forceinline__ void give_registers() {
	if (T > 56) asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
}
template <int T> __device__ __forceinline__ void take_registers() {
	if (T > 56) asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
}
#endif
