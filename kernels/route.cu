#include "gemm/operands.cuh"

// RouteArgs: the fields of Route in kernels/route.go.
struct RouteArgs {
	const float *x, *norm;        // [T][hidden]; [hidden]
	const int32_t *rows;          // [T], or null; -1: no row
	const float *router;          // [experts][hidden]
	const float *bias, *choice;   // [experts], or null
	float *logits;                // [T][experts]
	unsigned *arrivals;           // [T]: 0 between launches
	int32_t *ids;                 // out: [T][used]
	float *weights;               // out: [T][used]
	int32_t T, hidden, experts, used;
	int32_t groups, groupsUsed;   // groups: 0 or 1 for none
	int32_t bestTwo, scoring;     // scoring: that of kernels/route.go
	int32_t normalise, byScore;   // byScore: experts are chosen by scores, not by logits
	float scale, eps;
	// Of a step of one row, whose segments are its ranks; else null, and reel_group makes the segments.
	int32_t *count, *expert, *place, *row;
};

enum Scoring { SOFTMAX_OF_ALL, SIGMOID, SOFTMAX_OF_CHOSEN };
constexpr int ROUTE_WARPS = 8;                      // of a block: one expert each, then one row each
constexpr int SEGMENT_PLACES = 8;                      // places of a segment in steps of few rows
constexpr int MOST_EXPERTS = 1024; // of which a lane has EACH, those of its number, of 32 more and so on
constexpr float NOT_CHOSEN = -__builtin_huge_valf();

// Best is a value and its index. Of equal values the smaller index is better. What is not a number is worse than all
// numbers, and better than NOT_CHOSEN, so that a row of such values has experts too, and different ones.
struct Best {
	float value;
	int index;

	__device__ __forceinline__ void take(float v, int i) {
		const int mine = rank(value), other = rank(v);
		if (other > mine || other == mine && (v > value || !(v < value) && i < index)) value = v, index = i;
	}
	static __device__ __forceinline__ int rank(float v) { return v != v ? 1 : v > NOT_CHOSEN ? 2 : 0; }
	// over_warp leaves the best of all lanes in every lane.
	__device__ __forceinline__ void over_warp() {
#pragma unroll
		for (int apart = 16; apart > 0; apart /= 2) {
			const float v = __shfl_xor_sync(~0u, value, apart);
			const int i = __shfl_xor_sync(~0u, index, apart);
			take(v, i);
		}
	}
};

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2) v = __fadd_rn(v, __shfl_xor_sync(~0u, v, apart));
	return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
	for (int apart = 16; apart > 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, apart));
	return v;
}

// route_logits computes the logits of one expert for ROWS rows from `first` on, of which `live` exist: in float32, a
// lane's columns first, then the lanes.
template <int ROWS> __device__ __forceinline__ void route_logits(const RouteArgs &a, int expert, int first, int live) {
	const int lane = threadIdx.x % 32;
	const float *w = a.router + (size_t)expert * a.hidden, *x[ROWS];
	float sum[ROWS], squares[ROWS];
#pragma unroll
	for (int i = 0; i < ROWS; i++) {
		const int t = first + min(i, live - 1);
		x[i] = a.x + (size_t)(a.rows ? a.rows[t] : t) * a.hidden;
		sum[i] = squares[i] = 0;
	}
	for (int k = lane * 4; k < a.hidden; k += 128) {
		const float4 weight = times(load_constant(w + k), load_constant(a.norm + k));
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			const float4 v = load_activation(x[i] + k);
			squares[i] = add_squares(squares[i], v);
			sum[i] = __fmaf_rn(v.x, weight.x, sum[i]);
			sum[i] = __fmaf_rn(v.y, weight.y, sum[i]);
			sum[i] = __fmaf_rn(v.z, weight.z, sum[i]);
			sum[i] = __fmaf_rn(v.w, weight.w, sum[i]);
		}
	}
#pragma unroll
	for (int i = 0; i < ROWS; i++) {
		const float all = warp_sum(squares[i]), dot = warp_sum(sum[i]);
		const float scale = __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(__fdiv_rn(all, (float)a.hidden), a.eps)));
		if (lane != 0 || i >= live) continue;
		const float logit = __fmul_rn(scale, dot);
		a.logits[(size_t)(first + i) * a.experts + expert] = a.bias ? __fadd_rn(logit, a.bias[expert]) : logit;
	}
}

// keep_groups takes the experts outside the best groups out of a warp's choice. Expert e is value e/32 of lane e%32.
template <int EACH> __device__ __forceinline__ void keep_groups(const RouteArgs &a, float (&choice)[EACH]) {
	const int lane = threadIdx.x % 32, size = a.experts / a.groups;
	float mine = NOT_CHOSEN; // of group `lane`; there are at most 32
	for (int g = 0; g < a.groups; g++) {
		float sum = 0;
		int skip = -1;
		for (int n = 0; n < (a.bestTwo && size > 1 ? 2 : 1); n++) {
			Best best{NOT_CHOSEN, MOST_EXPERTS};
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				const int e = i * 32 + lane;
				if (e < a.experts && e / size == g && e != skip) best.take(choice[i], e);
			}
			best.over_warp();
			sum = n ? __fadd_rn(sum, best.value) : best.value;
			skip = best.index;
		}
		if (lane == g) mine = sum;
	}
	uint32_t used = 0;
	for (int n = 0; n < a.groupsUsed; n++) {
		Best best{lane < a.groups && !(used >> lane & 1) ? mine : NOT_CHOSEN, lane};
		best.over_warp();
		used |= 1u << best.index;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const int e = i * 32 + lane;
		if (e < a.experts && !(used >> e / size & 1)) choice[i] = NOT_CHOSEN;
	}
}

