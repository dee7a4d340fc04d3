// Experts of one row whose router, gates and down projection pass tagged values on (ptx/tagged.cuh): logits, then the
// choice beside the gates' results.
#pragma once
#include "gemm/experts_ring.cuh"
#include "gemm/route.cuh"
#include "gemm/tagged.cuh"

constexpr int TAGGED_EXPERTS = 128; // of which blocks choose themselves, at most

// ChoiceArgs are how gates choose the row's experts. Their last block, which has no more units than others, gives the choice
// to the down projection.
struct ChoiceArgs {
	RouteArgs of;
	const uint64_t *logits; // float32 [experts]
	uint64_t *choice;       // out: an id and a float32 weight [used][2]
};

// TaggedGatesArgs are the arguments of gates. Args are those of the op, or CodesArgs of it; T is Tags or RankTags.
template <class Args, class T = Tags> struct TaggedGatesArgs {
	Args op;
	T tags;
	ChoiceArgs choice;
};

// TaggedDownArgs are those of a down projection.
template <class Args, class T = Tags> struct TaggedDownArgs {
	Args op;
	T tags;
	const uint64_t *choice; // as gates gave it
	int32_t experts, unused;
};

// TaggedLogits are a row's logits with a tag.
struct TaggedLogits {
	const uint64_t *at;
	uint32_t tag;

	template <int EACH> __device__ __forceinline__ void load(const RouteArgs &a, float (&v)[EACH]) const {
		const int first = threadIdx.x % 32;
		uint64_t seen[EACH];
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (first + i * 32 < a.experts) seen[i] = look_tagged(at + first + i * 32);
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			const int expert = first + i * 32;
			v[i] = expert < a.experts ? __uint_as_float(await_tagged(seen[i], at + expert, tag)) : NOT_CHOSEN;
		}
	}
};

// TaggedRanks are the experts of the row and their weights.
struct TaggedRanks : Ranks {
	float weight[32];
	uint32_t base; // of the pass's tags

	// memory returns those of the block, in shared memory.
	static __device__ __forceinline__ TaggedRanks &memory() {
		__shared__ TaggedRanks ranks;
		return ranks;
	}
	// choose chooses them, in one warp, and gives the choice in the last block.
	template <class T> __device__ __forceinline__ void choose(const ChoiceArgs &a, const T &tags, uint32_t base) {
		const uint32_t tag = base + tags.given;
		const bool gives = blockIdx.x == gridDim.x - 1;
		const Choice c = route_choose<TAGGED_EXPERTS / 32, false>(a.of, TaggedLogits{a.logits, tag}, gives);
		const int lane = threadIdx.x % 32;
		if (lane == 0) this->base = base;
		if (lane >= a.of.used) return;
		expert[lane] = c.id;
		if (!gives) return;
		put_tagged(a.choice + 2 * lane, (uint32_t)c.id, tag);
		put_tagged(a.choice + 2 * lane + 1, c.weight, tag);
	}
	// take takes what that block gave, in one warp. An id that is taken too early, as in tests, exists.
	template <class T>
	__device__ __forceinline__ void take(const uint64_t *choice, const T &tags, uint32_t base, int used, int experts) {
		const int lane = threadIdx.x % 32;
		const uint32_t tag = base + tags.taken;
		if (lane == 0) in.n = 1, this->base = base; // in is no padding
		if (lane >= used) return;
		ulonglong2 v = look_tagged2(choice + 2 * lane);
		while (stale(v.x, tag) || stale(v.y, tag)) v = look_tagged2(choice + 2 * lane);
		expert[lane] = min(tagged_word(v.x), (uint32_t)experts - 1);
		weight[lane] = tagged_float(v.y);
	}
};

// result_tile returns where a unit's results lie among those of all experts, of which a GPU has so many row tiles each.
__device__ __forceinline__ int result_tile(const Tags &, int unit, int) { return unit; }
__device__ __forceinline__ int result_tile(const RankTags &t, int unit, int tiles) {
	return unit / tiles * t.apart + unit % tiles;
}

