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

// RouteLogits are the logits of one expert for ROWS rows, in float32, in a warp: a lane's columns first, in rising
// order, then the lanes. The router's first columns are loaded before the rows are there, and rows several quads at a
// time: a warp waits for memory as seldom as its registers allow.
template <int ROWS> struct RouteLogits {
	static constexpr int EARLY = ROWS == 1 ? 16 : 8; // quads of 32 lanes that are loaded before the wait
	static constexpr int BATCH = ROWS == 1 ? 16 : 4; // quads of each row in flight
	static_assert(EARLY % BATCH == 0, "a batch is early, or is not");

	const RouteArgs &a;
	const int lane;
	const float *const w; // this lane's part of the expert's row of the router
	float4 early[EARLY];

	__device__ __forceinline__ RouteLogits(const RouteArgs &a, int expert)
		: a(a), lane(threadIdx.x % 32), w(a.router + (size_t)expert * a.hidden + lane * 4) {
#pragma unroll
		for (int i = 0; i < EARLY; i++) early[i] = weight(i);
	}
	// weight returns the router's i-th quad of this lane, times the norm; zeros past the end.
	__device__ __forceinline__ float4 weight(int i) const {
		const int k = i * 128;
		if (k + lane * 4 >= a.hidden) return {0, 0, 0, 0};
		return times(load_constant(w + k), load_constant(a.norm + lane * 4 + k));
	}

	// run stores the logits of `live` rows from `first` on.
	__device__ __forceinline__ void run(int expert, int first, int live) const {
		const float *x[ROWS];
		float sum[ROWS], squares[ROWS];
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			const int t = first + min(i, live - 1);
			x[i] = a.x + (size_t)(a.rows ? a.rows[t] : t) * a.hidden + lane * 4;
			sum[i] = squares[i] = 0;
		}
#pragma unroll
		for (int q = 0; q < EARLY; q += BATCH) add(x, sum, squares, q, early + q);
		for (int q = EARLY; q * 128 < a.hidden; q += BATCH) {
			float4 late[BATCH];
#pragma unroll
			for (int i = 0; i < BATCH; i++) late[i] = weight(q + i);
			add(x, sum, squares, q, late);
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
	// add adds the products and squares of BATCH quads from the q-th on. Past the end it adds zeros.
	__device__ __forceinline__ void add(const float *const (&x)[ROWS], float (&sum)[ROWS], float (&squares)[ROWS],
		int q, const float4 *weights) const {
		float4 v[BATCH][ROWS];
#pragma unroll
		for (int b = 0; b < BATCH; b++)
#pragma unroll
			for (int i = 0; i < ROWS; i++) {
				const int k = (q + b) * 128;
				v[b][i] = {0, 0, 0, 0};
				if (k + lane * 4 < a.hidden) v[b][i] = load_activation(x[i] + k);
			}
#pragma unroll
		for (int b = 0; b < BATCH; b++)
#pragma unroll
			for (int i = 0; i < ROWS; i++) {
				squares[i] = add_squares(squares[i], v[b][i]);
				sum[i] = __fmaf_rn(v[b][i].x, weights[b].x, sum[i]);
				sum[i] = __fmaf_rn(v[b][i].y, weights[b].y, sum[i]);
				sum[i] = __fmaf_rn(v[b][i].z, weights[b].z, sum[i]);
				sum[i] = __fmaf_rn(v[b][i].w, weights[b].w, sum[i]);
			}
	}
};

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
	// A key rises with its value as Best does: what is not a number is above NOT_CHOSEN, and below all numbers.
	uint32_t key[EACH];
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const uint32_t bits = __float_as_uint(__fadd_rn(choice[i], 0.f)); // one zero of two
		key[i] = choice[i] != choice[i] ? 1 : choice[i] > NOT_CHOSEN ? bits ^ (bits >> 31 ? ~0u : 1u << 31) : 0;
		if (i * 32 + lane >= a.experts) key[i] = 0;
	}
	float weight = 0; // of rank `lane`
	int id = 0;
	for (int k = 0; k < a.used; k++) {
		uint32_t mine = 0;
		int index = lane;
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (key[i] > mine) mine = key[i], index = i * 32 + lane;
		const uint32_t best = __reduce_max_sync(~0u, mine);
		const int chosen = min((int)__reduce_min_sync(~0u, mine == best ? index : MOST_EXPERTS), a.experts - 1);
		float v = 0;
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (i * 32 + lane == chosen) v = score[i], key[i] = 0;
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
	const int first = blockIdx.y * ROWS, warp = threadIdx.x / 32, expert = blockIdx.x * ROUTE_WARPS + warp;
	const RouteLogits<ROWS> logits(a, min(expert, a.experts - 1));
	pdl_launch_dependents();
	pdl_wait_rows();
	int live = min(ROWS, a.T - first);
	while (live > 0 && a.rows && a.rows[first + live - 1] < 0) live--;
	if (live == 0) {
		if (a.count && threadIdx.x == 0) *a.count = 0;
		return;
	}
	if (expert < a.experts) logits.run(expert, first, live);
	__shared__ bool last;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) last = increment_wrapping(a.arrivals + first, gridDim.x - 1) == gridDim.x - 1;
	__syncthreads();
	if (last && warp < live) route_choose<EACH>(a, first + warp);
}

#define REEL_ROUTE(name, ROWS, EACH, ...)                                                           \
	extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32, ##__VA_ARGS__) name(             \
		const __grid_constant__ RouteArgs a) {                                                      \
		route<ROWS, EACH>(a);                                                                       \
	}
// By the most experts. With a block on an SM the compiler loads all of a row at once; of many rows more blocks are
// better.
REEL_ROUTE(reel_route1_256, 1, 8, 1)
REEL_ROUTE(reel_route4_256, 4, 8)
REEL_ROUTE(reel_route1_1024, 1, 32, 1)
REEL_ROUTE(reel_route4_1024, 4, 32, 1)
