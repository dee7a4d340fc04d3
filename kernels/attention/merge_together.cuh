// Decode attention of heads larger than 128 (attend.cu): the sum of a row's splits, by all blocks that computed them.
#pragma once
#include "attention/splits.cuh"

// AttendTogether is shared memory of a block that merges: that of the sums of its own splits, 2·WARPS·WIDE floats for
// each entry. Factors as in AttendMerge come first, then sums of pairs of elements.
struct AttendTogether {
	static constexpr int MERGED = 64;
	float (*keep)[MERGED], (*add)[MERGED], (*weight)[MERGED]; // [group]
	float2 *sums;
	int room; // sums

	template <int WIDE> static __device__ __forceinline__ AttendTogether in(float *shared, int group) {
		AttendTogether s;
		s.keep = (float (*)[MERGED])shared, s.add = s.keep + group, s.weight = s.add + group;
		s.sums = (float2 *)(s.weight + group), s.room = (2 * WARPS * WIDE - 3 * MERGED) * group / 2;
		return s;
	}
};

// attend_merge_pairs adds the splits of up to THREADS pairs of elements from `pair` on, in order, with the operations
// of AttendSum::add. Pairs are counted through the tile's entries.
template <int WIDE, int THREADS, class Logits, class Tile, class Out> __device__ __forceinline__ void attend_merge_pairs(
	const AttendArgs &a, const Logits &logits, const Tile &tile, AttendTogether &s, int pair, int pairs, int first,
	int splits, const Out &out) {
	constexpr int ALL = THREADS / 32, EACH = ENTRIES / ALL, LOADS = 4;
	const int each = a.dim / 2, once = min(s.MERGED, s.room / pairs);
	const int begin = pair / each, end = (pair + pairs - 1) / each + 1; // entries
	const int mine = pair + min((int)threadIdx.x, pairs - 1), entry = mine / each;
	float most[EACH];
#pragma unroll
	for (int e = 0; e < EACH; e++) most[e] = logits.before(a, tile, begin + threadIdx.x / 32 + e * ALL).most;
	AttendSum x = {0, 0, logits.before(a, tile, entry).weight}, y = x;
	for (int from = first; from < splits; from += once) {
		const int count = min(once, splits - from), all = count * pairs;
		__syncthreads(); // all threads have read what was here
		for (int base = 0; base < all; base += LOADS * THREADS) { // whole warps, also past the last: factors are shuffled
			const int i = base + threadIdx.x;
			float2 v[LOADS];
#pragma unroll
			for (int u = 0; u < LOADS; u++) {
				const int at = min(i + u * THREADS, all - 1), k = at / pairs, of = pair + at - k * pairs;
				v[u] = __ldcg((const float2 *)attend_partial(a, tile, of / each, from + k) + of % each);
			}
			if (base == 0) {
#pragma unroll
				for (int e = 0; e < EACH; e++)
					if (const int of = begin + threadIdx.x / 32 + e * ALL; of < end)
						attend_factors(a, tile, s, most[e], of, from, from + count);
			}
#pragma unroll
			for (int u = 0; u < LOADS; u++)
				if (i + u * THREADS < all) s.sums[i + u * THREADS] = v[u];
		}
		__syncthreads();
#pragma unroll 8
		for (int k = 0; k < count; k++) {
			const float2 v = s.sums[k * pairs + mine - pair];
			const float keep = s.keep[entry][k], add = s.add[entry][k];
			x.sum = __fmaf_rn(v.x, add, __fmul_rn(x.sum, keep)), y.sum = __fmaf_rn(v.y, add, __fmul_rn(y.sum, keep));
			x.weight = __fmaf_rn(s.weight[entry][k], add, __fmul_rn(x.weight, keep));
		}
	}
	if (threadIdx.x >= pairs) return;
	const size_t index = tile.index(a, entry);
	const int element = 2 * (mine - entry * each);
	if constexpr (TOGETHER<Out> > 1)
		out.store_pair(a, index, element, x.sum / x.weight, y.sum / x.weight);
	else
		out.store(a, index, element, x.sum / x.weight), out.store(a, index, element + 1, y.sum / x.weight);
}

// attend_merge_together adds a tile's splits in order, as attend_merge does, by the `blocks` blocks that computed them: each
// waits for the others and adds a part of the elements. They must all run at the same time.
template <int WIDE, int THREADS, class Logits, class Tile, class Out> __device__ __forceinline__ void attend_merge_together(
	const AttendArgs &a, const Logits &logits, const Tile &tile, float *shared, int first, int splits, int blocks,
	const Out &out) {
	attend_wait_for_all(tile.arrived(a), blocks);
	AttendTogether s = AttendTogether::in<WIDE>(shared, tile.group);
	constexpr int PAIRS = TOGETHER<Out> > 1 ? TOGETHER<Out> / 2 : 1; // that one block has
	const int part = blockIdx.z, all = tile.group * (a.dim / 2) / PAIRS;
	for (int pair = all * part / blocks * PAIRS, end = all * (part + 1) / blocks * PAIRS; pair < end; pair += THREADS)
		attend_merge_pairs<WIDE, THREADS>(a, logits, tile, s, pair, min(THREADS, end - pair), first, splits, out);
	attend_leave(tile.arrived(a), blocks);
}
