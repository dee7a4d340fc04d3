// What attention of decode (attend.cu) and of prefill (attend_prefill.cu) share.
#pragma once
#include "step.cuh"
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
	int32_t see;               // positions that a row sees, its own included
	int32_t f16;               // whether rounded holds float16, else bfloat16
	char *rounded;             // of prefill: out, where it is there, in place of `out`; as store_rounded has them
	int32_t tokens;            // of rounded
	int32_t group;             // query heads that share a KV head
	int32_t afterQKV;          // whether it may read before the wait for the kernel before
};

__device__ __forceinline__ uint32_t attend_pair(float low, float high) {
	__nv_bfloat162 v = __floats2bfloat162_rn(low, high);
	return *reinterpret_cast<uint32_t *>(&v);
}

// c[16][8] += A[16][16] · B[16][8]
__device__ __forceinline__ void attend_mma(float *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float attend_exp2(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// Copies 16 bytes to shared memory, of which the first `bytes` are read and the others
// are 0, while the thread goes on.
__device__ __forceinline__ void attend_copy(void *to, const void *from, int bytes) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}

// An element of a softmax sum over some positions: Σ 2^(s-most)·v, and Σ 2^(s-most).
struct AttendSum {
	float sum, most, weight;

	// What this sum and one whose largest score is m count in the sum of both.
	__device__ __forceinline__ void factors(float m, float &mine, float &its) const {
		const float high = fmaxf(most, m), base = high == -INFINITY ? 0 : high;
		mine = attend_exp2(most - base), its = attend_exp2(m - base);
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
__device__ __forceinline__ bool attend_last(unsigned *counter, int blocks) {
	__shared__ unsigned before;
	__syncthreads();
	if (threadIdx.x == 0) // all that the block wrote comes before
		asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(blocks - 1) : "memory");
	__syncthreads();
	return before == blocks - 1;
}
