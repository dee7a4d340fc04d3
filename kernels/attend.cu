#include "attention/blocks.cuh"
#include "attention/deferred_rope.cuh"
#include "attention/hand_codes.cuh"
#include "attention/merge_together.cuh"
#include "ptx/pdl.cuh"
#include <type_traits>

// attend: out[t][i] = Σ_j softmax_j(q[t][i]·k_j·scale)·v_j over the positions j of row t's sequence
// up to its own, or the last a.visible of them. Grid: [rows][KV heads × groups of ENTRIES query
// heads][at most splits/TEAMS]. A block computes TEAMS splits at once, then those gridDim.z*TEAMS
// further on; the keys and values of the next splits are loaded while some are added. The bits do
// not depend on the grid, on TEAMS, or on whether QK post-processing happens here
// (AttendDeferredArgs). In a verify pass (AttendVerifyArgs) the grid is [groups of rows][KV heads × groups of ENTRIES
// pairs of row and query head][…], and each row has the bits that it has alone.
template <int CHUNKS, int TEAMS, bool ANY = false, class Args, class Logits = AttendPlain, class Out = AttendStore>
__device__ __forceinline__ void attend(const Args &a, const Logits &of = {}, Out out = {}) {
	using Own = AttendOwnHeads<32 * CHUNKS, ANY, WARPS * TEAMS, Args>;
	constexpr bool DEFERRED = Own::DEFERRED;
	constexpr int BLOCK = AttendSplits<CHUNKS>::BLOCK, SPLIT = AttendSplits<CHUNKS>::SPLIT;
	constexpr int WIDE = 64 * AttendBlock<CHUNKS>::HALVES, ALL = WARPS * TEAMS, THREADS = 32 * ALL;
	// [2][ALL][group][WIDE], then AttendSum [group][WIDE] of earlier splits.
	extern __shared__ __align__(128) float attend_shared[];
	__shared__ SoftmaxState states[2][ALL][ENTRIES];
	pdl_launch_dependents();
	// QKV's kernels let this one start after their own pdl_wait, so everything may be read but what
	// QKV writes: queries, and the row's own key and value.
	if (!a.afterQKV) pdl_wait();
	const auto tile = attend_tile_of<DEFERRED>(a);
	constexpr bool VERIFY = decltype(tile)::VERIFY;
	const int first = tile.first / SPLIT, splits = tile.last / SPLIT + 1, step = gridDim.z * TEAMS;
	int split = first + blockIdx.z * TEAMS; // first split of the block
	if (split >= splits) return;            // the context is short
	const auto &logits = attend_hold<(TEAMS > 1)>(of, a, tile);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const bool whole = gridDim.z == 1 || splits - first <= TEAMS;
	const AttendSource<CHUNKS, ANY> source(a, tile);
	AttendBlock<CHUNKS> b;
	constexpr bool SHARED = CHUNKS > 4; // queries
	typename std::conditional<SHARED, AttendSharedQueries<CHUNKS>, AttendQueries<CHUNKS>>::type q;
	int from = split * SPLIT + warp * BLOCK;
	bool live = from <= tile.last && from + BLOCK > tile.first;
	// The table entries of the next split are loaded before this one's keys. Behind them they would
	// arrive too late, and nothing would be in flight when the next keys are requested.
	uint32_t rows = source.row_of(tile, from), next = source.row_of(tile, from + step * SPLIT);
	const bool newest = !DEFERRED && from + BLOCK > tile.fresh(); // needs the row's own key
	if (newest) pdl_wait();
	const Own own(a, tile, DEFERRED && (splits - 1 - first) / TEAMS % gridDim.z == blockIdx.z);
	own.prefetch();
	AttendSum *run = (AttendSum *)(attend_shared + 2 * ALL * tile.group * WIDE);
	int buffer = 0;
	AttendWeights<CHUNKS> w;
	const auto store_sums = [&](bool mine) { // store a warp's sums for the block
		if (live) {
			w.weigh();
			float *sums = attend_shared + (buffer * ALL + warp) * tile.group * WIDE;
			if (DEFERRED && mine)
				w.template sum<true>(b, tile, from, own.value(), sums);
			else
				w.template sum<false>(b, tile, from, nullptr, sums);
		} else {
			w.most = -INFINITY, w.weight = 0;
		}
		if (lane % 4 == 0) states[buffer][warp][lane / 4] = {w.most, w.weight};
	};
	const auto add_splits = [&](bool last) { // add the warps' sums of the splits
#ifndef REEL_RACE // a test shows that racecheck finds the missing barrier
		__syncthreads(); // also: buffers read below are written again only after the next barrier
#endif
		for (int i = threadIdx.x; i < tile.group * WIDE; i += THREADS) {
			const int entry = i / WIDE, element = i % WIDE;
			if (element >= a.dim) continue;
			AttendSum all = logits.before(a, tile, entry);
			if (whole && split > first) all = run[i];
#pragma unroll
			for (int t = 0; t < TEAMS; t++) {
				if (t > 0 && split + t >= splits) break;
				const int from = buffer * ALL + t * WARPS;
				AttendSum sum = attend_add<WIDE, VERIFY>(
					states[buffer] + t * WARPS, attend_shared + from * tile.group * WIDE, tile.group, i);
				if (whole) {
					all.add(sum.sum, sum.most, sum.weight);
					continue;
				}
				float *p = attend_partial(a, tile, entry, split + t);
				p[element] = sum.sum;
				if (element == 0) p[a.dim] = sum.most, p[a.dim + 1] = sum.weight;
			}
			if (!whole) continue;
			if (!last)
				run[i] = all;
			else
				out.store(a, tile.index(a, entry), element, all.sum / all.weight);
		}
	};
	// The only place with loads of keys and values. If registers were loaded at two places, the
	// compiler would load others and move them, and a move waits for its load.
	for (bool any = false; live || split + step < splits || (DEFERRED || SHARED) && !any; any = true) {
		if (any && live) w.score(q, b), w.mask(a, logits, tile, from);
		__syncwarp(); // keeps the loads behind it
		b.load_keys(source, rows);
		if (any) store_sums(false);
		if (DEFERRED && ANY && !any) { // before values take the registers that this needs
			if (!newest) own.wait();
			own.process();
			__syncthreads();
			q.load_processed(own.queries(), tile);
		}
		__syncwarp();
		b.load_values(source, rows);
		if (any) {
			add_splits(false);
			split += step, buffer ^= 1, from += step * SPLIT;
			live = from <= tile.last;
		} else if (!DEFERRED || !ANY) {
			if (!newest) own.wait();
			if (DEFERRED) {
				own.process();
				__syncthreads();
				q.load_processed(own.queries(), tile);
			} else if constexpr (SHARED) {
				q.template load<THREADS>(a, tile);
				__syncthreads();
			} else {
				q.load(a, tile);
				q.round();
			}
		}
		if (split + step >= splits) break;
		rows = next, next = source.row_of(tile, from + 2 * step * SPLIT);
	}
	if (!DEFERRED && !live && !newest) pdl_wait();
	out.begin();
	const bool mine = DEFERRED && live && from + BLOCK > tile.last; // the warp has the row's own position
	if (live) w.score(q, b);
	if (mine) w.score_own(q, own.key(), tile.last - from);
	if (live) w.mask(a, logits, tile, from);
	store_sums(mine);
	add_splits(true);
	if (whole) return;
	const int blocks = min((int)gridDim.z, (splits - first + TEAMS - 1) / TEAMS);
	if (WIDE > 128 && a.shareMerge)
		attend_merge_together<WIDE, THREADS>(a, logits, tile, attend_shared, first, splits, blocks, out);
	else
		attend_merge<WIDE, THREADS>(a, logits, tile, run, first, splits, blocks, out);
}

