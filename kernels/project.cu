#include "gemm/product.cuh"

struct ProjectArgs {
	const uint4 *w; // packed [rows][cols]
	Activations in; // [T][cols], as it is
	float *x;       // in and out: [T][rows]
	int32_t rows, unused;
};

// X[t][r] += Σ W[r][k] In[t][k]. A unit is one tile of 16 outputs.
struct Project {
	using Args = ProjectArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = false;
	static constexpr bool ONWARD = true; // whether a product may follow that reads what this one makes
	static constexpr bool NORMED_NEXT = true; // whether such a one may have a norm
	static constexpr bool EARLY = true; // whether prepare comes before the sums
	static constexpr bool ATTENDED = false; // whether attention comes next
	static constexpr int IN_TURN_1 = 0, IN_TURN_8 = 0; // as inTurn in products_cuda.go
	const Args &o;
	struct Place {}; // nothing to know of a token beforehand
	struct Sought {}; // nothing that comes to shared memory while sums are made
	float old;

	__device__ __forceinline__ Project(const Args &o) : o(o), old(0) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.rows + 15) / 16; }
	__device__ __forceinline__ const uint4 *tile(int unit, int) const { return o.w + (size_t)unit * (o.in.cols / STEP) * 32; }
	__device__ __forceinline__ float *out(int unit, int row, int t) const { return o.x + (size_t)t * o.rows + unit * 16 + row; }
	__device__ __forceinline__ void prepare(int unit, int row, int t) {
		if (unit * 16 + row < o.rows) old = *out(unit, row, t);
	}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[1]) const {
		if (unit * 16 + row < o.rows) *out(unit, row, t) = __fadd_rn(old, y[0]);
	}

	__device__ __forceinline__ Place place(int) const { return {}; }

	static constexpr int AHEAD = 2; // batches of tokens for which Quads are looked up beforehand
	// Four rows, from a multiple of four on, all of which are there.
	struct Spot {
		int row;

		__device__ __forceinline__ Spot(const Args &, int unit, int row) : row(unit * 16 + row) {}
	};
	// What is looked up for them of a token.
	struct Quad {
		float4 old;

		static __device__ __forceinline__ float4 *x(const Args &o, const Spot &spot, int t) { return reinterpret_cast<float4 *>(o.x + (size_t)t * o.rows + spot.row); }
		__device__ __forceinline__ void look_up(const Args &o, const Spot &spot, int t, const Place &) { old = *x(o, spot, t); }
		__device__ __forceinline__ float4 finish(const Args &o, const Spot &spot, int t, const Place &, const float4 (&y)[1], bool, bool there) const {
			const float4 v = add(old, y[0]);
			if (there) *x(o, spot, t) = v;
			return v;
		}
	};
};

REEL_PROMPT_PRODUCT(reel_project, Project, 8)
REEL_PICKED(reel_project, Project)
