#include "gemm/product.cuh"
#include "ptx/math.cuh"

struct GateUpArgs {
	const uint4 *gate, *up; // packed [inner][hidden]
	Activations in;         // X [T][hidden], with norm
	float *out;             // [T][inner]
	float linear, cubic;    // of the activation's argument, times -log2(e): Activation in gateup.go
	int32_t inner;
	float scale; // of results, a power of two
};

// GateUp: Out[t][r] = act(Gate[r]·n) (Up[r]·n) scale, n = rmsnorm(X[t]), act(a) = a/(1+2^(linear a + cubic a³)).
// A unit is 16 rows of Gate and the same rows of Up. Members: gemm/product.cuh.
struct GateUp {
	using Args = GateUpArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true;
	static constexpr bool HANDS_OVER = true;
	static constexpr bool HANDOVER_NORMED = false;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 1;
	static constexpr Gives GIVES = GIVES_PAIRS;
	const Args &o;
	struct TokenInfo {};
	struct Prefetched {};

	__device__ __forceinline__ GateUp(const Args &o) : o(o) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.inner + 15) / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int r) const { return {r ? o.up : o.gate, unit}; }
	__device__ __forceinline__ void prepare(int, int, int) {}
	static constexpr bool ADDS = false; // spread.cuh
	__device__ __forceinline__ int outputs() const { return o.inner; }
	__device__ __forceinline__ float value(int, int, int, const float (&y)[2]) const { return gated(o, y[0], y[1]); }
	__device__ __forceinline__ float finish(int unit, int row, int t, const float (&y)[2]) const {
		if (unit * 16 + row >= o.inner) return 0;
		return o.out[(size_t)t * o.inner + unit * 16 + row] = value(unit, row, t, y);
	}
	// With cubic 0 the exponent has the bits of gate times linear.
	static __device__ __forceinline__ float gated(const Args &o, float gate, float up) {
		// Denormals do not matter: 1 is added to the exponential.
		const float e = exp2_approx(__fmul_rn(gate, __fmaf_rn(o.cubic, __fmul_rn(gate, gate), o.linear)));
		const float inverse = reciprocal_approx(__fadd_rn(1.f, e));
		return __fmul_rn(__fmul_rn(__fmul_rn(gate, inverse), up), o.scale);
	}

	__device__ __forceinline__ TokenInfo token_info(int) const { return {}; }

	static constexpr int QUADS_AHEAD = 0;
	// Four rows of Out, all of which exist.
	struct UnitRows {
		int row;

		__device__ __forceinline__ UnitRows(const Args &, int unit, int row) : row(unit * 16 + row) {}
	};
	struct Quad {
		template <bool = false> __device__ __forceinline__ void look_up(const Args &, const UnitRows &, int, const TokenInfo &) {}
		// A result that is handed over to the next product need not be stored as float32.
		__device__ __forceinline__ float4 finish(const Args &o, const UnitRows &rows, int t, const TokenInfo &,
			const float4 (&y)[2], bool handsOver, bool exists) const {
			const float4 v = {gated(o, y[0].x, y[1].x), gated(o, y[0].y, y[1].y), gated(o, y[0].z, y[1].z),
				gated(o, y[0].w, y[1].w)};
			if (!handsOver && exists) *reinterpret_cast<float4 *>(o.out + (size_t)t * o.inner + rows.row) = v;
			return v;
		}
	};
};

// GateUpPersistent is GateUp with persistent blocks for one row.
struct GateUpPersistent : GateUp {
	static constexpr int PERSISTENT_GEMV = 2;

	__device__ __forceinline__ GateUpPersistent(const Args &o) : GateUp(o) {}
};

REEL_PREFILL_PRODUCT(reel_gateup, GateUp, 4)
REEL_OP_KERNEL(reel_gateup_persistent_bf16_gemv, GateUpPersistent, FEW_ROWS_THREADS, 2,
               (gemv<GateUpPersistent, BF16, 4>(GateUpPersistent{a})))
REEL_OP_KERNEL(reel_gateup_persistent_f16_gemv, GateUpPersistent, FEW_ROWS_THREADS, 2,
               (gemv<GateUpPersistent, F16, 4>(GateUpPersistent{a})))
REEL_TAGGED(reel_gateup, GateUp, 4)
REEL_TAGGED(reel_gateup_persistent, GateUpPersistent, 4)
REEL_STREAM_K_FORMATS(reel_gateup, GateUp)
REEL_SPREAD(reel_gateup, GateUp, 4)
REEL_CODES(reel_gateup, GateUp)
REEL_CODES_RING(reel_gateup, GateUp)
REEL_USUAL_FORMATS_OF_64(REEL_CODES_RING_TAGGED, reel_gateup, GateUp)
REEL_USUAL_FORMATS_OF_MORE(REEL_CODES_TAGGED, reel_gateup, GateUp)
