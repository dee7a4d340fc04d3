#include "ptx/pdl.cuh"
#include "ptx/sums.cuh"

constexpr int JOIN_THREADS = 256;

struct JoinArgs {
	const float *embedded, *features; // [T][cols]; features may be null
	const float *norm;                // [2*cols]
	const float *output;              // [cols], or null
	float *x;                         // out: [T][cols]
	float *out;                       // out: [T][2*cols]
	const int32_t *slot, *position;   // [T]
	const int32_t *blockTable;        // [slots][pages]
	const float *kept;                // the feature of page 0
	int64_t pageStride;               // elements from a page's feature to the next one's
	int32_t cols, pages, pageTokens, own, normed;
	float eps;
};

// join_feature returns the feature of the token before row t, or null for zeros.
__device__ __forceinline__ const float *join_feature(const JoinArgs &a, int t) {
	if (a.own) return a.x + (size_t)t * a.cols;
	const int slot = a.slot[t], position = a.position[t];
	if (a.features && t > 0 && a.slot[t - 1] == slot && a.position[t - 1] == position - 1)
		return a.features + (size_t)(t - 1) * a.cols;
	if (position == 0) return nullptr;
	return a.kept + a.blockTable[(size_t)slot * a.pages + (position - 1) / a.pageTokens] * a.pageStride;
}

// Joins row blockIdx.x as Join.Host does. A thread reads and writes the same columns of x.
extern "C" __global__ void __launch_bounds__(JOIN_THREADS) reel_join(const __grid_constant__ JoinArgs a) {
	pdl_begin();
	const int t = blockIdx.x, quads = a.cols / 4;
	const float4 zeros = {0, 0, 0, 0};
	const float4 *e = reinterpret_cast<const float4 *>(a.embedded + (size_t)t * a.cols);
	const float4 *f = reinterpret_cast<const float4 *>(join_feature(a, t));
	const float4 *output = reinterpret_cast<const float4 *>(a.output), *norm = reinterpret_cast<const float4 *>(a.norm);
	float4 *x = reinterpret_cast<float4 *>(a.x + (size_t)t * a.cols);
	float4 *out = reinterpret_cast<float4 *>(a.out + 2 * (size_t)t * a.cols);
	float by = 1;
	if (output) {
		float squares = 0;
		for (int i = threadIdx.x; i < quads; i += JOIN_THREADS) squares += sum_of_squares(f[i]);
		by = rsqrtf(block_sum<JOIN_THREADS>(squares) / a.cols + a.eps);
	}
	const auto feature = [&](int i) {
		const float4 v = f ? f[i] : zeros;
		return output ? product(scaled(v, by), output[i]) : v;
	};
	float squares[2] = {0, 0};
	for (int i = threadIdx.x; i < quads; i += JOIN_THREADS)
		squares[0] += sum_of_squares(e[i]), squares[1] += sum_of_squares(feature(i));
	const float first = rsqrtf(block_sum<JOIN_THREADS>(squares[0]) / a.cols + a.eps);
	const float second = rsqrtf(block_sum<JOIN_THREADS>(squares[1]) / a.cols + a.eps);
	const float c = sqrtf(2 / (first * first + second * second));
	for (int i = threadIdx.x; i < quads; i += JOIN_THREADS) {
		const float4 v = feature(i);
		out[i] = scaled(e[i], first * c), out[quads + i] = scaled(v, second * c);
		x[i] = a.normed ? product(scaled(v, second), norm[quads + i]) : v;
	}
}
