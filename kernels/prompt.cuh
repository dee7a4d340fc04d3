// Products of a prompt's tokens on Hopper, where the activations were rounded
// (round.cu). A block owns 128 outputs, T tokens and one segment of the columns.
// Blocks come in clusters of PAIR times as many as there are segments: PAIR blocks of
// neighbouring outputs share the activations, which each brings a part of to all; and
// blocks of the same outputs add their segments' sums through shared memory. One thread
// has the copy engine bring activations; each of two warpgroups' warps copies its row
// tile's weights, and multiplies with wgmma: the weights from registers, the activations
// from shared memory.
//
// The order of a prompt's sums is not that of common.cuh: a segment is a run of
// pieces, one sum in ascending order; then segments are added in ascending order. How
// many segments there are depends on the weight's shape alone, so a token's result is
// the same in any company and in any chunk.
#pragma once
#include "deep.cuh"

// What a prompt's product reads beside its op's arguments.
template <class Op> struct PromptArgs {
	typename Op::Args op;
	Rounded rounded;
	Onward next;
	int32_t segments, pair; // their product is the cluster
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The address of what lies at `address` here in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ uint32_t shared_of(uint32_t address, int rank) {
	uint32_t there;
	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
	return there;
}
// Without a scope of the cluster, which would wait for all of the thread's copies: what
// a stage held was read by then.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier) {
	asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ float4 load_shared_of(uint32_t from) {
	float4 v;
	asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from) : "memory");
	return v;
}
// cluster_arrive says that what the thread wrote may be read; cluster_pass says no more than
// that it came by.
__device__ __forceinline__ void cluster_pass() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// bring_to_all is bring to the same place in all blocks of the mask, and their barriers hear of it.
__device__ __forceinline__ void bring_to_all(uint32_t to, const void *from, int bytes, uint32_t barrier, uint16_t mask) {
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
		::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"(mask) : "memory");
}

