// codes_many: products of 8·N rounded rows over quantised weights on Hopper, with the bits of codes.cuh. Bricks come
// through a ring (brick_ring.cuh). Each consumer warp has a ring of its own for the activations of its bricks' columns,
// a quarter of a brick in a slot, which its bulk copies fill from L2.
#pragma once
#include "gemm/brick_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Op, class F, int N, int M> struct CodesMany {
	using Ring = BrickRing<Op, F, M>;
	static constexpr int R = Op::R, UNITS = Ring::UNITS, CONSUMERS = Ring::CONSUMERS, SLOTS = Ring::LARGE ? 2 : 3;
	static constexpr int THREADS = CONSUMERS + 128; // producers are a warpgroup, which gives registers to the others
	static constexpr bool BEGINS = F::Code::ZERO != 0 || F::Scales::MINIMUMS == EACH; // sums are read in each group
	// A slot has, of each token tile, the B operands of a quarter, then its sums.
	static constexpr int OPERANDS = QUARTER_COLUMNS / GROUP_COLUMNS * TOKEN_TILE * GROUP_CHUNKS;
	static constexpr int SUMS = BEGINS ? QUARTER_COLUMNS / Sums<F>::COLUMNS * TOKEN_TILE * 4 : 0;
	static constexpr int TILE = OPERANDS + SUMS, SLOT = N * TILE, SLOT_BYTES = CODE_PARTS * SLOTS * SLOT;
	static constexpr int PART = M * TOKEN_TILE * TOKEN_PITCH; // floats of a partial sum of a token tile
	static_assert(UNITS * 16 * TOKEN_TILE % CONSUMERS == 0 || UNITS * 16 * TOKEN_TILE == 128);

	struct Shared {
		typename Ring::Barriers barriers;
		uint64_t full[CODE_PARTS][SLOTS];
	};

	const CodesArgs<Op> &a;
	Op op;
	const Activations &in;
	Shared &shared;
	const Ring ring; // in shared memory; then come slots, then partial sums [8][PART]
	const int lane, part, first, groups, tiles;

	__device__ __forceinline__ CodesMany(const CodesArgs<Op> &a, Shared &shared, char *ring)
		: a(a), op(a.op), in(op.activations()), shared(shared), ring(a, ring, shared.barriers), lane(threadIdx.x % 32),
		  part(threadIdx.x / 32), first(blockIdx.x * N * TOKEN_TILE), groups(padded_columns(in.cols) / GROUP_COLUMNS),
		  tiles(min(N, (in.n - first + TOKEN_TILE - 1) / TOKEN_TILE)) {}

	__device__ __forceinline__ char *slots() const { return ring.ring + a.stages * Ring::STAGE; }
	__device__ __forceinline__ float *partials() const { return reinterpret_cast<float *>(slots() + SLOT_BYTES); }
	__device__ __forceinline__ char *slot(int s) const { return slots() + (part * SLOTS + s) * SLOT; }
	__device__ __forceinline__ uint32_t full(int s) const { return shared_address(&shared.full[part][s]); }

	__device__ __forceinline__ void start_barriers() const {
		if (lane == 0 && part < CODE_PARTS) {
#pragma unroll
			for (int s = 0; s < SLOTS; s++) mbarrier_init(full(s), 1);
			mbarrier_fence_init();
		}
		ring.start_barriers();
	}

	// Place is a quarter among those that a warp multiplies, and its slot.
	struct Place {
		int brick, quarter, slot, phase;

		// next moves on. After the last brick come those of the next row tiles, the same columns again.
		__device__ __forceinline__ void next(int part, int bricks) {
			if (++slot == SLOTS) slot = 0, phase ^= 1;
			if (++quarter < F::QUARTERS) return;
			quarter = 0;
			if ((brick += CODE_PARTS) >= bricks) brick = part;
		}
	};

	// copy starts the copies of a quarter's activations: lane n those of token tile n, lane N+n its sums.
	__device__ __forceinline__ void copy(const Place &p) const {
		if (lane == 0) mbarrier_expect(full(p.slot), tiles * TILE);
		__syncwarp();
		const int n = lane % N, quarter = p.brick * F::QUARTERS + p.quarter;
		if (n >= tiles || lane >= (SUMS ? 2 * N : N)) return;
		const uint32_t to = shared_address(slot(p.slot)) + n * TILE;
		if (lane < N) {
			bulk_copy(to, a.rows + ((size_t)(first / TOKEN_TILE + n) * groups * GROUP_CHUNKS * TOKEN_TILE +
				(size_t)quarter * OPERANDS), OPERANDS, full(p.slot));
		} else {
			const int each = padded_columns(in.cols) / Sums<F>::COLUMNS * TOKEN_TILE * 4;
			bulk_copy(to + OPERANDS, reinterpret_cast<const char *>(a.sums) + (size_t)(first / TOKEN_TILE + n) * each +
				(size_t)quarter * SUMS, SUMS, full(p.slot));
		}
	}

	// rows returns the activations in a slot; columns count from its first.
	__device__ __forceinline__ Rows rows(int s) const {
		const char *const p = slot(s);
		return {p + lane * 16, reinterpret_cast<const float *>(p + OPERANDS) + lane % 4 * 2, TOKEN_TILE * GROUP_CHUNKS,
			TILE, TILE / 4, tiles};
	}

	// own returns the sums of a brick's groups for its minimums.
	__device__ __forceinline__ void own(float2 (&to)[N], int brick) const {
		const int tile = groups * TOKEN_TILE;
		const Rows all = {nullptr, a.sums + (size_t)first * groups + lane % 4 * 2, 0, 0, tile, tiles};
#pragma unroll
		for (int n = 0; n < N; n++)
			if (n < tiles) to[n] = all.own(n, brick * (F::COLUMNS / GROUP_COLUMNS));
	}

	// multiply adds the products of a warp's bricks of one round. `ahead` is the quarter to be copied next, if `left`
	// are to be copied.
	__device__ __forceinline__ void multiply(float (&sum)[M][N][4], const typename Ring::Bricks &bricks, Place &now,
		Place &ahead, int &left) const {
		typename F::Codes codes[M];
		typename F::Scales scales[M];
		[[maybe_unused]] float2 of[N];
		if constexpr (F::Scales::MINIMUMS == BRICK) own(of, now.brick);
		bricks.load_scales(scales);
#pragma unroll
		for (int q = 0; q < F::QUARTERS; q++) {
			bricks.load_codes(codes, q);
			if (q == F::QUARTERS - 1) bricks.release();
			mbarrier_wait(full(now.slot), now.phase);
			const Rows rows = this->rows(now.slot);
#pragma unroll
			for (int g = 0; g < F::GROUPS; g++)
				multiply_group<F>(sum, codes, scales, rows, q, g, -q * (QUARTER_COLUMNS / GROUP_COLUMNS));
			now.next(part, ring.bricks);
			fence_reads();
			__syncwarp(); // all lanes have read the slot that is filled next
			if (left-- > 0) {
				copy(ahead);
				ahead.next(part, ring.bricks);
			}
		}
		if constexpr (F::Scales::MINIMUMS == BRICK) add_minimums<F>(sum, scales, of, tiles);
	}

	__device__ __forceinline__ void consume() {
		const int mine = ring.bricks > part ? (ring.bricks - part + CODE_PARTS - 1) / CODE_PARTS * F::QUARTERS : 0;
		int batches = 0;
		for (int batch = blockIdx.y; batch < ring.batches(); batch += gridDim.y) batches++;
		int left = batches * mine;
		Place now = {part, 0, 0, 0}, ahead = now;
#pragma unroll
		for (int s = 0; s < SLOTS; s++)
			if (left > 0) {
				copy(ahead);
				ahead.next(part, ring.bricks);
				left--;
			}
		typename Ring::Cursor c = ring.begin_part(part);
		for (int batch = blockIdx.y; batch < ring.batches(); batch += gridDim.y) {
			float sum[M][N][4] = {};
#pragma unroll 1
			for (int brick = part; brick - part < ring.bricks; brick += CODE_PARTS) {
				const typename Ring::Bricks bricks = ring.take(c);
				if (brick < ring.bricks)
					multiply(sum, bricks, now, ahead, left);
				else
					bricks.release();
			}
			finish(batch, sum);
		}
	}

	// finish adds the partial sums of a batch and passes the results to the op.
	__device__ __forceinline__ void finish(int batch, const float (&sum)[M][N][4]) {
		const int row = threadIdx.x % 16, token = threadIdx.x / 16 % TOKEN_TILE;
#pragma unroll
		for (int n = 0; n < N; n++) {
			if (n >= tiles) return;
			named_barrier_sync<CONSUMERS>(1); // the sums before have been read
#pragma unroll
			for (int m = 0; m < M; m++)
				share_sums<F>(partials() + part * PART + m * TOKEN_TILE * TOKEN_PITCH, sum[m][n]);
			named_barrier_sync<CONSUMERS>(1);
			const int t = first + n * TOKEN_TILE + token;
#pragma unroll
			for (int which = threadIdx.x / (16 * TOKEN_TILE); which < UNITS; which += CONSUMERS / (16 * TOKEN_TILE)) {
				const int unit = batch * UNITS + which;
				if (unit >= a.units || in.row(t) < 0) continue;
				op.prepare(a.first + unit, row, t);
				const float scale = Op::NORMED ? Sums<F>::RESTORE * a.scales[t] : Sums<F>::RESTORE;
				float y[R];
#pragma unroll
				for (int r = 0; r < R; r++)
					y[r] = __fmul_rn(scale,
						sum_of_parts(partials() + ((which * R + r) * TOKEN_TILE + token) * TOKEN_PITCH + row, PART));
				op.finish(a.first + unit, row, t, y);
			}
		}
	}
};

template <class Op, class F, int N, int M> __device__ __forceinline__ void codes_many(const CodesArgs<Op> &a) {
	using Block = CodesMany<Op, F, N, M>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(a, shared, reinterpret_cast<char *>(roundedRows));
	b.start_barriers();
	if (threadIdx.x >= Block::CONSUMERS) {
		decrease_registers<24>();
		if (threadIdx.x / 32 == CODE_PARTS && elect_one()) b.ring.produce(b.op, blockIdx.y, gridDim.y);
	} else {
		increase_registers<232>();
		begin_product<Op::ATTENTION_NEXT, true>();
		fence_async_global();
		b.consume();
	}
}
#endif
