// The draw of a token by its weight.
#pragma once
#include "sampling/threads.cuh"

// sample_random is Philox4x32-10, as in draw.go; only the first word is used.
__device__ static uint32_t sample_random(uint64_t seed, int64_t index) {
	uint32_t c0 = index, c1 = index >> 32, c2 = 0, c3 = 0, k0 = seed, k1 = seed >> 32;
	for (int i = 0; i < 10; i++) {
		uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0, c1 = b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1, c3 = a;
		k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
	}
	return c0;
}

// sample_weigh adds a token's weight to sum, unless its key is above cut.
__device__ __forceinline__ void sample_weigh(const Sampler &d, uint64_t cut, int id, float raw, uint64_t &sum) {
	float l = d.penalized_logit(id, raw);
	if (sample_key(l, id) <= cut) sum += d.weight(l);
}

// sample_target returns the weight at which (random + 1/2)/2^32 of `all` is reached.
__device__ __forceinline__ uint64_t sample_target(uint64_t all, uint32_t random) {
	return __umul64hi(all, (2 * (uint64_t)random + 1) << 31);
}

#if __CUDA_ARCH__ >= 900
// sample_split finds the block's part of the ids in which the target is reached, [from, to), and returns the rest of
// the target there. The part is empty if no token has a weight.
__device__ static uint64_t sample_split(
	SampleCluster &s, const Sampler &d, uint64_t cut, uint32_t random, int &from, int &to) {
	const int part = (d.vocab + s.BLOCKS - 1) / s.BLOCKS, first = cluster_rank() * part;
	uint64_t sum = 0, all = 0;
	sample_each(d, first + threadIdx.x, min(d.vocab, first + part), SAMPLE_THREADS,
		[&](int id, float raw) { sample_weigh(d, cut, id, raw, sum); });
	sample_parts(s, sample_total(s, sum));
	for (int r = 0; r < s.BLOCKS; r++) all += s.part[r];
	uint64_t target = sample_target(all, random);
	int r = 0;
	while (r < s.BLOCKS && target >= s.part[r]) target -= s.part[r++];
	from = min(d.vocab, r * part), to = min(d.vocab, from + part);
	return target;
}
#endif

// sample_walk goes through the tokens up to key `cut` in the order of their ids, and returns the
// one at which (random + 1/2)/2^32 of their weight is reached, or -1 if no token has a weight.
template <class S> __device__ static int sample_walk(S &s, const Sampler &d, uint64_t cut, uint32_t random) {
	int from = 0, to = d.vocab;
	uint64_t target = 0;
	bool whole = true;
#if __CUDA_ARCH__ >= 900
	if constexpr (S::BLOCKS > 1) { // which block's part it is in; all blocks then walk through that one
		target = sample_split(s, d, cut, random, from, to);
		if (from == to) return -1;
		whole = false;
	}
#endif
	for (;; whole = false) {
		// Each warp sums a run of ids; the run that reaches the target is divided again.
		const int run = max(1, ((to - from + SAMPLE_WARPS - 1) / SAMPLE_WARPS + 31) / 32 * 32), warp = threadIdx.x / 32;
		uint64_t sum = 0;
		sample_each(d, from + warp * run + threadIdx.x % 32, min(to, from + (warp + 1) * run), 32,
			[&](int id, float raw) { sample_weigh(d, cut, id, raw, sum); });
		// In the last round a warp's ids are in the order of its lanes, so one id is found.
		if (whole) target = sample_target(sample_total(s, sum), random);
		const bool last = run == 32;
		if (!last)
			for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
		sample_reach(s, last || threadIdx.x % 32 == 0 ? sum : 0, target);
		if (s.found[0] == ALL) return -1;
		target -= s.found[1];
		const int thread = s.found[0];
		__syncthreads();
		if (last) return from + thread;
		from += thread / 32 * run, to = min(to, from + run);
	}
}
