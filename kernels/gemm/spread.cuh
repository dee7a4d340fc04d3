// Products of few rows whose results go to all ranks of a device, in one kernel.
#pragma once
#include "gemm/gemv.cuh"
#include "ptx/packets.cuh"

// SpreadArgs are the arguments of a product whose results are spread. The last `receivers` blocks compute nothing: they
// store what other ranks send.
template <class Op, class Args = typename Op::Args> struct SpreadArgs {
	Args op;
	Spread to;
	int32_t receivers;
	int32_t own, after; // columns of the input that this rank has computed, if others come as packets; else 0
	int32_t unused;
};

// Spreading is an op that sends its results instead of storing them. Beside the members of gemm/product.cuh the op has
//   value(unit, row, t, y)  the result that finish stores
//   outputs()               rows of its weights, or of one expert's
//   ADDS                    whether results may be added to the residual stream
template <class Op> struct Spreading : Op {
	static constexpr bool PREPARES_EARLY = true;
	const Spread &to;
	const int receivers;
	uint32_t number; // of the exchange
	float before;    // what is added to

	template <class Args>
	__device__ __forceinline__ Spreading(const SpreadArgs<Op, Args> &a, const Op &op)
		: Op(op), to(a.to), receivers(a.receivers), number(0), before(0) {}

	// place returns where an output of row t lies among those of all ranks, or -1 if it is none of this rank's. Units of
	// a row's experts follow each other: those of the second one belong to the next row of results, and so on.
	__device__ __forceinline__ int place(int unit, int row, int t) const {
		const int tiles = (this->outputs() + 15) / 16, own = unit % tiles * 16 + row;
		const int column = to.start(to.packets.rank) + own;
		return own < this->outputs() && column >= to.begin(to.packets.rank) ? (t + unit / tiles) * to.width + column : -1;
	}
	__device__ __forceinline__ void prepare(int unit, int row, int t) {
		number = to.packets.number();
		const int at = place(unit, row, t);
		if (!Op::ADDS || at < 0 || !to.x) return;
		before = to.x[at];
		if (to.bias) before = __fadd_rn(before, to.bias[at % to.width]);
	}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[Op::R]) const {
		const int at = place(unit, row, t);
		if (at < 0) return;
		const float v = this->value(unit, row, t, y);
		give(at, Op::ADDS && to.x ? __fadd_rn(before, v) : v);
	}
	// skip gives all ranks what there was before an output of a row of padding.
	__device__ __forceinline__ void skip(int unit, int row, int t) {
		prepare(unit, row, t);
		if (const int at = place(unit, row, t); at >= 0) give(at, Op::ADDS ? before : 0);
	}
	__device__ __forceinline__ void give(int at, float v) const {
		(Op::ADDS && to.x ? to.x : to.all)[at] = v;
		to.packets.send(number, at, v);
	}
};

// Taking is such an op of one row that may take the row as others send it.
template <class Op> struct Taking : Spreading<Op> {
	const int own, after; // as in SpreadArgs

	__device__ __forceinline__ Taking(const SpreadArgs<Op> &a, const Op &op)
		: Spreading<Op>(a, op), own(a.own), after(a.after) {}
	// take fills a warp's K blocks of the row. A lane has two columns of each.
	__device__ __forceinline__ void take(float4 *row) const {
		constexpr int N = 4, APART = PARTIALS * K_BLOCK;
		const Activations &in = this->activations();
		const uint32_t number = this->to.packets.number() - 1;
		for (int at = threadIdx.x / 32 * K_BLOCK + threadIdx.x % 32 * 2; at < in.cols; at += N * APART) {
			float2 v[N];
			this->to.packets.pairs(v, number, in.x, own, after, 0, at, APART, in.cols);
#pragma unroll
			for (int i = 0; i < N; i++)
				if (at + i * APART < in.cols) reinterpret_cast<float2 *>(row)[(at + i * APART) / 2] = v[i];
		}
		__syncwarp();
	}
};
template <class Op> __device__ __forceinline__ bool takes_row(const Taking<Op> &op) {
	return !Op::NORMED && op.after > 0;
}
template <class Op> __device__ __forceinline__ void take_sent(const Taking<Op> &op, float4 *row) { op.take(row); }
template <class Op> __device__ __forceinline__ int computing_blocks(const Taking<Op> &op) {
	return gridDim.x - op.receivers;
}

// computing_blocks returns the blocks that compute units.
template <class Op> __device__ __forceinline__ int computing_blocks(const Spreading<Op> &op) {
	return gridDim.x - op.receivers;
}

template <class Op, class Args> __device__ __forceinline__ int computing_blocks(const SpreadArgs<Op, Args> &a) {
	return gridDim.x - a.receivers;
}

// skip_units gives all ranks zeros for all units of a row of padding, or what there was before.
template <class Op> __device__ __forceinline__ void skip_units(Spreading<Op> op) {
	for (int unit = blockIdx.x; unit < op.units(); unit += computing_blocks(op))
		if (threadIdx.x < 16) op.skip(unit, threadIdx.x, 0);
}

// receives reports whether the block is a receiver, which has then stored what others send.
template <class Args> __device__ __forceinline__ bool receives(const Args &a) {
	const int receiver = (int)blockIdx.x - ((int)gridDim.x - a.receivers);
	if (receiver < 0) return false;
	pdl_begin();
	a.to.template receive_all<8>(receiver, a.receivers, gridDim.x);
	return true;
}

// spread runs `compute`, which computes all units in all blocks but the receivers.
template <class Args, class Compute> __device__ __forceinline__ void spread(const Args &a, Compute compute) {
	if (receives(a)) return;
	compute();
	if (a.to.taken) return;
	__syncthreads(); // all threads know the number
	if (threadIdx.x == 0) a.to.packets.begun();
}

template <class Op, class D, int U> __device__ __forceinline__ void gemv_spread(const SpreadArgs<Op> &a) {
	spread(a, [&] { gemv<Spreading<Op>, D, U>(Spreading<Op>(a, Op(a.op))); });
}
template <class Op, class D, int U> __device__ __forceinline__ void gemv_taking(const SpreadArgs<Op> &a) {
	spread(a, [&] { gemv<Taking<Op>, D, U>(Taking<Op>(a, Op(a.op))); });
}
template <class Op, class D, int U, int X> __device__ __forceinline__ void skinny_spread(const SpreadArgs<Op> &a) {
	spread(a, [&] { skinny<Spreading<Op>, D, 1, U, X>(Spreading<Op>(a, Op(a.op))); });
}
