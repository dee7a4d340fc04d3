// The threads that sample a row, what they share, and what they find together.
#pragma once
#include "ptx/cluster.cuh"
#include "ptx/math.cuh"

// One block samples one token, or where there are few a cluster of blocks, each of which has a part of the logits. Both
// give the same bits: what a cluster adds up are whole numbers, and the sum of exponentials is that of the same
// SAMPLE_THREADS sums. All functions with a parameter S are called by all threads of SampleShared's one block, or of
// SampleCluster's blocks; these then take the same branches, for what they decide on is the same in all of them.
constexpr int SAMPLE_THREADS = 1024, SAMPLE_WARPS = 32;
constexpr int BINS = 2048, LISTED = 1024; // entries of the list: one per thread
constexpr uint64_t ALL = ~0ull;

// Weights of tokens are whole numbers; the most probable token has 2^40. So their sums do not
// depend on the order.
constexpr float WEIGHT_ONE = 1099511627776.f;

struct SampleShared {
	static constexpr int BLOCKS = 1;
	uint32_t low[BINS], high[BINS], count[BINS]; // measure of a bin in two halves; tokens in it
	uint64_t list[LISTED];
	uint64_t warp[SAMPLE_WARPS];
	uint64_t found[4];
	uint32_t listed;
	float warpMost[SAMPLE_WARPS], warpSum[SAMPLE_WARPS];
	float rawMost, logSum;
	int32_t slot, token; // the row's slot; what is drawn, for thread 0
};
static_assert(sizeof(SampleShared) == 33336, "sampleShared of sample_cuda.go");

// SampleScan is what a thread of sample_scan finds in its column: ids that are equal modulo SAMPLE_THREADS.
struct alignas(16) SampleScan {
	float top;       // the largest logit after the penalty, and
	int at;          // the lowest id that has it
	float most, sum; // the largest logit of the model, and Σ exp(l - most)
};

// SampleCluster is the shared memory of each block of a cluster.
struct SampleCluster : SampleShared {
	static constexpr int BLOCKS = 8, COLUMNS = SAMPLE_THREADS / BLOCKS; // of which a block scans so many
	static constexpr int STAGES = 16; // of the ring; a stage has eight logits of a column
	alignas(16) float ring[STAGES][8][COLUMNS];
	SampleScan scan[SAMPLE_THREADS];
	uint64_t part[BLOCKS]; // a number of each block
};
static_assert(sizeof(SampleCluster) == 115328, "sampleClusterShared of sample_cuda.go");

// sample_rank returns the number of this block among those of a sample.
template <class S> __device__ __forceinline__ int sample_rank() {
#if __CUDA_ARCH__ >= 900
	if constexpr (S::BLOCKS > 1) return cluster_rank();
#endif
	return 0;
}

// sample_number returns the number of the sample.
template <class S> __device__ __forceinline__ int sample_number() {
#if __CUDA_ARCH__ >= 900
	if constexpr (S::BLOCKS > 1) return cluster_number();
#endif
	return blockIdx.x;
}

// sample_begin and sample_step divide ids among all threads of a sample.
template <class S> __device__ __forceinline__ int sample_begin() {
	return sample_rank<S>() * SAMPLE_THREADS + threadIdx.x;
}
template <class S> constexpr int sample_step = S::BLOCKS * SAMPLE_THREADS;

// sample_sync is __syncthreads for all threads of a sample, and for what they wrote in global memory too.
template <class S> __device__ __forceinline__ void sample_sync() {
	if constexpr (S::BLOCKS == 1)
		__syncthreads();
#if __CUDA_ARCH__ >= 900
	else
		cluster_sync();
#endif
}

// sample_peer returns the place of p in block r of the sample.
template <class S, class T> __device__ __forceinline__ T *sample_peer(T *p, int r) {
#if __CUDA_ARCH__ >= 900
	if constexpr (S::BLOCKS > 1) return cluster_peer(p, r);
#endif
	return p;
}

constexpr float LOG2E = 1.4426950408889634f;

// Sampler holds the sampling parameters of a sequence and its logits. Logits are not divided by the
// temperature, which changes no order; it is part of `scale`.
struct Sampler {
	const float *logits; // [vocab]: the model's, or those that sample_edit has edited
	int vocab;
	const uint32_t *penalized; // [vocab/32]: a bit for each token in the penalty window
	bool penalizes;
	float penalty, minP;
	float most, scale; // largest logit after the penalty; log2(e)/temperature

