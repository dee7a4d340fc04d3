// Decode attention with deferred RoPE: QKV stored q, k and v as the product gave them, and
// attention does their post-processing (qk_post.cuh). A block processes its own query heads. The
// block whose splits include the row's own position also processes k and v of its KV head, stores
// them in the pool and attends over them. So no block waits for another, and no kernel runs in
// between.
#pragma once
#include "attention/qk_post.cuh"
#include "attention/splits.cuh"
#include "ptx/memory.cuh"
#include "ptx/mma.cuh"
#include "ptx/pdl.cuh"
#include "ptx/tagged.cuh"

struct AttendDeferredArgs : AttendArgs {
	QKPostArgs post;
};

// AttendTaggedArgsOf are those of one row whose q, k and v come as tagged values, float32 [q, k, v][heads][dim], and whose
// results go so, in pairs of bfloat16.
template <class TagsT> struct AttendTaggedArgsOf : AttendDeferredArgs {
	TagsT tags;
};
using AttendTaggedArgs = AttendTaggedArgsOf<Tags>;
using AttendRankArgs = AttendTaggedArgsOf<RankTags>;

// AttendOwnHeads does the post-processing in a block of ALL warps, for heads of size DIM, or ANY up to it. With
// AttendArgs there is none.
template <int DIM, bool ANY, int ALL, class Args> struct AttendOwnHeads {
	static constexpr bool DEFERRED = false;

	__device__ __forceinline__ AttendOwnHeads(const Args &, const AttendTile &, bool) {}
	// wait returns when q, k and v of the row can be read.
	__device__ __forceinline__ void wait() const { pdl_wait(); }
	__device__ __forceinline__ void prefetch() const {}
	__device__ __forceinline__ void process() const {}
	__device__ __forceinline__ const uint16_t *queries() const { return nullptr; }
	__device__ __forceinline__ const uint16_t *key() const { return nullptr; }
	__device__ __forceinline__ const uint16_t *value() const { return nullptr; }
};

