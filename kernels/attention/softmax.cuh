// Arguments and softmax sums that decode attention (attend.cu) and prefill attention
// (attend_prefill.cu) share.
#pragma once
#include "gemm/ahead.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include <cuda_bf16.h>

struct AttendArgs {
	const float *q;            // [T][heads][dim]
	const __nv_bfloat16 *pool; // [page][layers][key, value][kvHeads][pageTokens][dim]
	float *out;                // out: [T][heads][dim]
	// [SPLIT_ROWS][heads][splits][dim + 2]: sums, largest score, sum of weights; SPLIT_ROWS is
	// attendSplitRows of attend.go.
	float *partial;
	unsigned *arrived;              // [SPLIT_ROWS][heads], then one for all rows: 0 between launches
	const int32_t *slot, *position; // [T]
	const int32_t *blockTable;      // [slots][pages]
	int32_t T, layer, layers, heads, kvHeads, dim;
	int32_t pages, pageShift, splits; // 1<<pageShift tokens per page
	float scale;                      // multiplies scores; includes log2(e)
	int32_t window;                   // prefill: rows per tile; verify: rows of a group
	int32_t join;                     // prefill: tiles that share their splits if the context is long
	int32_t visible;                  // positions that a row sees, its own included
	int32_t f16;                      // whether rounded holds float16 rather than bfloat16
	// If not null, results go here as rounded activations (gemm/rounded.cuh): in prefill instead of to `out`.
	char *rounded;
	int32_t tokens;   // tokens of rounded
	int32_t group;    // query heads per KV head
	int32_t afterQKV; // whether the kernel may read before pdl_wait all that QKV does not write
	// Whether all blocks that share splits merge them; they must all run at the same time. Decode: of heads beyond 128.
	int32_t shareMerge;
	int32_t parts; // prefill: blocks that share a joined tile's splits, at most; many.cuh: stages of the ring
	int32_t beside; // many.cuh: whether the kernel before runs beside this one, which it let start after QKV
	Ahead ahead; // many.cuh: what a block brings to L2 when it has copied all keys and values
};

__device__ __forceinline__ uint32_t attend_pack(float low, float high) {
	__nv_bfloat162 v = __floats2bfloat162_rn(low, high);
	return *reinterpret_cast<uint32_t *>(&v);
}

// AttendSum is one element of a softmax sum over some positions: Σ 2^(s-most)·v and Σ 2^(s-most).
struct AttendSum {
	float sum, most, weight;

	// factors returns the factors of this sum and of one with largest score m in their total.
	__device__ __forceinline__ void factors(float m, float &mine, float &its) const {
		const float high = fmaxf(most, m), base = high == -INFINITY ? 0 : high;
		mine = exp2_approx(most - base), its = exp2_approx(m - base);
	}
	// add adds a sum over later positions. Roundings are explicit, so that splits add up to the
	// same bits in every kernel.
	__device__ __forceinline__ void add(float s, float m, float w) {
		float mine, its;
		factors(m, mine, its);
		sum = __fmaf_rn(s, its, __fmul_rn(sum, mine));
		weight = __fmaf_rn(w, its, __fmul_rn(weight, mine));
		most = fmaxf(most, m);
	}
};

// AllThreads are the threads of a block that compute: all of them.
struct AllThreads {
	static __device__ __forceinline__ void sync() { __syncthreads(); }
};

// attend_is_last counts this block among `blocks` and reports whether it is the last. The last
// block sees all that the others wrote before. The counter returns to 0.
template <class Threads = AllThreads>
__device__ __forceinline__ bool attend_is_last(unsigned *counter, int blocks) {
	__shared__ unsigned before;
	Threads::sync();
	if (threadIdx.x == 0) before = increment_wrapping(counter, blocks - 1); // after all writes of the block
	Threads::sync();
	return before == blocks - 1;
}

// attend_wait_for_all counts this block among `blocks`, which all run at the same time, and waits for them. It then
// sees all that they wrote before. attend_leave must follow.
__device__ __forceinline__ void attend_wait_for_all(unsigned *counter, int blocks) {
	__syncthreads();
	if (threadIdx.x == 0) {
		increment_release(counter); // after all writes of the block
		wait_for_count(counter, blocks);
	}
	__syncthreads();
}

// attend_leave counts the blocks that have waited on; the last one returns the counter to 0.
__device__ __forceinline__ void attend_leave(unsigned *counter, int blocks) {
	if (threadIdx.x == 0) increment_wrapping(counter, 2 * blocks - 1);
}

// AttendPlain are scores without softcap and sinks.
struct AttendPlain {
	static constexpr bool IS = false;
	// prefetch brings what before and total read to L2.
	__device__ __forceinline__ void prefetch(int) const {}
	// score returns a score in units of log 2 from the product of query and key. scale includes log2(e).
	__device__ __forceinline__ float score(float x, float scale) const { return x * scale; }
	// before returns the sum before the first position of a tile's entry.
	template <class Tile> __device__ __forceinline__ AttendSum before(const AttendArgs &, const Tile &, int) const {
		return {0, -INFINITY, 0};
	}
	// total returns the sum of weights with the sink's. most is the largest score.
	__device__ __forceinline__ float total(int, float, float weight) const { return weight; }
};

// AttendLogits are scores with a softcap, sinks, or both.
struct AttendLogits {
	static constexpr bool IS = true;
	const float *sinks; // [heads], or null
	float cap;          // of scores in units of log 2: softcap*log2(e), or 0 for none
	float steep;        // 2*log2(e)*scale/softcap

	__device__ __forceinline__ void prefetch(int heads) const {
		if (sinks && threadIdx.x * 8 < heads) prefetch_l2(sinks + threadIdx.x * 8);
	}
	// score: cap·tanh(y) = cap - 2·cap/(1 + e^2y).
	__device__ __forceinline__ float score(float x, float scale) const {
		if (cap == 0) return __fmul_rn(x, scale);
		return __fmaf_rn(-2 * cap, reciprocal_approx(__fadd_rn(exp2_approx(__fmul_rn(x, steep)), 1)), cap);
	}
	// sink returns a query head's logit in units of log 2.
	__device__ __forceinline__ float sink(int head) const { return __fmul_rn(sinks[head], 1.44269504f); }
	// A sink is a position before the first, with weight 1 and no value.
	template <class Tile> __device__ __forceinline__ AttendSum before(
		const AttendArgs &a, const Tile &tile, int entry) const {
		if (!sinks || entry >= tile.group) return {0, -INFINITY, 0};
		return {0, sink((uint32_t)tile.index(a, entry) % a.heads), 1};
	}
	__device__ __forceinline__ float total(int head, float most, float weight) const {
		return sinks ? __fadd_rn(weight, exp2_approx(__fsub_rn(sink(head), most))) : weight;
	}
};

// AttendLogitsArgs are the arguments of a kernel for scores with a softcap or sinks.
template <class Args> struct AttendLogitsArgs {
	Args of;
	AttendLogits logits;
};
