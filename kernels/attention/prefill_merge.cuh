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
// of `parts`. Loads of several elements are in flight together, and of each those of some splits while those before are
// added: nearly all of the time is waiting for them. dim is the head size, at most DIM.
template <int DIM, bool WINDOWED, class Logits> __device__ __forceinline__ void prefill_merge(
	const AttendArgs &a, const Logits &logits, const PrefillTile &tile, const int dim, int part, int parts) {
	using Values = PrefillValues<DIM>;
	constexpr int EACH = 4; // pairs of elements of a thread at once
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	constexpr int ONCE = DIM > 64 ? 2 : 1;
#else
	constexpr int ONCE = 1; // more would spill
#endif
	const int pairs = (Values::HALVES == 1 ? dim : min(dim - tile.base, Values::VALUES)) / 2;
	const int apart = prefill_apart<DIM>(dim);
	const int state = prefill_state<DIM>(dim, tile);
	const int end = (tile.limit - tile.first) * tile.group * pairs, step = parts * blockDim.x;
	for (int begin = part * blockDim.x + threadIdx.x; begin < end; begin += EACH * step) {
		struct Pair {
			int row, head, element, splits;
			const float *p; // its partial of the first split
			AttendSum x, y;
		} pair[EACH];
		int most = 0;
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			const int i = min(begin + e * step, end - 1), entry = i / pairs;
			Pair &of = pair[e];
			of.element = i % pairs * 2 + (Values::HALVES == 1 ? 0 : tile.base);
			of.row = tile.first + entry / tile.group, of.head = tile.head + entry % tile.group;
			of.splits = a.position[of.row];
		}
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			Pair &of = pair[e];
			const int position = of.splits;
			const int first = WINDOWED ? prefill_split(max(0, position + 1 - a.visible) / PREFILL_KEYS) : 0;
			of.splits = prefill_split(position / PREFILL_KEYS) + 1 - first;
			of.p = a.partial + (((size_t)of.row * a.heads + of.head) * a.splits + first) * apart;
			of.x = of.y = {0, -INFINITY, 0};
			most = max(most, of.splits);
		}
		PrefillPartials<ONCE> now[EACH], next[EACH];
		const auto load = [&](PrefillPartials<ONCE> (&to)[EACH], int split) {
#pragma unroll
			for (int e = 0; e < EACH; e++)
				to[e].load(pair[e].p + split * apart, apart, pair[e].element, state, split, pair[e].splits);
		};
		const auto add = [&](const PrefillPartials<ONCE> (&from)[EACH], int split) {
#pragma unroll
			for (int e = 0; e < EACH; e++) from[e].add(pair[e].x, pair[e].y, split, pair[e].splits);
		};
		load(now, 0);
		for (int split = 0; split < most; split += 2 * ONCE) {
			load(next, split + ONCE);
			add(now, split);
			load(now, split + 2 * ONCE);
			add(next, split + ONCE);
		}
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			if (begin + e * step >= end) break;
			const Pair &of = pair[e];
			const float inverse = __frcp_rn(logits.total(of.head, of.x.most, of.x.weight));
			const float2 mean = {prefill_mean(of.x.sum, inverse), prefill_mean(of.y.sum, inverse)};
			if (a.rounded)
				RoundedToken(a.rounded, a.tokens, of.row, of.head * dim)
					.put(of.element / 8, of.element % 8, a.f16 ? F16::pack(mean.x, mean.y) : BF16::pack(mean.x, mean.y));
			else
				*(float2 *)(a.out + ((size_t)of.row * a.heads + of.head) * dim + of.element) = mean;
		}
	}
}
