// Products of one row that take it as tagged values (ptx/tagged.cuh) and give their results so.
#pragma once
#include "gemm/gemv.cuh"
#include "ptx/tagged.cuh"

// Gives is what an op of one row leaves as tagged values: nothing, its sums, pairs of results rounded to bfloat16, or the
// residual stream with its sums added.
enum Gives { GIVES_NOTHING, GIVES_FLOATS, GIVES_PAIRS, GIVES_SUM };

// T is Tags or RankTags.
template <class Op, class T = Tags> struct TaggedArgs {
	typename Op::Args op;
	T tags;
};
template <class Op> using RankArgs = TaggedArgs<Op, RankTags>;

// Tagged is an op whose row is [cols] float32 if it has a norm, else [cols/2] pairs of bfloat16, where columns are
// multiples of 64 and all outputs of all units exist. Beside the members of gemm/product.cuh the op has
//   GIVES                   what it leaves; if nothing, finish stores results
//   value(unit, row, t, y)  one of a pair of results
template <class Op, class T = Tags> struct Tagged : Op {
	using Args = TaggedArgs<Op, T>;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool HANDS_OVER = false, HANDOVER_NORMED = false; // otherwise than as tagged values
	const T &tags;
	uint32_t base;   // of the pass's tags
	uint64_t before; // what is added to, perhaps not there yet

	__device__ __forceinline__ Tagged(const Op &op, const T &tags) : Op(op), tags(tags), base(0), before(0) {}
	__device__ __forceinline__ Tagged(const Args &a) : Tagged(Op(a.op), a.tags) {}

	__device__ __forceinline__ void prepare(int unit, int row, int t) {
		if constexpr (Op::GIVES == GIVES_SUM) {
			before = look_tagged(tags.out + unit * 16 + row);
			if (this->o.bias && row % 8 == 0) prefetch_l2(this->o.bias + unit * 16 + row); // there is no register for it
		} else
			Op::prepare(unit, row, t);
	}
	// finish is called by 16 threads of a warp, for the rows of a unit.
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[Op::R]) const {
		give(unit, unit, row, t, y);
	}
	// give gives the result of a unit's row. tile is where the unit's results lie in out, in 16 values.
	__device__ __forceinline__ void give(int tile, int unit, int row, int t, const float (&y)[Op::R]) const {
		auto *const out = tags.out + tile * 16 + row;
		const uint32_t tag = base + tags.given;
		if constexpr (Op::GIVES == GIVES_NOTHING) {
			Op::finish(unit, row, t, y);
		} else if constexpr (Op::GIVES == GIVES_PAIRS) {
			const float v = __fmul_rn(this->value(unit, row, t, y), tags.scale), next = __shfl_xor_sync(0xffff, v, 1);
			if (row % 2 == 0) give_tagged(tags, tags.out + (tile * 16 + row) / 2, BF16::pack(v, next), tag);
		} else if constexpr (Op::GIVES == GIVES_SUM) {
			const float bias = this->o.bias ? this->o.bias[unit * 16 + row] : 0;
			float x = __uint_as_float(await_tagged(before, out, tag - 1));
			if (this->o.bias) x = __fadd_rn(x, bias);
			give_tagged(tags, out, __fadd_rn(x, y[0]), tag);
		} else {
			give_tagged(tags, out, y[0], tag);
		}
	}

	// take_normed rounds a warp's K blocks of the row, two at a time, and returns a lane's part of their squares.
	template <class B> __device__ __forceinline__ float take_normed(const B &b, uint32_t tag) const {
		float sum = 0;
		for (int from = b.warp; from * BLOCK_STEPS < b.steps; from += 2 * PARTIALS) {
			const int kBlock = from + b.lane / 16 * PARTIALS, quad = kBlock * (K_BLOCK / 4) + b.lane % 16;
			const bool mine = kBlock * BLOCK_STEPS < b.steps;
			float4 v = {};
			if (mine) {
				const auto *const at = tags.in + quad * 4;
				v = await_tagged(look_tagged4(at), at, tag);
				*reinterpret_cast<uint2 *>(b.row + quad) = pack4<BF16>(times(v, b.norm[quad]));
			}
			// The first K block's squares come first, in the lanes that each_quad gives both.
			if (b.lane < 16) sum = add_squares(sum, v);
			sum = __shfl_sync(~0u, sum, b.lane % 16);
			if (b.lane >= 16 && mine) sum = add_squares(sum, v);
			sum = __shfl_sync(~0u, sum, 16 + b.lane % 16);
		}
		return sum;
	}
	// take_pairs fills them, four at a time.
	template <class B> __device__ __forceinline__ void take_pairs(const B &b, uint32_t tag) const {
		constexpr int N = 4, PAIRS = K_BLOCK / 2;
		for (int from = b.warp; from * BLOCK_STEPS < b.steps; from += N * PARTIALS) {
			uint64_t v[N];
#pragma unroll
			for (int i = 0; i < N; i++)
				if (const int kBlock = from + i * PARTIALS; kBlock * BLOCK_STEPS < b.steps)
					v[i] = look_tagged(tags.in + kBlock * PAIRS + b.lane);
#pragma unroll
			for (int i = 0; i < N; i++) {
				const int kBlock = from + i * PARTIALS, pair = kBlock * PAIRS + b.lane;
				if (kBlock * BLOCK_STEPS >= b.steps) break;
				// A rounded quad takes the first 8 of its 16 bytes.
				reinterpret_cast<uint32_t *>(b.row)[pair / 2 * 4 + pair % 2] = await_tagged(v[i], tags.in + pair, tag);
			}
		}
	}
};

template <class Op, class T> __device__ __forceinline__ void begin_op(Tagged<Op, T> &op, bool first = true) {
	op.base = begin_tagged(op.tags, first);
}

// take_row fills the block's row. A warp first waits for one sector of its first K block: if all read all they wait for,
// they take too much of L2's bandwidth from those that still read weights.
template <class Op, class T, class B, class Prepare>
__device__ __forceinline__ void take_row(const Tagged<Op, T> &op, B &b, int, float *squares, Prepare prepare) {
	const uint32_t tag = op.base + op.tags.taken;
	prepare();
	cp_async_wait_all(); // norm weights
	if (b.warp * BLOCK_STEPS < b.steps) {
		const int kBlock = looked_at_first(op.tags, b.warp, PARTIALS, b.steps / BLOCK_STEPS);
		await_tagged(op.tags.in + kBlock * (Op::NORMED ? K_BLOCK : K_BLOCK / 2), tag);
	}
	__syncwarp();
	if constexpr (Op::NORMED) {
		const float sum = fold_squares(op.take_normed(b, tag));
		if (b.lane == 0) squares[b.warp] = sum;
	} else {
		op.take_pairs(b, tag);
	}
	__syncwarp();
}

template <class Op, int U, class T = Tags> __device__ __forceinline__ void gemv_tagged(const TaggedArgs<Op, T> &a) {
	gemv<Tagged<Op, T>, BF16, U>(Tagged<Op, T>(a));
	end_tagged();
}
