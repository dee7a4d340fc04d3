// Products of one row over quantised weights that take it as tagged values (ptx/tagged.cuh) and give their results so.
#pragma once
#include "gemm/codes_ring.cuh"
#include "gemm/tagged.cuh"

// TaggedRow is where RowRounder has such a row from: float32 if the op has a norm, else pairs that are multiplied by
// ACTIVATIONS and rounded already.
template <bool NORMED> struct TaggedRow {
	static constexpr bool ROUNDED = false;
	using Four = FourTagged;
	const uint64_t *in;
	uint32_t tag;
	int cols;

	__device__ __forceinline__ const uint64_t *at(int k) const { return in + k; }
	__device__ __forceinline__ Four load(int, int k) const { return look_tagged4(at(k)); }
	__device__ __forceinline__ float4 values(const Four &v, int k) const {
		return k < cols ? await_tagged(v, at(k), tag) : float4{0, 0, 0, 0};
	}
};
template <> struct TaggedRow<false> {
	static constexpr bool ROUNDED = true;
	using Four = ulonglong2;
	const uint64_t *in;
	uint32_t tag;
	int cols;

	__device__ __forceinline__ const uint64_t *at(int k) const { return in + k / 2; }
	__device__ __forceinline__ Four load(int, int k) const { return look_tagged2(at(k)); }
	__device__ __forceinline__ uint2 rounded(const Four &v, int k) const {
		return k < cols ? await_tagged(v, at(k), tag) : uint2{0, 0};
	}
};

template <class Op> constexpr bool ONE_ROW<Tagged<Op>> = true;

// round_rows rounds the row. A warp first waits for one sector of its first columns, as in tagged.cuh.
template <class Op, class Rows>
__device__ __forceinline__ void round_rows(const Tagged<Op> &op, const Rows &rows, int, int) {
	const TaggedRow<Op::NORMED> from = {op.tags.in, op.base + op.tags.taken, rows.in.cols};
	if (const int k = threadIdx.x / 32 * CHUNK_COLUMNS; k < from.cols) await_tagged(from.at(k), from.tag);
	__syncwarp();
	rows.round_one(from, 0);
}

template <class Op, class F, int WARPS> __device__ __forceinline__ void codes_tagged(const CodesArgs<Tagged<Op>> &a) {
	codes<Tagged<Op>, F, WARPS, false>(a);
	end_tagged();
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Op, class F> __device__ __forceinline__ void codes_ring_tagged(const CodesArgs<Tagged<Op>> &a) {
	codes_ring<Tagged<Op>, F>(a);
	end_tagged();
}
#endif
