// Products of few rows whose results go to all ranks of a device, in one kernel.
#pragma once
#include "gemm/gemv.cuh"
#include "ptx/packets.cuh"

// SpreadArgs are the arguments of a product whose results are spread. The last `receivers` blocks compute nothing: they
// store what other ranks send.
template <class Op> struct SpreadArgs {
	typename Op::Args op;
	Spread to;
	int32_t receivers, unused;
};

// Spreading is an op that sends its results instead of storing them. Beside the members of gemm/product.cuh the op has
//   value(unit, row, t, y)  the result that finish stores
//   outputs()               rows of its weights
template <class Op> struct Spreading : Op {
	static constexpr bool PREPARES_EARLY = true;
	const Spread &to;
	const int receivers;
	uint32_t number; // of the exchange
	float before;    // what is added to

	__device__ __forceinline__ Spreading(const SpreadArgs<Op> &a) : Op(a.op), to(a.to), receivers(a.receivers), number(0), before(0) {}

	// column returns an output's place among those of all ranks, or -1 if it is none of this rank's.
	__device__ __forceinline__ int column(int unit, int row) const {
		const int column = to.start(to.packets.rank) + unit * 16 + row;
		return unit * 16 + row < this->outputs() && column >= to.begin(to.packets.rank) ? column : -1;
	}
	__device__ __forceinline__ void prepare(int unit, int row, int t) {
		number = to.packets.number();
		const int k = column(unit, row);
		if (k < 0 || !to.x) return;
		before = to.x[(size_t)t * to.width + k];
		if (to.bias) before = __fadd_rn(before, to.bias[k]);
	}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[Op::R]) const {
		const int k = column(unit, row);
		if (k < 0) return;
		float v = this->value(unit, row, t, y);
		if (to.x) v = __fadd_rn(before, v);
		(to.x ? to.x : to.all)[(size_t)t * to.width + k] = v;
		to.packets.send(number, t * to.width + k, v);
	}
};

// computing_blocks returns the blocks that compute units.
template <class Op> __device__ __forceinline__ int computing_blocks(const Spreading<Op> &op) {
	return gridDim.x - op.receivers;
}

// spread runs `compute`, which computes all units, in all blocks but the receivers.
template <class Op, class Compute> __device__ __forceinline__ void spread(const SpreadArgs<Op> &a, Compute compute) {
	const int receiver = (int)blockIdx.x - ((int)gridDim.x - a.receivers);
	if (receiver < 0) {
		compute(Spreading<Op>(a));
		__syncthreads(); // all threads know the number
		if (threadIdx.x == 0) a.to.packets.begun();
		return;
	}
	pdl_begin();
	const uint32_t number = a.to.packets.number();
	__syncthreads();
	if (receiver > 0 && threadIdx.x == 0) a.to.packets.begun();
	a.to.template receive<8>(number, receiver * blockDim.x + threadIdx.x, a.receivers * blockDim.x);
	__syncthreads();
	if (receiver == 0 && threadIdx.x == 0) a.to.packets.end(number, gridDim.x - 1);
}

template <class Op, class D, int U> __device__ __forceinline__ void gemv_spread(const SpreadArgs<Op> &a) {
	spread(a, [](const Spreading<Op> &op) { gemv<Spreading<Op>, D, U>(op); });
}
template <class Op, class D, int U, int X> __device__ __forceinline__ void skinny_spread(const SpreadArgs<Op> &a) {
	spread(a, [](const Spreading<Op> &op) { skinny<Spreading<Op>, D, 1, U, X>(op); });
}
