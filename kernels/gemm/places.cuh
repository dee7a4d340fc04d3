// Sums that blocks of a kernel leave for one another without a counter. A place has 16 bytes that one thread leaves and one
// thread takes. They are stored and loaded at once (ld and st of .b128 are single accesses: PTX ISA 8.3, memory
// consistency model), so the first word says whether they have come: it is inverted, and zero while the place is empty. A
// sum never has the bits 0xffffffff, as additions and tensor cores have one NaN, 0x7fffffff. So nobody waits for a fence, a
// counter and then the sums, three ways through L2, but for the sums alone. Who takes them leaves zeros: between kernels all
// places are empty.
#pragma once
#include "ptx/memory.cuh"

// So many rows have places; kernels of more use counters, since emptying places then takes as long as it saves.
constexpr int PLACED_ROWS = 64; // placedRows in stream_k.go

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// left inverts the first word of what was left.
__device__ __forceinline__ float4 left(float4 v) {
	v.x = __uint_as_float(~__float_as_uint(v.x));
	return v;
}

// leave_sum leaves a sum in an empty place.
__device__ __forceinline__ void leave_sum(float4 *place, const float4 &sum) {
	const float4 v = left(sum);
	asm volatile("{ .reg .b64 low, high; .reg .b128 v; mov.b64 low, {%1,%2}; mov.b64 high, {%3,%4}; mov.b128 v, {low,high};"
				 " st.relaxed.gpu.global.L2::cache_hint.b128 [%0], v, %5; }" ::"l"(place),
		"f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(EVICT_LAST)
		: "memory");
}

// leave stores a sum for another block: in a place, or else where a counter will tell of it.
template <bool PLACED> __device__ __forceinline__ void leave(float4 *to, const float4 &sum) {
	if constexpr (PLACED)
		leave_sum(to, sum);
	else
		store_evict_last(to, sum);
}

// look returns what a place has.
__device__ __forceinline__ float4 look(const float4 *place) {
	float4 v;
	asm volatile("{ .reg .b64 low, high; .reg .b128 v; ld.relaxed.gpu.global.b128 v, [%4];"
				 " mov.b128 {low,high}, v; mov.b64 {%0,%1}, low; mov.b64 {%2,%3}, high; }"
		: "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
		: "l"(place)
		: "memory");
	return v;
}

__device__ __forceinline__ void empty_place(float4 *place) { store_evict_last(place, {0, 0, 0, 0}); }

// take_sums waits for the sums of N places, place(0) to place(N-1), and empties these. They need not differ.
template <int N, class Place> __device__ __forceinline__ void take_sums(float4 (&v)[N], const Place &place) {
	bool all;
	do {
		all = true;
#pragma unroll
		for (int i = 0; i < N; i++) v[i] = look(place(i));
#ifndef REEL_NO_TAGS // a test removes this check, and must detect it
#pragma unroll
		for (int i = 0; i < N; i++) all = all && __float_as_uint(v[i].x) != 0;
#endif
	} while (!all);
	__syncwarp(); // lanes leave the loop when theirs have come, and what follows is for whole warps
#pragma unroll
	for (int i = 0; i < N; i++) v[i] = left(v[i]), empty_place(place(i));
}
#endif
