// The rings of K blocks from which products of many rows multiply on Hopper (stream_k.cuh, whole.cuh, grouped.cuh,
// many.cuh). Producer warps copy rounded activations and weights to shared memory. Two warpgroups multiply them with
// wgmma, one row tile per warp, weights from registers and activations from shared memory.
#pragma once
#include "gemm/operands.cuh"
#include "gemm/rounded.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// RingCursor is a position in a ring of SIZE stages, with the phase of their barriers.
template <int SIZE> struct RingCursor {
	int at = 0, phase = 0;
	__device__ __forceinline__ void next() {
		if (++at == SIZE) at = 0, phase ^= 1;
	}
};

// Ring is a ring of SIZE stages. Each has two barriers, `full` for consumers and `empty` for producers; the first stage's
// follow FIRST other pairs.
template <int SIZE, int FIRST = 0> struct Ring {
	using Cursor = RingCursor<SIZE>;
	const uint32_t shared; // shared address of all barriers

	__device__ __forceinline__ uint32_t full(int s) const { return shared + (FIRST + s) * 16; }
	__device__ __forceinline__ uint32_t full(const Cursor &c) const { return full(c.at); }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	// take waits until the stage at c is free. `taken` counts the stages that were never taken before, which are.
	__device__ __forceinline__ void take(const Cursor &c, int &taken) const {
		if (taken < SIZE)
			taken++;
		else
			mbarrier_wait(empty(c.at), c.phase ^ 1);
	}
	// wait waits until the stage at c is full.
	__device__ __forceinline__ void wait(const Cursor &c) const { mbarrier_wait(full(c), c.phase); }
	__device__ __forceinline__ uint32_t empty_before(const Cursor &c) const { return empty(c.at ? c.at - 1 : SIZE - 1); }
	// release_before frees the stage before c, which this warp has read, if `any`.
	__device__ __forceinline__ void release_before(const Cursor &c, bool any) const {
		mbarrier_arrive_warp_if(any, empty_before(c));
	}
};

// descriptor_of is wgmma's descriptor of the activations of a step, in stage `at` of those that begin at `rows` and have
// BYTES each. Only the low half differs.
template <int BYTES> __device__ __forceinline__ uint64_t descriptor_of(uint32_t rows, int at, int step) {
	const uint64_t first = wgmma_descriptor(rows);
	const uint32_t low = (uint32_t)first + at * (BYTES / 16) + step * (MMA_K * 2 / 16);
	return first & 0xffffffff00000000 | low;
}

// StageRing is a ring whose stages have a K block each: ROWS bytes of activations and WEIGHTS bytes of weights. From AT
// on come all activations, LEFT bytes for others, then all weights.
template <int SIZE, int AT, int ROWS, int WEIGHTS, int LEFT = 0> struct StageRing : Ring<SIZE> {
	using typename Ring<SIZE>::Cursor;
	static constexpr bool RELEASES_EARLY = false; // a stage: after the first step of the next one, and not the third

	// release_weights frees the weights of the stage at c, if they are not freed with its activations.
	__device__ __forceinline__ void release_weights(const Cursor &) const {}

	__device__ __forceinline__ uint32_t rows(const Cursor &c) const { return this->shared + AT + c.at * ROWS; }
	__device__ __forceinline__ uint32_t weights(const Cursor &c) const {
		return this->shared + AT + SIZE * ROWS + LEFT + c.at * WEIGHTS;
	}
	__device__ __forceinline__ uint64_t descriptor(const Cursor &c, int step) const {
		return descriptor_of<ROWS>(this->shared + AT, c.at, step);
	}
};

// tile_addresses gives all lanes the addresses of N row tiles: each lane has one, `mine`, and the first is that of lane
// `first`.
template <int N>
__device__ __forceinline__ void tile_addresses(const char *(&from)[N], const void *mine, int first = 0) {
#pragma unroll
	for (int i = 0; i < N; i++)
		from[i] = reinterpret_cast<const char *>(__shfl_sync(~0u, reinterpret_cast<uint64_t>(mine), first + i));
}

// zero_missing stores zeros for the missing steps of a K block of weights at `to`, SIZE bytes, that has only `bytes` of
// each row tile.
template <int SIZE> __device__ __forceinline__ void zero_missing(uint32_t to, int bytes, int lane) {
#pragma unroll 1
	for (int i = lane * 16; i < SIZE; i += 512)
		if (i % TILE_BLOCK_BYTES >= bytes) store_shared_zeros(to + i);
	__syncwarp();
}

