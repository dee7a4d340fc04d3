#include "gemm/product.cuh"
#include "ptx/math.cuh"

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
	static constexpr bool ONWARD = true; // whether a product may follow that reads what this one makes
	static constexpr bool NORMED_NEXT = false; // whether such a one may have a norm
	static constexpr bool EARLY = true; // whether prepare comes before the sums
	static constexpr bool ATTENDED = false; // whether attention comes next
	static constexpr int IN_TURN_1 = 0, IN_TURN_8 = 1; // as inTurn in products_cuda.go
	const Args &o;
	struct Place {}; // nothing to know of a token beforehand
	struct Sought {}; // nothing that comes to shared memory while sums are made

	__device__ __forceinline__ GateUp(const Args &o) : o(o) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.inner + 15) / 16; }
	__device__ __forceinline__ const uint4 *tile(int unit, int r) const { return (r ? o.up : o.gate) + (size_t)unit * (o.in.cols / STEP) * 32; }
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		if (unit * 16 + row >= o.inner) return;
		o.out[(size_t)t * o.inner + unit * 16 + row] = gated(y[0], y[1]);
	}
	static __device__ __forceinline__ float gated(float gate, float up) {
		// Denormals do not matter: 1 is added to the exponential.
		const float e = exp2_approx(__fmul_rn(gate, -1.4426950408889634f));
		const float inverse = reciprocal_approx(__fadd_rn(1.f, e));
		return __fmul_rn(__fmul_rn(gate, inverse), up);
	}

	__device__ __forceinline__ Place place(int) const { return {}; }

	static constexpr int AHEAD = 0; // batches of tokens for which Quads are looked up beforehand
	// Four rows, from a multiple of four on, all of which are there.
	struct Spot {
		int row;

		__device__ __forceinline__ Spot(const Args &, int unit, int row) : row(unit * 16 + row) {}
	};
	// What is looked up for them of a token.
	struct Quad {
		__device__ __forceinline__ void look_up(const Args &, const Spot &, int, const Place &) {}
		// What goes on to the next product need not go to memory as it is.
		__device__ __forceinline__ float4 finish(const Args &o, const Spot &spot, int t, const Place &, const float4 (&y)[2], bool onward, bool there) const {
			const float4 v = {gated(y[0].x, y[1].x), gated(y[0].y, y[1].y), gated(y[0].z, y[1].z), gated(y[0].w, y[1].w)};
			if (!onward && there) *reinterpret_cast<float4 *>(o.out + (size_t)t * o.inner + spot.row) = v;
			return v;
		}
	};
};

REEL_PROMPT_PRODUCT(reel_gateup, GateUp, 4)
REEL_PICKED(reel_gateup, GateUp)
