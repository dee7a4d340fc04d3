#include <cstdint>

#include "ptx/pdl.cuh"
#include "ptx/sums.cuh"

constexpr int ADD_NORM_THREADS = 256; // few, so that blocks of the next product fit beside it
constexpr int ADD_NORM_QUADS = 5;     // of the row that a thread keeps in registers: 5120 columns in all

struct AddNormArgs {
	const float *branch; // [T][cols]
	const float *norm;   // [cols]
	const int32_t *rows; // [T], or null; -1: the row is left as it is
	float *x;            // in and out: [T][cols]
	int32_t cols;
	float eps, scale;
	int32_t stores;      // x holds nothing before
};

// addnorm: X[t] = scale (X[t] + rmsnorm(branch[t])). A block is a row. The order of its sum depends on cols alone. The
// norm is loaded before the wait, and all else of a row in one go after it.
extern "C" __global__ void __launch_bounds__(ADD_NORM_THREADS) reel_addnorm(const __grid_constant__ AddNormArgs a) {
	const int quads = a.cols / 4;
	const float4 *const branch = reinterpret_cast<const float4 *>(a.branch + (size_t)blockIdx.x * a.cols);
	const float4 *const norm = reinterpret_cast<const float4 *>(a.norm);
	float4 *const x = reinterpret_cast<float4 *>(a.x + (size_t)blockIdx.x * a.cols);
	float4 v[ADD_NORM_QUADS], old[ADD_NORM_QUADS], weight[ADD_NORM_QUADS];
#pragma unroll
	for (int n = 0; n < ADD_NORM_QUADS; n++)
		if (const int i = threadIdx.x + n * ADD_NORM_THREADS; i < quads) weight[n] = norm[i];
	pdl_begin();
	if (a.rows && a.rows[blockIdx.x] < 0) return;
	float squares = 0;
#pragma unroll
	for (int n = 0; n < ADD_NORM_QUADS; n++) {
		const int i = threadIdx.x + n * ADD_NORM_THREADS;
		v[n] = i < quads ? branch[i] : float4{0, 0, 0, 0};
		if (i < quads) old[n] = a.stores ? float4{0, 0, 0, 0} : x[i];
	}
#pragma unroll
	for (int n = 0; n < ADD_NORM_QUADS; n++) squares += sum_of_squares(v[n]);
	for (int i = threadIdx.x + ADD_NORM_QUADS * ADD_NORM_THREADS; i < quads; i += ADD_NORM_THREADS)
		squares += sum_of_squares(branch[i]);
	const float by = rsqrtf(block_sum<ADD_NORM_THREADS>(squares) / a.cols + a.eps);
	const auto sum = [&](const float4 &before, const float4 &u, const float4 &g) -> float4 {
		const float4 y = product(scaled(u, by), g);
		return scaled({before.x + y.x, before.y + y.y, before.z + y.z, before.w + y.w}, a.scale);
	};
#pragma unroll
	for (int n = 0; n < ADD_NORM_QUADS; n++)
		if (const int i = threadIdx.x + n * ADD_NORM_THREADS; i < quads) x[i] = sum(old[n], v[n], weight[n]);
	for (int i = threadIdx.x + ADD_NORM_QUADS * ADD_NORM_THREADS; i < quads; i += ADD_NORM_THREADS)
		x[i] = sum(a.stores ? float4{0, 0, 0, 0} : x[i], branch[i], norm[i]);
}