	// raw returns the logit before the penalty.
	__device__ __forceinline__ float raw(int id) const { return __ldcg(logits + id); }
	// penalized_logit applies the repetition penalty to logit l of token id.
	__device__ __forceinline__ float penalized_logit(int id, float l) const {
		if (!penalizes || !(penalized[id >> 5] >> (id & 31) & 1)) return l;
		return l > 0 ? __fdiv_rn(l, penalty) : __fmul_rn(l, penalty);
	}
	__device__ __forceinline__ uint64_t weight(float l) const {
		float w = exp2_approx((l - most) * scale);
		return w >= minP && w > 0 ? (uint64_t)(w * WEIGHT_ONE) : 0;
	}
};

// sample_each calls f(id, logit) for ids from, from+step, … below to, with eight loads in flight.
template <class F> __device__ __forceinline__ void sample_each(const Sampler &d, int from, int to, int step, F f) {
	for (; from < to; from += 8 * step) {
		float l[8];
#pragma unroll
		for (int i = 0; i < 8; i++) l[i] = from + i * step < to ? d.raw(from + i * step) : -INFINITY;
#pragma unroll
		for (int i = 0; i < 8; i++)
			if (from + i * step < to) f(from + i * step, l[i]);
	}
}

// sample_key orders tokens: the most probable has the smallest key; among equals the lower id.
__device__ __forceinline__ uint64_t sample_key(float l, int id) {
	uint32_t bits = __float_as_uint(l + 0.f); // -0 is 0
	bits = bits >> 31 ? bits : ~bits & 0x7fffffffu;
	return (uint64_t)bits << 32 | (uint32_t)id;
}

__device__ __forceinline__ float sample_logit(uint64_t key) {
	uint32_t bits = key >> 32;
	return __uint_as_float(bits >> 31 ? bits : ~bits & 0x7fffffffu);
}

// sample_total returns the block's sum of v to every thread.
__device__ static uint64_t sample_total(SampleShared &s, uint64_t v) {
	for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
	__syncthreads();
	if (threadIdx.x % 32 == 0) s.warp[threadIdx.x / 32] = v;
	__syncthreads();
	v = s.warp[threadIdx.x % 32];
	for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
	return v;
}

// sample_first returns the block's smallest key to every thread.
__device__ static uint64_t sample_first(SampleShared &s, uint64_t key) {
	for (int i = 16; i; i /= 2) key = min(key, __shfl_xor_sync(~0u, key, i));
	__syncthreads();
	if (threadIdx.x % 32 == 0) s.warp[threadIdx.x / 32] = key;
	__syncthreads();
	key = s.warp[threadIdx.x % 32];
	for (int i = 16; i; i /= 2) key = min(key, __shfl_xor_sync(~0u, key, i));
	return key;
}

#if __CUDA_ARCH__ >= 900
// sample_parts puts v of each block in s.part of all.
__device__ static void sample_parts(SampleCluster &s, uint64_t v) {
	cluster_sync(); // nobody reads what was there
	if (threadIdx.x < s.BLOCKS) *cluster_peer(&s.part[cluster_rank()], threadIdx.x) = v;
	cluster_sync();
}
#endif

// sample_first_of_all returns the smallest key of all threads of a sample to each.
template <class S> __device__ static uint64_t sample_first_of_all(S &s, uint64_t key) {
	key = sample_first(s, key);
#if __CUDA_ARCH__ >= 900
	if constexpr (S::BLOCKS > 1) {
		sample_parts(s, key);
		for (int r = 0; r < S::BLOCKS; r++) key = min(key, s.part[r]);
	}
#endif
	return key;
}

// sample_reach finds the first thread at which the running sum of v, in thread order, exceeds
// target: found[0] is the thread, found[1] the sum before it, found[2] its v. If the sum never
// exceeds target, found[0] is ALL.
__device__ static void sample_reach(SampleShared &s, uint64_t v, uint64_t target) {
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint64_t sum = v;
	for (int i = 1; i < 32; i *= 2) {
		uint64_t other = __shfl_up_sync(~0u, sum, i);
		if (lane >= i) sum += other;
	}
	__syncthreads();
	if (lane == 31) s.warp[warp] = sum;
	if (threadIdx.x == 0) s.found[0] = ALL;
	__syncthreads();
	for (int w = 0; w < warp; w++) sum += s.warp[w];
	if (sum > target && sum - v <= target) s.found[0] = threadIdx.x, s.found[1] = sum - v, s.found[2] = v;
	__syncthreads();
}

// sample_sort sorts the list of 1,024 keys in ascending order (Batcher's bitonic sort).
__device__ static void sample_sort(SampleShared &s) {
	const int i = threadIdx.x;
	for (int size = 2; size <= LISTED; size *= 2)
		for (int step = size / 2; step; step /= 2) {
			__syncthreads();
			int other = i ^ step;
			if (other > i) {
				uint64_t a = s.list[i], b = s.list[other];
				if ((a > b) == !(i & size)) s.list[i] = b, s.list[other] = a;
			}
		}
	__syncthreads();
}
