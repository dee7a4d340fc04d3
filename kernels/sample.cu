#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"
#include "step/record.cuh"

constexpr int PENALTY_WINDOW = 64, MAX_BIASES = 1024;

struct SampleArgs {
	const float *logits;                     // [N][vocab]
	const int32_t *sample, *slot, *position; // [N], [T], [T]
	const int32_t *number;                   // [2]: the step number
	const int32_t *history;                  // [slots][context]
	const int32_t *params;                   // [slots][SAMPLE_PARAMS]: generation, prompt length, sampling parameters
	const int32_t *mask;                     // [slots][masks][(vocab+31)/32], pinned: a bit for each allowed token
	const int32_t *bias;                     // [slots][MAX_BIASES][2], pinned: token, float
	uint32_t *edited;                        // workspace: [N][vocab]
	int32_t *token;                          // out: the sampled token, [slots], or in a verify pass [N]
	int32_t *results;                        // out: [ringSlots][maxSamples][RESULT_WORDS], pinned
	int32_t vocab, context, ringSlots, maxSamples;
	int32_t queries, masks; // rows of a group in a verify pass, or 0; masks of a slot, one for each row of a group
};

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
	static constexpr int STAGES = 16;                                   // of the ring; a stage has eight logits of a column
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
template <class S> __device__ __forceinline__ int sample_begin() { return sample_rank<S>() * SAMPLE_THREADS + threadIdx.x; }
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
	if constexpr (S::BLOCKS > 1) sample_sync<S>();
	sample_sort(s);
	const uint64_t key = s.list[threadIdx.x];
	sample_reach(s, key == ALL ? 0 : measure(sample_logit(key)), left);
	return s.list[s.found[0]];
}

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
// sample_split finds the block's part of the ids in which the target is reached, [from, to), and returns the rest of the
// target there. The part is empty if no token has a weight.
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
		sample_each(
			d, from + warp * run + threadIdx.x % 32, min(to, from + (warp + 1) * run), 32, [&](int id, float raw) {
				sample_weigh(d, cut, id, raw, sum);
			});
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

// sample_scan_eight adds eight logits of a column to its scan, those of ids from, from + SAMPLE_THREADS, … below vocab.
__device__ __forceinline__ void sample_scan_eight(SampleScan &scan, const Sampler &d, const float (&l)[8], int from) {
	float high = scan.most;
#pragma unroll
	for (int i = 0; i < 8; i++) high = fmaxf(high, l[i]);
	const float base = high == -INFINITY ? 0 : high; // all weights are then 0
	const float scale = exp2_approx((scan.most - base) * LOG2E);
	scan.most = high;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		const float e = exp2_approx((l[i] - base) * LOG2E);
		scan.sum = i == 0 ? __fmaf_rn(scan.sum, scale, e) : __fadd_rn(scan.sum, e); // one rounding in all kernels
		int id = from + i * SAMPLE_THREADS;
		float f = id < d.vocab ? d.penalized_logit(id, l[i]) : -INFINITY;
		if (f > scan.top) scan.top = f, scan.at = id;
	}
}

// sample_scan_column scans the thread's column.
__device__ __forceinline__ void sample_scan_column(SampleShared &, SampleScan &scan, const Sampler &d) {
	for (int from = threadIdx.x; from < d.vocab; from += 8 * SAMPLE_THREADS) {
		float l[8];
#pragma unroll
		for (int i = 0; i < 8; i++)
			l[i] = from + i * SAMPLE_THREADS < d.vocab ? d.raw(from + i * SAMPLE_THREADS) : -INFINITY;
		sample_scan_eight(scan, d, l, from);
	}
}

