// skinny: products of up to 16 rows by mma.sync, bound by the speed of reading weights. A
// persistent block computes every gridDim.x-th unit of the op, other blocks one unit each. Its 16
// warps are the 16 partial sums (operands.cuh). Each lane has weights of U steps and activations of
// X steps in flight, and loads those of the next unit while one unit is finished.
#pragma once
#include "gemm/operands.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"

constexpr int FEW_ROWS_THREADS = PARTIALS * 32;

// step_of returns the j-th step of warp `warp`. For a constant j its offset is a constant.
__device__ __forceinline__ int step_of(int warp, int j) {
	return warp * BLOCK_STEPS + j / BLOCK_STEPS * (BLOCK_STEPS * PARTIALS) + j % BLOCK_STEPS;
}

// Skinny is one thread's part of a block's product over 8*N token rows.
template <class Op, class D, int N, int U, int X> struct Skinny {
	static constexpr int R = Op::R;
	static constexpr int UNROLL = U > BLOCK_STEPS ? U : BLOCK_STEPS;

	const Activations &in;
	const int lane, warp, steps;
	const uint4 *tile[R]; // this lane's 16 bytes of step 0
	uint4 a[R][U];
	float4 v[N][X], g[X];
	float sum[R][N][4];
	float squares[N][BLOCK_STEPS];
	int x[N]; // index in in.x of this lane's columns of step 0, or -1

	__device__ __forceinline__ Skinny(const Op &op, int unit)
		: in(op.activations()), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), steps(in.cols / MMA_K) {
#pragma unroll
		for (int r = 0; r < R; r++) tile[r] = fragments(op, unit, r) + lane;
	}

	__device__ __forceinline__ void fetch_weights(int slot, int step) {
#pragma unroll
		for (int r = 0; r < R; r++) a[r][slot] = load_weights(tile[r] + step * 32);
	}

	__device__ __forceinline__ void fetch_rows(int slot, int step) {
		if (Op::NORMED) g[slot] = load_constant(in.norm + step * MMA_K + (lane & 3) * 4);
#pragma unroll
		for (int n = 0; n < N; n++)
			if (x[n] >= 0) v[n][slot] = load_activation(in.x + x[n] + step * MMA_K);
	}

	// begin_weights starts loads of weights, which may come before pdl_wait.
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
			for (int j = 0; j < X; j++) v[n][j] = {0, 0, 0, 0};
		}
