// What decode's attention does besides where QKV has left q, k and v as its products have
// them (QKV.Unturned): a block of threads turns its own query heads, and the one whose splits
// end with the row's own position turns k and v of its KV head too, stores them in the pool,
// and attends over what it stores. So no block awaits another, and no kernel stands between.
#pragma once
#include "attention/qk_post.cuh"
#include "attention/splits.cuh"
#include "ptx/memory.cuh"
#include "ptx/mma.cuh"

struct AttendDeferredArgs : AttendArgs {
	QKPostArgs post;
};

// What a block of ALL warps turns of its row's heads of size DIM: nothing.
template <int DIM, int ALL, class Args> struct AttendOwnHeads {
	static constexpr bool DEFERRED = false;

	__device__ __forceinline__ AttendOwnHeads(const Args &, const AttendTile &, bool) {}
	__device__ __forceinline__ void prefetch() const {}
	__device__ __forceinline__ void process() const {}
	__device__ __forceinline__ const uint16_t *queries() const { return nullptr; }
	__device__ __forceinline__ const uint16_t *key() const { return nullptr; }
	__device__ __forceinline__ const uint16_t *value() const { return nullptr; }
};

// The tile's heads of q, and where the block has the row's own position the KV head's of k and v.
template <int DIM, int ALL> struct AttendOwnHeads<DIM, ALL, AttendDeferredArgs> {
	static constexpr bool DEFERRED = true;

	const AttendDeferredArgs &args;
	const QKPostArgs &a;
	const AttendTile &tile;
	uint16_t *const processed; // shared [ENTRIES of q, one of k, one of v][DIM], in bfloat16
	const int heads;        // of q, k and v
	int64_t page;           // of the row's own position

	// newest tells whether the block has the row's own position.
	__device__ __forceinline__ AttendOwnHeads(const AttendDeferredArgs &args, const AttendTile &tile, bool newest)
		: args(args), a(args.post), tile(tile), processed(buffer()), heads(tile.group + (newest ? 2 : 0)), page(0) {
		if (newest) page = __ldcg(a.table + (size_t)tile.slot * a.pages + (tile.last >> args.pageShift));
	}
	static __device__ __forceinline__ uint16_t *buffer() {
		__shared__ __align__(16) uint16_t all[(ENTRIES + 2) * DIM];
		return all;
	}
	__device__ __forceinline__ const uint16_t *queries() const { return processed; }
	__device__ __forceinline__ const uint16_t *key() const { return processed + ENTRIES * DIM; }
	__device__ __forceinline__ const uint16_t *value() const { return processed + (ENTRIES + 1) * DIM; }

	// Of the block's i-th head whether it is q, k or v, and its number among all of them.
	__device__ __forceinline__ int kind(int i) const { return max(0, i - tile.group + 1); }
	__device__ __forceinline__ int number(int i) const { return i < tile.group ? tile.head + i : a.heads + (i - tile.group) * a.kvHeads + tile.kvHead; }

	// Where the pool has element 0 of the row's own k or v.
	__device__ __forceinline__ int64_t pool_index(int number) const {
		const int64_t head = (page * args.layers + args.layer) * 2 * args.kvHeads + number - args.heads;
		return ((head << args.pageShift) + (tile.last & (1 << args.pageShift) - 1)) * DIM;
	}

	// Begins to bring to L2 what is looked up.
	__device__ __forceinline__ void prefetch() const {
		prefetch(reinterpret_cast<const float *>(a.rope) + (size_t)tile.last * DIM, DIM);
		if (a.norms) prefetch(a.norms, 2 * DIM);
		if (!a.bias) return;
		prefetch(a.bias + tile.head * DIM, tile.group * DIM);
		for (int i = tile.group; i < heads; i++) prefetch(a.bias + number(i) * DIM, DIM);
	}
	static __device__ __forceinline__ void prefetch(const float *from, int floats) {
		for (int i = 8 * threadIdx.x; i < floats; i += 8 * 32 * ALL) prefetch_l2(from + i);
	}

	// Turns heads, a warp one at a time. Of the blocks that have the KV head's k and v one
	// stores them.
	__device__ __forceinline__ void process() const {
		const int lane = threadIdx.x % 32;
		const bool stores = tile.head == tile.kvHead * args.group;
#pragma unroll 1
		for (int i = threadIdx.x / 32; i < heads; i += ALL) {
			const int of = number(i);
			const float *q = a.q + ((size_t)tile.row * a.heads + of) * DIM, *kv = a.kv + ((size_t)tile.row * 2 * a.kvHeads + of - a.heads) * DIM;
			QKPost<DIM> x;
			x.load(a, i < tile.group ? q : kv, lane);
			x.look_up(a, kind(i), of, tile.last, lane);
			x.apply(a, kind(i), lane);
			uint16_t *to = processed + (i < tile.group ? i : ENTRIES + i - tile.group) * DIM;
			uint16_t *pool = static_cast<uint16_t *>(a.pool) + pool_index(of);
#pragma unroll
			for (int n = 0; n < QK_PAIRS; n++) {
				const int e = lane + 32 * n;
				if (e >= DIM / 2) break;
				const uint16_t low = BF16::pack(x.low[n], 0), high = BF16::pack(x.high[n], 0);
				to[e] = low, to[DIM / 2 + e] = high;
				if (i >= tile.group && stores) pool[e] = low, pool[DIM / 2 + e] = high;
			}
		}
	}
};
