// A ring of bricks in shared memory: a producer thread copies them, eight consumer warps multiply them, one for each
// partial sum (codes.cuh).
#pragma once
#include "gemm/codes.cuh"
#include "ptx/mbarrier.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// BrickRing is one thread's view of the ring of a block that computes M row tiles of an op at a time.
template <class Op, class F, int M> struct BrickRing {
	static constexpr int R = Op::R, UNITS = M / R; // units of a block at a time
	static constexpr int CONSUMERS = CODE_PARTS * 32, THREADS = CONSUMERS + 32;
	// A stage has one brick of each of PARTS partial sums, of TILES row tiles: all of both if bricks are small. Of
	// large ones stages are for the first and the second four partial sums in turn, so a ring has an even number: a
	// stage must always be used by the same warps. They wait by the parity of its uses, and would take a use by others
	// that is still to be filled for their own, which comes two uses later.
	static constexpr bool LARGE = F::BYTES > 1200;
	static constexpr int PARTS = LARGE ? CODE_PARTS / 2 : CODE_PARTS, TILES = LARGE ? 1 : 2;
	static constexpr int TILE = PARTS * F::BYTES, STAGE = TILES * TILE;
	static constexpr int BETWEEN = CODE_PARTS / PARTS; // from a warp's stage to its next
	static constexpr int MOST_STAGES = 24;

	using Barriers = uint2[MOST_STAGES][2]; // of each stage: full and empty

	// Cursor is a stage of the ring: the shared addresses of its bricks and of its barriers, and the parity of the
	// times that it was used.
	struct Cursor {
		uint32_t bricks, barriers;
		int stage, phase;

		__device__ __forceinline__ uint32_t full() const { return barriers; }
		__device__ __forceinline__ uint32_t empty() const { return barriers + 8; }
		__device__ __forceinline__ void next(int stages, int by) {
			bricks += by * STAGE, barriers += by * 16, stage += by;
			if (stage < stages) return;
			bricks -= stages * STAGE, barriers -= stages * 16;
			stage -= stages, phase ^= 1;
		}
	};

	const CodesArgs<Op> &a;
	char *const ring; // shared [stages][STAGE]
	Barriers &barriers;
	const int bricks; // of a row tile

	__device__ __forceinline__ BrickRing(const CodesArgs<Op> &a, char *ring, Barriers &barriers)
		: a(a), ring(ring), barriers(barriers), bricks(F::bricks(Op(a.op).activations().cols)) {}

	__device__ __forceinline__ int batches() const { return (a.units + UNITS - 1) / UNITS; }

	// begin returns the first stage, for the producer with parity 1. A consumer's cursor is at its own brick.
	__device__ __forceinline__ Cursor begin(int phase) const {
		return {opaque(shared_address(ring)), opaque(shared_address(barriers)), 0, phase};
	}
	__device__ __forceinline__ Cursor begin_part(int part) const {
		Cursor c = begin(0);
		c.next(a.stages, part / PARTS);
		c.bricks += part % PARTS * F::BYTES;
		return c;
	}

	__device__ __forceinline__ void start_barriers() const {
		if (threadIdx.x == CONSUMERS) {
			Cursor c = begin(0);
			for (int s = 0; s < a.stages; s++, c.next(a.stages, 1)) {
				mbarrier_init(c.full(), 1);
				mbarrier_init(c.empty(), PARTS * WARP_ARRIVALS);
			}
			mbarrier_fence_init();
		}
		__syncthreads();
	}

	// produce copies all bricks of the units of batches first, first+step, …, in one thread. Past the last unit it
	// copies that one again.
	__device__ __forceinline__ void produce(const Op &op, int first, int step) const {
		Cursor c = begin(1);
		for (int batch = first; batch < batches(); batch += step) {
			const char *from[M];
#pragma unroll
			for (int m = 0; m < M; m++)
				from[m] = bricks_of<Op, F>(op, a.first + min(batch * UNITS + m / R, a.units - 1), m % R);
#pragma unroll 1
			for (int round = 0; round < bricks; round += CODE_PARTS) {
#pragma unroll
				for (int m = 0; m < M; m += TILES)
#pragma unroll
					for (int brick = round; brick < round + CODE_PARTS; brick += PARTS, c.next(a.stages, 1)) {
						const int bytes = max(min(bricks - brick, PARTS), 0) * F::BYTES;
						mbarrier_wait(c.empty(), c.phase);
						mbarrier_expect(c.full(), bytes * TILES);
						if (bytes == 0) continue;
#pragma unroll
						for (int t = 0; t < TILES; t++)
							bulk_copy(EVICT_FIRST, c.bricks + t * TILE, from[m + t] + (size_t)brick * F::BYTES, bytes,
								c.full());
					}
			}
		}
	}

	// Bricks are those of a round that a warp multiplies, one of each row tile. They are in the ring.
	struct Bricks {
		uint32_t at[M], empty[M];

		// load_scales and load_codes load those of all row tiles: codes of quarter q.
		__device__ __forceinline__ void load_scales(typename F::Scales (&scales)[M]) const {
			const int lane = threadIdx.x % 32;
#pragma unroll
			for (int m = 0; m < M; m++)
				scales[m].template load<FromShared>(true, from_shared(at[m] + F::SCALES_AT), lane);
		}
		__device__ __forceinline__ void load_codes(typename F::Codes (&codes)[M], int q) const {
			const int lane = threadIdx.x % 32;
#pragma unroll
			for (int m = 0; m < M; m++)
				codes[m].template load<FromShared>(true, from_shared(at[m] + F::CODES_AT + q * F::Codes::BYTES), lane);
		}
		// release frees the places of the bricks, when all lanes have loaded their registers.
		__device__ __forceinline__ void release() const {
			fence_reads();
#pragma unroll
			for (int m = 0; m < M; m += TILES) mbarrier_arrive_warp_if(true, empty[m]);
		}
	};

	// take waits for the bricks of a round, and moves to those of the next.
	__device__ __forceinline__ Bricks take(Cursor &c) const {
		Bricks b;
#pragma unroll
		for (int m = 0; m < M; m++) {
			b.at[m] = c.bricks + m % TILES * TILE, b.empty[m] = c.empty();
			if (m % TILES == 0) mbarrier_wait(c.full(), c.phase);
			if (m % TILES == TILES - 1) c.next(a.stages, BETWEEN);
		}
		return b;
	}
};
#endif
