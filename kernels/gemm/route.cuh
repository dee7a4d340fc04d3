// A router: the logits of experts, and the choice of a row's experts.
#pragma once
#include "gemm/operands.cuh"
#include "ptx/tagged.cuh"

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
	const float *scales; // [experts], or null
};

// TaggedRouteArgsOf are those of a row's logits as tagged values: tags.in is X, tags.out the logits.
template <class T> struct TaggedRouteArgsOf {
	RouteArgs of;
	T tags;
};
using TaggedRouteArgs = TaggedRouteArgsOf<Tags>;
using RankRouteArgs = TaggedRouteArgsOf<RankTags>;

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

// RouteLogits are the logits of EXPERTS experts for ROWS rows, in float32, in a warp: a lane's columns first, in rising
// order, then the lanes. The router's first columns are loaded before the rows are there, and rows several quads at a
// time: a warp waits for memory as seldom as its registers allow. Of many rows a warp has several experts, so that the
// rows are read less often.
// BATCH is the quads of each row in flight.
template <int ROWS, int EXPERTS, int BATCH = ROWS == 1 ? 16 : EXPERTS == 1 ? 4 : 2> struct RouteLogits {
	static constexpr int EARLY = EXPERTS > 1 ? BATCH : ROWS == 1 ? 16 : 8; // quads that are loaded before the wait
	static_assert(EARLY % BATCH == 0, "a batch is early, or is not");

	const RouteArgs &a;
	const int lane, expert; // the first expert
	float4 early[EARLY][EXPERTS];

	__device__ __forceinline__ RouteLogits(const RouteArgs &a, int expert)
		: a(a), lane(threadIdx.x % 32), expert(expert) {
#pragma unroll
		for (int i = 0; i < EARLY; i++) load(early[i], i);
	}
	// load loads the experts' i-th quads of this lane, times the norm; zeros past the end.
	__device__ __forceinline__ void load(float4 (&weights)[EXPERTS], int i) const {
		const int k = i * 128 + lane * 4;
		const bool inside = k < a.hidden;
		const float4 norm = inside ? load_constant(a.norm + k) : float4{0, 0, 0, 0};
#pragma unroll
		for (int e = 0; e < EXPERTS; e++) {
			weights[e] = {0, 0, 0, 0};
			if (inside) weights[e] = times(load_constant(a.router + (size_t)min(expert + e, a.experts - 1) * a.hidden + k), norm);
		}
	}

	// prefetch_late brings the expert's other columns to L2.
	__device__ __forceinline__ void prefetch_late() const {
		if (expert >= a.experts) return;
		for (int k = EARLY * 128 + lane * 8; k < a.hidden; k += 256)
			prefetch_l2(a.router + (size_t)expert * a.hidden + k), prefetch_l2(a.norm + k);
	}

	// run stores the logits of `live` rows from `first` on.
	__device__ __forceinline__ void run(int first, int live) const {
		const float *x[ROWS];
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			const int t = first + min(i, live - 1);
			x[i] = a.x + (size_t)(a.rows ? a.rows[t] : t) * a.hidden + lane * 4;
		}
		each(x, [&](int i, int e, float logit) {
			if (i < live && expert + e < a.experts)
				a.logits[(size_t)(first + i) * a.experts + expert + e] = biased(e, logit);
		});
	}
	__device__ __forceinline__ float biased(int e, float logit) const {
		return a.bias ? __fadd_rn(logit, a.bias[expert + e]) : logit;
	}
	// each passes the logits of rows, without bias, to put(i, e, logit), in one lane. x has this lane's first columns.
	template <class Put> __device__ __forceinline__ void each(const float *const (&x)[ROWS], Put put) const {
		float sum[ROWS][EXPERTS], squares[ROWS];
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			squares[i] = 0;
#pragma unroll
			for (int e = 0; e < EXPERTS; e++) sum[i][e] = 0;
		}
#pragma unroll
		for (int q = 0; q < EARLY; q += BATCH) add(x, sum, squares, q, early + q);
#pragma unroll 1
		for (int q = EARLY; q * 128 < a.hidden; q += BATCH) {
			float4 late[BATCH][EXPERTS];
#pragma unroll
			for (int i = 0; i < BATCH; i++) load(late[i], q + i);
			add(x, sum, squares, q, late);
		}
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			const float all = warp_sum(squares[i]);
			const float scale = __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(__fdiv_rn(all, (float)a.hidden), a.eps)));
#pragma unroll
			for (int e = 0; e < EXPERTS; e++) {
				const float logit = __fmul_rn(scale, warp_sum(sum[i][e]));
				if (lane == 0) put(i, e, logit);
			}
		}
	}
	// add adds the products and squares of BATCH quads from the q-th on. Past the end it adds zeros.
	__device__ __forceinline__ void add(const float *const (&x)[ROWS], float (&sum)[ROWS][EXPERTS],
		float (&squares)[ROWS], int q, const float4 (*weights)[EXPERTS]) const {
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
#pragma unroll
				for (int e = 0; e < EXPERTS; e++) {
					float &s = sum[i][e];
					s = __fmaf_rn(v[b][i].x, weights[b][e].x, s);
					s = __fmaf_rn(v[b][i].y, weights[b][e].y, s);
					s = __fmaf_rn(v[b][i].z, weights[b][e].z, s);
					s = __fmaf_rn(v[b][i].w, weights[b][e].w, s);
				}
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

// Choice is a row's expert of rank `lane`, and its weight.
struct Choice {
	int id;
	float weight;
};

// RowLogits are those of row t, as RouteLogits stored them.
struct RowLogits {
	int t;

	template <int EACH> __device__ __forceinline__ void load(const RouteArgs &a, float (&v)[EACH]) const {
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			const int expert = i * 32 + threadIdx.x % 32;
			v[i] = expert < a.experts ? __ldcg(a.logits + (size_t)t * a.experts + expert) : NOT_CHOSEN;
		}
	}
};