// Processes the query heads of the tile and, in the block with the row's own position, the KV
// head's k and v.
template <int DIM, bool ANY, int ALL> struct AttendOwnHeads<DIM, ANY, ALL, AttendDeferredArgs> {
	static constexpr bool DEFERRED = true;
	using Post = QKPost<ANY ? 0 : DIM, DIM>;

	const AttendDeferredArgs &args;
	const QKPostArgs &a;
	const AttendTile &tile;
	uint16_t *const processed; // shared [ENTRIES of q, one of k, one of v][DIM], bfloat16
	const int heads;           // heads of q, k and v to process
	int64_t page;              // of the row's own position, if newest

	// newest: the block has the row's own position.
	__device__ __forceinline__ AttendOwnHeads(const AttendDeferredArgs &args, const AttendTile &tile, bool newest)
		: args(args), a(args.post), tile(tile), processed(buffer()), heads(tile.group + (newest ? 2 : 0)), page(0) {
		if (newest) page = __ldcg(a.table + (size_t)tile.slot * a.pages + (tile.last >> args.pageShift));
	}
	static __device__ __forceinline__ uint16_t *buffer() {
		__shared__ __align__(16) uint16_t all[(ENTRIES + 2) * DIM];
		return all;
	}
	__device__ __forceinline__ void wait() const { pdl_wait(); }
	__device__ __forceinline__ const uint16_t *queries() const { return processed; }
	__device__ __forceinline__ const uint16_t *key() const { return processed + ENTRIES * DIM; }
	__device__ __forceinline__ const uint16_t *value() const { return processed + (ENTRIES + 1) * DIM; }

	// kind (0 q, 1 k, 2 v) and number among all heads of the block's i-th head.
	__device__ __forceinline__ int kind(int i) const { return max(0, i - tile.group + 1); }
	__device__ __forceinline__ int number(int i) const {
		return i < tile.group ? tile.head + i : a.heads + (i - tile.group) * a.kvHeads + tile.kvHead;
	}

	// pool_index returns the index of element 0 of the row's own k or v.
	__device__ __forceinline__ int64_t pool_index(int number) const {
		const int64_t head = (page * args.layers + args.layer) * 2 * args.kvHeads + number - args.heads;
		return ((head << args.pageShift) + (tile.last & (1 << args.pageShift) - 1)) * (ANY ? a.dim : DIM);
	}

	// prefetch brings to L2 the constants that process reads.
	__device__ __forceinline__ void prefetch() const {
		const int dim = ANY ? a.dim : DIM;
		prefetch(reinterpret_cast<const float *>(a.rope) + (size_t)tile.last * dim, dim);
		if (a.norms) prefetch(a.norms, (a.valueNorms ? 3 : 2) * dim);
		if (!a.bias) return;
		prefetch(a.bias + tile.head * dim, tile.group * dim);
		for (int i = tile.group; i < heads; i++) prefetch(a.bias + number(i) * dim, dim);
	}
	static __device__ __forceinline__ void prefetch(const float *from, int floats) {
		for (int i = 8 * threadIdx.x; i < floats; i += 8 * 32 * ALL) prefetch_l2(from + i);
	}

	// process handles one head per warp at a time. Of several blocks with the same KV head, one
	// stores k and v in the pool.
	__device__ __forceinline__ void process() const { process_by(*this); }
	// load loads the lane's part of head `of`, which QKV left at `from`, and looks up its constants.
	__device__ __forceinline__ void load(Post &x, const float *from, int kind, int of, int lane) const {
		x.load(a, from, lane);
		x.look_up(a, kind, of, tile.last, lane);
	}
	// The same with another one's load.
	template <class Own> __device__ __forceinline__ void process_by(const Own &own) const {
		const int lane = threadIdx.x % 32, dim = ANY ? a.dim : DIM;
		const bool stores = tile.head == tile.kvHead * args.group;
#pragma unroll 1
		for (int i = threadIdx.x / 32; i < heads; i += ALL) {
			const int of = number(i);
			const float *q = a.q + ((size_t)tile.row * a.heads + of) * dim,
						*kv = a.kv + ((size_t)tile.row * 2 * a.kvHeads + of - a.heads) * dim;
			Post x;
			own.load(x, i < tile.group ? q : kv, kind(i), of, lane);
			x.apply(a, kind(i), lane);
			uint16_t *to = processed + (i < tile.group ? i : ENTRIES + i - tile.group) * DIM;
			uint16_t *pool = static_cast<uint16_t *>(a.pool) + pool_index(of);
#pragma unroll
			for (int n = 0; n < Post::PAIRS; n++) {
				const int e = lane + 32 * n;
				if (e >= dim / 2) break;
				const uint16_t low = BF16::pack(x.low[n], 0), high = BF16::pack(x.high[n], 0);
				to[e] = low, to[dim / 2 + e] = high;
				if (i >= tile.group && stores) pool[e] = low, pool[dim / 2 + e] = high;
			}
			if (ANY) // products read whole rows
				for (int e = dim + lane; e < DIM; e += 32) to[e] = 0;
		}
	}
};

// The same where q, k and v come as tagged values.
template <int DIM, bool ANY, int ALL, class TagsT>
struct AttendOwnHeads<DIM, ANY, ALL, AttendTaggedArgsOf<TagsT>> : AttendOwnHeads<DIM, ANY, ALL, AttendDeferredArgs> {
	using Base = AttendOwnHeads<DIM, ANY, ALL, AttendDeferredArgs>;
	static_assert(!ANY && DIM % 64 == 0, "lanes have whole pairs");
	const decltype(TagsT::in) in;
	const uint32_t tag;

	__device__ __forceinline__ AttendOwnHeads(const AttendTaggedArgsOf<TagsT> &args, const AttendTile &tile, bool newest)
		: Base(args, tile, newest), in(args.tags.in), tag(args.tags.base() + args.tags.taken) {}
	__device__ __forceinline__ void wait() const {}
	__device__ __forceinline__ void process() const { Base::process_by(*this); }
	// load looks constants up first: they arrive while it waits for the values.
	__device__ __forceinline__ void load(typename Base::Post &x, const float *, int kind, int of, int lane) const {
		constexpr int N = DIM / 64; // pairs of a lane
		x.look_up(this->a, kind, of, this->tile.last, lane);
		const auto *const at = in + of * DIM + lane;
		uint64_t low[N], high[N];
#pragma unroll
		for (int n = 0; n < N; n++) low[n] = look_tagged(at + 32 * n), high[n] = look_tagged(at + DIM / 2 + 32 * n);
#pragma unroll
		for (int n = 0; n < Base::Post::PAIRS; n++) {
			x.low[n] = x.high[n] = 0;
			if (n >= N) continue;
			x.low[n] = __uint_as_float(await_tagged(low[n], at + 32 * n, tag));
			x.high[n] = __uint_as_float(await_tagged(high[n], at + DIM / 2 + 32 * n, tag));
		}
	}
};