#if __CUDA_ARCH__ >= 900
// sample_copy begins to copy a stage of the 32 columns of this warp to the ring: four rows of it in 16 bytes of each
// lane, then the other four. Logits begin at a multiple of 16 bytes, and there are a multiple of four.
__device__ __forceinline__ void sample_copy(SampleCluster &s, const Sampler &d, int stage) {
	const int column = threadIdx.x / 32 * 32 + threadIdx.x % 8 * 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int row = threadIdx.x % 32 / 8 + 4 * i;
		const int id = (stage * 8 + row) * SAMPLE_THREADS + cluster_rank() * s.COLUMNS + column;
		if (id < d.vocab) cp_async<16>(&s.ring[stage % s.STAGES][row][column], d.logits + id);
	}
	cp_async_commit();
}

// sample_scan_column of a cluster scans the block's columns, one for each of its first threads, from the ring, whose first
// stages are on their way, and gives all blocks the scans of all.
__device__ __forceinline__ void sample_scan_column(SampleCluster &s, SampleScan &scan, const Sampler &d) {
	const int column = cluster_rank() * s.COLUMNS + threadIdx.x;
	const bool scans = threadIdx.x < s.COLUMNS;
	scan.at = column;
	for (int stage = 0; scans && stage * 8 * SAMPLE_THREADS < d.vocab; stage++) {
		const int from = stage * 8 * SAMPLE_THREADS + column;
		float l[8];
		cp_async_wait<SampleCluster::STAGES - 1>();
		__syncwarp();
#pragma unroll
		for (int i = 0; i < 8; i++)
			l[i] = from + i * SAMPLE_THREADS < d.vocab ? s.ring[stage % s.STAGES][i][threadIdx.x] : -INFINITY;
		__syncwarp(); // all lanes have read the place of the stage that comes next
		sample_copy(s, d, stage + s.STAGES);
		sample_scan_eight(scan, d, l, from);
	}
	cluster_wait(); // all blocks have begun
	for (int r = 0; scans && r < s.BLOCKS; r++) *cluster_peer(&s.scan[column], r) = scan;
	cluster_sync();
	scan = s.scan[threadIdx.x];
}
#endif

