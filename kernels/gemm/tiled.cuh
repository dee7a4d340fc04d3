// tiled: products of many rows by mma.sync, for GPUs without the wgmma kernels. A block computes 16/G row tiles
// for 32 or 64 tokens. Its 16 warps form G teams, each with PARTIALS/G of the partial sums
// (operands.cuh), so every sum has the same bits as in skinny.cuh. A warp has one row tile, whose
// weights go from memory to its registers. The team rounds the tokens' activations once, into
// shared memory.
#pragma once
#include "gemm/operands.cuh"
#include "gemm/skinny.cuh"
#include "ptx/memory.cuh"
#include "ptx/mma.cuh"
#include "ptx/warp.cuh"

constexpr int TILED_THREADS = 512;

template <int G> struct TiledShape {
	static constexpr int TILES = 16 / G;               // row tiles per block
	static constexpr int TEAM = 32 * TILES;            // threads per team
	static constexpr int TOKENS = G == 1 ? 64 : 32;    // per block
	static constexpr int QUADS = 4 * BLOCK_STEPS;      // float4 of a token in a K block
	static constexpr int EACH = TOKENS * QUADS / TEAM; // float4 per thread
	static constexpr int PITCH = K_BLOCK * 2;          // bytes of a token in a stage
	static constexpr int STAGE = TOKENS * PITCH;       // bytes: a K block of all tokens, rounded
	static constexpr int STAGES = 2 * G * STAGE;
	static constexpr int REGION = TOKENS * TOKEN_PITCH; // floats of one row tile's results
	static constexpr int RESULTS = 16 * REGION * 4;
	// With one team, results are added while stages are in use; with several they reuse the stages.
	static constexpr int RESULTS_AT = G == 1 ? STAGES : 0;
	static constexpr int SQUARES = RESULTS_AT + (RESULTS > STAGES ? RESULTS : STAGES);
	static constexpr int BYTES = SQUARES + G * TOKENS * 4;

	// at returns the offset of 16 bytes of a token in a stage. Chunks are permuted so that neither
	// stores nor ldmatrix conflict in a bank.
	static __device__ __forceinline__ int at(int token, int chunk) {
		return token * PITCH + ((chunk ^ (token & 7)) << 4);
	}
};

