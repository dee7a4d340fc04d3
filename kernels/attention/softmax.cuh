// What attention of decode (attend.cu) and of prefill (attend_prefill.cu) share.
#pragma once
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include <cuda_bf16.h>

struct AttendArgs {
	const float *q;            // [T][heads][dim]
	const __nv_bfloat16 *pool; // [page][layers][key, value][kvHeads][pageTokens][dim]
	float *out;                // out: [T][heads][dim]
	float *partial;            // [SPLIT_ROWS][heads][splits][dim + 2]: sums, largest score, sum of weights
	unsigned *arrived;         // [SPLIT_ROWS][heads]: 0 between launches
	const int32_t *slot, *position; // [T]
	const int32_t *blockTable; // [slots][pages]
	int32_t T, layer, layers, heads, kvHeads, dim;
	int32_t pages, pageShift, splits; // 1<<pageShift tokens a page
	float scale;               // of scores, times log2(e)
	int32_t window;            // of prefill: rows of a tile
	int32_t join;              // of prefill: tiles that become one where the context is long
	int32_t visible;               // positions that a row sees, its own included
	int32_t f16;               // whether rounded holds float16, else bfloat16
	char *rounded;             // of prefill: out, where it is there, in place of `out`; as store_rounded has them
	int32_t tokens;            // of rounded
	int32_t group;             // query heads that share a KV head
	int32_t afterQKV;          // whether it may read before the wait for the kernel before
};

__device__ __forceinline__ uint32_t attend_pack(float low, float high) {
	__nv_bfloat162 v = __floats2bfloat162_rn(low, high);
	return *reinterpret_cast<uint32_t *>(&v);
}

// An element of a softmax sum over some positions: Σ 2^(s-most)·v, and Σ 2^(s-most).
struct AttendSum {
	float sum, most, weight;

	// What this sum and one whose largest score is m count in the sum of both.
	__device__ __forceinline__ void factors(float m, float &mine, float &its) const {
		const float high = fmaxf(most, m), base = high == -INFINITY ? 0 : high;
		mine = exp2_approx(most - base), its = exp2_approx(m - base);
	}
	// Adds what was summed over later positions, rounded as written: so that splits
	// add up alike wherever it is done.
	__device__ __forceinline__ void add(float s, float m, float w) {
		float mine, its;
		factors(m, mine, its);
		sum = __fmaf_rn(s, its, __fmul_rn(sum, mine));
		weight = __fmaf_rn(w, its, __fmul_rn(weight, mine));
		most = fmaxf(most, m);
	}
};

// Counts a block of threads among `blocks` and tells whether it is the last: then
// what all of them wrote before is there to read. The counter goes back to 0.
__device__ __forceinline__ bool attend_is_last(unsigned *counter, int blocks) {
	__shared__ unsigned before;
	__syncthreads();
	if (threadIdx.x == 0) before = increment_wrapping(counter, blocks - 1); // all that the block wrote comes before
	__syncthreads();
	return before == blocks - 1;
}
