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
};

REEL_PRODUCT(reel_head, Head, 8)
REEL_GATHERED(reel_head, Head)
REEL_CODES(reel_head, Head)
REEL_CODES_TILES(reel_head, Head)