template <class Op, class D, int G> struct Tiled : TiledShape<G> {
	using S = TiledShape<G>;
	static constexpr int N = S::TOKENS / 8;

	const Activations &in;
	char *const shared;
	const int warp, lane, team, member, first; // first token of the block
	const int steps;
	const uint4 *tile; // this lane's 16 bytes of step 0, or null
	int x[S::EACH];    // index in in.x of this thread's columns of step 0, or -1
	uint4 a[BLOCK_STEPS];
	float4 v[S::EACH], g;
	float sum[N][4] = {}, group[N][4];
	float squares[S::EACH] = {}, groupSquares[S::EACH], allSquares[S::EACH];

	__device__ __forceinline__ Tiled(const Op &op, char *shared)
		: in(op.activations()), shared(shared), warp(threadIdx.x >> 5), lane(threadIdx.x & 31), team(warp / S::TILES),
		  member(threadIdx.x % S::TEAM), first(blockIdx.x * S::TOKENS), steps(in.cols / MMA_K), g{1, 1, 1, 1} {
		int i = warp % S::TILES, unit = blockIdx.y * (S::TILES / Op::R) + i / Op::R;
		tile = unit < op.units() ? fragments(op, unit, i % Op::R) + lane : nullptr;
	}

	__device__ __forceinline__ void find_rows() {
#pragma unroll
		for (int e = 0; e < S::EACH; e++) {
			const int row = in.row(first + token(e));
			x[e] = row < 0 ? -1 : row * in.cols + (member % S::QUADS) * 4;
		}
		if (member >= 32) return;
		int n = 0;
#pragma unroll
		for (int t = 0; t < S::TOKENS; t += 32) {
			const uint32_t exist = __ballot_sync(~0u, in.row(first + t + lane) >= 0);
			if (exist) n = t + 32 - __clz(exist);
		}
		if (lane == 0) live(team) = n;
	}

	// live is of the block's tokens those up to the last that is no padding, for each team: in shared memory, since
	// there are no registers to spare. It is there after the first sync_team.
	static __device__ __forceinline__ int &live(int team) {
		__shared__ int tokens[G];
		return tokens[team];
	}

	__device__ __forceinline__ int token(int e) const { return member / S::QUADS + e * (S::TEAM / S::QUADS); }

	__device__ __forceinline__ void fetch_weights(int step) {
#pragma unroll
		for (int j = 0; j < BLOCK_STEPS; j++)
			a[j] = tile && step + j < steps ? load_weights(tile + (step + j) * 32) : uint4{0, 0, 0, 0};
	}

	__device__ __forceinline__ void fetch_rows(int step) {
		const bool inside = step + member % S::QUADS / 4 < steps;
		if (Op::NORMED && inside) g = load_constant(in.norm + step * MMA_K + (member % S::QUADS) * 4);
#pragma unroll
		for (int e = 0; e < S::EACH; e++)
			v[e] = inside && x[e] >= 0 ? load_activation(in.x + x[e] + step * MMA_K) : float4{0, 0, 0, 0};
	}

	__device__ __forceinline__ char *stage(int i) const { return shared + ((i & 1) * G + team) * S::STAGE; }

	// store_rows rounds the fetched rows into stage i.
	__device__ __forceinline__ void store_rows(int i) {
		const int quad = member % S::QUADS;
#pragma unroll
		for (int e = 0; e < S::EACH; e++) {
			float4 f = v[e];
			if (Op::NORMED) {
				squares[e] = add_squares(squares[e], f);
				f = times(f, g);
			}
			uint2 b = pack4<D>(f);
			char *p = stage(i) + (quad & 3) * 4;
			*reinterpret_cast<uint32_t *>(p + S::at(token(e), quad / 4 * 2)) = b.x;
			*reinterpret_cast<uint32_t *>(p + S::at(token(e), quad / 4 * 2 + 1)) = b.y;
		}
	}

	__device__ __forceinline__ void sync_team() {
		named_barrier_sync<S::TEAM>(1 + team);
	}

	__device__ __forceinline__ void multiply(int i, int step) {
		const uint32_t base = shared_address(stage(i));
		const int row = (lane >> 4) * 8 + (lane & 7), half = lane >> 3 & 1, tokens = live(team);
#pragma unroll
		for (int j = 0; j < BLOCK_STEPS; j++) {
			if (step + j >= steps) break;
#pragma unroll
			for (int n = 0; n < N; n += 2) {
				if (n * 8 >= tokens) break;
				uint4 b = ldmatrix(base + S::at(n * 8 + row, 2 * j + half));
				D::mma(sum[n], a[j], b.x, b.y);
				D::mma(sum[n + 1], a[j], b.z, b.w);
			}
		}
	}

	// region returns the results of a warp: float [TOKENS][TOKEN_PITCH].
	__device__ __forceinline__ float *region(int w) const {
		return reinterpret_cast<float *>(shared + S::RESULTS_AT) + w * S::REGION;
	}

	// each_sum calls fn(address in the region, n, i) for each of this thread's sums.
	template <class F> __device__ __forceinline__ void each_sum(F fn) {
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				fn(region(warp) + (n * 8 + (lane & 3) * 2 + (i & 1)) * TOKEN_PITCH + lane / 4 + (i >> 1) * 8, n, i);
	}

	// end_partial adds the finished partial sum `partial` to its group.
	__device__ __forceinline__ void end_partial(int partial) {
		const bool begins = partial % PER_GROUP == 0, ends = partial % PER_GROUP == PER_GROUP - 1;
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				group[n][i] = begins ? sum[n][i] : __fadd_rn(group[n][i], sum[n][i]);
				sum[n][i] = 0;
			}
		if (Op::NORMED)
#pragma unroll
			for (int e = 0; e < S::EACH; e++) {
				float q = fold_squares(squares[e]);
				squares[e] = 0;
				groupSquares[e] = begins ? q : __fadd_rn(groupSquares[e], q);
				if (G == 1 && ends)
					allSquares[e] = partial < PER_GROUP ? groupSquares[e] : __fadd_rn(allSquares[e], groupSquares[e]);
			}
		if (G == 1 && ends)
			each_sum(
				[&](float *p, int n, int i) { *p = partial < PER_GROUP ? group[n][i] : __fadd_rn(*p, group[n][i]); });
	}

	// run goes through the team's partial sums, and through the K blocks of each, one stage per K
	// block. All teams run equally many stages; a K block past the last step adds nothing.
	__device__ __forceinline__ void run() {
		constexpr int TEAM_PARTIALS = PARTIALS / G, STRIDE = PARTIALS * BLOCK_STEPS;
		const int rounds = (steps + STRIDE - 1) / STRIDE;
		int next = team * TEAM_PARTIALS * BLOCK_STEPS;
		fetch_rows(next);
		for (int partial = 0, i = 0; partial < TEAM_PARTIALS; partial++) {
			for (int round = 0; round < rounds; round++, i++) {
				const int step = next;
				next = round + 1 < rounds ? step + STRIDE : (team * TEAM_PARTIALS + partial + 1) * BLOCK_STEPS;
				store_rows(i);
				fetch_rows(next);
				sync_team();
				multiply(i, step);
				fetch_weights(next);
			}
			end_partial(partial);
		}
	}

	__device__ __forceinline__ void share() {
		__syncthreads();
		if (G > 1) each_sum([&](float *p, int n, int i) { *p = group[n][i]; });
		if (Op::NORMED && member % S::QUADS == 0)
#pragma unroll
			for (int e = 0; e < S::EACH; e++)
				reinterpret_cast<float *>(shared + S::SQUARES)[team * S::TOKENS + token(e)] =
					G == 1 ? allSquares[e] : groupSquares[e];
		__syncthreads();
	}

	// over_teams adds the values of all teams at p, in order.
	static __device__ __forceinline__ float over_teams(const float *p, int stride) {
		float s = p[0];
#pragma unroll
		for (int q = 1; q < G; q++) s = __fadd_rn(s, p[q * stride]);
		return s;
	}

	__device__ __forceinline__ float result(int i, int token, int row) const {
		return over_teams(region(i) + token * TOKEN_PITCH + row, S::TILES * S::REGION);
	}

	__device__ __forceinline__ float scale(int token) const {
		return Op::NORMED
			? rms_scale(in, over_teams(reinterpret_cast<const float *>(shared + S::SQUARES) + token, S::TOKENS))
			: 1.f;
	}
};