// copy_elements starts the copies of `bytes` of K block p of N row tiles, and counts them at a barrier.
template <int N>
__device__ __forceinline__ void copy_elements(
	uint32_t to, const char *const (&from)[N], int p, int bytes, uint32_t barrier) {
	if (elect_one()) { // the compiler knows that it is one lane; for others it would generate loops
		mbarrier_expect(barrier, N * bytes);
#pragma unroll
		for (int i = 0; i < N; i++)
			bulk_copy(
				EVICT_FIRST, to + i * TILE_BLOCK_BYTES, from[i] + (size_t)p * TILE_BLOCK_BYTES, bytes, barrier);
	} else if (WARP_ARRIVALS > 1) {
		mbarrier_arrive(barrier);
	}
}
// copy_codes does so for quantised weights W (codes_stage.cuh), to row tile `tile` of the stage at c and on; the last K
// block is whole too. The part begins with K block `first`.
template <class W, int N, class Stages>
__device__ __forceinline__ void copy_codes(
	const Stages &stages, const typename Stages::Cursor &c, int tile, const char *const (&from)[N], int p, int first) {
	if (elect_one()) {
		mbarrier_expect(stages.full(c), N * W::bytes(p, first));
		W::copy(stages.weights(c) + tile * W::TILE_BYTES, from, p, first, stages.full(c));
	} else if (WARP_ARRIVALS > 1) {
		mbarrier_arrive(stages.full(c));
	}
}

// multiply_elements adds the products of K blocks `first` to end-1 to a warp's sums of N tokens, the first ones of `all`.
// It loads the weights of the next steps while a step is multiplied, so that the tensor cores are never idle.
template <class D, int N, class Stages, int S>
__device__ __forceinline__ void multiply_elements(
	float (&all)[S], const Stages &stages, typename Stages::Cursor &c, int first, int end) {
	float (&sum)[N / 2] = reinterpret_cast<float (&)[N / 2]>(all);
	const uint32_t mine = threadIdx.x / 32 * TILE_BLOCK_BYTES, lane = threadIdx.x % 32;
	uint4 v[BLOCK_STEPS];
	wgmma_pin(sum);
#pragma unroll 1
	for (int p = first; p < end; p++) {
		stages.wait(c);
#pragma unroll
		for (int j = 0; j < BLOCK_STEPS; j++) {
			v[j] = load_shared(stages.weights(c) + mine + j * 512 + lane * 16);
			wgmma_fence();
			wgmma<D, N>(sum, v[j], stages.descriptor(c, j));
			wgmma_commit();
			if (j == BLOCK_STEPS - 1) stages.release_weights(c); // they are in registers
			if (Stages::RELEASES_EARLY && j == 0)
				wgmma_wait<1>();
			else
				wgmma_wait<3>();
			if (j == (Stages::RELEASES_EARLY ? 0 : 2)) stages.release_before(c, p > first);
		}
		c.next();
	}
	wgmma_wait<0>();
	wgmma_pin(sum);
	stages.release_before(c, true);
}

// CodesMultiplier multiplies K blocks `first` to end-1 of quantised weights W for N tokens, AT_ONCE steps together.
template <class D, int N, int AT_ONCE, class W, class Stages> struct CodesMultiplier {
	float (&sum)[N / 2];
	const Stages &stages;
	typename Stages::Cursor &c;
	const int first, end;

	// load waits for K block p and loads its codes.
	__device__ __forceinline__ void load(W &stage, int p) const {
		stages.wait(c);
		stage.load(stages.weights(c) + threadIdx.x / 32 * W::TILE_BYTES, p, first);
	}
	// multiply starts to multiply K block p, whose codes are loaded, and then loads those of the next one.
	__device__ __forceinline__ void multiply(W &stage, int p) const {
#pragma unroll
		for (int begin = 0; begin < BLOCK_STEPS; begin += AT_ONCE) {
			uint4 v[AT_ONCE];
#pragma unroll
			for (int j = 0; j < AT_ONCE; j++) v[j] = stage.operand(begin + j);
#pragma unroll
			for (int j = 0; j < AT_ONCE; j++) // all before the fence
				asm volatile("" : "+r"(v[j].x), "+r"(v[j].y), "+r"(v[j].z), "+r"(v[j].w)::"memory");
			wgmma_fence();
#pragma unroll
			for (int j = 0; j < AT_ONCE; j++) wgmma<D, N>(sum, v[j], stages.descriptor(c, begin + j));
			wgmma_commit();
			wgmma_wait<1>();
			if (begin == 0) stages.release_before(c, p > first);
		}
		c.next();
		if (p + 1 < end) load(stage, p + 1);
	}
};
// multiply_codes does what multiply_elements does over quantised weights. It unpacks a K block while the one before is
// multiplied.
template <class D, int N, int AT_ONCE, class W, class Stages, int S>
__device__ __forceinline__ void multiply_codes(
	float (&all)[S], const Stages &stages, typename Stages::Cursor &c, int first, int end) {
	float (&sum)[N / 2] = reinterpret_cast<float (&)[N / 2]>(all);
	const CodesMultiplier<D, N, AT_ONCE, W, Stages> m = {sum, stages, c, first, end};
	W stage;
	wgmma_pin(sum);
	m.load(stage, first);
#pragma unroll 1
	for (int p = first;; p++) { // two sets of operands take turns
		m.multiply(stage, p);
		if (++p == end) break;
		m.multiply(stage, p);
		if (p + 1 == end) break;
	}
	wgmma_wait<0>();
	wgmma_pin(sum);
	stages.release_before(c, true);
}
#endif
