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

// The columns of a weight are cut into HEAD_PARTS parts, each of which has a sum of its own over steps of 16 columns;
// the parts are added in their order. So a row's bits do not depend on the others, nor on the kernel.
constexpr int HEAD_PARTS = 4;
constexpr int HEAD_AHEAD = 16; // steps of a weight that are loaded at once

__device__ __forceinline__ int head_part(int steps, int part) { return steps * part / HEAD_PARTS; }

// headproduct: out[t][head] = W_head·in[t][head]. Grid [tiles of 16 outputs / warps of a block][T/8]. A warp has a
// tile for 8 rows. Weights never change, so the first ones are read before the wait.
template <class D> __device__ __forceinline__ void head_product(const HeadProductArgs &a) {
	pdl_launch_dependents();
	const int tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
	const int head = tile * 16 / a.rows, t = blockIdx.y * 8 + lane / 4, steps = a.cols / MMA_K;
	if (head >= a.heads) return;
	const uint4 *w = a.w + (size_t)tile * steps * 32 + lane;
	const float *in = a.in + ((size_t)min(t, a.T - 1) * a.heads + head) * a.inStride + lane % 4 * 4;
	float c[HEAD_PARTS][4] = {};
	for (int from = 0; from < steps; from += HEAD_AHEAD) {
		uint4 v[HEAD_AHEAD];
		float4 x[HEAD_AHEAD];
		// Step k of the loop is step (k/PARTS) of part k%PARTS, so that sums of different parts follow one another.
		const auto step = [&](int k) { return head_part(steps, k % HEAD_PARTS) + (from + k) / HEAD_PARTS; };
		const auto is = [&](int k) { return step(k) < head_part(steps, k % HEAD_PARTS + 1); };
#pragma unroll
		for (int k = 0; k < HEAD_AHEAD; k++) v[k] = load_weights(w + min(step(k), steps - 1) * 32);
		if (from == 0) pdl_wait();
#pragma unroll
		for (int k = 0; k < HEAD_AHEAD; k++)
			x[k] = __ldcg(reinterpret_cast<const float4 *>(in + min(step(k), steps - 1) * MMA_K));
#pragma unroll
		for (int k = 0; k < HEAD_AHEAD; k++)
			if (is(k)) D::mma(c[k % HEAD_PARTS], v[k], D::pack(x[k].x, x[k].y), D::pack(x[k].z, x[k].w));
	}
#pragma unroll
	for (int e = 0; e < 4; e++) {
		const int row = blockIdx.y * 8 + lane % 4 * 2 + e % 2, r = tile * 16 - head * a.rows + lane / 4 + e / 2 * 8;
		float sum = c[0][e];
#pragma unroll
		for (int part = 1; part < HEAD_PARTS; part++) sum = __fadd_rn(sum, c[part][e]);
		if (row < a.T) a.out[((size_t)row * a.heads + head) * a.outStride + r] = sum;
	}
}

constexpr int HEAD_ROWS = 64, HEAD_WARPS = 4; // of a block of many rows
constexpr int HEAD_STEPS = 8;                 // whose inputs are in shared memory at once

// The same for many rows: grid [outputs / 64][T/64]. Four warps have a tile each of one head, and share the inputs of
// 64 rows, rounded. Columns are a multiple of 64.
template <class D> __device__ __forceinline__ void head_product_many(const HeadProductArgs &a) {
	constexpr int QUADS = HEAD_STEPS * MMA_K / 4, LOADS = HEAD_ROWS * QUADS / (32 * HEAD_WARPS);
	__shared__ __align__(16) uint16_t x[HEAD_ROWS][HEAD_STEPS * MMA_K + 16];
	pdl_begin();
	const int tile = blockIdx.x * HEAD_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, head = tile * 16 / a.rows;
	const int steps = a.cols / MMA_K, each = steps / HEAD_PARTS, first = blockIdx.y * HEAD_ROWS;
	const int row = threadIdx.x / QUADS, quad = threadIdx.x % QUADS; // whose input the thread loads first
	constexpr int APART = 32 * HEAD_WARPS / QUADS;
	const uint4 *w = a.w + (size_t)tile * steps * 32 + lane;
	float total[HEAD_ROWS / 8][4], c[HEAD_ROWS / 8][4] = {};
	const auto add = [&](bool begins) { // adds a part's sums to those before
#pragma unroll
		for (int i = 0; i < HEAD_ROWS / 2; i++)
			total[i / 4][i % 4] = begins ? c[i / 4][i % 4] : __fadd_rn(total[i / 4][i % 4], c[i / 4][i % 4]), c[i / 4][i % 4] = 0;
	};
	for (int from = 0; from < steps; from += HEAD_STEPS) {
		uint4 v[HEAD_STEPS];
		float4 f[LOADS];
#pragma unroll
		for (int k = 0; k < HEAD_STEPS; k++) v[k] = load_weights(w + min(from + k, steps - 1) * 32);
#pragma unroll
		for (int i = 0; i < LOADS; i++)
			f[i] = __ldcg(reinterpret_cast<const float4 *>(a.in +
				((size_t)min(first + row + i * APART, a.T - 1) * a.heads + head) * a.inStride +
				min(from * MMA_K + quad * 4, a.cols - 4)));
		__syncthreads(); // all have read the inputs before
#pragma unroll
		for (int i = 0; i < LOADS; i++)
			*reinterpret_cast<uint2 *>(&x[row + i * APART][quad * 4]) = {D::pack(f[i].x, f[i].y), D::pack(f[i].z, f[i].w)};
		__syncthreads();
#pragma unroll
		for (int k = 0; k < HEAD_STEPS; k++) {
			if (from + k >= steps) break;
			if (from + k > 0 && (from + k) % each == 0) add(from + k == each);
#pragma unroll
			for (int t = 0; t < HEAD_ROWS / 8; t++) {
				const uint2 b = *reinterpret_cast<const uint2 *>(&x[8 * t + lane / 4][k * MMA_K + lane % 4 * 4]);
				D::mma(c[t], v[k], b.x, b.y);
			}
		}
	}
	add(false);
#pragma unroll
	for (int i = 0; i < HEAD_ROWS / 2; i++) {
		const int row = first + i / 4 * 8 + lane % 4 * 2 + i % 2, r = tile * 16 - head * a.rows + lane / 4 + i % 4 / 2 * 8;
		if (row < a.T) a.out[((size_t)row * a.heads + head) * a.outStride + r] = total[i / 4][i % 4];
	}
}

#define HEAD_PRODUCT_KERNEL(NAME, TYPE)                                                      \
	extern "C" __global__ void __launch_bounds__(32 * HEAD_WARPS)                            \
		reel_headproduct_##NAME(const __grid_constant__ HeadProductArgs a) { head_product<TYPE>(a); } \
	extern "C" __global__ void __launch_bounds__(32 * HEAD_WARPS)                            \
		reel_headproduct_##NAME##_many(const __grid_constant__ HeadProductArgs a) { head_product_many<TYPE>(a); }
HEAD_PRODUCT_KERNEL(bf16, BF16)
HEAD_PRODUCT_KERNEL(f16, F16)