// route_choose chooses the experts of row t from its logits, in one warp.
template <int EACH> __device__ __forceinline__ void route_choose(const RouteArgs &a, int t) {
	const int lane = threadIdx.x % 32;
	float score[EACH], choice[EACH], most = NOT_CHOSEN, sum = 0;
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const int e = i * 32 + lane;
		score[i] = e < a.experts ? __ldcg(a.logits + (size_t)t * a.experts + e) : NOT_CHOSEN;
		choice[i] = score[i];
		most = fmaxf(most, score[i]);
	}
	most = warp_max(most);
	if (a.scoring == SOFTMAX_OF_ALL) {
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			score[i] = i * 32 + lane < a.experts ? expf(__fsub_rn(score[i], most)) : 0;
			sum = __fadd_rn(sum, score[i]);
		}
		sum = warp_sum(sum);
#pragma unroll
		for (int i = 0; i < EACH; i++) score[i] = __fdiv_rn(score[i], sum);
	} else if (a.scoring == SIGMOID) {
#pragma unroll
		for (int i = 0; i < EACH; i++) score[i] = __fdiv_rn(1.f, __fadd_rn(1.f, expf(-score[i])));
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const int e = i * 32 + lane;
		if (e >= a.experts) continue;
		if (a.byScore) choice[i] = score[i];
		if (a.choice) choice[i] = __fadd_rn(choice[i], a.choice[e]);
	}
	if (a.groups > 1) keep_groups(a, choice);
	float weight = 0; // of rank `lane`
	int id = 0;
	for (int k = 0; k < a.used; k++) {
		Best best{NOT_CHOSEN, MOST_EXPERTS};
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (i * 32 + lane < a.experts) best.take(choice[i], i * 32 + lane);
		best.over_warp();
		const int chosen = min(best.index, a.experts - 1);
		float v = 0;
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (i * 32 + lane == chosen) v = score[i], choice[i] = NOT_CHOSEN;
		v = __shfl_sync(~0u, v, chosen % 32);
		if (lane == k) weight = v, id = chosen;
	}
	const bool rank = lane < a.used;
	if (a.scoring == SOFTMAX_OF_CHOSEN) {
		const float top = warp_max(rank ? weight : NOT_CHOSEN);
		weight = rank ? expf(__fsub_rn(weight, top)) : 0;
		weight = __fdiv_rn(weight, warp_sum(weight));
	}
	if (a.normalise) weight = __fdiv_rn(weight, warp_sum(rank ? weight : 0));
	if (!rank) return;
	a.ids[t * a.used + lane] = id;
	a.weights[t * a.used + lane] = __fmul_rn(weight, a.scale);
	if (!a.count) return;
	a.expert[lane] = id;
	for (int i = 0; i < SEGMENT_PLACES; i++) {
		a.place[lane * SEGMENT_PLACES + i] = i ? -1 : lane;
		a.row[lane * SEGMENT_PLACES + i] = i ? -1 : a.rows ? a.rows[0] : 0;
	}
	if (lane == 0) *a.count = a.used;
}

// route: a block computes the logits of eight experts for ROWS rows. The last block of these rows chooses.
template <int ROWS, int EACH> __device__ __forceinline__ void route(const RouteArgs &a) {
	pdl_launch_dependents();
	pdl_wait_rows();
	const int first = blockIdx.y * ROWS, warp = threadIdx.x / 32, expert = blockIdx.x * ROUTE_WARPS + warp;
	int live = min(ROWS, a.T - first);
	while (live > 0 && a.rows && a.rows[first + live - 1] < 0) live--;
	if (live == 0) {
		if (a.count && threadIdx.x == 0) *a.count = 0;
		return;
	}
	if (expert < a.experts) route_logits<ROWS>(a, expert, first, live);
	__shared__ bool last;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) last = increment_wrapping(a.arrivals + first, gridDim.x - 1) == gridDim.x - 1;
	__syncthreads();
	if (last && warp < live) route_choose<EACH>(a, first + warp);
}

#define REEL_ROUTE(name, ROWS, EACH)                                                                                  \
	extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32) name(const __grid_constant__ RouteArgs a) { \
		route<ROWS, EACH>(a);                                                                                  \
	}
// By the most experts.
REEL_ROUTE(reel_route1_256, 1, 8)
REEL_ROUTE(reel_route4_256, 4, 8)
REEL_ROUTE(reel_route1_1024, 1, 32)
REEL_ROUTE(reel_route4_1024, 4, 32)
