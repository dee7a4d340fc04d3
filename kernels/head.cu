#include "gemm/product.cuh"

struct HeadArgs {
	const uint4 *w; // packed [vocab][hidden]
	Activations in; // the sampled rows of X [T][hidden], with norm
	float *logits;  // out: [N][vocab]
	int32_t vocab, unused;
};

// Head: Logits[i] = W·rmsnorm(X[sample i]). Logits of sample -1 are not written. Members:
// gemm/product.cuh.
struct Head {
	using Args = HeadArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = true;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 2, PERSISTENT_SKINNY = 2;
	static constexpr Gives GIVES = GIVES_NOTHING;
	const Args &o;
	struct Prefetched {};

	__device__ __forceinline__ Head(const Args &o) : o(o) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.vocab + 15) / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int) const { return {o.w, unit}; }
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int i, const float (&y)[1]) const {
		if (unit * 16 + row < o.vocab) o.logits[(size_t)i * o.vocab + unit * 16 + row] = y[0];
	}

	static constexpr bool HANDS_OVER = false, HANDOVER_NORMED = false;
	struct TokenInfo {
		int32_t row; // of X, or -1
	};
	__device__ __forceinline__ TokenInfo token_info(int i) const { return {o.in.row(i)}; }
	// Four rows of W, of which the last ones need not exist.
	struct UnitRows {
		int row;

		__device__ __forceinline__ UnitRows(const Args &, int unit, int row) : row(unit * 16 + row) {}
	};
	struct Quad {
		template <bool = false> __device__ __forceinline__ void look_up(const Args &, const UnitRows &, int, const TokenInfo &) {}
		__device__ __forceinline__ float4 finish(const Args &o, const UnitRows &rows, int i, const TokenInfo &token,
			const float4 (&y)[1], bool, bool exists) const {
			if (!exists || token.row < 0 || rows.row >= o.vocab) return y[0];
			float *const to = o.logits + (size_t)i * o.vocab + rows.row;
			if (o.vocab % 4 == 0) {
				*reinterpret_cast<float4 *>(to) = y[0];
				return y[0];
			}
			const int left = o.vocab - rows.row;
			to[0] = y[0].x;
			if (left > 1) to[1] = y[0].y;
			if (left > 2) to[2] = y[0].z;
			if (left > 3) to[3] = y[0].w;
			return y[0];
		}
	};
};

REEL_PRODUCT(reel_head, Head, 8)
REEL_TAGGED(reel_head, Head, 8)
REEL_CODES(reel_head, Head)
REEL_USUAL_FORMATS(REEL_CODES_TAGGED, reel_head, Head)