template <class Args> struct AttendSpreadArgs {
	Args of;
	Spread to;
};

// attend_spread gives the results to all ranks. The last row of blocks computes nothing: the first ones of it store what
// others send.
template <int CHUNKS, int TEAMS, class Args> __device__ __forceinline__ void attend_spread(const AttendSpreadArgs<Args> &a) {
	const Packets &packets = a.to.packets;
	const bool computes = a.to.taken || blockIdx.y < gridDim.y - 1;
	if (computes || blockIdx.z > 0) {
		if (computes) attend<CHUNKS, TEAMS, false, Args, AttendPlain, AttendSend>(a.of, {}, {a.to, 0});
		__syncthreads(); // all threads know the number
		if (threadIdx.x > 0 || a.to.taken) return;
		pdl_wait(); // a block without splits has not waited
		packets.begun();
		return;
	}
	pdl_begin();
	a.to.template receive_all<8>(blockIdx.x, gridDim.x, gridDim.x * gridDim.y * gridDim.z);
}

// attend_tagged takes q, k and v as tagged values and gives its results so.
template <int CHUNKS, int TEAMS, class T, class Logits = AttendPlain>
__device__ __forceinline__ void attend_tagged(const AttendTaggedArgsOf<T> &a, const Logits &logits = {}) {
	logits.prefetch(a.heads);
	attend<CHUNKS, TEAMS, false, AttendTaggedArgsOf<T>, Logits, AttendGive<T>>(a, logits, {a.tags, 0});
	end_tagged();
}