// finish_block passes a block's results to the op with THREADS threads: BATCH loads per thread,
// then as many stores.
template <class Op, class Block, int THREADS>
__device__ __forceinline__ void finish_block(const Op &op, const Block &b) {
	constexpr int R = Op::R, UNITS = Block::TILES / R, TOKENS = Block::TOKENS, BATCH = 4;
	for (int i = threadIdx.x; i < UNITS * 16 * TOKENS; i += BATCH * THREADS) {
		Op part[BATCH] = {op, op, op, op};
#pragma unroll
		for (int pass = 0; pass < 2; pass++)
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				int at = i + k * THREADS, row = at & 15, token = at / 16 % TOKENS, u = at / (16 * TOKENS);
				int unit = blockIdx.y * UNITS + u;
				if (u >= UNITS || unit >= op.units() || b.in.row(b.first + token) < 0) continue;
				if (pass == 0) {
					part[k].prepare(unit, row, b.first + token);
					continue;
				}
				float y[R], scale = b.scale(token);
#pragma unroll
				for (int r = 0; r < R; r++) y[r] = __fmul_rn(scale, b.result(u * R + r, token, row));
				part[k].finish(unit, row, b.first + token, y);
			}
	}
}

// tiled computes TILES/R units for TOKENS tokens. blockIdx.x is the tile of tokens, so blocks that
// read the same weights run at the same time.
template <class Op, class D, int G> __device__ __forceinline__ void tiled(const Op &op) {
	using Block = Tiled<Op, D, G>;
	extern __shared__ __align__(1024) char tiledShared[];
	Block b(op, tiledShared);
	b.fetch_weights(b.team * (PARTIALS / G) * BLOCK_STEPS);
	begin_product<Op::ATTENTION_NEXT>();
	b.find_rows();
	b.run();
	b.share();
	finish_block<Op, Block, TILED_THREADS>(op, b);
}
