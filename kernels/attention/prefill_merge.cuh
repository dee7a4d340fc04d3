// Prefill attention (attend_prefill.cu): the sum of a tile's splits.
#pragma once
#include "attention/prefill.cuh"

// prefill_mean returns sum/weight. Adding 0 turns -0 into +0, in which sums with blocks of weight 0
// may differ.
__device__ __forceinline__ float prefill_mean(float sum, float inverse) { return __fmaf_rn(sum, inverse, 0.f); }

// PrefillPartials are the partials of up to ONCE splits, of two elements of an entry.
template <int ONCE> struct PrefillPartials {
	float2 sum[ONCE], state[ONCE];

	// load starts loading the splits from `split` on that are before `end`. p is the first one's, `apart` floats from
	// one to the next, of which the last two are the state.
	__device__ __forceinline__ void load(const float *p, int apart, int element, int split, int end) {
#pragma unroll
		for (int s = 0; s < ONCE; s++) {
			if (split + s >= end) continue;
			sum[s] = __ldcg((const float2 *)(p + s * apart + element));
			state[s] = __ldcg((const float2 *)(p + s * apart + apart - 2));
		}
	}
	// add adds them to x and y in order.
	__device__ __forceinline__ void add(AttendSum &x, AttendSum &y, int split, int end) const {
#pragma unroll
		for (int s = 0; s < ONCE; s++)
			if (split + s < end) x.add(sum[s].x, state[s].x, state[s].y), y.add(sum[s].y, state[s].x, state[s].y);
	}
};

// prefill_merge adds the splits of a tile's rows in order, as Prefill::add does; of the elements it adds part `part`
// of `parts`. Some splits are loaded while those before are added. dim is the head size.
template <bool WINDOWED> __device__ __forceinline__ void prefill_merge(
	const AttendArgs &a, const PrefillTile &tile, const int dim, int part, int parts) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	constexpr int ONCE = 8;
#else
	constexpr int ONCE = 4; // more would spill
#endif
	const int pairs = dim / 2, apart = dim + 2;
	const int end = (tile.limit - tile.first) * tile.group * pairs;
	for (int i = part * blockDim.x + threadIdx.x; i < end; i += parts * blockDim.x) {
		const int entry = i / pairs, element = i % pairs * 2, row = tile.first + entry / tile.group;
		const int head = tile.head + entry % tile.group;
		const size_t at = (size_t)row * a.heads + head;
		const int splits = prefill_split(a.position[row] / PREFILL_KEYS) + 1;
		AttendSum x = {0, -INFINITY, 0}, y = x;
		const int first = WINDOWED ? prefill_split(max(0, a.position[row] + 1 - a.visible) / PREFILL_KEYS) : 0;
		const float *p = a.partial + (at * a.splits + first) * apart;
		PrefillPartials<ONCE> now, next;
		now.load(p, apart, element, first, splits);
		for (int split = first; split < splits; split += 2 * ONCE, p += 2 * ONCE * apart) {
			next.load(p + ONCE * apart, apart, element, split + ONCE, splits);
			now.add(x, y, split, splits);
			now.load(p + 2 * ONCE * apart, apart, element, split + 2 * ONCE, splits);
			next.add(x, y, split + ONCE, splits);
		}
		const float inverse = __frcp_rn(x.weight);
		const float2 mean = {prefill_mean(x.sum, inverse), prefill_mean(y.sum, inverse)};
		if (a.rounded)
			RoundedToken(a.rounded, a.tokens, row, head * dim)
				.put(element / 8, element % 8, a.f16 ? F16::pack(mean.x, mean.y) : BF16::pack(mean.x, mean.y));
		else
			*(float2 *)(a.out + at * dim + element) = mean;
	}
}
