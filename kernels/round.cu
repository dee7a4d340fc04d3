#include "gemm/rounded.cuh"

// y = round(x[k]*norm[k]) of each row, in the order of pieces that deep.cuh reads, and
// each row's rms_scale. A block is a row; thread 16*p+q has the q-th four columns of
// the pieces of partial sum p. Tokens up to a multiple of 8 are rounded as zeros.
template <class D> __device__ __forceinline__ void round_row(const RoundArgs &a) {
	__shared__ float parts[PARTIALS];
	const int t = blockIdx.x, partial = threadIdx.x / 16, quad = threadIdx.x % 16, steps = a.in.cols / STEP;
	const int pieces = (steps + PIECE - 1) / PIECE;
	pdl_begin();
	const int row = a.in.row(t);
	float squares = 0;
#pragma unroll 2 // more spills on sm_80, which holds itself to 32 registers
	for (int piece = partial; piece < pieces; piece += PARTIALS) {
		const int k = piece * PIECE * STEP + quad * 4;
		float4 v = {0, 0, 0, 0};
		if (row >= 0 && k < a.in.cols) {
			v = load_activation(a.in.x + (size_t)row * a.in.cols + k);
			if (a.in.norm) {
				squares = add_squares(squares, v);
				v = times(v, load_constant(a.in.norm + k));
			}
		}
		store_rounded(a.out, a.tokens, t, k, rounded<D>(v));
	}
	if (!a.in.norm) return;
	squares = fold(squares);
	if (quad == 0) parts[partial] = squares;
	__syncthreads();
	if (threadIdx.x == 0) a.scales[t] = rms_scale(a.in, in_order(parts, 1));
}

extern "C" __global__ void __launch_bounds__(256) reel_round_bf16(const __grid_constant__ RoundArgs a) { round_row<BF16>(a); }
extern "C" __global__ void __launch_bounds__(256) reel_round_f16(const __grid_constant__ RoundArgs a) { round_row<F16>(a); }
