// A ring of slices of row tiles over quantised weights in shared memory: a producer thread copies them, and a warp
// multiplies the bricks of one partial sum of a row tile (codes.cuh).
#pragma once
#include "gemm/codes.cuh"
#include "ptx/mbarrier.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// TileRing is a ring of slices of row tiles: at most 2048 columns each, or 1024.
template <class F> struct TileRing {
	static constexpr int MOST_STAGES = 48;
	static constexpr int BRICKS = F::COLUMNS > 128 ? CODE_PARTS : 1024 / F::COLUMNS; // of a slice, at most

	struct Barriers {
		uint64_t full[MOST_STAGES], empty[MOST_STAGES];
	};
	// Place is a stage of the ring, and the parity of the times that it was used.
	struct Place {
		int stage, phase;

		__device__ __forceinline__ void move(int by, int stages) {
			stage += by;
			while (stage >= stages) stage -= stages, phase ^= 1;
		}
	};

	Barriers &barriers;
	char *const ring; // shared [stages][stage_bytes()]
	const int stages, bricks; // of a row tile

	__device__ __forceinline__ int stage_bytes() const { return min(bricks, BRICKS) * F::BYTES; }
	__device__ __forceinline__ int slices() const { return (bricks + BRICKS - 1) / BRICKS; }
	__device__ __forceinline__ uint32_t full(int s) const { return shared_address(&barriers.full[s]); }
	__device__ __forceinline__ uint32_t empty(int s) const { return shared_address(&barriers.empty[s]); }

	// start makes the barriers; one thread calls it. Of each stage `warps` warps multiply bricks.
	__device__ __forceinline__ void start(int warps) const {
		for (int s = 0; s < stages; s++) {
			mbarrier_init(full(s), 1);
			mbarrier_init(empty(s), warps * WARP_ARRIVALS);
		}
		mbarrier_fence_init();
	}
	// fill copies R row tiles, slice by slice.
	template <int R> __device__ __forceinline__ void fill(Place &p, const char *const (&from)[R]) const {
#pragma unroll 1
		for (int at = 0; at < bricks; at += BRICKS) {
			const int bytes = min(bricks - at, BRICKS) * F::BYTES;
#pragma unroll
			for (int r = 0; r < R; r++, p.move(1, stages)) {
				mbarrier_wait(empty(p.stage), p.phase ^ 1);
				mbarrier_expect(full(p.stage), bytes);
				bulk_copy(EVICT_FIRST, shared_address(ring) + p.stage * stage_bytes(), from[r] + (size_t)at * F::BYTES,
					bytes, full(p.stage));
			}
		}
	}
	// multiply adds the products of a partial sum's bricks of a row tile, whose first slice is at p; its others are
	// `apart` stages apart.
	__device__ __forceinline__ void multiply(
		float (&sum)[1][1][4], Place p, int apart, int part, const Rows &rows) const {
		const int lane = threadIdx.x % 32;
#pragma unroll 1
		for (int at = 0; at < bricks; at += BRICKS, p.move(apart, stages)) {
			mbarrier_wait(full(p.stage), p.phase);
			const uint32_t slice = shared_address(ring) + p.stage * stage_bytes();
#pragma unroll 1
			for (int b = part; b < min(BRICKS, bricks - at); b += CODE_PARTS) multiply_brick(sum, slice + b * F::BYTES, at + b, lane, rows);
			mbarrier_free_warp(empty(p.stage));
		}
	}
	static __device__ __forceinline__ void multiply_brick(
		float (&sum)[1][1][4], uint32_t brick, int b, int lane, const Rows &rows) {
		typename F::Scales scales[1];
		typename F::Codes codes[1];
		scales[0].template load<FromShared>(true, from_shared(brick + F::SCALES_AT), lane);
		const int column = b * (F::COLUMNS / GROUP_COLUMNS);
#pragma unroll
		for (int q = 0; q < F::QUARTERS; q++) {
			codes[0].template load<FromShared>(true, from_shared(brick + F::CODES_AT + q * F::Codes::BYTES), lane);
#pragma unroll
			for (int g = 0; g < F::GROUPS; g++) multiply_group<F>(sum, codes, scales, rows, q, g, column);
		}
		if constexpr (F::Scales::MINIMUMS == BRICK) {
			const float2 own[1] = {rows.own(0, column)};
			add_minimums<F>(sum, scales, own, 1);
		}
	}
};
#endif
