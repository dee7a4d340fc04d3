#include "gemm/product.cuh"

struct ProjectionArgs {
	const uint4 *w; // packed [rows][cols]
	Activations in; // [T][cols], without norm
	float *x;          // in and out: [T] rows
	const float *bias; // [rows], or null
	int32_t rows, stores;   // stores: x holds nothing before
	int32_t stride, unused; // floats between two rows of x; kernels other than stream-K take `rows`
};

// Projection, for the output and the down projection: X[t][r] += Σ W[r][k] In[t][k] + bias[r]. With
// stores X counts as 0 before. Kernels of the prefill class have neither bias nor stores. A unit is one row tile. Members: gemm/product.cuh.
struct Projection {
	using Args = ProjectionArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = false;
	static constexpr bool HANDS_OVER = true;
	static constexpr bool HANDOVER_NORMED = true;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 0;
	static constexpr Gives GIVES = GIVES_SUM;
	const Args &o;
	struct TokenInfo {};
	struct Prefetched {};
	float old;

	__device__ __forceinline__ Projection(const Args &o) : o(o), old(0) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.rows + 15) / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int) const { return {o.w, unit}; }
	__device__ __forceinline__ float *out(int unit, int row, int t) const {
		return o.x + (size_t)t * o.rows + unit * 16 + row;
	}
	__device__ __forceinline__ void prepare(int unit, int row, int t) {
		if (unit * 16 + row >= o.rows) return;
		old = o.stores ? 0 : *out(unit, row, t);
		if (o.bias) old = __fadd_rn(old, o.bias[unit * 16 + row]);
	}
	static constexpr bool ADDS = true; // spread.cuh
	__device__ __forceinline__ int outputs() const { return o.rows; }
	__device__ __forceinline__ float value(int, int, int, const float (&y)[1]) const { return __fadd_rn(0, y[0]); }
	__device__ __forceinline__ float finish(int unit, int row, int t, const float (&y)[1]) const {
		const float v = __fadd_rn(old, y[0]);
		if (unit * 16 + row < o.rows) *out(unit, row, t) = v;
		return v;
	}

	__device__ __forceinline__ TokenInfo token_info(int) const { return {}; }

	static constexpr int QUADS_AHEAD = 2;
	// Four rows of W, all of which exist.
	struct UnitRows {
		int row;

		__device__ __forceinline__ UnitRows(const Args &, int unit, int row) : row(unit * 16 + row) {}
	};
	struct Quad {
		float4 old;

		static __device__ __forceinline__ float4 *x(const Args &o, const UnitRows &rows, int t) {
			return reinterpret_cast<float4 *>(o.x + (size_t)t * o.stride + rows.row);
		}
		// Stream-K's registers are full: there, reel_projection_begin came before. DECODE: it did not.
		template <bool DECODE = false>
		__device__ __forceinline__ void look_up(const Args &o, const UnitRows &rows, int t, const TokenInfo &) {
			if (!DECODE || !o.stores)
				old = *x(o, rows, t);
			else
				old = {0, 0, 0, 0};
			if (DECODE && o.bias) old = add(old, *reinterpret_cast<const float4 *>(o.bias + rows.row));
		}
		__device__ __forceinline__ float4 finish(const Args &o, const UnitRows &rows, int t, const TokenInfo &,
			const float4 (&y)[1], bool, bool exists) const {
			const float4 v = add(old, y[0]);
			if (exists) *x(o, rows, t) = v;
			return v;
		}
	};
};

struct BeginArgs {
	float *x;          // in and out: [T][cols]
	const float *bias; // [cols], or null
	int32_t cols, stores;
};

// Makes X what a projection of the prefill class adds to: 0 or X, plus the bias. A block is a row.
extern "C" __global__ void reel_projection_begin(const __grid_constant__ BeginArgs a) {
	pdl_begin();
	float *const x = a.x + (size_t)blockIdx.x * a.cols;
	for (int i = threadIdx.x; i < a.cols; i += blockDim.x)
		x[i] = __fadd_rn(a.stores ? 0 : x[i], a.bias ? a.bias[i] : 0);
}

REEL_PREFILL_PRODUCT(reel_projection, Projection, 8)
REEL_TAGGED(reel_projection, Projection, 8)
REEL_STREAM_K_FORMATS(reel_projection, Projection)
REEL_SPREAD(reel_projection, Projection, 8)
REEL_CODES(reel_projection, Projection)
REEL_CODES_TAKING(reel_projection, Projection)
REEL_USUAL_FORMATS(REEL_CODES_TAGGED, reel_projection, Projection)
