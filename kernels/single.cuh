// Products of one row, at the speed of reading the weights: as narrow.cuh, but each
// warp copies its columns of the row to shared memory and rounds them there, which
// leaves registers for two blocks on a multiprocessor.
#pragma once
#include "narrow.cuh"

// copy_async copies 16 bytes to shared memory past the registers.
__device__ __forceinline__ void copy_async(void *to, const void *from) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

template <class Op, class D, int U> struct Single {
	static constexpr int R = Op::R;
	static constexpr int UNROLL = U > PIECE ? U : PIECE;
	static constexpr int PART = R * 16;

	const Activations &in;
	float4 *const row;  // shared [cols/4]; a rounded quad lies at the start of its place
	float4 *const norm; // shared [cols/4]
	const int lane, warp, steps;
	const uint4 *tile[R];
	uint4 a[R][U];
	float sum[R][4] = {};
	float squares = 0;

	__device__ __forceinline__ Single(const Op &op, int unit, float4 *shared)
		: in(op.activations()), row(shared), norm(shared + in.cols / 4), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), steps(in.cols / STEP) {
#pragma unroll
		for (int r = 0; r < R; r++) tile[r] = op.tile(unit, r) + lane;
	}

	__device__ __forceinline__ void fetch_weights(int slot, int step) {
#pragma unroll
		for (int r = 0; r < R; r++) a[r][slot] = load_weights(tile[r] + step * 32);
	}

	__device__ __forceinline__ void begin_weights() {
#pragma unroll
		for (int j = 0; j < U; j++)
			if (step_of(warp, j) < steps) fetch_weights(j, step_of(warp, j));
		if (Op::NORMED)
			each_quad([&](int quad) { copy_async(norm + quad, in.norm + quad * 4); });
	}

	// Calls fn for the quads of this warp's pieces that are this lane's: 16 lanes have some.
	template <class F> __device__ __forceinline__ void each_quad(F fn) {
		for (int piece = warp; piece * PIECE < steps; piece += PARTIALS)
			if (const int quad = piece * PIECE * 4 + lane; lane < PIECE * 4 && quad < steps * 4) fn(quad);
	}

	// Rounds this warp's pieces of row t.
	__device__ __forceinline__ void round_row(int t) {
		const float *x = in.x + (size_t)t * in.cols;
		each_quad([&](int quad) { copy_async(row + quad, x + quad * 4); });
		asm volatile("cp.async.wait_all;" ::: "memory");
		each_quad([&](int quad) {
			float4 v = row[quad];
			if (Op::NORMED) {
				squares = add_squares(squares, v);
				v = times(v, norm[quad]);
			}
			*reinterpret_cast<uint2 *>(row + quad) = rounded<D>(v);
		});
		__syncwarp();
	}

	__device__ __forceinline__ void run() {
		for (int first = warp * PIECE; first < steps; first += UNROLL * PARTIALS) {
#pragma unroll
			for (int j = 0; j < UNROLL; j++) {
				const int step = first + step_of(0, j), next = first + step_of(0, j + U);
				if (step >= steps) break;
				uint2 b = {0, 0};
				if (lane < 4) b = *reinterpret_cast<const uint2 *>(row + step * 4 + lane);
#pragma unroll
				for (int r = 0; r < R; r++) D::mma(sum[r], a[r][j % U], b.x, b.y);
				if (next < steps) fetch_weights(j % U, next);
			}
		}
	}

	// Shared memory: float parts[16][R][16], squares[16].
	__device__ __forceinline__ void share(float *shared) {
#pragma unroll
		for (int r = 0; r < R; r++)
			if (lane % 4 == 0) {
				shared[warp * PART + r * 16 + lane / 4] = sum[r][0];
				shared[warp * PART + r * 16 + lane / 4 + 8] = sum[r][2];
			}
		if (Op::NORMED) {
			const float q = fold(squares);
			if (lane == 0) shared[PARTIALS * PART + warp] = q;
		}
		__syncthreads();
	}
};

// single computes one unit of row 0.
template <class Op, class D, int U> __device__ __forceinline__ void single(Op op) {
	using Block = Single<Op, D, U>;
	__shared__ float shared[PARTIALS * (Block::PART + 1)];
	extern __shared__ float4 singleShared[];
	Block b(op, blockIdx.x, singleShared);
	b.begin_weights();
	begin_product<Op::ATTENDED, true>();
	const int t = b.in.row(0);
	if (t < 0) return;
	const bool finishes = threadIdx.x < 16;
	if (Op::EARLY && finishes) op.prepare(blockIdx.x, threadIdx.x, 0);
	b.round_row(t);
	b.run();
	b.share(shared);
	if (!finishes) return;
	if (!Op::EARLY) op.prepare(blockIdx.x, threadIdx.x, 0);
	float y[Op::R], scale = 1;
	if (Op::NORMED) scale = rms_scale(b.in, in_order(shared + PARTIALS * Block::PART, 1));
#pragma unroll
	for (int r = 0; r < Op::R; r++) y[r] = __fmul_rn(scale, in_order(shared + r * 16 + threadIdx.x, Block::PART));
	op.finish(blockIdx.x, threadIdx.x, 0, y);
}
