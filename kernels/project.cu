#include "products.cuh"

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
	static constexpr bool EARLY = true; // whether prepare comes before the sums
	const Args &o;
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
};

REEL_PRODUCT(reel_project, Project, 8)
