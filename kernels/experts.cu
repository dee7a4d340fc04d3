#include "gemm/experts.cuh"
#include "ptx/math.cuh"

struct ExpertGateUpArgs {
	const uint4 *gate, *up;          // packed [experts*inner][hidden]
	const float *gateBias, *upBias;  // [experts][inner], or null
	Activations in;                  // X [T][hidden], with norm; rows and n are those of a slot
	float *out;                      // [places][inner]
	ChosenArgs chosen;
	float linear, limit;             // of the activation: -log2(e) times 1, or times 1.702 with a limit; 0: no limit
	int32_t inner, unused;
};

// ExpertGateUp: Out[place][r] = act(Gate_e[r]·n, Up_e[r]·n), n = rmsnorm(X[row]); e, place and row are of the slot. A
// unit is 16 rows of Gate and the same rows of Up. Members: gemm/product.cuh.
struct ExpertGateUp {
	using Args = ExpertGateUpArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 0;
	const Args &o;
	const Slot &slot;
	struct Prefetched {};

	__device__ __forceinline__ ExpertGateUp(const Args &o) : o(o), slot(Slot::find(o.chosen, o.in, false)) {}
	__device__ __forceinline__ const Activations &activations() const { return slot.in; }
	__device__ __forceinline__ int units() const { return o.inner / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int r) const {
		return {r ? o.up : o.gate, slot.expert * (o.inner / 16) + unit};
	}
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		const int at = unit * 16 + row, bias = slot.expert * o.inner + at;
		const float gate = o.gateBias ? __fadd_rn(y[0], o.gateBias[bias]) : y[0];
		const float up = o.upBias ? __fadd_rn(y[1], o.upBias[bias]) : y[1];
		o.out[(size_t)slot.place[t] * o.inner + at] = gated(gate, up);
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

struct ExpertDownArgs {
	const uint4 *w;    // packed [experts*hidden][inner]
	const float *bias; // [experts][hidden], or null
	Activations in;    // In [places][inner], without norm; rows and n are those of a slot
	float *results;    // [places][hidden]
	ChosenArgs chosen;
	int32_t hidden, unused;
};

// ExpertDown: Results[place][r] = weight (W_e[r]·In[place] + bias_e[r]). A unit is one row tile.
struct ExpertDown {
	using Args = ExpertDownArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = false;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 0;
	const Args &o;
	const Slot &slot;
	struct Prefetched {};

	__device__ __forceinline__ ExpertDown(const Args &o) : o(o), slot(Slot::find(o.chosen, o.in, true)) {}
	__device__ __forceinline__ const Activations &activations() const { return slot.in; }
	__device__ __forceinline__ int units() const { return o.hidden / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int) const {
		return {o.w, slot.expert * (o.hidden / 16) + unit};
	}
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[1]) const {
		const int at = unit * 16 + row, place = slot.place[t];
		const float v = o.bias ? __fadd_rn(y[0], o.bias[slot.expert * o.hidden + at]) : y[0];
		o.results[(size_t)place * o.hidden + at] = __fmul_rn(o.chosen.weights[place], v);
	}
};

REEL_EXPERTS(reel_expert_gateup, ExpertGateUp, 4)
REEL_EXPERTS(reel_expert_down, ExpertDown, 4)

struct ExpertSumArgs {
	const float *results; // [T][used][cols]
	const int32_t *rows;  // [T], or null; -1: the row is left as it is
	float *x;             // in and out: [T][cols]
	int32_t cols, used;
};

// X[t] += Σ_k results[t][k], in the order of k. A thread adds four columns of row blockIdx.y.
extern "C" __global__ void reel_expert_sum(const __grid_constant__ ExpertSumArgs a) {
	pdl_begin();
	const int t = blockIdx.y, column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
	if (a.rows && a.rows[t] < 0 || column >= a.cols) return;
	const float *from = a.results + (size_t)t * a.used * a.cols + column;
	float4 sum = load_activation(from);
	for (int k = 1; k < a.used; k++) sum = add(sum, load_activation(from + (size_t)k * a.cols));
	float4 *const x = reinterpret_cast<float4 *>(a.x + (size_t)t * a.cols + column);
	*x = add(*x, sum);
}
