// The ops of experts' products: gates and ups of a segment or of one row, and the down projection.
#pragma once
#include "gemm/experts.cuh"
#include "ptx/math.cuh"

struct ExpertGateUpArgs {
	const uint4 *gate, *up;          // packed [experts*inner][hidden]
	const float *gateBias, *upBias;  // [experts][inner], or null
	Activations in;                  // X [T][hidden], with norm; rows and n are those of a segment
	float *out;                      // [places][inner]
	ChosenArgs chosen;
	float linear, limit;             // of the activation: -log2(e) times 1, or times 1.702 with a limit; 0: no limit
	int32_t inner, unused;
};

// ExpertGates is what the two ops of gate and up have in common.
struct ExpertGates {
	using Args = ExpertGateUpArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = true; // the down projection reads the choice before it waits
	struct Prefetched {};
	const Args &o;

	__device__ __forceinline__ void prepare(int, int, int) {}
	static constexpr bool ADDS = false; // spread.cuh
	__device__ __forceinline__ int outputs() const { return o.inner; }
	// result returns an output of an expert's gate and up.
	__device__ __forceinline__ float result(int expert, int at, const float (&y)[2]) const {
		const int bias = expert * o.inner + at;
		const float gate = o.gateBias ? __fadd_rn(y[0], o.gateBias[bias]) : y[0];
		const float up = o.upBias ? __fadd_rn(y[1], o.upBias[bias]) : y[1];
		return gated(gate, up);
	}
	// A comparison with what is not a number is false, so that stays what it is.
	__device__ __forceinline__ float gated(float gate, float up) const {
		if (o.limit > 0) {
			gate = gate > o.limit ? o.limit : gate;
			up = up > o.limit ? o.limit : up < -o.limit ? -o.limit : up;
			up = __fadd_rn(up, 1.f);
		}
		const float inverse = reciprocal_approx(__fadd_rn(1.f, exp2_approx(__fmul_rn(gate, o.linear))));
		return __fmul_rn(__fmul_rn(gate, inverse), up);
	}
};

// ExpertGateUp: Out[place][r] = act(Gate_e[r]·n, Up_e[r]·n), n = rmsnorm(X[row]); e, place and row are of the
// segment. A unit is 16 rows of Gate and the same rows of Up. Members: gemm/product.cuh.
struct ExpertGateUp : ExpertGates {
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 1;
	const Segment &segment;

	// of returns the op of segment i, which THREADS threads find.
	template <int THREADS> static __device__ __forceinline__ ExpertGateUp of(const Args &o, int i) {
		return {{o}, Segment::find<THREADS>(o.chosen, o.in, false, i)};
	}
	// tile_of returns a row tile as one thread finds it.
	static __device__ __forceinline__ RowTile tile_of(const Args &o, int i, int unit, int r) {
		return {r ? o.up : o.gate, o.chosen.expert[i] * (o.inner / 16) + unit};
	}
	static __device__ __forceinline__ int segments(const Args &o) { return *o.chosen.count; }
	__device__ __forceinline__ const Activations &activations() const { return segment.in; }
	__device__ __forceinline__ int units() const { return o.inner / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int r) const {
		return {r ? o.up : o.gate, segment.expert * (o.inner / 16) + unit};
	}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		const int at = unit * 16 + row;
		o.out[(size_t)segment.place[t] * o.inner + at] = result(segment.expert, at, y);
	}
};

// ExpertGateUpOne is the same of a step of one row. The units of all its experts are in one list, so that blocks go on
// from one expert to the next.
struct ExpertGateUpOne : ExpertGates {
	static constexpr int PERSISTENT_GEMV = 2, PERSISTENT_SKINNY = 0;
	const Ranks &ranks;
	const int tiles; // of an expert

	template <int THREADS> static __device__ __forceinline__ ExpertGateUpOne of(const Args &o, int) {
		return {{o}, Ranks::find<THREADS>(o.chosen, o.in), o.inner / 16};
	}
	static __device__ __forceinline__ RowTile tile_of(const Args &o, int, int unit, int r) {
		const int tiles = o.inner / 16;
		return {r ? o.up : o.gate, o.chosen.expert[unit / tiles] * tiles + unit % tiles};
	}
	static __device__ __forceinline__ int segments(const Args &o) { return *o.chosen.count ? 1 : 0; }
	__device__ __forceinline__ const Activations &activations() const { return ranks.in; }
	__device__ __forceinline__ int units() const { return o.chosen.segments * tiles; }
	__device__ __forceinline__ RowTile row_tile(int unit, int r) const {
		return {r ? o.up : o.gate, ranks.expert[unit / tiles] * tiles + unit % tiles};
	}
	__device__ __forceinline__ float value(int unit, int row, int, const float (&y)[2]) const {
		return result(ranks.expert[unit / tiles], unit % tiles * 16 + row, y);
	}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		o.out[(size_t)(unit / tiles) * o.inner + unit % tiles * 16 + row] = value(unit, row, t, y);
	}
};

struct ExpertDownArgs {
	const uint4 *w;    // packed [experts*hidden][inner]
	const float *bias; // [experts][hidden], or null
	Activations in;    // In [places][inner], without norm; rows and n are those of a segment
	float *results;    // [places][hidden]
	float *x;          // in and out: [hidden]; of a step of one row alone
	ChosenArgs chosen;
	int32_t hidden, used;
	int32_t stores, unused; // stores: x holds nothing before
};

// ExpertDown: Results[place][r] = weight (W_e[r]·In[place] + bias_e[r]). A unit is one row tile.
struct ExpertDown {
	using Args = ExpertDownArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = false;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 1;
	const Args &o;
	const Segment &segment;
	struct Prefetched {};

	template <int THREADS> static __device__ __forceinline__ ExpertDown of(const Args &o, int i) {
		return {o, Segment::find<THREADS>(o.chosen, o.in, true, i)};
	}
	static __device__ __forceinline__ RowTile tile_of(const Args &o, int i, int unit, int) {
		return {o.w, o.chosen.expert[i] * (o.hidden / 16) + unit};
	}
	static __device__ __forceinline__ int segments(const Args &o) { return *o.chosen.count; }
	__device__ __forceinline__ const Activations &activations() const { return segment.in; }
	__device__ __forceinline__ int units() const { return o.hidden / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int) const {
		return {o.w, segment.expert * (o.hidden / 16) + unit};
	}
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[1]) const {
		const int at = unit * 16 + row, place = segment.place[t];
		const float v = o.bias ? __fadd_rn(y[0], o.bias[segment.expert * o.hidden + at]) : y[0];
		o.results[(size_t)place * o.hidden + at] = __fmul_rn(o.chosen.weights[place], v);
	}
};
