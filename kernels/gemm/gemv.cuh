// gemv: products of one row, bound by the speed of reading weights. As in skinny.cuh, a block of 16
// warps has one partial sum per warp. Each warp copies its columns of the row to shared memory and
// rounds them there, which leaves registers for two blocks per SM.
#pragma once
#include "gemm/operands.cuh"
#include "gemm/skinny.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"

template <class Op, class D, int U> struct Gemv {
	static constexpr int R = Op::R;
	static constexpr int UNROLL = U > BLOCK_STEPS ? U : BLOCK_STEPS;
	static constexpr int PART = R * 16;

	const Activations &in;
	float4 *const row;  // shared [cols/4]; a rounded quad takes the first 8 of its 16 bytes
	float4 *const norm; // shared [cols/4]
	const int lane, warp, steps;
	const uint4 *tile[R]; // this lane's 16 bytes of step 0
	uint4 a[R][U];
	float sum[R][4];

	__device__ __forceinline__ Gemv(const Op &op, int unit, float4 *shared)
		: in(op.activations()),
		  row(shared),
		  norm(shared + in.cols / 4),
		  lane(threadIdx.x & 31),
		  warp(threadIdx.x >> 5),
		  steps(in.cols / MMA_K) {
		aim(op, unit);
	}

	__device__ __forceinline__ void aim(const Op &op, int unit) {
#pragma unroll
		for (int r = 0; r < R; r++) tile[r] = fragments(op, unit, r) + lane;
	}
	__device__ __forceinline__ void begin_weights() {
#pragma unroll
		for (int j = 0; j < U; j++)
			if (step_of(warp, j) < steps)
#pragma unroll
				for (int r = 0; r < R; r++) a[r][j] = load_weights(tile[r] + step_of(warp, j) * 32);
	}
	__device__ __forceinline__ void begin_norm() {
		if (Op::NORMED)
			each_quad([&](int quad) { cp_async<16>(norm + quad, in.norm + quad * 4); });
	}

	// each_quad calls fn for each quad of this warp's K blocks that belongs to this lane; only 16
	// lanes have any.
	template <class F> __device__ __forceinline__ void each_quad(F fn) {
		for (int kBlock = warp; kBlock * BLOCK_STEPS < steps; kBlock += PARTIALS)
			if (const int quad = kBlock * BLOCK_STEPS * 4 + lane; lane < BLOCK_STEPS * 4 && quad < steps * 4) fn(quad);
	}

	__device__ __forceinline__ void begin_row(int t) {
		const float *x = in.x + (size_t)t * in.cols;
		each_quad([&](int quad) { cp_async<16>(row + quad, x + quad * 4); });
		cp_async_commit();
	}

	// round_row rounds this warp's K blocks of the copied row and adds their squares.
	__device__ __forceinline__ void round_row(float *squares) {
		float sum = 0;
		each_quad([&](int quad) {
			float4 v = row[quad];
			if (Op::NORMED) {
				sum = add_squares(sum, v);
				v = times(v, norm[quad]);
			}
			*reinterpret_cast<uint2 *>(row + quad) = pack4<D>(v);
		});
		__syncwarp();
		if (!Op::NORMED) return;
		sum = fold_squares(sum);
		if (lane == 0) squares[warp] = sum;
	}

	// run multiplies one unit. If there is a next unit, registers that become free load its
	// weights.
	__device__ __forceinline__ void run(const Op &op, int next, bool more) {
		const uint4 *following[R];
#pragma unroll
		for (int r = 0; r < R; r++) {
			following[r] = more ? fragments(op, next, r) + lane : nullptr;
			sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = 0;
		}
		for (int first = warp * BLOCK_STEPS; first < steps; first += UNROLL * PARTIALS) {
#pragma unroll
			for (int j = 0; j < UNROLL; j++) {
				const int step = first + step_of(0, j), further = first + step_of(0, j + U);
				if (step >= steps) break;
				uint2 b = {0, 0};
				if (lane < 4) b = *reinterpret_cast<const uint2 *>(row + step * 4 + lane);
#pragma unroll
				for (int r = 0; r < R; r++) D::mma(sum[r], a[r][j % U], b.x, b.y);
				const bool here = further < steps;
				if (!here && !more) continue;
				const int from = here ? further : step_of(warp, j % U);
#pragma unroll
				for (int r = 0; r < R; r++) a[r][j % U] = load_weights((here ? tile[r] : following[r]) + from * 32);
			}
		}
#pragma unroll
		for (int r = 0; r < R; r++) tile[r] = following[r];
	}

	// share writes the partial sums to shared memory: float partials[16][R][16].
	__device__ __forceinline__ void share(float *shared) {
#pragma unroll
		for (int r = 0; r < R; r++)
			if (lane % 4 == 0) {
				shared[warp * PART + r * 16 + lane / 4] = sum[r][0];
				shared[warp * PART + r * 16 + lane / 4 + 8] = sum[r][2];
			}
		__syncthreads();
	}
};

// takes_row reports whether take_sent fills the row otherwise than from memory; see spread.cuh.
template <class Op> __device__ __forceinline__ bool takes_row(const Op &) { return false; }
template <class Op> __device__ __forceinline__ void take_sent(const Op &, float4 *) {}

// begin_operands starts loads that need not wait: a unit's weights, and the norm; experts_tagged.cuh has another.
template <class Op, class B> __device__ __forceinline__ void begin_operands(const Op &, B &b) {
	b.begin_weights();
	b.begin_norm();
}

// take_row fills the block's row with row t, rounded, and calls prepare on the way; tagged.cuh has another.
template <class Op, class B, class Prepare>
__device__ __forceinline__ void take_row(const Op &op, B &b, int t, float *squares, Prepare prepare) {
	if (takes_row(op))
		take_sent(op, b.row);
	else
		b.begin_row(t);
	prepare();
	cp_async_commit();
	cp_async_wait<1>();
	b.round_row(squares);
}

// gemv computes row 0 of all units of a block.
template <class Op, class D, int U> __device__ __forceinline__ void gemv(Op op) {
	using Block = Gemv<Op, D, U>;
	constexpr bool PERSISTENT = Op::PERSISTENT_GEMV > 0;
	// persistent: warps go on while one buffer is read.
	__shared__ float partials[1 + PERSISTENT][PARTIALS * Block::PART];
	__shared__ float squares[PARTIALS];
	__shared__ typename Op::Prefetched prefetched[16];
	extern __shared__ float4 gemvShared[];
	Block b(op, blockIdx.x, gemvShared);
	begin_operands(op, b);
	begin_op(op);
	const int t = b.in.row(0);
	if (t < 0) return;
	const bool finishes = threadIdx.x < 16;
	take_row(op, b, t, squares, [&] {
		if (finishes) prepare_output(op, blockIdx.x, threadIdx.x, 0, prefetched);
	});
	float scale = 1;
	for (int unit = blockIdx.x, buffer = 0;; buffer ^= PERSISTENT) {
		const int next = unit + computing_blocks(op);
		const bool more = PERSISTENT && next < op.units();
		b.run(op, next, more);
		b.share(partials[buffer]);
		if (finishes) {
			if (Op::NORMED && unit == blockIdx.x) scale = rms_scale(b.in, sum_in_order(squares, 1));
			finish_output<Op, Block::PART>(
				op, unit, threadIdx.x, 0, partials[buffer] + threadIdx.x, 16, scale, prefetched);
			if (more) prepare_output(op, next, threadIdx.x, 0, prefetched);
		}
		if (!more) return;
		unit = next;
	}
}
