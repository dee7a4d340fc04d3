// wgmma: products of many rows on Hopper. A block computes 64*M outputs for T tokens. One producer
// warp copies K blocks of weights and of rounded activations to shared memory, several stages
// ahead. G*M warpgroups multiply them with wgmma, weights from registers and activations from
// shared memory. G teams divide the partial sums (operands.cuh). wgmma gives the same bits as
// mma.sync, so results equal those of skinny.cuh; a test compares them.
#pragma once
#include "gemm/operands.cuh"
#include "gemm/rounded.cuh"
#include "gemm/tiled.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Op, class D, int M, int G, int T> struct WgmmaGemm {
	static constexpr int CONSUMERS = 128 * M * G, THREADS = CONSUMERS + 32;
	static constexpr int TILES = 4 * M, TEAM_PARTIALS = PARTIALS / G, N = T / 8, TOKENS = T;
	static constexpr int WEIGHTS = TILES * TILE_BLOCK_BYTES, ROWS = T * TOKEN_BLOCK_BYTES; // bytes per team in a stage
	static constexpr int STAGE = G * (WEIGHTS + ROWS);
	static constexpr int REGION = T * TOKEN_PITCH; // floats of a warp's results
	static constexpr int RESULTS = G * TILES * REGION * 4;
	// With one team, results are added while stages are in use; with several they reuse the stages.
	static constexpr int BARRIERS = 1024, STAGES = (227 * 1024 - BARRIERS - (G == 1 ? RESULTS : 0)) / STAGE;
	static constexpr int RESULTS_AT = BARRIERS + (G == 1 ? STAGES * STAGE : 0);
	static constexpr int BYTES = BARRIERS + STAGES * STAGE + (G == 1 ? RESULTS : 0);
	static_assert(G == 1 || G == GROUPS && RESULTS <= STAGES * STAGE);
	static_assert(STAGES >= 3 && ROWS % 1024 == 0);

	const Op &op;
	const Activations &in;
	const RoundedInput &rounded;
	char *const shared;
	const int first, steps, rounds;

	__device__ __forceinline__ WgmmaGemm(const Op &op, const RoundedInput &rounded, char *shared)
		: op(op), in(op.activations()), rounded(rounded), shared(shared), first(blockIdx.x * T), steps(in.cols / MMA_K),
		  rounds((steps + BLOCK_STEPS * PARTIALS - 1) / (BLOCK_STEPS * PARTIALS)) {}

	__device__ __forceinline__ uint32_t full(int s) const { return shared_address(shared) + s * 16; }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	__device__ __forceinline__ uint32_t weights(int s, int team) const {
		return shared_address(shared) + BARRIERS + s * STAGE + team * (WEIGHTS + ROWS);
	}
	__device__ __forceinline__ uint32_t rows(int s, int team) const { return weights(s, team) + WEIGHTS; }

	// Cursor is a position in the sequence of stages, which goes through a team's partial sums and
	// through the K blocks of each. Divisions would take longer than a stage.
	struct Cursor {
		int partial = 0, round = 0, stage = 0, phase = 0;
		__device__ __forceinline__ void next(int rounds) {
			if (++round == rounds) round = 0, partial++;
			if (++stage == STAGES) stage = 0, phase ^= 1;
		}
	};
	static __device__ __forceinline__ int k_block(const Cursor &c, int team) {
		return team * TEAM_PARTIALS + c.partial + c.round * PARTIALS;
	}

	// steps_in returns the number of steps of a K block: 0 if it is past the last.
	__device__ __forceinline__ int steps_in(int block) const {
		return min(max(steps - block * BLOCK_STEPS, 0), BLOCK_STEPS);
	}
	__device__ __forceinline__ int row_bytes() const { return min(T, rounded.tokens - first) * TOKEN_BLOCK_BYTES; }

	__device__ __forceinline__ void start_barriers() {
		if (threadIdx.x == 0) {
			for (int s = 0; s < STAGES; s++) {
				mbarrier_init(full(s), 1);
				mbarrier_init(empty(s), CONSUMERS / 32 * WARP_ARRIVALS);
			}
			mbarrier_fence_init();
		}
		__syncthreads();
	}

	// Copy is one lane's copy in every stage: a row tile's weights or a team's activations. Weights
	// may be copied before pdl_wait.
	struct Copy {
		bool exists, rows;
		int team, bytes, stride; // bytes of a whole K block, and from K block to K block
		uint32_t to;             // offset in a stage
		const char *from;        // K block 0
	};

	__device__ __forceinline__ Copy copy_of(int lane) const {
		const int team = lane / (TILES + 1), tile = lane % (TILES + 1),
				  unit = blockIdx.y * (TILES / Op::R) + tile / Op::R;
		static_assert(G * (TILES + 1) <= 32, "a lane for each partial");
		if (tile == TILES)
			return {team < G, true, team, row_bytes(), rounded.tokens / TOKEN_GROUP * GROUP_BYTES,
				static_cast<uint32_t>(team * (WEIGHTS + ROWS) + WEIGHTS),
				rounded.rows + (size_t)(first / TOKEN_GROUP) * GROUP_BYTES};
		const bool exists = team < G && unit < op.units();
		return {exists, false, team, TILE_BLOCK_BYTES, TILE_BLOCK_BYTES,
			static_cast<uint32_t>(team * (WEIGHTS + ROWS) + tile * TILE_BLOCK_BYTES),
			exists ? reinterpret_cast<const char *>(fragments(op, unit, tile % Op::R)) : nullptr};
	}

	// bytes_of returns the bytes of this copy in the stage at c.
	__device__ __forceinline__ int bytes_of(const Copy &copy, const Cursor &c) const {
		const int n = copy.exists ? steps_in(k_block(c, copy.team)) : 0;
		return copy.rows ? (n ? copy.bytes : 0) : n * (TILE_BLOCK_BYTES / BLOCK_STEPS);
	}

	__device__ __forceinline__ void begin_copy(const Copy &copy, const Cursor &c) {
		if (const int bytes = bytes_of(copy, c))
			bulk_copy(weights(c.stage, 0) + copy.to, copy.from + (size_t)k_block(c, copy.team) * copy.stride, bytes,
				full(c.stage));
	}

	// expect announces a stage's bytes at its barrier.
	__device__ __forceinline__ void expect(const Copy &copy, const Cursor &c) {
		const int total = __reduce_add_sync(~0u, bytes_of(copy, c));
		if ((threadIdx.x & 31) == 0) mbarrier_expect(full(c.stage), total);
		__syncwarp();
	}

	__device__ __forceinline__ void produce() {
		const Copy copy = copy_of(threadIdx.x & 31);
		Cursor c, rows;
		for (int i = 0; i < STAGES && c.partial < TEAM_PARTIALS; i++, c.next(rounds)) {
			expect(copy, c);
			if (!copy.rows) begin_copy(copy, c);
		}
		begin_product<Op::ATTENTION_NEXT>();
		for (int i = 0; i < STAGES && rows.partial < TEAM_PARTIALS; i++, rows.next(rounds))
			if (copy.rows) begin_copy(copy, rows);
		for (; c.partial < TEAM_PARTIALS; c.next(rounds)) {
			mbarrier_wait(empty(c.stage), c.phase ^ 1);
			expect(copy, c);
			begin_copy(copy, c);
		}
	}

	// consume multiplies. A warpgroup has 64 outputs of its team's partial sums, each warp 16 of
	// them.
	__device__ __forceinline__ void consume() {
		// shfl tells the compiler that the warp does not diverge, as wgmma requires.
		const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, team = warp / TILES,
				  tile = warp % TILES;
		float sum[N * 4], group[N * 4];
#pragma unroll
		for (int e = 0; e < N * 4; e++) sum[e] = 0;
		Cursor c;
		for (int partial = 0; partial < TEAM_PARTIALS; partial++) {
			for (int round = 0; round < rounds; round++, c.next(rounds)) {
				const int valid = steps_in(k_block(c, team));
				mbarrier_wait(full(c.stage), c.phase);
				if (valid > 0)
					multiply(
						sum, weights(c.stage, team) + tile * TILE_BLOCK_BYTES + lane * 16, rows(c.stage, team), valid);
				mbarrier_arrive_warp(empty(c.stage));
			}
			const bool begins = partial % PER_GROUP == 0, ends = partial % PER_GROUP == PER_GROUP - 1;
#pragma unroll
			for (int e = 0; e < N * 4; e++) {
				group[e] = begins ? sum[e] : __fadd_rn(group[e], sum[e]);
				sum[e] = 0;
			}
			if (G == 1 && ends) store_sums(warp, lane, group, partial >= PER_GROUP);
		}
		sync_consumers();
		if (G > 1) store_sums(warp, lane, group, false);
		sync_consumers();
	}

	// store_sums writes this warp's sums to its region, or adds them to its contents.
	__device__ __forceinline__ void store_sums(int warp, int lane, const float (&group)[N * 4], bool add) {
#pragma unroll
		for (int e = 0; e < N * 4; e++) {
			float *p =
				region(warp) + (e / 4 * 8 + (lane & 3) * 2 + (e & 1)) * TOKEN_PITCH + lane / 4 + (e >> 1 & 1) * 8;
			*p = add ? __fadd_rn(*p, group[e]) : group[e];
		}
	}

	__device__ __forceinline__ void multiply(float (&sum)[N * 4], uint32_t from, uint32_t rows, int valid) {
		uint4 a[BLOCK_STEPS];
#pragma unroll
		for (int j = 0; j < BLOCK_STEPS; j++)
			a[j] = load_shared(from + j * 512);
		if (valid < BLOCK_STEPS) { // zero the weights of missing steps, whose activations are zero too
#pragma unroll
			for (int j = 0; j < BLOCK_STEPS; j++)
				if (j >= valid) a[j] = {0, 0, 0, 0};
		}
		wgmma_pin(sum);
		wgmma_fence();
#pragma unroll
		for (int j = 0; j < BLOCK_STEPS; j++) wgmma<D, T>(sum, a[j], wgmma_descriptor(rows + j * MMA_K * 2));
		wgmma_commit();
		wgmma_wait<0>();
		wgmma_pin(sum);
	}

	__device__ __forceinline__ void sync_consumers() { named_barrier_sync<CONSUMERS>(1); }
	__device__ __forceinline__ float *region(int warp) const {
		return reinterpret_cast<float *>(shared + RESULTS_AT) + warp * REGION;
	}
	__device__ __forceinline__ float result(int tile, int token, int row) const {
		const float *p = region(tile) + token * TOKEN_PITCH + row;
		float s = p[0];
#pragma unroll
		for (int q = 1; q < G; q++) s = __fadd_rn(s, p[q * TILES * REGION]);
		return s;
	}
	__device__ __forceinline__ float scale(int token) const { return Op::NORMED ? rounded.scales[first + token] : 1.f; }
};

template <class Op> struct WgmmaArgs {
	typename Op::Args op;
	RoundedInput rounded;
};

template <class Op, class D, int M, int G, int T> __device__ __forceinline__ void wgmma_gemm(const WgmmaArgs<Op> &a) {
	using Block = WgmmaGemm<Op, D, M, G, T>;
	extern __shared__ __align__(1024) char wgmmaShared[];
	const Op op(a.op);
	Block b(op, a.rounded, wgmmaShared);
	b.start_barriers();
	if (threadIdx.x >= Block::CONSUMERS) {
		b.produce();
		return;
	}
	pdl_wait();
	b.consume();
	finish_block<Op, Block, Block::CONSUMERS>(op, b);
}
#endif
