#include <cstdint>

#include "gemm/activation.cuh"
#include "ptx/math.cuh"
#include "ptx/pdl.cuh"

constexpr int PER_LAYER_THREADS = 128; // of which each has four columns

struct PerLayerGateArgs {
	float *x;            // in and out: [T][cols]
	const float *inputs; // [rows][layers][cols]; this layer's of row 0
	const int32_t *rows; // [T], or null; -1: the row of x is left as it is
	int64_t pitch;       // elements from row to row of inputs
	int32_t cols;
	float scale, linear, cubic; // linear and cubic: as in GateUpArgs
};

// per_layer_gate: X[t] = act(scale X[t]) Inputs[rows[t]]. Grid [T][parts of a row].
extern "C" __global__ void __launch_bounds__(PER_LAYER_THREADS) reel_per_layer_gate(
	const __grid_constant__ PerLayerGateArgs a) {
	pdl_begin();
	const int t = blockIdx.x, row = a.rows ? a.rows[t] : t, i = blockIdx.y * PER_LAYER_THREADS + threadIdx.x;
	if (row < 0 || i >= a.cols / 4) return;
	float4 &to = reinterpret_cast<float4 *>(a.x + (size_t)t * a.cols)[i];
	const float4 in = reinterpret_cast<const float4 *>(a.inputs + row * a.pitch)[i], x = to;
	const auto gated = [&](float gate, float by) {
		gate = __fmul_rn(gate, a.scale);
		const float e = exp2_approx(__fmul_rn(gate, slope(gate, a.linear, a.cubic)));
		return __fmul_rn(__fmul_rn(gate, reciprocal_approx(__fadd_rn(1.f, e))), by);
	};
	to = {gated(x.x, in.x), gated(x.y, in.y), gated(x.z, in.z), gated(x.w, in.w)};
}
