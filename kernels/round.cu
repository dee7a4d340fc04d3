#include "gemm/codes.cuh"
#include "gemm/rounded.cuh"

// out[t] = round(x[k]*norm[k]) as gemm/rounded.cuh lays it out, and scales[t] = rms_scale of the
// row. A block is a row; thread 16*p+q has the q-th four columns of the K blocks of partial sum p.
// Tokens are padded to a multiple of 8 with zeros.
template <class D> __device__ __forceinline__ void round_row(const RoundArgs &a) {
	__shared__ float partials[PARTIALS];
	const int t = blockIdx.x, partial = threadIdx.x / 16, quad = threadIdx.x % 16, steps = a.in.cols / MMA_K;
	const int blocks = (steps + BLOCK_STEPS - 1) / BLOCK_STEPS;
	pdl_begin();
	const int row = a.in.row(t);
	float squares = 0;
#pragma unroll 2 // unrolling further spills on sm_80, where the compiler limits itself to 32 registers
	for (int block = partial; block < blocks; block += PARTIALS) {
		const int k = block * K_BLOCK + quad * 4;
		float4 v = {0, 0, 0, 0};
		if (row >= 0 && k < a.in.cols) {
			v = load_activation(a.in.x + (size_t)row * a.in.cols + k);
			if (a.in.norm) {
				squares = add_squares(squares, v);
				v = times(v, load_constant(a.in.norm + k));
			}
		}
		store_rounded(a.out, a.tokens, t, k, pack4<D>(v));
	}
	if (!a.in.norm) return;
	squares = fold_squares(squares);
	if (quad == 0) partials[partial] = squares;
	__syncthreads();
	if (threadIdx.x == 0) a.scales[t] = rms_scale(a.in, sum_in_order(partials, 1));
}

extern "C" __global__ void __launch_bounds__(256) reel_round_bf16(const __grid_constant__ RoundArgs a) {
	round_row<BF16>(a);
}
extern "C" __global__ void __launch_bounds__(256) reel_round_f16(const __grid_constant__ RoundArgs a) {
	round_row<F16>(a);
}

struct RoundCodesArgs {
	Activations in;
	char *rows;           // out: rounded rows, scales and sums as in CodesArgs
	float *scales, *sums; // of groups of 32 columns, then of 16
	int32_t tokens;       // a multiple of 8, at least in.n
	int32_t unused;
};

// The same for products over codes, with the sums of each 32 and each 16 columns. A block of 16 warps is a row.
template <bool NORMED> __device__ __forceinline__ void round_for_codes(const RoundCodesArgs &a) {
	[[maybe_unused]] __shared__ float partials[PARTIALS];
	const int t = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int groups = padded_columns(a.in.cols) / GROUP_COLUMNS;
	char *const to = a.rows + ((size_t)(t / TOKEN_TILE) * groups * TOKEN_TILE + t % TOKEN_TILE) * GROUP_CHUNKS;
	pdl_begin();
	const int row[1] = {a.in.row(t)};
	float squares[1][1] = {{0}};
	RowRounder{a.in, lane, warp}.template round<NORMED, 48, 1, 4, PARTIALS>(
		RowsInMemory{a.in}, row, squares,
		[&](int, int k, uint2 v) {
			*reinterpret_cast<uint2 *>(to + RowRounder::chunk_of(k, TOKEN_TILE * GROUP_CHUNKS)) = v;
		},
		[&](int, int columns, int g, float v) {
			float *const sums = a.sums + (columns == 16 ? (size_t)a.tokens * groups : 0);
			const int each = padded_columns(a.in.cols) / columns;
			sums[((size_t)(t / TOKEN_TILE) * each + g) * TOKEN_TILE + t % TOKEN_TILE] = v;
		});
	if constexpr (NORMED) {
		const float folded = RowRounder::fold(squares[0][0]);
		if (lane == 0) partials[warp] = folded;
		__syncthreads();
		if (threadIdx.x == 0) a.scales[t] = rms_scale(a.in, sum_in_order(partials, 1));
	}
}

extern "C" __global__ void __launch_bounds__(512) reel_round_codes(const __grid_constant__ RoundCodesArgs a) {
	round_for_codes<false>(a);
}
extern "C" __global__ void __launch_bounds__(512) reel_round_codes_normed(const __grid_constant__ RoundCodesArgs a) {
	round_for_codes<true>(a);
}