#pragma unroll
		for (int j = 0; j < X; j++)
			if (step_of(warp, j) < steps) fetch_rows(j, step_of(warp, j));
	}

	__device__ __forceinline__ void multiply(int j) {
#pragma unroll
		for (int n = 0; n < N; n++) {
			float4 f = v[n][j % X];
			if (Op::NORMED) {
				squares[n][j % BLOCK_STEPS] = add_squares(squares[n][j % BLOCK_STEPS], f);
				f = times(f, g[j % X]);
			}
			uint2 b = pack4<D>(f);
#pragma unroll
			for (int r = 0; r < R; r++) D::mma(sum[r][n], a[r][j % U], b.x, b.y);
		}
	}

	__device__ __forceinline__ void clear() {
#pragma unroll
		for (int n = 0; n < N; n++) {
#pragma unroll
			for (int r = 0; r < R; r++) sum[r][n][0] = sum[r][n][1] = sum[r][n][2] = sum[r][n][3] = 0;
#pragma unroll
			for (int i = 0; i < BLOCK_STEPS; i++) squares[n][i] = 0;
		}
	}

	// run multiplies one unit. If there is a next unit, registers that become free load its weights
	// and activations.
	__device__ __forceinline__ void run(const Op &op, int next, bool more) {
		const uint4 *following[R];
#pragma unroll
		for (int r = 0; r < R; r++) following[r] = more ? fragments(op, next, r) + lane : nullptr;
		clear();
		for (int first = warp * BLOCK_STEPS; first < steps; first += UNROLL * PARTIALS) {
#pragma unroll
			for (int j = 0; j < UNROLL; j++) {
				const int weights = first + step_of(0, j + U), rows = first + step_of(0, j + X);
				if (first + step_of(0, j) >= steps) break;
				multiply(j);
				const bool here = weights < steps, herex = rows < steps;
				if (here || more) {
					const int from = here ? weights : step_of(warp, j % U);
#pragma unroll
					for (int r = 0; r < R; r++) a[r][j % U] = load_weights((here ? tile[r] : following[r]) + from * 32);
				}
				if (herex || more) fetch_rows(j % X, herex ? rows : step_of(warp, j % X));
			}
		}
#pragma unroll
		for (int r = 0; r < R; r++) tile[r] = following[r];
	}

	// share writes to shared memory: float partials[16][R][8*N tokens][TOKEN_PITCH], then
	// squares[16][8*N].
	static constexpr int PART = R * 8 * N * TOKEN_PITCH;
	static constexpr int SHARED = PARTIALS * (PART + 8 * N);

	__device__ __forceinline__ void share(float *shared) {
		int row = lane / 4, token = (lane & 3) * 2;
#pragma unroll
		for (int r = 0; r < R; r++)
#pragma unroll
			for (int n = 0; n < N; n++) {
				float *p = shared + warp * PART + (r * 8 * N + n * 8 + token) * TOKEN_PITCH + row;
				p[0] = sum[r][n][0];
				p[TOKEN_PITCH] = sum[r][n][1];
				p[8] = sum[r][n][2];
				p[TOKEN_PITCH + 8] = sum[r][n][3];
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

// computing_blocks returns the blocks that compute units of an op; see spread.cuh for another answer.
template <class Op> __device__ __forceinline__ int computing_blocks(const Op &) { return gridDim.x; }

// prepare_output starts the loads of values that the op needs for an output beside its sum.
template <class Op> __device__ __forceinline__ void prepare_output(
	Op &op, int unit, int row, int token, typename Op::Prefetched *prefetched) {
	if constexpr (Op::PREPARES_EARLY)
		op.prepare(unit, row, token);
	else
		op.prefetch(unit, row, token, prefetched + threadIdx.x);
}

// finish_output adds an output's partial sums and passes the results to the op. A partial sum has
// PART floats, a row tile `stride`.
template <class Op, int PART> __device__ __forceinline__ void finish_output(Op &op, int unit, int row, int token,
	const float *partials, int stride, float scale, const typename Op::Prefetched *prefetched) {
	float y[Op::R];
#pragma unroll
	for (int r = 0; r < Op::R; r++) y[r] = __fmul_rn(scale, sum_in_order(partials + r * stride, PART));
	cp_async_wait_all();
	if constexpr (!Op::PREPARES_EARLY) op.use_prefetched(unit, row, token, prefetched[threadIdx.x]);
	op.finish(unit, row, token, y);
}

// skinny computes a block's units and passes each output to op.finish.
template <class Op, class D, int N, int U, int X> __device__ __forceinline__ void skinny(Op op) {
	using Block = Skinny<Op, D, N, U, X>;
	static_assert(16 * 8 * N <= FEW_ROWS_THREADS, "a thread finishes one row of one token");
	constexpr bool PERSISTENT = N == 1 && Op::PERSISTENT_SKINNY > 0;
	__shared__ float shared[1 + PERSISTENT][Block::SHARED]; // persistent: warps go on while one buffer is read
	__shared__ typename Op::Prefetched prefetched[16 * 8 * N];
	const int row = threadIdx.x & 15, token = threadIdx.x >> 4;
	Block b(op, blockIdx.x);
	b.begin_weights();
	begin_product<Op::ATTENTION_NEXT, true>();
	b.begin_rows();
	const bool mine = token < 8 * N && op.activations().row(token) >= 0;
	if (mine) prepare_output(op, blockIdx.x, row, token, prefetched);
	float scale = 1;
	for (int unit = blockIdx.x, buffer = 0;; buffer ^= PERSISTENT) {
		const int next = unit + computing_blocks(op);
		const bool more = PERSISTENT && next < op.units();
		const float *const partials = shared[buffer];
		b.run(op, next, more);
		b.share(shared[buffer]);
		if (mine) {
			if (Op::NORMED) scale = rms_scale(b.in, sum_in_order(partials + PARTIALS * Block::PART + token, 8 * N));
			finish_output<Op, Block::PART>(op, unit, row, token, partials + token * TOKEN_PITCH + row,
				8 * N * TOKEN_PITCH, scale, prefetched);
			if (more) prepare_output(op, next, row, token, prefetched);
		}
		if (!more) return;
		unit = next;
	}
}