// sample_scan returns the key of the most probable token after the penalty, and computes what
// log-probabilities need: the largest logit of the model and ln Σ exp of all.
template <class S> __device__ static uint64_t sample_scan(S &s, const Sampler &d) {
	SampleScan scan = {-INFINITY, (int)threadIdx.x, -INFINITY, 0};
	sample_scan_column(s, scan, d);
	const float most = scan.most;
	float sum = scan.sum;
	uint64_t best = scan.at < d.vocab ? sample_key(scan.top, scan.at) : ALL;
	best = sample_first(s, best);
	float high = most;
	for (int i = 16; i; i /= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
	if (threadIdx.x % 32 == 0) s.warpMost[threadIdx.x / 32] = high;
	__syncthreads();
	high = s.warpMost[threadIdx.x % 32];
	for (int i = 16; i; i /= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
	sum = most == -INFINITY ? 0 : sum * exp2_approx((most - high) * LOG2E);
	for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
	if (threadIdx.x % 32 == 0) s.warpSum[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = s.warpSum[threadIdx.x % 32];
	for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
	if (threadIdx.x == 0) s.rawMost = high, s.logSum = logf(sum);
	__syncthreads();
	return best;
}

// sample_token samples as Sample.Host does, but walks by id instead of by probability. The
// distribution is the same. It leaves the token in s.token.
template <class S> __device__ static void sample_token(S &s, Sampler &d, uint64_t best, const SampleArgs &a) {
	auto p = [&](int i) { return a.params[s.slot * SAMPLE_PARAMS + i]; }; // read where needed: registers are scarce
	const float temperature = __int_as_float(p(2));
	if (threadIdx.x == 0) s.token = (uint32_t)best;
	if (temperature == 0) return;
	d.most = sample_logit(best);
	d.scale = __fdiv_rn(LOG2E, temperature);
	auto value = [&](int id, float raw) { return d.penalized_logit(id, raw); };
	d.minP = 0; // it applies after top-k and top-p
	// about 64 bins for each factor of 2 in weight
	SampleBins bins = {0, ALL, ALL, d.most, 64 * d.scale, -1};
	if (p(3) > 0 && p(3) < d.vocab)
		bins.limit = sample_cut(
			s, d, bins, value, [](float) { return (uint64_t)1; }, [&](uint64_t) { return (uint64_t)(p(3) - 1); });
	if (__int_as_float(p(4)) < 1)
		bins.limit = sample_cut(s, d, bins, value, [&](float l) { return d.weight(l); }, [&](uint64_t all) {
			// The fewest tokens that weigh at least mass are those whose sum exceeds mass - 1, in
			// whole numbers.
			uint64_t mass = (uint64_t)ceil((double)__int_as_float(p(4)) * (double)all);
			return mass ? mass - 1 : 0;
		});
	d.minP = __int_as_float(p(5));
	// the random number's index counts from the end of the prompt
	const uint64_t seed = (uint32_t)p(8) | (uint64_t)(uint32_t)p(9) << 32;
	const int64_t index = (int64_t)a.position[a.sample[sample_number<S>()]] + 1 - p(1);
	const int token = sample_walk(s, d, bins.limit, sample_random(seed, index));
	if (threadIdx.x == 0 && token >= 0) s.token = token;
}

// sample_top puts the n most probable tokens, by the model's logits, first in the list.
template <class S> __device__ static void sample_top(S &s, const Sampler &d, int n) {
	SampleBins bins = {0, ALL, ALL, s.rawMost, 64, -1};
	uint64_t cut = ALL;
	if (n < d.vocab)
		cut = sample_cut(
			s, d, bins, [](int, float raw) { return raw; }, [](float) { return (uint64_t)1; },
			[&](uint64_t) { return (uint64_t)(n - 1); });
	__syncthreads();
	sample_clear(s);
	sample_each(d, sample_begin<S>(), d.vocab, sample_step<S>, [&](int id, float raw) {
		uint64_t key = sample_key(raw, id);
		if (key <= cut) sample_add(s, key);
	});
	if constexpr (S::BLOCKS > 1) sample_sync<S>();
	sample_sort(s);
}

// sample_window marks the tokens of the penalty window, which ends at the row's position.
__device__ static void sample_window(const Sampler &d, uint32_t *penalized, const int32_t *history, int position) {
	if (!d.penalizes) return;
	for (int i = threadIdx.x; i < (d.vocab + 31) / 32; i += SAMPLE_THREADS) penalized[i] = 0;
	__syncthreads();
	int at = position - (int)threadIdx.x;
	if (threadIdx.x < PENALTY_WINDOW && at >= 0) {
		int id = history[at];
		atomicOr(penalized + id / 32, 1u << id % 32);
	}
	__syncthreads();
}

// sample_counts counts each token of the completion so far, which begins after the prompt and ends at the row's
// position.
template <class S> __device__ static void sample_counts(
	uint32_t *counts, int vocab, const int32_t *history, int prompt, int position) {
	for (int i = sample_begin<S>(); i < vocab; i += sample_step<S>) counts[i] = 0;
	sample_sync<S>();
	for (int at = prompt + sample_begin<S>(); at <= position; at += sample_step<S>) atomicAdd(counts + history[at], 1u);
	sample_sync<S>();
}

// sample_mask copies the words of a mask of the host that have the block's tokens to shared memory, with eight loads in
// flight.
template <class S> __device__ static void sample_mask(uint32_t *bits, const int32_t *mask, int words) {
	constexpr int RUN = SAMPLE_THREADS / 32; // words of neighbouring tokens of a block
	auto at = [](int i) { return S::BLOCKS == 1 ? i : (i / RUN * S::BLOCKS + sample_rank<S>()) * RUN + i % RUN; };
	for (int from = threadIdx.x; at(from) < words; from += 8 * SAMPLE_THREADS) {
		int32_t word[8];
#pragma unroll
		for (int i = 0; i < 8; i++)
			word[i] = at(from + i * SAMPLE_THREADS) < words ? load_from_host(mask + at(from + i * SAMPLE_THREADS)) : 0;
#pragma unroll
		for (int i = 0; i < 8; i++)
			if (at(from + i * SAMPLE_THREADS) < words) bits[at(from + i * SAMPLE_THREADS)] = word[i];
	}
}

// sample_penalize writes the logits after all penalties to edited. p are the slot's parameters. The counts of tokens
// lie in edited too, until each thread replaces those of its own tokens.
template <class S> __device__ static void sample_penalize(
	const Sampler &d, uint32_t *edited, const int32_t *p, const int32_t *history, int position) {
	const float presence = __int_as_float(p[10]), frequency = __int_as_float(p[11]);
	const bool counts = presence != 0 || frequency != 0;
	if (counts) sample_counts<S>(edited, d.vocab, history, p[1], position);
	for (int from = sample_begin<S>(); from < d.vocab; from += 8 * sample_step<S>) {
		float l[8];
		uint32_t n[8];
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const int id = from + i * sample_step<S>;
			l[i] = id < d.vocab ? d.raw(id) : 0;
			n[i] = counts && id < d.vocab ? __ldcg(edited + id) : 0;
		}
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const int id = from + i * sample_step<S>;
			if (id >= d.vocab) break;
			float f = d.penalized_logit(id, l[i]);
			if (n[i]) f = __fsub_rn(__fsub_rn(f, presence), __fmul_rn(frequency, (float)n[i]));
			edited[id] = __float_as_uint(f);
		}
	}
	sample_sync<S>();
}

// sample_edit applies the penalties, the biases and the mask, as draw.edit of edit.go does with the same roundings. It
// leaves the result in edited, from which the sampler reads from then on, and returns the key of the most probable
// token. bits is the shared memory of the penalty window, which is not needed after the penalties.
//
// Each thread writes the words of its own tokens, except for counts, which are whole numbers, and biases, of which a
// token has one. So the result does not depend on the order of threads.
template <class S> __device__ static uint64_t sample_edit(
	S &s, Sampler &d, uint32_t *bits, uint32_t *edited, const SampleArgs &a, int slot, int position) {
	const int32_t *p = a.params + slot * SAMPLE_PARAMS, *bias = a.bias + (size_t)slot * MAX_BIASES * 2;
	const int biases = p[12], words = (d.vocab + 31) / 32;
	const bool masked = p[13];
	sample_penalize<S>(d, edited, p, a.history + (size_t)slot * a.context, position);
	for (int i = sample_begin<S>(); i < biases; i += sample_step<S>) {
		const int id = load_from_host(bias + 2 * i);
		const float value = __int_as_float(load_from_host(bias + 2 * i + 1));
		edited[id] = __float_as_uint(__fadd_rn(__uint_as_float(__ldcg(edited + id)), value));
	}
	const size_t mask = (size_t)slot * a.masks + (a.queries ? sample_number<S>() % a.queries : 0);
	if (masked) sample_mask<S>(bits, a.mask + mask * words, words);
	sample_sync<S>(); // all biases are added, and the mask is there
	d.logits = reinterpret_cast<const float *>(edited), d.penalizes = false;
	float top = -INFINITY;
	int at = threadIdx.x;
	sample_each(d, sample_begin<S>(), d.vocab, sample_step<S>, [&](int id, float l) {
		if (masked && !(bits[id >> 5] >> (id & 31) & 1))
			edited[id] = __float_as_uint(-INFINITY);
		else if (l > top)
			top = l, at = id;
	});
	return sample_first_of_all(s, at < d.vocab ? sample_key(top, at) : ALL); // its barriers also order the mask's writes
}

// sample_alternatives returns how many alternatives the record has. It is read where needed: registers are scarce.
__device__ __forceinline__ int sample_alternatives(const SampleArgs &a, const SampleShared &s) {
	return min(min(a.params[s.slot * SAMPLE_PARAMS + 7], MAX_TOP), a.vocab);
}

// sample_publish writes the record of a sample. The step number comes last, so a record with the
// right number is complete.
template <class S> __device__ static void sample_publish(
	const SampleArgs &a, const S &s, const Sampler &d) {
	int32_t *out = a.results +
		((size_t)((uint32_t)a.number[0] % (uint32_t)a.ringSlots) * a.maxSamples + sample_number<S>()) * RESULT_WORDS;
	const int i = threadIdx.x, top = sample_alternatives(a, s);
	// (l - most) - ln Σ exp(l - most): the large parts cancel first.
	if (i < top) {
		out[8 + 2 * i] = (uint32_t)s.list[i];
		out[9 + 2 * i] = __float_as_int(d.raw((uint32_t)s.list[i]) - s.rawMost - s.logSum);
	}
	if (i == 0) {
		const int slot = s.slot, token = s.token;
		a.token[a.queries ? sample_number<S>() : slot] = token;
		out[2] = slot, out[3] = a.params[slot * SAMPLE_PARAMS], out[4] = 1, out[5] = token;
		out[6] = __float_as_int(d.raw(token) - s.rawMost - s.logSum);
		out[7] = top;
	}
	__syncthreads();
	if (i == 0) {
		__threadfence_system();
		asm volatile("st.relaxed.sys.global.v2.s32 [%0], {%1, %2};" ::"l"(out), "r"(a.number[0]), "r"(a.number[1])
			: "memory");
	}
}

// sample_one samples a sample as Sample.Host does, and publishes the record. bits are [vocab/32] in shared memory.
template <class S> __device__ __forceinline__ void sample_one(const SampleArgs &a, S &s, uint32_t *bits) {
	pdl_begin();
	Sampler d;
	d.logits = a.logits + (size_t)sample_number<S>() * a.vocab;
	d.vocab = a.vocab, d.penalized = bits;
#if __CUDA_ARCH__ >= 900
	if constexpr (S::BLOCKS > 1) {
		for (int stage = 0; threadIdx.x < S::COLUMNS && stage < S::STAGES; stage++) sample_copy(s, d, stage);
		cluster_arrive();
	}
#endif
	const int row = a.sample[sample_number<S>()];
	if (row < 0) {
		if constexpr (S::BLOCKS > 1) cp_async_wait_all();
		return;
	}
	const int32_t *p = a.params + a.slot[row] * SAMPLE_PARAMS;
	d.penalty = __int_as_float(p[6]), d.penalizes = d.penalty != 1 && d.penalty != 0;
	if (threadIdx.x == 0) s.slot = a.slot[row];
	sample_window(d, bits, a.history + (size_t)a.slot[row] * a.context, a.position[row]);
	uint64_t best = sample_scan(s, d);
	if (p[10] | p[11] | p[12] | p[13])
		best = sample_edit(
			s, d, bits, a.edited + (size_t)sample_number<S>() * a.vocab, a, a.slot[row], a.position[row]);
	sample_token(s, d, best, a);
	d.logits = a.logits + (size_t)sample_number<S>() * a.vocab; // log-probabilities are the model's
	if (const int top = sample_alternatives(a, s); top > 0) sample_top(s, d, top);
	if (sample_rank<S>() == 0) sample_publish(a, s, d);
}

extern __shared__ __align__(16) unsigned char sample_shared[]; // S, then the bits

// Samples sample blockIdx.x.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS) reel_sample(const __grid_constant__ SampleArgs a) {
	SampleShared &s = *reinterpret_cast<SampleShared *>(sample_shared);
	sample_one(a, s, reinterpret_cast<uint32_t *>(&s + 1));
}

#if __CUDA_ARCH__ >= 900
// Samples sample blockIdx.x / 8, in clusters of 8 blocks.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS) reel_sample_cluster(const __grid_constant__ SampleArgs a) {
	SampleCluster &s = *reinterpret_cast<SampleCluster *>(sample_shared);
	sample_one(a, s, reinterpret_cast<uint32_t *>(&s + 1));
}
#endif
