#include "gemm/operands.cuh"

struct LatentArgs {
	const float *q;                 // [T][heads][nope+rope]: products
	const float *c;                 // [T][latent+rope]: product
	const float *norm;              // [latent]
	const float2 *table;            // [context][rope/2] cos, sin
	const int32_t *slot, *position; // [T]
	const int32_t *blockTable;      // [slots][pages]
	char *pool;                     // bfloat16; a layer of a page is [token][latent+rope]
	float *out;                     // out: [T][heads][latent+rope], of which the last rope of a head are written
	int64_t pageBytes, layerStart;
	int32_t heads, nope, rope, latent;
	int32_t pages, pageTokens;
	float eps;
	int32_t unused;
};

constexpr int LATENT_THREADS = 128;

// latent_rotated returns element i of `rope` elements at x after RoPE, which pairs i and i+rope/2.
__device__ __forceinline__ float latent_rotated(const float *x, const float2 *turn, int rope, int i) {
	const int half = rope / 2, e = i % half;
	const float low = __ldcg(x + e), high = __ldcg(x + half + e);
	const float2 by = turn[e];
	return i < half ? __fsub_rn(__fmul_rn(low, by.x), __fmul_rn(high, by.y))
					: __fadd_rn(__fmul_rn(high, by.x), __fmul_rn(low, by.y));
}

// latent_scale returns 1/sqrt(mean(x²)+eps) of n elements, with all threads of a block.
__device__ __forceinline__ float latent_scale(const float *x, int n, float eps) {
	__shared__ float sums[LATENT_THREADS / 32];
	float sum = 0;
	for (int i = threadIdx.x; i < n; i += LATENT_THREADS) sum = __fmaf_rn(__ldcg(x + i), __ldcg(x + i), sum);
	for (int apart = 16; apart > 0; apart /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, apart));
	if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = __fadd_rn(__fadd_rn(__fadd_rn(sums[0], sums[1]), sums[2]), sums[3]);
	return __frsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)n), eps));
}

// latent: grid [T][1 + heads]. The first block of a row stores [rmsnorm(c), rope(c's end)] in the row's page, the
// others rotate the end of a query head.
extern "C" __global__ void __launch_bounds__(LATENT_THREADS) reel_latent(const __grid_constant__ LatentArgs a) {
	begin_product<true>(); // attention or a product that reads `out` comes next
	const int t = blockIdx.x, position = a.position[t], width = a.latent + a.rope;
	const float2 *turn = a.table + (size_t)position * (a.rope / 2);
	if (blockIdx.y > 0) {
		const size_t head = (size_t)t * a.heads + blockIdx.y - 1;
		for (int i = threadIdx.x; i < a.rope; i += LATENT_THREADS)
			a.out[head * width + a.latent + i] = latent_rotated(a.q + head * (a.nope + a.rope) + a.nope, turn, a.rope, i);
		return;
	}
	const float *c = a.c + (size_t)t * width;
	const float scale = latent_scale(c, a.latent, a.eps);
	const int64_t page = a.blockTable[(size_t)a.slot[t] * a.pages + position / a.pageTokens];
	uint16_t *to = reinterpret_cast<uint16_t *>(a.pool + page * a.pageBytes + a.layerStart) +
		(size_t)(position % a.pageTokens) * width;
	for (int i = threadIdx.x; i < width; i += LATENT_THREADS) {
		const float x = i < a.latent ? __fmul_rn(__fmul_rn(__ldcg(c + i), scale), a.norm[i])
									 : latent_rotated(c + a.latent, turn, a.rope, i - a.latent);
		to[i] = BF16::pack(x, 0);
	}
}

struct HeadProductArgs {
	const uint4 *w;  // packed [heads*rows][cols]
	const float *in; // [T][heads][inStride]
	float *out;      // out: [T][heads][outStride], of which the first rows of a head are written
	int32_t T, heads, rows, cols;
	int32_t inStride, outStride;
};

constexpr int HEAD_PRODUCT_WARPS = 4;

// headproduct: out[t][head] = W_head·in[t][head]. Grid [tiles of 16 outputs / warps][T/8]. A warp has a tile for 8
// rows, and adds steps of 16 columns in their order, so a row's bits do not depend on the others.
template <class D> __device__ __forceinline__ void head_product(const HeadProductArgs &a) {
	pdl_begin();
	const int tile = blockIdx.x * HEAD_PRODUCT_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
	const int head = tile * 16 / a.rows, t = blockIdx.y * 8 + lane / 4, steps = a.cols / MMA_K;
	if (head >= a.heads) return;
	const uint4 *w = a.w + (size_t)tile * steps * 32 + lane;
	const float *in = a.in + ((size_t)min(t, a.T - 1) * a.heads + head) * a.inStride + lane % 4 * 4;
	float c[4] = {};
#pragma unroll 4
	for (int k = 0; k < steps; k++) {
		const float4 x = __ldcg(reinterpret_cast<const float4 *>(in + k * MMA_K));
		D::mma(c, load_weights(w + k * 32), D::pack(x.x, x.y), D::pack(x.z, x.w));
	}
#pragma unroll
	for (int e = 0; e < 4; e++) {
		const int row = blockIdx.y * 8 + lane % 4 * 2 + e % 2, r = tile * 16 - head * a.rows + lane / 4 + e / 2 * 8;
		if (row < a.T) a.out[((size_t)row * a.heads + head) * a.outStride + r] = c[e];
	}
}

#define HEAD_PRODUCT_KERNEL(NAME, TYPE)                                                      \
	extern "C" __global__ void __launch_bounds__(32 * HEAD_PRODUCT_WARPS)                    \
		reel_headproduct_##NAME(const __grid_constant__ HeadProductArgs a) { head_product<TYPE>(a); }
HEAD_PRODUCT_KERNEL(bf16, BF16)
HEAD_PRODUCT_KERNEL(f16, F16)
