// Loads and stores of global and shared memory, each with its cache policy.
#pragma once
#include <cstdint>

__device__ __forceinline__ uint32_t shared_address(const void *p) {
	return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// load_weights reads data that is read once and never written while kernels run. It bypasses L1.
__device__ __forceinline__ uint4 load_weights(const uint4 *p) {
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		: "l"(p));
	return v;
}


// load_weights_if does so if `when`; otherwise the result is undefined.
__device__ __forceinline__ void load_weights_if(bool when, uint4 &v, const uint4 *p) {
	asm volatile("{ .reg .pred when; setp.ne.b32 when, %5, 0;"
				 " @when ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4]; }"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		: "l"(p), "r"((int)when));
}
__device__ __forceinline__ void load_weights_if(bool when, uint2 &v, const uint2 *p) {
	asm volatile("{ .reg .pred when; setp.ne.b32 when, %3, 0;"
				 " @when ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2]; }"
		: "=r"(v.x), "=r"(v.y)
		: "l"(p), "r"((int)when));
}
__device__ __forceinline__ void load_weights_if(bool when, uint32_t &v, const uint32_t *p) {
	asm volatile("{ .reg .pred when; setp.ne.b32 when, %2, 0; @when ld.global.nc.L1::no_allocate.u32 %0, [%1]; }"
		: "=r"(v)
		: "l"(p), "r"((int)when));
}
__device__ __forceinline__ void load_weights_if(bool when, uint32_t &v, const uint16_t *p) {
	asm volatile("{ .reg .pred when; setp.ne.b32 when, %2, 0; @when ld.global.nc.L1::no_allocate.u16 %0, [%1]; }"
		: "=r"(v)
		: "l"(p), "r"((int)when));
}

// load_constant reads norm weights, which never change and so may be read before pdl_wait.
__device__ __forceinline__ float4 load_constant(const float *p) { return __ldg(reinterpret_cast<const float4 *>(p)); }

__device__ __forceinline__ float4 load_activation(const float *p) { return *reinterpret_cast<const float4 *>(p); }

// load_from_host reads pinned memory past every cache: the host rewrites it between launches.
__device__ __forceinline__ int32_t load_from_host(const int32_t *p) {
	int32_t v;
	asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

// load_l2 reads past L1, which may hold lines that another kernel has rewritten. The loads are
// volatile, so that the compiler issues them at the point of the call.
__device__ __forceinline__ void load_l2(uint4 &v, const uint4 *from) {
	asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
}
__device__ __forceinline__ uint32_t load_l2(const int32_t *from) {
	uint32_t v;
	asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(from));
	return v;
}
// The same for int32, and the compiler moves no other access of memory past it.
__device__ __forceinline__ int load_l2_ordered(const int32_t *p) {
	int v;
	asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

__device__ __forceinline__ void prefetch_l2(const void *from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// wait_for_count returns when a counter in global memory has reached count (acquire, GPU scope).
__device__ __forceinline__ void wait_for_count(const uint32_t *counter, uint32_t count) {
	uint32_t now;
	do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
	while (now < count);
}

// increment_release adds 1 to a counter after all writes that this thread has waited for.
__device__ __forceinline__ void increment_release(uint32_t *counter) {
	asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// increment_wrapping counts from 0 to last and back to 0, and returns the value before
// (acquire and release, GPU scope).
__device__ __forceinline__ unsigned increment_wrapping(unsigned *counter, unsigned last) {
	unsigned before;
	asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
	return before;
}

__device__ __forceinline__ uint4 load_shared(uint32_t from) {
	uint4 v;
	asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		: "r"(from)
		: "memory");
	return v;
}
__device__ __forceinline__ float4 load_shared_float4(uint32_t from) {
	const uint4 v = load_shared(from);
	return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}
__device__ __forceinline__ float load_shared_float(uint32_t from) {
	float v;
	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
	return v;
}
__device__ __forceinline__ float2 load_shared_float2(uint32_t from) {
	float2 v;
	asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
	return v;
}
__device__ __forceinline__ void store_shared(uint32_t to, const float2 &v) {
	asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, float v) {
	asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

// store_shared_zeros writes 16 zero bytes.
__device__ __forceinline__ void store_shared_zeros(uint32_t to) {
	asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to), "r"(0) : "memory");
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// L2 eviction policies, as createpolicy encodes L2::evict_first and evict_last for all of an
// access. Weights are evicted first, so that kernels' code and activations stay in L2.
constexpr uint64_t EVICT_FIRST = 0x12f0000000000000;
constexpr uint64_t EVICT_LAST = 0x14f0000000000000;

// store_evict_last writes data that another block reads soon.
__device__ __forceinline__ void store_evict_last(float4 *to, const float4 &v) {
	asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z),
		"f"(v.w), "l"(EVICT_LAST)
		: "memory");
}
#endif
