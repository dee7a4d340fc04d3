#include "ptx/pdl.cuh"
#include "ptx/sums.cuh"

constexpr int CAPTURE_THREADS = 256;

struct CaptureArgs {
	const float *x;                // [T][cols]
	const float *norm;             // [cols], or null
	float *features;               // out: the part's columns of row 0
	float *zero;                   // out: [T][zeroCols], or null
	int32_t cols, width, zeroCols; // width: columns of a row of features
	float eps;
};

// Captures row blockIdx.x as Capture.Host does. x and features may be the same rows: a thread writes what it read.
extern "C" __global__ void __launch_bounds__(CAPTURE_THREADS) reel_capture(const __grid_constant__ CaptureArgs a) {
	pdl_begin();
	const float4 *x = reinterpret_cast<const float4 *>(a.x + (size_t)blockIdx.x * a.cols);
	const float4 *norm = reinterpret_cast<const float4 *>(a.norm);
	float4 *out = reinterpret_cast<float4 *>(a.features + (size_t)blockIdx.x * a.width);
	float by = 1;
	if (norm) {
		float squares = 0;
		for (int i = threadIdx.x; i < a.cols / 4; i += CAPTURE_THREADS) squares += sum_of_squares(x[i]);
		by = rsqrtf(block_sum<CAPTURE_THREADS>(squares) / a.cols + a.eps);
	}
	for (int i = threadIdx.x; i < a.cols / 4; i += CAPTURE_THREADS)
		out[i] = norm ? product(scaled(x[i], by), norm[i]) : x[i];
	float4 *zero = reinterpret_cast<float4 *>(a.zero + (size_t)blockIdx.x * a.zeroCols);
	for (int i = threadIdx.x; i < a.zeroCols / 4; i += CAPTURE_THREADS) zero[i] = {0, 0, 0, 0};
}
