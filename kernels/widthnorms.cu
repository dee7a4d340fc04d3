#include "attention/qk_post.cuh"
#include "gemm/operands.cuh"
#include "ptx/sums.cuh"

constexpr int WIDTH_NORMS_THREADS = 256;

struct WidthNormsArgs {
	float *q;           // in and out: [T][queries]
	float *kv;          // in and out: [T][parts*keys], of which the first keys elements are k
	const float *norms; // [queries, keys]
	int32_t queries, keys, parts;
	float eps;
};

// widthnorms norms all heads of q together, and those of k: a block is one of them in a row.
extern "C" __global__ void __launch_bounds__(WIDTH_NORMS_THREADS)
	reel_widthnorms(const __grid_constant__ WidthNormsArgs a) {
	begin_product<true>(); // attention comes next, or QK post-processing, which lets it start
	const bool keys = blockIdx.y;
	float4 *const x = reinterpret_cast<float4 *>(
		keys ? a.kv + (size_t)blockIdx.x * a.parts * a.keys : a.q + (size_t)blockIdx.x * a.queries);
	const float4 *const norm = reinterpret_cast<const float4 *>(a.norms + (keys ? a.queries : 0));
	const int cols = keys ? a.keys : a.queries;
	float squares = 0;
	for (int i = threadIdx.x; i < cols / 4; i += WIDTH_NORMS_THREADS) squares += sum_of_squares(x[i]);
	const float by = rsqrtf(block_sum<WIDTH_NORMS_THREADS>(squares) / cols + a.eps);
	for (int i = threadIdx.x; i < cols / 4; i += WIDTH_NORMS_THREADS) x[i] = product(scaled(x[i], by), norm[i]);
}
