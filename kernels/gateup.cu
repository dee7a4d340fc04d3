#include "products.cuh"

struct GateUpArgs {
	const uint4 *gate, *up; // packed [inner][hidden]
	Activations in;         // X [T][hidden], normed
	float *out;             // [T][inner]
	int32_t inner, unused;
};

// Out[t][r] = silu(Gate[r]·n) (Up[r]·n), n = rmsnorm(X[t]), silu(a) = a/(1+exp(-a)).
// A unit is a tile of 16 rows of Gate and the same rows of Up.
struct GateUp {
	using Args = GateUpArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true;
	static constexpr bool EARLY = true; // whether prepare comes before the sums
	const Args &o;

	__device__ __forceinline__ GateUp(const Args &o) : o(o) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.inner + 15) / 16; }
	__device__ __forceinline__ const uint4 *tile(int unit, int r) const { return (r ? o.up : o.gate) + (size_t)unit * (o.in.cols / STEP) * 32; }
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		if (unit * 16 + row >= o.inner) return;
		float silu = __fdiv_rn(y[0], __fadd_rn(1.f, expf(-y[0])));
		o.out[(size_t)t * o.inner + unit * 16 + row] = __fmul_rn(silu, y[1]);
	}
};

REEL_PRODUCT(reel_gateup, GateUp, 4)
