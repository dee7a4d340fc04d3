// Experts of one row whose router, gates and down projection pass tagged values on (ptx/tagged.cuh): logits, then the
// choice beside the gates' results.
#pragma once
#include "gemm/experts.cuh"
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

// TaggedGatesArgs are the arguments of gates. Args are those of the op, or CodesArgs of it.
template <class Args> struct TaggedGatesArgs {
	Args op;
	Tags tags;
	ChoiceArgs choice;
};

// TaggedDownArgs are those of a down projection.
template <class Args> struct TaggedDownArgs {
	Args op;
	Tags tags;
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

	// memory returns those of the block, in shared memory.
	static __device__ __forceinline__ TaggedRanks &memory() {
		__shared__ TaggedRanks ranks;
		return ranks;
	}
	// choose chooses them, in one warp, and gives the choice in the last block.
	__device__ __forceinline__ void choose(const ChoiceArgs &a, uint32_t tag) {
		const bool gives = blockIdx.x == gridDim.x - 1;
		const Choice c = route_choose<TAGGED_EXPERTS / 32>(a.of, TaggedLogits{a.logits, tag}, gives);
		const int lane = threadIdx.x % 32;
		if (lane >= a.of.used) return;
		expert[lane] = c.id;
		if (!gives) return;
		put_tagged(a.choice + 2 * lane, (uint32_t)c.id, tag);
		put_tagged(a.choice + 2 * lane + 1, c.weight, tag);
	}
	// take takes what that block gave, in one warp. An id that is taken too early, as in tests, exists.
	__device__ __forceinline__ void take(const uint64_t *choice, int used, int experts, uint32_t tag) {
		const int lane = threadIdx.x % 32;
		if (lane == 0) in.n = 1; // no padding
		if (lane >= used) return;
		ulonglong2 v = look_tagged2(choice + 2 * lane);
		while (stale(v.x, tag) || stale(v.y, tag)) v = look_tagged2(choice + 2 * lane);
		expert[lane] = min(tagged_word(v.x), (uint32_t)experts - 1);
		weight[lane] = tagged_float(v.y);
	}
};

// Choosing is gates of one row over weights of 16 bits: it takes the row while the router computes, and then chooses.
template <class Op> struct Choosing : Tagged<Op> {
	const ChoiceArgs &choice;

	__device__ __forceinline__ Choosing(const TaggedGatesArgs<typename Op::Args> &a)
		: Tagged<Op>(Op{{a.op}, TaggedRanks::memory(), a.op.inner / 16}, a.tags), choice(a.choice) {}
	__device__ __forceinline__ const Activations &activations() const { return this->o.in; }
};
// Which weights a block needs is not known before the choice.
template <class Op, class B> __device__ __forceinline__ void begin_operands(const Choosing<Op> &, B &b) { b.begin_norm(); }
template <class Op> __device__ __forceinline__ void begin_gemv(Choosing<Op> &op) { op.base = begin_tagged(op.tags); }
template <class Op, class B, class Prepare>
__device__ __forceinline__ void take_row(const Choosing<Op> &op, B &b, int t, float *squares, Prepare prepare) {
	take_row(static_cast<const Tagged<Op> &>(op), b, t, squares, prepare);
	if (b.warp == 0) TaggedRanks::memory().choose(op.choice, op.base + op.tags.given);
	__syncthreads();
	b.aim(op, blockIdx.x);
	b.begin_weights();
}
template <class Op, class D, int U>
__device__ __forceinline__ void expert_gemv_tagged(const TaggedGatesArgs<typename Op::Args> &a) {
	gemv<Choosing<Op>, D, U>(Choosing<Op>(a));
	end_tagged();
}

// AddTagged adds the sums of a row's experts to the residual stream as tagged values, and takes pairs of gates' results.
struct AddTagged {
	const Tags &tags;
	const uint64_t *const choice;
	const int experts;
	const uint32_t base;
	uint64_t old; // perhaps not there yet

	template <class Args>
	__device__ __forceinline__ AddTagged(const TaggedDownArgs<Args> &a)
		: tags(a.tags), choice(a.choice), experts(a.experts), base(begin_tagged(a.tags)), old(0) {}
	template <class Args> __device__ __forceinline__ const Ranks &ranks(const Args &o) const {
		TaggedRanks &ranks = TaggedRanks::memory();
		if (threadIdx.x < 32) ranks.take(choice, o.used, experts, base + tags.taken);
		__syncthreads();
		return ranks;
	}
	__device__ __forceinline__ void before_wait(int at) { old = look_tagged(tags.out + at); }
	__device__ __forceinline__ void wait() const {}
	__device__ __forceinline__ void after_wait() const {}
	__device__ __forceinline__ float weight(const ChosenArgs &, int rank) const { return TaggedRanks::memory().weight[rank]; }
	__device__ __forceinline__ int expert(const ChosenArgs &, int rank) const { return TaggedRanks::memory().expert[rank]; }
	__device__ __forceinline__ void finish(int at, float sum) const {
		const uint32_t tag = base + tags.given;
		put_tagged(tags.out + at, __fadd_rn(__uint_as_float(await_tagged(old, tags.out + at, tag - 1)), sum), tag);
	}
	__device__ __forceinline__ void skip(int) const {} // there is no padding
	// pairs takes those of columns at `at`, at+cols, … below n, and passes N to put(i, pair).
	template <class D, int N, class Put>
	__device__ __forceinline__ void pairs(const float *, int cols, int at, int n, Put put) const {
		const uint32_t tag = base + tags.taken;
		uint64_t seen[N];
#pragma unroll
		for (int i = 0; i < N; i++)
			if (at + i * cols < n) seen[i] = look_tagged(tags.in + (at + i * cols) / 2);
#pragma unroll
		for (int i = 0; i < N; i++)
			if (at + i * cols < n) put(i, await_tagged(seen[i], tags.in + (at + i * cols) / 2, tag));
	}
};
