// Prefill attention (attend_prefill.cu): the sum of a tile's splits.
#pragma once
#include "attention/prefill.cuh"

// prefill_mean returns sum/weight. Adding 0 turns -0 into +0, in which sums with blocks of weight 0
// may differ.
__device__ __forceinline__ float prefill_mean(float sum, float inverse) { return __fmaf_rn(sum, inverse, 0.f); }

// A split's partial are `dim` sums, then the state of each half: largest score and sum of weights. prefill_apart
// returns its floats, prefill_state the place of the block's state.
template <int DIM> __device__ __forceinline__ int prefill_apart(int dim) {
	return dim + 2 * PrefillValues<DIM>::HALVES;
}
template <int DIM> __device__ __forceinline__ int prefill_state(int dim, const PrefillTile &tile) {
	return PrefillValues<DIM>::HALVES > 1 && tile.base ? dim + 2 : dim;
}

// PrefillPartials are the partials of up to ONCE splits, of two elements of an entry.
template <int ONCE> struct PrefillPartials {
	float2 sum[ONCE], state[ONCE];

	// load starts loading the splits from `split` on that are before `end`. p is the first one's, `apart` floats from
	// one to the next, with the state at state_at.
	__device__ __forceinline__ void load(const float *p, int apart, int element, int state_at, int split, int end) {
#pragma unroll
		for (int s = 0; s < ONCE; s++) {
			if (split + s >= end) continue;
			sum[s] = __ldcg((const float2 *)(p + s * apart + element));
			state[s] = __ldcg((const float2 *)(p + s * apart + state_at));
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
// of `parts`. Some splits are loaded while those before are added. dim is the head size, at most DIM.
template <int DIM, bool WINDOWED, class Logits> __device__ __forceinline__ void prefill_merge(
	const AttendArgs &a, const Logits &logits, const PrefillTile &tile, const int dim, int part, int parts) {
	using Values = PrefillValues<DIM>;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	constexpr int ONCE = 8;
#else
	constexpr int ONCE = 4; // more would spill
#endif
	const int pairs = (Values::HALVES == 1 ? dim : min(dim - tile.base, Values::VALUES)) / 2;
	const int apart = prefill_apart<DIM>(dim);
	const int state = prefill_state<DIM>(dim, tile);
	const int end = (tile.limit - tile.first) * tile.group * pairs;
	for (int i = part * blockDim.x + threadIdx.x; i < end; i += parts * blockDim.x) {
		const int entry = i / pairs, element = i % pairs * 2 + (Values::HALVES == 1 ? 0 : tile.base), row = tile.first + entry / tile.group;
		const int head = tile.head + entry % tile.group;
		const size_t at = (size_t)row * a.heads + head;
		const int splits = prefill_split(a.position[row] / PREFILL_KEYS) + 1;
		AttendSum x = {0, -INFINITY, 0}, y = x;
		const int first = WINDOWED ? prefill_split(max(0, a.position[row] + 1 - a.visible) / PREFILL_KEYS) : 0;
		const float *p = a.partial + (at * a.splits + first) * apart;
		PrefillPartials<ONCE> now, next;
		now.load(p, apart, element, state, first, splits);
		for (int split = first; split < splits; split += 2 * ONCE, p += 2 * ONCE * apart) {
			next.load(p + ONCE * apart, apart, element, state, split + ONCE, splits);
			now.add(x, y, split, splits);
			now.load(p + 2 * ONCE * apart, apart, element, state, split + 2 * ONCE, splits);
			next.add(x, y, split + ONCE, splits);
		}
		const float inverse = __frcp_rn(logits.total(head, x.most, x.weight));
		const float2 mean = {prefill_mean(x.sum, inverse), prefill_mean(y.sum, inverse)};
		if (a.rounded)
			RoundedToken(a.rounded, a.tokens, row, head * dim)
				.put(element / 8, element % 8, a.f16 ? F16::pack(mean.x, mean.y) : BF16::pack(mean.x, mean.y));
		else
			*(float2 *)(a.out + at * dim + element) = mean;
	}
}