// copy_or_zero begins to copy 16 bytes to shared memory past L1, or writes zeros there.
__device__ __forceinline__ void copy_or_zero(uint32_t to, const void *from, bool there) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void end_batch() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int OPEN> __device__ __forceinline__ void await_batches() { asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory"); }

template <class Op, class D, int T, int AHEAD_, int STAGES_> struct Prompt {
	static constexpr int AHEAD = AHEAD_, STAGES = STAGES_; // pieces of weights and of activations in shared memory
	static constexpr int CONSUMERS = 256, THREADS = CONSUMERS + 32;
	static constexpr int MOST = 4; // segments
	static constexpr int TILES = 8, UNITS = TILES / Op::R, TOKENS = T;
	static constexpr int ROWS = T * PIECE_BYTES, WEIGHTS = TILES * AHEAD * TILE_PIECE; // bytes of a stage, and of all weights
	static constexpr int REGION = T * COLUMN; // floats of a row tile's results, which take the place of all else
	static constexpr int SCALES = 512, BARRIERS = 2048, BYTES = BARRIERS + STAGES * ROWS + WEIGHTS;
	static_assert(STAGES * 16 <= SCALES && SCALES + T * 4 <= BARRIERS);
	static_assert(TILES * REGION * 4 <= STAGES * ROWS + WEIGHTS && T % ATOM == 0);

	const Op &op;
	const Activations &in;
	const Rounded &rounded;
	const Onward &next;
	const uint32_t shared;
	const int pair, segments, member, segment; // member of the blocks that share activations
	const int first, live, steps;              // first token, tokens that are there
	int begin, end;                            // pieces

	__device__ __forceinline__ Prompt(const Op &op, const PromptArgs<Op> &a, char *shared)
		: op(op), in(op.activations()), rounded(a.rounded), next(a.next), shared(shared_address(shared)), pair(a.pair), segments(a.segments),
		  member(blockIdx.x % pair), segment(blockIdx.x / pair), first(blockIdx.y * T), live(min(T, in.n - first)), steps(in.cols / STEP) {
		const int pieces = (steps + PIECE - 1) / PIECE;
		begin = pieces * segment / segments;
		end = pieces * (segment + 1) / segments;
	}

	__device__ __forceinline__ uint32_t full(int s) const { return shared + s * 16; }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	__device__ __forceinline__ uint32_t rows(int s) const { return shared + BARRIERS + s * ROWS; }
	__device__ __forceinline__ int rank(int segment, int member) const { return segment * pair + member; }
	__device__ __forceinline__ int unit(int i) const { return (blockIdx.z * pair + member) * UNITS + i; }

	__device__ __forceinline__ void start_barriers() {
		if (threadIdx.x == CONSUMERS) {
			for (int s = 0; s < STAGES; s++) {
				barrier_init(full(s), 1);
				barrier_init(empty(s), CONSUMERS / 32 * pair);
			}
			asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
		}
		__syncwarp();
	}

	// Where a thread is in a ring.
	template <int SIZE> struct Cursor {
		int at = 0, phase = 0;
		__device__ __forceinline__ void next() {
			if (++at == SIZE) at = 0, phase ^= 1;
		}
	};

	// Brings this block's share of a piece's activations to all that share them.
	__device__ __forceinline__ void bring_rows(int piece, int stage) {
		const int atoms = (live + ATOM - 1) / ATOM, from = atoms * member / pair, own = atoms * (member + 1) / pair - from;
		barrier_expect(full(stage), atoms * ATOM_BYTES);
		if (own == 0) return;
		const char *p = rounded.rows + ((size_t)piece * (rounded.tokens / ATOM) + first / ATOM + from) * ATOM_BYTES;
		if (pair == 1)
			bring(rows(stage), p, own * ATOM_BYTES, full(stage));
		else
			bring_to_all(rows(stage) + from * ATOM_BYTES, p, own * ATOM_BYTES, full(stage), ((1 << pair) - 1) << rank(segment, 0));
	}

	__device__ __forceinline__ void produce() {
		if (threadIdx.x != CONSUMERS) return;
		Cursor<STAGES> c;
		for (int piece = begin; piece < end; piece++, c.next()) {
			if (piece >= begin + STAGES) barrier_wait(empty(c.at), c.phase ^ 1);
			bring_rows(piece, c.at);
		}
	}

	// A warp of a consumer: its row tile's weights over the block's segment.
	struct Tile {
		const char *from; // this lane's 16 bytes of step 0, or null
		uint32_t ring;    // and where they come to
	};
	__device__ __forceinline__ Tile tile() const {
		const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, u = unit(warp / Op::R);
		return {u < op.units() ? reinterpret_cast<const char *>(op.tile(u, warp % Op::R)) + lane * 16 : nullptr,
			shared + BARRIERS + STAGES * ROWS + warp * (AHEAD * TILE_PIECE) + lane * 16};
	}

	// Begins to copy a piece's weights; zeros for steps that are not there.
	__device__ __forceinline__ void fetch(const Tile &t, int piece, int at) const {
		if (piece < end) {
#pragma unroll
			for (int j = 0; j < PIECE; j++) {
				const int step = piece * PIECE + j;
				const bool there = t.from && step < steps;
				copy_or_zero(t.ring + at * TILE_PIECE + j * 512, there ? t.from + (size_t)step * 512 : reinterpret_cast<const char *>(rounded.rows), there);
			}
		}
		end_batch();
	}

	// Weights may come before the kernel before has ended.
	__device__ __forceinline__ void begin_weights(const Tile &t) const {
#pragma unroll
		for (int i = 0; i < AHEAD; i++) fetch(t, begin + i, i);
	}

	// Leaves each token's scale for finish.
	__device__ __forceinline__ void scale_tokens() const {
		for (int t = threadIdx.x; t < live; t += CONSUMERS) {
			const float *p = rounded.scales + first + t;
			float scale = *p;
			if (rounded.parts) {
				for (int i = 1; i < rounded.parts; i++) scale = __fadd_rn(scale, p[(size_t)i * rounded.tokens]);
				scale = rms_scale(in, scale);
			}
			asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + SCALES + t * 4), "f"(scale) : "memory");
		}
	}
	__device__ __forceinline__ float scale(int token) const {
		float v;
		asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(shared + SCALES + token * 4) : "memory");
		return v;
	}

	// A warp's 16 outputs, over the block's segment.
	__device__ __forceinline__ void consume(const Tile &t) {
		const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
		float sum[T / 2];
#pragma unroll
		for (int e = 0; e < T / 2; e++) sum[e] = 0;
		if (Op::NORMED) scale_tokens();
		Cursor<STAGES> c;
		Cursor<AHEAD> w;
		for (int piece = begin; piece < end; piece++, c.next(), w.next()) {
			await_batches<AHEAD - 1>();
			uint4 a[PIECE];
#pragma unroll
			for (int j = 0; j < PIECE; j++) a[j] = load_shared(t.ring + w.at * TILE_PIECE + j * 512);
			barrier_wait(full(c.at), c.phase);
			multiply(sum, a, rows(c.at));
			fetch(t, piece + AHEAD, w.at);
			asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
			fence(sum);
			if (lane < pair) barrier_arrive_at(shared_of(empty(c.at), rank(segment, lane)));
		}
		await_batches<0>();
		asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
		keep(warp, lane, sum);
	}

	__device__ __forceinline__ void multiply(float (&sum)[T / 2], const uint4 (&a)[PIECE], uint32_t rows) {
		fence(sum);
		asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
		for (int j = 0; j < PIECE; j++) wgmma<D, T>(sum, a[j], tile_of(rows + j * STEP * 2));
		asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
	}

	// The compiler leaves the sums where they are.
	static __device__ __forceinline__ void fence(float (&sum)[T / 2]) {
#pragma unroll
		for (int e = 0; e < T / 2; e++) asm volatile("" : "+f"(sum[e])::"memory");
	}

	// Leaves a tile's sums in shared memory: [row tile][token][COLUMN].
	__device__ __forceinline__ void keep(int tile, int lane, const float (&sum)[T / 2]) {
#pragma unroll
		for (int e = 0; e < T / 2; e++) {
			const int at = (e / 4 * 8 + (lane & 3) * 2 + (e & 1)) * COLUMN + lane / 4 + (e >> 1 & 1) * 8;
			asm volatile("st.shared.f32 [%0], %1;" ::"r"(region(tile) + at * 4), "f"(sum[e]) : "memory");
		}
	}
	__device__ __forceinline__ uint32_t region(int tile) const { return shared + BARRIERS + tile * REGION * 4; }

	// Four rows' results of a token: what all segments have.
	struct Parts {
		float4 of[MOST];
	};
	__device__ __forceinline__ Parts parts(int tile, int token, int row) const {
		const uint32_t at = region(tile) + (token * COLUMN + row) * 4;
		Parts p;
#pragma unroll
		for (int k = 0; k < MOST; k++)
			if (k < segments) p.of[k] = load_shared_of(shared_of(at, rank(k, member)));
		return p;
	}
	__device__ __forceinline__ float4 sum(const Parts &p, float scale) const {
		float4 s = p.of[0];
#pragma unroll
		for (int k = 1; k < MOST; k++)
			if (k < segments) s = {__fadd_rn(s.x, p.of[k].x), __fadd_rn(s.y, p.of[k].y), __fadd_rn(s.z, p.of[k].z), __fadd_rn(s.w, p.of[k].w)};
		return {__fmul_rn(scale, s.x), __fmul_rn(scale, s.y), __fmul_rn(scale, s.z), __fmul_rn(scale, s.w)};
	}

	// Leaves four of a token's results, from column k on, for the next product. All threads
	// of a warp come here with the same token, and together have 128 columns of it where the
	// next product has a norm.
	__device__ __forceinline__ void hand_on(int token, int k, float4 v, bool there) const {
		if (next.norm) {
			float square = there ? add_squares(0, v) : 0;
#pragma unroll
			for (int lane = 1; lane < 32; lane *= 2) square = __fadd_rn(square, __shfl_xor_sync(~0u, square, lane));
			if (threadIdx.x % 32 == 0) next.squares[(size_t)(k / 128) * next.tokens + first + token] = square;
			if (there) v = times(v, load_constant(next.norm + k));
		}
		if (there) store_rounded(next.rows, next.tokens, first + token, k, ::rounded<D>(v));
	}

	// Hands the op the results of this block's share of the tokens, BATCH quads of rows
	// of a thread at a time: all that is read for them is on its way together.
	__device__ __forceinline__ void finish() {
		constexpr int BATCH = T > 104 ? 2 : 1;
		const int from = live * segment / segments, quads = (live * (segment + 1) / segments - from) * UNITS * 4;
		for (int i = threadIdx.x; i < quads; i += BATCH * CONSUMERS) {
			typename Op::Quad quad[BATCH];
			Parts y[BATCH][Op::R];
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				const int at = i + k * CONSUMERS, row = at % 4 * 4, u = at / 4 % UNITS, token = from + at / (4 * UNITS);
				quad[k].there = at < quads && unit(u) < op.units();
				if (!quad[k].there) continue;
				quad[k].prepare(op.o, unit(u), row, first + token);
#pragma unroll
				for (int r = 0; r < Op::R; r++) y[k][r] = parts(u * Op::R + r, token, row);
			}
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				const int at = i + k * CONSUMERS, token = from + at / (4 * UNITS);
				if (at >= quads) break;
				float4 v[Op::R] = {};
				if (quad[k].there) {
					const float by = Op::NORMED ? scale(token) : 1.f;
#pragma unroll
					for (int r = 0; r < Op::R; r++) v[r] = sum(y[k][r], by);
					v[0] = quad[k].finish(op.o, v, next.rows);
				}
				if (Op::ONWARD && next.rows) hand_on(token, unit(at / 4 % UNITS) * 16 + at % 4 * 4, v[0], quad[k].there);
			}
		}
	}
};

template <class Op, class D, int T, int AHEAD, int STAGES> __device__ __forceinline__ void prompt(const PromptArgs<Op> &a) {
	using Block = Prompt<Op, D, T, AHEAD, STAGES>;
	extern __shared__ __align__(1024) char promptShared[];
	const Op op(a.op);
	Block b(op, a, promptShared);
	const bool produces = threadIdx.x >= Block::CONSUMERS;
	typename Block::Tile tile;
	if (produces) {
		b.start_barriers();
	} else {
		tile = b.tile();
		b.begin_weights(tile);
	}
	cluster_pass(); // barriers are there
	let_next_begin();
	cluster_wait();
	await_previous();
	if (produces)
		b.produce();
	else
		b.consume(tile);
	__syncwarp();
	cluster_arrive(); // sums are there
	cluster_wait();
	if (!produces) b.finish();
	__syncwarp();
	cluster_pass(); // and were read
	cluster_wait();
}
#endif
