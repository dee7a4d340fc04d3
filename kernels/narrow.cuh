// Products of few rows, at the speed of reading the weights. A block owns one unit
// of R row tiles; its 16 warps are the 16 partial sums (common.cuh). Loads of U
// steps are in flight in each lane, weights and activations alike.
#pragma once
#include "common.cuh"

constexpr int NARROW_THREADS = PARTIALS * 32;
constexpr int COLUMN = 20; // floats between tokens of a tile in shared memory: 16 rows, and 4 against bank conflicts

// step_of is the step that warp `warp` takes as its j-th; offsets of constant j are constant.
__device__ __forceinline__ int step_of(int warp, int j) { return warp * PIECE + j / PIECE * (PIECE * PARTIALS) + j % PIECE; }

// Narrow is one thread's part of a block's product, for 8*N token rows.
template <class Op, class D, int N, int U> struct Narrow {
	static constexpr int R = Op::R;
	static constexpr int UNROLL = U > PIECE ? U : PIECE;

	const Activations &in;
	const int lane, warp, steps;
	const uint4 *tile[R]; // this lane's registers of step 0
	uint4 a[R][U];
	float4 v[N][U], g[U];
	float sum[R][N][4] = {};
	float squares[N][PIECE] = {};
	int x[N]; // where this lane's columns of step 0 begin in in.x, or -1

	__device__ __forceinline__ Narrow(const Op &op, int unit)
		: in(op.activations()), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), steps(in.cols / STEP) {
#pragma unroll
		for (int r = 0; r < R; r++) tile[r] = op.tile(unit, r) + lane;
	}

	__device__ __forceinline__ void fetch_weights(int slot, int step) {
#pragma unroll
		for (int r = 0; r < R; r++) a[r][slot] = load_weights(tile[r] + step * 32);
	}

	__device__ __forceinline__ void fetch_rows(int slot, int step) {
		if (Op::NORMED) g[slot] = load_constant(in.norm + step * STEP + (lane & 3) * 4);
#pragma unroll
		for (int n = 0; n < N; n++)
			if (x[n] >= 0) v[n][slot] = load_activation(in.x + x[n] + step * STEP);
	}

	// Weights may be read before the kernel before this one has ended.
	__device__ __forceinline__ void begin_weights() {
#pragma unroll
		for (int j = 0; j < U; j++)
			if (step_of(warp, j) < steps) fetch_weights(j, step_of(warp, j));
	}

	__device__ __forceinline__ void begin_rows() {
#pragma unroll
		for (int n = 0; n < N; n++) {
			const int row = in.row(n * 8 + lane / 4);
			x[n] = row < 0 ? -1 : row * in.cols + (lane & 3) * 4;
#pragma unroll
			for (int j = 0; j < U; j++) v[n][j] = {0, 0, 0, 0};
		}
#pragma unroll
		for (int j = 0; j < U; j++)
			if (step_of(warp, j) < steps) fetch_rows(j, step_of(warp, j));
	}

	__device__ __forceinline__ void multiply(int slot, int within) {
#pragma unroll
		for (int n = 0; n < N; n++) {
			float4 f = v[n][slot];
			if (Op::NORMED) {
				squares[n][within] = add_squares(squares[n][within], f);
				f = times(f, g[slot]);
			}
			uint2 b = rounded<D>(f);
#pragma unroll
			for (int r = 0; r < R; r++) D::mma(sum[r][n], a[r][slot], b.x, b.y);
		}
	}

	__device__ __forceinline__ void run() {
		for (int first = warp * PIECE; first < steps; first += UNROLL * PARTIALS) {
#pragma unroll
			for (int j = 0; j < UNROLL; j++) {
				int step = first + step_of(0, j), next = first + step_of(0, j + U);
				if (step >= steps) break;
				multiply(j % U, j % PIECE);
				if (next >= steps) continue;
				fetch_weights(j % U, next);
				fetch_rows(j % U, next);
			}
		}
	}

	// Shared memory: float parts[16][R][8*N tokens][COLUMN], then squares[16][8*N].
	static constexpr int PART = R * 8 * N * COLUMN;
	static constexpr int SHARED = PARTIALS * (PART + 8 * N);

	__device__ __forceinline__ void share(float *shared) {
		int row = lane / 4, token = (lane & 3) * 2;
#pragma unroll
		for (int r = 0; r < R; r++)
#pragma unroll
			for (int n = 0; n < N; n++) {
				float *p = shared + warp * PART + (r * 8 * N + n * 8 + token) * COLUMN + row;
				p[0] = sum[r][n][0];
				p[COLUMN] = sum[r][n][1];
				p[8] = sum[r][n][2];
				p[COLUMN + 8] = sum[r][n][3];
			}
		if (Op::NORMED)
#pragma unroll
			for (int n = 0; n < N; n++) {
				float q = __fadd_rn(__fadd_rn(squares[n][0], squares[n][1]), __fadd_rn(squares[n][2], squares[n][3]));
				q = __fadd_rn(q, __shfl_xor_sync(~0u, q, 1));
				q = __fadd_rn(q, __shfl_xor_sync(~0u, q, 2));
				if ((lane & 3) == 0) shared[PARTIALS * PART + warp * 8 * N + n * 8 + lane / 4] = q;
			}
		__syncthreads();
	}
};

// narrow computes one unit and hands each thread that has an output to op.finish.
template <class Op, class D, int N, int U> __device__ __forceinline__ void narrow(Op op) {
	using Block = Narrow<Op, D, N, U>;
	static_assert(16 * 8 * N <= NARROW_THREADS, "a thread finishes one row of one token");
	__shared__ float shared[Block::SHARED];
	const int unit = blockIdx.x, row = threadIdx.x & 15, token = threadIdx.x >> 4;
	Block b(op, unit);
	b.begin_weights();
	begin_product<Op::ATTENDED, true>();
	b.begin_rows();
	const bool mine = token < 8 * N && op.activations().row(token) >= 0;
	if (Op::EARLY && mine) op.prepare(unit, row, token);
	b.run();
	b.share(shared);
	if (!mine) return;
	if (!Op::EARLY) op.prepare(unit, row, token);
	float y[Op::R], scale = 1;
	if (Op::NORMED) scale = rms_scale(b.in, in_order(shared + PARTIALS * Block::PART + token, 8 * N));
#pragma unroll
	for (int r = 0; r < Op::R; r++) y[r] = __fmul_rn(scale, in_order(shared + (r * 8 * N + token) * COLUMN + row, Block::PART));
	op.finish(unit, row, token, y);
}