// The kernels by head size (32*CHUNKS), with the blocks per SM that registers allow: with one split per
// block at a time and with two, the same with deferred RoPE, the same for a verify pass, and the same from
// a position on. Those of 256 are for all sizes from 136 on, and have no room for two splits at a time.
#define ATTEND_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS, ARGS)                             \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)         \
		NAME(const __grid_constant__ ARGS a) { attend<CHUNKS, TEAMS, (CHUNKS > 4)>(a); }
#define ATTEND_ONE_KERNELS(SIZE, CHUNKS, BLOCKS)                                              \
	ATTEND_KERNEL(reel_attend_##SIZE, CHUNKS, 1, BLOCKS, AttendArgs)                          \
	ATTEND_KERNEL(reel_attend_##SIZE##_deferred, CHUNKS, 1, BLOCKS, AttendDeferredArgs)       \
	ATTEND_KERNEL(reel_attend_##SIZE##_verify, CHUNKS, 1, BLOCKS, AttendVerifyArgs)           \
	ATTEND_KERNEL(reel_attend_##SIZE##_from, CHUNKS, 1, BLOCKS, AttendFromArgs)
#define ATTEND_KERNELS(SIZE, CHUNKS, BLOCKS)                                                  \
	ATTEND_ONE_KERNELS(SIZE, CHUNKS, BLOCKS)                                                  \
	ATTEND_KERNEL(reel_attend_##SIZE##_two, CHUNKS, 2, 1, AttendArgs)                         \
	ATTEND_KERNEL(reel_attend_##SIZE##_two_deferred, CHUNKS, 2, 1, AttendDeferredArgs)        \
	ATTEND_KERNEL(reel_attend_##SIZE##_two_verify, CHUNKS, 2, 1, AttendVerifyArgs)            \
	ATTEND_KERNEL(reel_attend_##SIZE##_two_from, CHUNKS, 2, 1, AttendFromArgs)
ATTEND_KERNELS(32, 1, 3)
ATTEND_KERNELS(64, 2, 3)
ATTEND_KERNELS(96, 3, 2)
ATTEND_KERNELS(128, 4, 2)
ATTEND_ONE_KERNELS(256, 8, 2)

// Those of the head sizes of large models whose results go to all ranks.
#define ATTEND_SPREAD_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS, ARGS)                      \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)         \
		NAME(const __grid_constant__ AttendSpreadArgs<ARGS> a) { attend_spread<CHUNKS, TEAMS>(a); }
#define ATTEND_SPREAD_KERNELS(SIZE, CHUNKS, BLOCKS)                                                \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_spread, CHUNKS, 1, BLOCKS, AttendArgs)               \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_deferred_spread, CHUNKS, 1, BLOCKS, AttendDeferredArgs) \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_two_spread, CHUNKS, 2, 1, AttendArgs)                \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_two_deferred_spread, CHUNKS, 2, 1, AttendDeferredArgs)
ATTEND_SPREAD_KERNELS(64, 2, 3)
ATTEND_SPREAD_KERNELS(128, 4, 2)

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Those of one row of such sizes whose values are tagged, on one GPU and on several.
#define ATTEND_TAGGED_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS)                                 \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)              \
		NAME(const __grid_constant__ AttendTaggedArgs a) { attend_tagged<CHUNKS, TEAMS>(a); } \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)              \
		NAME##_ranks(const __grid_constant__ AttendRankArgs a) { attend_tagged<CHUNKS, TEAMS>(a); }
ATTEND_TAGGED_KERNEL(reel_attend_64_tagged, 2, 1, 3)
ATTEND_TAGGED_KERNEL(reel_attend_64_two_tagged, 2, 2, 1)
ATTEND_TAGGED_KERNEL(reel_attend_128_tagged, 4, 1, 2)
ATTEND_TAGGED_KERNEL(reel_attend_128_two_tagged, 4, 2, 1)
// The same with sinks.
#define ATTEND_TAGGED_LOGITS_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS)                  \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)      \
		NAME(const __grid_constant__ AttendLogitsArgs<AttendTaggedArgs> a) { attend_tagged<CHUNKS, TEAMS>(a.of, a.logits); }
ATTEND_TAGGED_LOGITS_KERNEL(reel_attend_64_logits_tagged, 2, 1, 3)
ATTEND_TAGGED_LOGITS_KERNEL(reel_attend_64_logits_two_tagged, 2, 2, 1)
#endif

// The same with a softcap or sinks, for all head sizes up to 32*CHUNKS: with one split per block at a time, and with two
// for heads of up to 64.
#define ATTEND_LOGITS_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS, ARGS)                      \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)         \
		NAME(const __grid_constant__ AttendLogitsArgs<ARGS> a) { attend<CHUNKS, TEAMS, true>(a.of, a.logits); }
#define ATTEND_LOGITS_KERNELS(NAME, CHUNKS, TEAMS, BLOCKS)                            \
	ATTEND_LOGITS_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS, AttendArgs)                     \
	ATTEND_LOGITS_KERNEL(NAME##_deferred, CHUNKS, TEAMS, BLOCKS, AttendDeferredArgs) \
	ATTEND_LOGITS_KERNEL(NAME##_verify, CHUNKS, TEAMS, BLOCKS, AttendVerifyArgs)
ATTEND_LOGITS_KERNELS(reel_attend_64_logits, 2, 1, 3)
ATTEND_LOGITS_KERNELS(reel_attend_64_logits_two, 2, 2, 1)
ATTEND_LOGITS_KERNELS(reel_attend_128_logits, 4, 1, 2)
ATTEND_LOGITS_KERNELS(reel_attend_256_logits, 8, 1, 2)

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Those of the head sizes of large models for 2 to 8 rows whose results are handed over to a product over quantised
// weights: without softcap and sinks, and with.
#define ATTEND_CODES_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS, ARGS)                       \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)         \
		NAME(const __grid_constant__ AttendHandingArgs<ARGS> a) {                    \
		attend<CHUNKS, TEAMS, (CHUNKS > 4), ARGS, AttendPlain, AttendHand>(a.of, {}, {a.to}); \
	}
#define ATTEND_CODES_KERNELS(SIZE, CHUNKS, TEAMS, BLOCKS)                                            \
	ATTEND_CODES_KERNEL(reel_attend_##SIZE##_codes, CHUNKS, TEAMS, BLOCKS, AttendArgs)               \
	ATTEND_CODES_KERNEL(reel_attend_##SIZE##_deferred_codes, CHUNKS, TEAMS, BLOCKS, AttendDeferredArgs) \
	ATTEND_CODES_KERNEL(reel_attend_##SIZE##_verify_codes, CHUNKS, TEAMS, BLOCKS, AttendVerifyArgs)
ATTEND_CODES_KERNELS(64, 2, 1, 3)
ATTEND_CODES_KERNELS(64_two, 2, 2, 1)
ATTEND_CODES_KERNELS(128, 4, 1, 2)
ATTEND_CODES_KERNELS(128_two, 4, 2, 1)
ATTEND_CODES_KERNELS(256, 8, 1, 2)

#define ATTEND_LOGITS_CODES_KERNEL(NAME, CHUNKS, BLOCKS, ARGS)                       \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)                 \
		NAME(const __grid_constant__ AttendHandingArgs<AttendLogitsArgs<ARGS>> a) {  \
		attend<CHUNKS, 1, (CHUNKS > 4), ARGS, AttendLogits, AttendHand>(a.of.of, a.of.logits, {a.to}); \
	}
#define ATTEND_LOGITS_CODES_KERNELS(SIZE, CHUNKS, BLOCKS)                                                   \
	ATTEND_LOGITS_CODES_KERNEL(reel_attend_##SIZE##_logits_codes, CHUNKS, BLOCKS, AttendArgs)               \
	ATTEND_LOGITS_CODES_KERNEL(reel_attend_##SIZE##_logits_deferred_codes, CHUNKS, BLOCKS, AttendDeferredArgs) \
	ATTEND_LOGITS_CODES_KERNEL(reel_attend_##SIZE##_logits_verify_codes, CHUNKS, BLOCKS, AttendVerifyArgs)
ATTEND_LOGITS_CODES_KERNELS(64, 2, 3)
ATTEND_LOGITS_CODES_KERNELS(128, 4, 2)
ATTEND_LOGITS_CODES_KERNELS(256, 8, 2)
#endif
