// How decode's attention (attend.cu) deals out a row's positions, and adds up what comes of
// them.
#pragma once
#include "attention/softmax.cuh"

// A row's positions are cut into splits of SPLIT, and a split into a block of BLOCK
// positions for each warp. Warps are added in their order, then splits in theirs. So
// a row's sums have one order, whatever else is in the step.
constexpr int BLOCK = 32, WARPS = 4, SPLIT = BLOCK * WARPS;
// A block of threads serves up to ENTRIES query heads of one row that read the same keys.
constexpr int ENTRIES = 8;
constexpr int MERGED = 64; // splits whose factors are there at once

// What a block of threads attends for. DEFERRED tells that the row's own key and value are not
// in the pool before.
struct AttendTile {
	int row, slot, first, last; // positions that the row sees
	int kept;                   // the last of them that the pool has, or the first
	int head, group, kvHead;    // first query head, how many
};

template <bool DEFERRED> __device__ __forceinline__ AttendTile attend_tile(const AttendArgs &a) {
	AttendTile tile;
	tile.row = blockIdx.x;
	tile.slot = __ldcg(a.slot + tile.row), tile.last = __ldcg(a.position + tile.row);
	tile.first = max(0, tile.last + 1 - a.visible);
	tile.kept = DEFERRED ? max(tile.first, tile.last - 1) : tile.last;
	const int parts = (a.group + ENTRIES - 1) / ENTRIES;
	tile.kvHead = blockIdx.y;
	int part = 0;
	if (parts > 1) tile.kvHead = blockIdx.y / parts, part = blockIdx.y % parts * ENTRIES; // a division takes its time
	tile.head = tile.kvHead * a.group + part;
	tile.group = min(ENTRIES, a.group - part);
	return tile;
}

// What a warp's sums go with: an entry's largest score and sum of weights.
struct SoftmaxState {
	float most, weight;
};

__device__ __forceinline__ float *attend_partial(const AttendArgs &a, const AttendTile &tile, int entry, int split) {
	return a.partial + (((size_t)tile.row * a.heads + tile.head + entry) * a.splits + split) * (a.dim + 2);
}

// What a block that merges splits shares.
struct AttendMerge {
	float keep[ENTRIES][MERGED], add[ENTRIES][MERGED]; // what the sums before a split and its own count in the sum of both
	float weight[ENTRIES][MERGED];
};

// Leaves, of MERGED splits from `from` on, what AttendSum::add would count them; those
// that are not there change no sum. A warp an entry; most is its largest score before.
__device__ __forceinline__ void attend_factors(const AttendArgs &a, const AttendTile &tile, AttendMerge &s, float &most, int entry, int from, int splits) {
	const int lane = threadIdx.x % 32;
	if (entry >= tile.group) return;
	float m[MERGED / 32], w[MERGED / 32];
#pragma unroll
	for (int i = 0; i < MERGED / 32; i++) {
		const int split = from + 32 * i + lane;
		const float *p = attend_partial(a, tile, entry, split) + a.dim;
		m[i] = split < splits ? __ldcg(p) : -INFINITY, w[i] = split < splits ? __ldcg(p + 1) : -0.f;
	}
#pragma unroll
	for (int i = 0; i < MERGED / 32; i++) {
		float high = m[i]; // of the splits up to the lane's
#pragma unroll
		for (int by = 1; by < 32; by *= 2) {
			const float x = __shfl_up_sync(~0u, high, by);
			if (lane >= by) high = fmaxf(high, x);
		}
		const float before = __shfl_up_sync(~0u, high, 1);
		AttendSum sum = {0, lane ? fmaxf(most, before) : most, 0};
		sum.factors(m[i], s.keep[entry][32 * i + lane], s.add[entry][32 * i + lane]);
		s.weight[entry][32 * i + lane] = w[i];
		most = fmaxf(most, __shfl_sync(~0u, high, 31));
	}
}

// Adds a tile's splits in their order, in the last to arrive of `blocks` blocks: with the
// operations of AttendSum::add, but loads and factors of many splits at once. Room
// [group][WIDE] holds each thread's own sums.
template <int WIDE, int THREADS> __device__ static void attend_merge(const AttendArgs &a, const AttendTile &tile, AttendSum *run, int first, int splits, int blocks) {
	constexpr int LOADS = THREADS / 8; // more take more registers than smaller blocks have
	__shared__ AttendMerge s;
	if (!attend_is_last(a.arrived + tile.row * a.heads + tile.head, blocks)) return;
	constexpr int ALL = THREADS / 32, EACH = ENTRIES / ALL; // warps, and entries of each
	float most[EACH], x[LOADS];
#pragma unroll
	for (int e = 0; e < EACH; e++) most[e] = -INFINITY;
	// Begins to load element i%WIDE of entry i/WIDE of splits from `at` on.
	const auto load = [&](int i, int at) {
		const int element = min(i % WIDE, a.dim - 1);
		const float *p = attend_partial(a, tile, i / WIDE, at) + element;
#pragma unroll
		for (int u = 0; u < LOADS; u++) x[u] = at + u < splits ? __ldcg(p + u * (a.dim + 2)) : -0.f;
	};
	for (int from = first; from < splits; from += MERGED) {
		if (from > first) __syncthreads(); // the factors before have been read
		if (threadIdx.x < tile.group * WIDE) load(threadIdx.x, from); // beside the factors
#pragma unroll
		for (int e = 0; e < EACH; e++) attend_factors(a, tile, s, most[e], threadIdx.x / 32 + e * ALL, from, splits);
		__syncthreads();
		const int count = min(MERGED, splits - from);
		for (int i = threadIdx.x; i < tile.group * WIDE; i += THREADS) {
			const int entry = i / WIDE, element = i % WIDE;
			if (element >= a.dim) continue;
			AttendSum sum = {0, 0, 0};
			if (from > first) sum = run[i];
			for (int k = 0; k < count; k += LOADS) {
				if (k > 0 || i >= THREADS) load(i, from + k);
#pragma unroll
				for (int u = 0; u < LOADS; u++) {
					const float keep = s.keep[entry][k + u], add = s.add[entry][k + u];
					sum.sum = __fmaf_rn(x[u], add, __fmul_rn(sum.sum, keep));
					sum.weight = __fmaf_rn(s.weight[entry][k + u], add, __fmul_rn(sum.weight, keep));
				}
			}
			if (from + MERGED < splits)
				run[i] = sum;
			else
				a.out[((size_t)tile.row * a.heads + tile.head + entry) * a.dim + element] = sum.sum / sum.weight;
		}
	}
}

// Adds what the warps left of a split: an element a thread.
template <int WIDE> __device__ __forceinline__ AttendSum attend_add(const SoftmaxState (*states)[ENTRIES], const float *sums, int group, int i) {
	AttendSum sum = {0, -INFINITY, 0};
#pragma unroll
	for (int w = 0; w < WARPS; w++) sum.most = fmaxf(sum.most, states[w][i / WIDE].most);
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		const SoftmaxState state = states[w][i / WIDE];
		const float x = sums[w * group * WIDE + i];
		const bool none = state.most == -INFINITY; // it has left nothing
		const float share = none ? 0 : exp2_approx(state.most - sum.most);
		sum.sum = __fmaf_rn(none ? 0 : x, share, sum.sum);
		sum.weight = __fmaf_rn(state.weight, share, sum.weight);
	}
	return sum;
}