// RouteScores are the scores of a row's experts in a warp, of which a lane has those of its number, of 32 more and so on.
template <int EACH> struct RouteScores {
	const RouteArgs &a;
	const int lane;
	float score[EACH]; // logits at first

	// logits.load(a, v) loads a lane's.
	template <class Logits>
	__device__ __forceinline__ RouteScores(const RouteArgs &a, const Logits &logits) : a(a), lane(threadIdx.x % 32) {
		logits.load(a, score);
	}
	__device__ __forceinline__ int expert(int i) const { return i * 32 + lane; }
	__device__ __forceinline__ bool exists(int i) const { return expert(i) < a.experts; }

	// make makes scores of logits.
	__device__ __forceinline__ void make() {
		if (a.scoring == SOFTMAX_OF_ALL) {
			float most = NOT_CHOSEN, sum = 0;
#pragma unroll
			for (int i = 0; i < EACH; i++) most = fmaxf(most, score[i]);
			most = warp_max(most);
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				score[i] = exists(i) ? expf(__fsub_rn(score[i], most)) : 0;
				sum = __fadd_rn(sum, score[i]);
			}
			sum = warp_sum(sum);
#pragma unroll
			for (int i = 0; i < EACH; i++) score[i] = __fdiv_rn(score[i], sum);
		} else if (a.scoring == SIGMOID) {
#pragma unroll
			for (int i = 0; i < EACH; i++) score[i] = __fdiv_rn(1.f, __fadd_rn(1.f, expf(-score[i])));
		}
	}
	// keys returns keys that rise with the values by which experts are chosen, scores or logits, as Best does: what is not
	// a number is above NOT_CHOSEN, and below all numbers. No expert that does not exist is above 0.
	template <bool GROUPS> __device__ __forceinline__ void keys(uint32_t (&key)[EACH]) const {
		float choice[EACH];
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			choice[i] = score[i];
			if (a.choice && exists(i)) choice[i] = __fadd_rn(choice[i], a.choice[expert(i)]);
		}
		if (GROUPS && a.groups > 1) keep_groups(a, choice);
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			const uint32_t bits = __float_as_uint(__fadd_rn(choice[i], 0.f)); // one zero of two
			key[i] = choice[i] != choice[i] ? 1 : choice[i] > NOT_CHOSEN ? bits ^ (bits >> 31 ? ~0u : 1u << 31) : 0;
			if (!exists(i)) key[i] = 0;
		}
	}
	// weight returns the weight of the expert of rank `lane`, which has that score.
	__device__ __forceinline__ float weight(float weight) const {
		const bool rank = lane < a.used;
		if (a.scoring == SOFTMAX_OF_CHOSEN) {
			const float top = warp_max(rank ? weight : NOT_CHOSEN);
			weight = rank ? expf(__fsub_rn(weight, top)) : 0;
			weight = __fdiv_rn(weight, warp_sum(weight));
		}
		if (a.normalise) weight = __fdiv_rn(weight, warp_sum(rank ? weight : 0));
		return __fmul_rn(weight, a.scale);
	}
};

// route_choose chooses the experts of a row from its logits, in one warp. Without GROUPS there are none. Without `weighs` it
// may leave their weights aside, which take as long as the choice.
template <int EACH, bool GROUPS = true, class Logits>
__device__ __forceinline__ Choice route_choose(const RouteArgs &a, const Logits &logits, bool weighs = true) {
	RouteScores<EACH> s(a, logits);
	uint32_t key[EACH];
	if (a.byScore) s.make();
	s.template keys<GROUPS>(key);
	if (!a.byScore && weighs) s.make();
	float weight = 0; // of rank `lane`
	int id = 0;
	for (int k = 0; k < a.used; k++) {
		uint32_t mine = 0;
		int index = s.lane;
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (key[i] > mine) mine = key[i], index = s.expert(i);
		const uint32_t best = __reduce_max_sync(~0u, mine);
		const int chosen = min((int)__reduce_min_sync(~0u, mine == best ? index : MOST_EXPERTS), a.experts - 1);
		float v = 0;
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (s.expert(i) == chosen) v = s.score[i], key[i] = 0;
		v = __shfl_sync(~0u, v, chosen % 32);
		if (s.lane == k) weight = v, id = chosen;
	}
	weight = weighs ? s.weight(weight) : 0;
	if (weighs && a.scales) weight = __fmul_rn(weight, a.scales[id]); // of no rank: of expert 0
	return {id, weight};
}

// route_store stores the choice of row t, and the segments of a step of one row.
__device__ __forceinline__ void route_store(const RouteArgs &a, int t, const Choice &c) {
	const int lane = threadIdx.x % 32;
	if (lane >= a.used) return;
	a.ids[t * a.used + lane] = c.id;
	a.weights[t * a.used + lane] = c.weight;
	if (!a.count) return;
	a.expert[lane] = c.id;
	for (int i = 0; i < SEGMENT_PLACES; i++) {
		a.place[lane * SEGMENT_PLACES + i] = i ? -1 : lane;
		a.row[lane * SEGMENT_PLACES + i] = i ? -1 : a.rows ? a.rows[0] : 0;
	}
	if (lane == 0) *a.count = a.used;
}