// Choosing is gates of one row over weights of 16 bits: a block takes the row while the router computes, and then chooses.
// Its experts are in TaggedRanks::memory().
template <class Op, class T = Tags> struct Choosing : Tagged<Op, T> {
	const ChoiceArgs &choice;

	__device__ __forceinline__ Choosing(const TaggedGatesArgs<typename Op::Args, T> &a)
		: Tagged<Op, T>(Op(a.op), a.tags), choice(a.choice) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[Op::R]) const {
		Tagged<Op, T> op = *this;
		op.base = TaggedRanks::memory().base; // there is no register for it
		op.give(result_tile(op.tags, unit, this->tiles), unit, row, t, y);
	}
};
// Which weights a block needs is not known before the choice.
template <class Op, class T, class B>
__device__ __forceinline__ void begin_operands(const Choosing<Op, T> &, B &b) { b.begin_norm(); }
template <class Op, class T> __device__ __forceinline__ void begin_op(Choosing<Op, T> &op) { op.base = begin_tagged(op.tags); }
template <class Op, class T, class B, class Prepare>
__device__ __forceinline__ void take_row(const Choosing<Op, T> &op, B &b, int t, float *squares, Prepare prepare) {
	take_row(static_cast<const Tagged<Op, T> &>(op), b, t, squares, prepare);
	if (b.warp == 0) TaggedRanks::memory().choose(op.choice, op.tags, op.base);
	__syncthreads();
	b.aim(op, blockIdx.x);
	b.begin_weights();
}
template <class Op, class D, int U, class T>
__device__ __forceinline__ void expert_gemv_tagged(const TaggedGatesArgs<typename Op::Args, T> &a) {
	gemv<Choosing<Op, T>, D, U>(Choosing<Op, T>(a));
	end_tagged();
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// ChoosingRing is the same over codes, for expert_ring: a warp that has taken its part of the row chooses, also for the producer.
template <class Op> struct ChoosingRing {
	const TaggedGatesArgs<CodesArgs<Op>> &a;
	const uint32_t base;

	template <class O> __device__ __forceinline__ void begin() const {}
	// choose also brings the biases of the block's units to L2, unlike which all else that finish needs is in shared memory.
	template <class Span> __device__ __forceinline__ void choose(const Span &s) const {
		if (threadIdx.x >= 32) return;
		TaggedRanks::memory().choose(a.choice, a.tags, base);
		__syncwarp();
		await_choice();
#pragma unroll 1
		for (int at = s.at + threadIdx.x; at < s.end; at += 32) Op(a.op.op).prefetch(at);
	}
	__device__ __forceinline__ void await_choice() const { named_barrier_sync<64>(2); }
	__device__ __forceinline__ Tagged<Op> of(const Op &op) const {
		Tagged<Op> gates(op, a.tags);
		gates.base = base;
		return gates;
	}
	template <int THREADS> __device__ __forceinline__ void end() const {}
};
template <class Op, class F>
__device__ __forceinline__ void expert_ring_tagged(const TaggedGatesArgs<CodesArgs<Op>> &a) {
	expert_ring<Op, F>(a.op, gridDim.x, ChoosingRing<Op>{a, begin_tagged(a.tags)});
	end_tagged();
}
#endif

// TaggedExpertRows is where RowRounder has the results of all gates from, as one row of padded rows: pairs for codes.
struct TaggedExpertRows {
	static constexpr bool ROUNDED = true;
	using Four = ulonglong2;
	const uint64_t *in;
	uint32_t tag;
	int cols, padded;

	__device__ __forceinline__ bool exists(int k) const { return k % padded < cols; }
	__device__ __forceinline__ const uint64_t *at(int k) const { return in + (k / padded * cols + k % padded) / 2; }
	__device__ __forceinline__ Four load(int, int k) const { return exists(k) ? look_tagged2(at(k)) : Four{}; }
	__device__ __forceinline__ uint2 rounded(const Four &v, int k) const {
		return exists(k) ? await_tagged(v, at(k), tag) : uint2{0, 0};
	}
};

// AddTagged adds the sums of a row's experts to the residual stream as tagged values, and takes pairs of gates' results.
template <class T = Tags> struct AddTagged {
	static constexpr int TOGETHER = 8;
	const T &tags;
	const uint64_t *const choice;
	const int experts;
	uint64_t old; // perhaps not there yet

	template <class Args>
	__device__ __forceinline__ AddTagged(const TaggedDownArgs<Args, T> &a)
		: tags(a.tags), choice(a.choice), experts(a.experts), old(0) {}
	template <class Args> __device__ __forceinline__ bool finds(const Args &o) const {
		const uint32_t base = begin_tagged(tags);
		if (threadIdx.x < 32) TaggedRanks::memory().take(choice, tags, base, o.used, experts);
		return true;
	}
	template <class Args> __device__ __forceinline__ const Ranks &begin(const Args &o) const {
		finds(o);
		__syncthreads();
		return TaggedRanks::memory();
	}
	// base is in no register until then: products have none to spare.
	__device__ __forceinline__ uint32_t base() const { return TaggedRanks::memory().base; }
	__device__ __forceinline__ void before_wait(int at) { old = look_tagged(tags.out + at); }
	__device__ __forceinline__ void wait() const {}
	__device__ __forceinline__ void after_wait() const {}
	__device__ __forceinline__ float weight(const ChosenArgs &, int rank) const { return TaggedRanks::memory().weight[rank]; }
	__device__ __forceinline__ int expert(const ChosenArgs &, int rank) const { return TaggedRanks::memory().expert[rank]; }
	__device__ __forceinline__ void finish(int at, float sum) const {
		const uint32_t tag = base() + tags.given;
		give_tagged(tags, tags.out + at, __fadd_rn(__uint_as_float(await_tagged(old, tags.out + at, tag - 1)), sum), tag);
	}
	__device__ __forceinline__ void skip(int) const {} // there is no padding
	// round fills the rounded rows of n experts for codes, with all loads in flight: few columns would keep few warps busy,
	// and of experts with a ring, which are wide, eight warps have all columns.
	template <bool NORMED, int SUMS, int WARPS, int ROWS, int BATCH, int ONE>
	__device__ __forceinline__ void round(const SharedRows<NORMED, SUMS, WARPS, ROWS, BATCH, ONE> &to, int n) const {
		const int cols = to.in.cols, padded = padded_columns(cols), pitch = row_pitch(cols);
		const int mine = threadIdx.x / 32 * K_BLOCK;
		const uint32_t tag = base() + tags.taken;
		await_tagged(tags.in + (n * cols - (mine < cols ? cols - mine : K_BLOCK)) / 2, tag);
		__syncwarp();
		const Activations all = {nullptr, nullptr, nullptr, n * padded, 1, -1, 0};
		float squares[1][PARTIALS / WARPS];
		RowRounder{all, (int)threadIdx.x % 32, (int)threadIdx.x / 32}.template round<false, SUMS, 1, WARPS < 16 ? 12 : 4, WARPS>(
			TaggedExpertRows{tags.in, tag, cols, padded}, {0}, squares,
			[&](int, int k, uint2 v) {
				*reinterpret_cast<uint2 *>(to.rounded + k / padded * pitch + RowRounder::chunk_of(k % padded, GROUP_CHUNKS)) = v;
			},
			[&](int, int columns, int g, float v) {
				const int groups = padded / columns;
				to.sums()[g % groups * TOKEN_TILE + g / groups] = v;
			});
	}
};

// take_pairs takes pairs of `used` rows.
template <class D, int N, class T>
__device__ __forceinline__ void take_pairs(
	const AddTagged<T> &to, uint32_t *rows, const float *, int cols, int at, int first, int used) {
	const uint32_t tag = to.base() + to.tags.taken;
	const auto *const in = to.tags.in;
	// One sector first, as in tagged.cuh, of the last expert, whose gates are computed last.
	if (first == 0) await_tagged(in + ((used - 1) * cols + at / K_BLOCK * K_BLOCK) / 2, tag);
	uint64_t seen[N];
#pragma unroll
	for (int i = 0; i < N; i++)
		if (first + i < used) seen[i] = look_tagged(in + ((first + i) * cols + at) / 2);
#pragma unroll
	for (int i = 0; i < N; i++) {
		const int pair = ((first + i) * cols + at) / 2;
		if (first + i < used) rows[pair] = await_tagged(seen[i], in + pair, tag);
	}
}
