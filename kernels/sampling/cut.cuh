// The selection of the most probable tokens, by count or by weight.
#pragma once
#include "sampling/threads.cuh"

// SampleBins divides the keys in [low, high] into BINS bins.
struct SampleBins {
	uint64_t low, high, limit; // keys above limit do not count
	float most, scale;
	int shift; // -1: bins are 1/scale of a logit wide, from most down, and the last takes the rest

	__device__ __forceinline__ int of(float l, uint64_t key) const {
		if (key > limit || key < low || key > high) return -1;
		if (shift >= 0) return (int)(key - low >> shift);
		return max(0, min(BINS - 1, (int)((most - l) * scale)));
	}
};

__device__ __forceinline__ uint64_t sample_bin(const SampleShared &s, int bin) {
	return (uint64_t)s.high[bin] << 32 | s.low[bin];
}

// sample_merge adds up the bins of all blocks, each block those of an equal share, and gives all the sums.
template <class S> __device__ static void sample_merge(S &s) {
	sample_sync<S>();
	if constexpr (S::BLOCKS == 1) return;
	constexpr int SHARE = BINS / S::BLOCKS;
	const int bin = sample_rank<S>() * SHARE + threadIdx.x;
	if (threadIdx.x < SHARE) {
		uint64_t sum = 0;
		uint32_t count = 0;
#pragma unroll 4
		for (int r = 0; r < S::BLOCKS; r++) {
			const S &peer = *sample_peer<S>(&s, r);
			sum += sample_bin(peer, bin), count += peer.count[bin];
		}
#pragma unroll 4
		for (int r = 0; r < S::BLOCKS; r++) {
			S &peer = *sample_peer<S>(&s, r);
			peer.low[bin] = (uint32_t)sum, peer.high[bin] = sum >> 32, peer.count[bin] = count;
		}
	}
	sample_sync<S>();
}

// sample_count adds each token's measure to its bin. Measures are whole numbers, so the order does
// not matter.
template <class S, class Value, class Measure> __device__ static void sample_count(
	S &s, const Sampler &d, const SampleBins &bins, Value value, Measure measure) {
	for (int i = threadIdx.x; i < BINS; i += SAMPLE_THREADS) s.low[i] = s.high[i] = s.count[i] = 0;
	__syncthreads();
	sample_each(d, sample_begin<S>(), d.vocab, sample_step<S>, [&](int id, float raw) {
		float l = value(id, raw);
		int bin = bins.of(l, sample_key(l, id));
		if (bin < 0) return;
		uint64_t m = measure(l);
		atomicAdd(&s.count[bin], 1);
		if (m == 0) return;
		uint32_t before = atomicAdd(&s.low[bin], (uint32_t)m);
		uint32_t carry = before + (uint32_t)m < before;
		if ((m >> 32) + carry) atomicAdd(&s.high[bin], (uint32_t)(m >> 32) + carry);
	});
	sample_merge(s);
}

// sample_clear empties the list.
template <class S> __device__ static void sample_clear(S &s) {
	if (threadIdx.x == 0) s.listed = 0;
	s.list[threadIdx.x] = ALL;
	sample_sync<S>();
}

// sample_add adds a key to the list, in all blocks of a sample.
template <class S> __device__ __forceinline__ void sample_add(S &s, uint64_t key) {
	const uint32_t at = atomicAdd(sample_peer<S>(&s.listed, 0), 1);
	for (int r = 0; r < S::BLOCKS; r++) *sample_peer<S>(&s.list[at], r) = key;
}

// sample_cut returns the key at which the running sum of measures, in the order of tokens, first
// exceeds target(sum of all), or bins.limit if it never does. Keys above bins.limit do not count.
template <class S, class Value, class Measure, class Target> __device__ static uint64_t sample_cut(
	S &s, const Sampler &d, SampleBins bins, Value value, Measure measure, Target target) {
	const int first = 2 * threadIdx.x;
	uint64_t left = 0;
	for (bool all = true;; all = false) {
		sample_count(s, d, bins, value, measure);
		const uint64_t two = sample_bin(s, first) + sample_bin(s, first + 1);
		if (all) left = target(sample_total(s, two));
		sample_reach(s, two, left);
		if (s.found[0] == ALL) return bins.limit;
		uint64_t before = s.found[1];
		int bin = 2 * (int)s.found[0];
		if (before + sample_bin(s, bin) <= left) before += sample_bin(s, bin++);
		left -= before;
		const uint32_t count = s.count[bin];
		__syncthreads();
		// Tokens of that bin: listed if they fit, else divided into smaller bins.
		sample_clear(s);
		uint64_t low = ALL, high = 0;
		sample_each(d, sample_begin<S>(), d.vocab, sample_step<S>, [&](int id, float raw) {
			float l = value(id, raw);
			uint64_t key = sample_key(l, id);
			if (bins.of(l, key) != bin) return;
			low = min(low, key), high = max(high, key);
			if (count <= LISTED) sample_add(s, key);
		});
		if (count <= LISTED) break;
		bins.low = sample_first_of_all(s, low), bins.high = ~sample_first_of_all(s, ~high);
		bins.shift = max(0, 53 - __clzll(bins.high - bins.low));
	}
	if constexpr (S::BLOCKS > 1) sample_sync<S>(); // the list has what the other blocks added
	sample_sort(s);
	const uint64_t key = s.list[threadIdx.x];
	sample_reach(s, key == ALL ? 0 : measure(sample_logit(key)), left);
	return s.list[s.found[0]];
}
