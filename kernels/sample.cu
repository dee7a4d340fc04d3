#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"
#include "sampling/cut.cuh"
#include "sampling/scan.cuh"
#include "sampling/walk.cuh"
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
	if constexpr (S::BLOCKS > 1) sample_sync<S>(); // the list has what the other blocks added
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
template <class S> __device__ static void sample_publish(const SampleArgs &a, const S &s, const Sampler &d) {
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
		best = sample_edit(s, d, bits, a.edited + (size_t)sample_number<S>() * a.vocab, a, a.slot[row], a.position[row]);
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
