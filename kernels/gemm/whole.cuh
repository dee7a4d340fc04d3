// The GEMM of long prompts on Hopper: an output tile of 128 outputs for up to T tokens is the work of one block, which
// goes from one tile to the next. The two blocks of a cluster have neighbouring token tiles and the same outputs: each
// copies half of the weights to both. One warp copies activations, one copies weights, two warpgroups multiply as in
// stream_k.cuh, whose bits these are: they compute the partials of the product's work slices one after another, the last
// one first, and add them in shared memory. A third warpgroup passes an output tile's sums to the op while the others
// multiply for the next tile.
#pragma once
#include "gemm/stream_k.cuh"
#include "ptx/cluster.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Whole has STAGES_ K blocks of activations and weights in shared memory. Blocks come in clusters of two.
template <class Op, class D, int T, int STAGES_> struct Whole {
	static constexpr int STAGES = STAGES_;
	static constexpr int GROUP = 128; // threads of a warpgroup
	static constexpr int CONSUMERS = 256, FINISHERS = 128, PRODUCERS = 128, THREADS = CONSUMERS + FINISHERS + PRODUCERS;
	static constexpr int TILES = 8, UNITS = TILES / Op::R, TOKEN_GROUPS = T / TOKEN_GROUP;
	static constexpr int ROWS = T * TOKEN_BLOCK_BYTES, WEIGHTS = TILES * TILE_BLOCK_BYTES; // bytes in a stage
	using TokenInfo = typename Op::TokenInfo;
	using BlockEpilogue = Epilogue<Op, D, FINISHERS, (Op::QUADS_AHEAD > 0),
		(Op::R > 1 && Op::QUADS_AHEAD ? 2 : 4)>;
	using LastEpilogue = Epilogue<Op, D, GROUP, (Op::QUADS_AHEAD > 0), 2>; // of those who multiplied: in fewer registers
	static constexpr int PITCH = BlockEpilogue::PITCH;
	// Shared memory: barriers, scales [T], token info [T], an output tile's sums, float [T][PITCH], stages of activations,
	// and of weights.
	static constexpr int SCALES = 256, TOKEN_INFO = SCALES + T * 4, SUMS = (TOKEN_INFO + sizeof(TokenInfo) * T + 127) / 128 * 128;
	static constexpr int RING = (SUMS + T * PITCH * 4 + 1023) / 1024 * 1024, BYTES = RING + STAGES * (ROWS + WEIGHTS);
	static_assert(BYTES <= 227 * 1024);
	// Both blocks copy a stage's weights, so both free them, as soon as they are in registers, by barriers of their own.
	// Its activations come from this block alone, which frees them by the stage's.
	struct Stages : StageRing<STAGES, RING, ROWS, WEIGHTS> {
		using Cursor = RingCursor<STAGES>;
		static constexpr bool RELEASES_EARLY = true;

		// of_weights has the barriers by which weights are freed. Those of the whole ring say that they are full.
		__device__ __forceinline__ Ring<STAGES, STAGES + 1> of_weights() const { return {this->shared}; }
		__device__ __forceinline__ void release_weights(const Cursor &c) const {
			mbarrier_arrive_in_pair_if(true, of_weights().empty(c.at));
		}
	};
	using Cursor = typename Stages::Cursor;

	const Op &op;
	const StreamKArgs<Op> &a;
	const Activations &in;
	const uint32_t shared;
	TokenInfo *const tokenInfo;
	const SlicePlan &plan;
	const Stages stages;

	__device__ __forceinline__ Whole(const Op &op, const StreamKArgs<Op> &a, char *shared)
		: op(op), a(a), in(op.activations()), shared(shared_address(shared)),
		  tokenInfo(reinterpret_cast<TokenInfo *>(shared + TOKEN_INFO)), plan(a.plan),
		  stages{{{this->shared}}} {}

	// An output tile's sums are stored, and were read.
	__device__ __forceinline__ uint32_t stored() const { return stages.full(STAGES); }
	__device__ __forceinline__ uint32_t finished() const { return stages.full(STAGES) + 8; }

	__device__ __forceinline__ void start_barriers() const {
		if (elect_one()) {
#pragma unroll
			for (int i = 0; i < STAGES; i++) {
				mbarrier_init(stages.full(i), 1 + WARP_ARRIVALS);
				mbarrier_init(stages.empty(i), CONSUMERS / 32 * WARP_ARRIVALS);
				mbarrier_init(stages.of_weights().empty(i), CONSUMERS / 32 * 2);
			}
			mbarrier_init(stored(), CONSUMERS / 32 * WARP_ARRIVALS);
			mbarrier_init(finished(), FINISHERS / 32 * WARP_ARRIVALS);
		}
		mbarrier_fence_init();
	}

	// Item is an output tile for a token tile.
	struct Item {
		int outputTile, tokenTile;
	};
	static __device__ __forceinline__ int rank() { return blockIdx.x % 2; } // in the cluster
	// item finds the i-th item of this block, and reports whether there is one. A block may have one without tokens.
	__device__ __forceinline__ bool item(int i, Item &w) const {
		const int n = (blockIdx.x + i * gridDim.x) / 2, abreast = (plan.tokenTiles + 1) / 2;
		w.outputTile = n / abreast;
		w.tokenTile = (n - w.outputTile * abreast) * 2 + rank();
		return w.outputTile < plan.starts[plan.slices] >> 16;
	}
	__device__ __forceinline__ int first_token(const Item &w) const { return w.tokenTile * plan.tokens; }
	__device__ __forceinline__ int token_count(const Item &w) const {
		return min(plan.tokens, max(in.n - first_token(w), 0));
	}
	__device__ __forceinline__ int first_unit(const Item &w) const { return plan.firstUnit + w.outputTile * UNITS; }

	// Parts are the slices `first` to `last` with parts of an output tile.
	struct Parts {
		int first, last;
	};
	__device__ __forceinline__ Parts parts_of(const Item &w) const {
		const int tile = w.outputTile;
		if (plan.perTile) return {tile * plan.perTile, (tile + 1) * plan.perTile - 1};
		int s = 0;
#pragma unroll 1
		for (int step = 128; step; step /= 2)
			if (s + step < plan.slices && plan.starts[s + step] <= (uint32_t)tile << 16) s += step;
		Parts parts = {s, s};
#pragma unroll 1
		while (plan.starts[parts.last + 1] < (uint32_t)(tile + 1) << 16) parts.last++;
		return parts;
	}
	// begin_of and end_of return the K blocks of a slice's part of an output tile.
	__device__ __forceinline__ int begin_of(const Item &w, int slice) const {
		return max((int)plan.starts[slice] - (w.outputTile << 16), 0);
	}
	__device__ __forceinline__ int end_of(const Item &w, int slice) const {
		return min((int)plan.starts[slice + 1] - (w.outputTile << 16), plan.kBlocks);
	}
	// The last part comes first.
	__device__ __forceinline__ int first_k_block(const Item &w) const { return begin_of(w, parts_of(w).last); }

	__device__ __forceinline__ void produce_activations() const {
		if (!elect_one()) return;
		Cursor c;
		int taken = 0;
		const size_t stride = (size_t)(a.rounded.tokens / TOKEN_GROUP) * GROUP_BYTES;
		Item w;
#pragma unroll 1
		for (int i = 0; item(i, w); i++) {
			const int bytes = (token_count(w) + TOKEN_GROUP - 1) / TOKEN_GROUP * GROUP_BYTES;
			const char *const from = a.rounded.rows + (size_t)(first_token(w) / TOKEN_GROUP) * GROUP_BYTES;
			const int begin = first_k_block(w);
			KBlockOrder order(plan.kBlocks, begin);
#pragma unroll 1
			for (int p = 0; p < plan.kBlocks; p++, c.next()) {
				stages.take(c, taken);
				mbarrier_expect(stages.full(c), bytes);
				if (bytes) bulk_copy(EVICT_LAST, stages.rows(c), from + order.at * stride, bytes, stages.full(c));
				order.next_of(plan.kBlocks - begin == p + 1);
			}
		}
	}

	__device__ __forceinline__ void produce_weights() const {
		constexpr int MINE = TILES / 2; // row tiles that this block copies
		const int lane = threadIdx.x % 32, first = rank() * MINE;
		Cursor c;
		int taken = 0;
		Item w;
#pragma unroll 1
		for (int i = 0; item(i, w); i++) {
			// Past the last unit any weights serve: results are not stored.
			const int t = first + lane % MINE, unit = first_unit(w) + t / Op::R;
			const char *from[MINE];
			tile_addresses(from, fragments(op, min(unit, plan.endUnit - 1), t % Op::R));
			const int begin = first_k_block(w);
			KBlockOrder order(plan.kBlocks, begin);
#pragma unroll 1
			for (int p = 0; p < plan.kBlocks; p++, c.next()) {
				stages.of_weights().take(c, taken);
				const int bytes = min(BLOCK_STEPS, in.cols / MMA_K - order.at * BLOCK_STEPS) * 512;
				if (bytes < TILE_BLOCK_BYTES) zero_missing<WEIGHTS>(stages.weights(c), bytes, lane);
				if (elect_one()) {
					mbarrier_expect(stages.full(c), TILES * bytes);
#pragma unroll
					for (int t = 0; t < MINE; t++) {
						const uint32_t to = stages.weights(c) + (first + t) * TILE_BLOCK_BYTES;
						const char *const at = from[t] + (size_t)order.at * TILE_BLOCK_BYTES;
						bulk_copy_to_pair(EVICT_FIRST, to, at, bytes, stages.full(c));
					}
				} else if (WARP_ARRIVALS > 1) {
					mbarrier_arrive(stages.full(c));
				}
				__syncwarp();
				order.next_of(plan.kBlocks - begin == p + 1);
			}
		}
	}

	// consume computes the items' sums, and helps to pass those of the block's last item to the op.
	__device__ __forceinline__ void consume() const {
		Cursor c;
		Item w;
#pragma unroll 1
		for (int i = 0; item(i, w); i++) {
			const Parts parts = parts_of(w);
#pragma unroll 1
			for (int part = parts.first; part <= parts.last; part++) {
				const int slice = part == parts.first ? parts.last : part - 1;
				float sum[T / 2];
				multiply(sum, end_of(w, slice) - begin_of(w, slice), c);
				if (part > parts.first) {
					add(sum);
					continue;
				}
				if (i > 0) mbarrier_wait(finished(), (i - 1) & 1);
				store(sum);
			}
			if (!is_last(i)) {
				mbarrier_arrive_warp(stored());
				continue;
			}
			sync_all();
			const Share share = share_of(w, 1 + threadIdx.x / GROUP);
			const LastEpilogue epilogue = epilogue_of<LastEpilogue>(w, share, threadIdx.x % GROUP);
			typename LastEpilogue::Lookahead lookahead;
			epilogue.look_ahead(lookahead);
			epilogue.finish(lookahead);
		}
	}
	// own returns the address of a lane's sums of the first eight tokens (staged_address of Epilogue).
	__device__ __forceinline__ uint32_t own() const {
		const int thread = opaque((int)threadIdx.x), lane = thread % 32, warp = thread / 32;
		return shared + SUMS + ((lane & 3) * 2 * PITCH + (warp % Op::R * UNITS + warp / Op::R) * 16 + lane / 4) * 4;
	}
	__device__ __forceinline__ void store(const float (&sum)[T / 2]) const {
		const uint32_t to = own();
#pragma unroll
		for (int g = 0; g < TOKEN_GROUPS; g++)
			BlockEpilogue::stage(to, g, {sum[4 * g], sum[4 * g + 1], sum[4 * g + 2], sum[4 * g + 3]});
	}
	// add adds a partial to the sums in shared memory.
	__device__ __forceinline__ void add(const float (&sum)[T / 2]) const {
		constexpr int AHEAD = 6; // groups of tokens whose loads are in flight together
		const uint32_t to = own();
#pragma unroll
		for (int first = 0; first < TOKEN_GROUPS; first += AHEAD) {
			float4 v[AHEAD];
#pragma unroll
			for (int g = 0; g < AHEAD && first + g < TOKEN_GROUPS; g++) v[g] = BlockEpilogue::staged(to, first + g);
#pragma unroll
			for (int g = 0; g < AHEAD && first + g < TOKEN_GROUPS; g++) {
				const float *const mine = sum + 4 * (first + g);
				BlockEpilogue::stage(to, first + g, ::add(v[g], {mine[0], mine[1], mine[2], mine[3]}));
			}
		}
	}

	// multiply computes the sums over the next `count` K blocks, for the smallest supported number of tokens.
	__device__ __forceinline__ void multiply(float (&sum)[T / 2], int count, Cursor &c) const {
		if (plan.tokens <= 128) return multiply_by<128>(sum, count, c);
		if (plan.tokens <= 160) return multiply_by<160>(sum, count, c);
		if (plan.tokens <= 176) return multiply_by<176>(sum, count, c);
		multiply_by<T>(sum, count, c);
	}
	template <int N>
	__device__ __forceinline__ void multiply_by(float (&sum)[T / 2], int count, Cursor &c) const {
#pragma unroll
		for (int e = 0; e < N / 2; e++) sum[e] = 0;
		multiply_elements<D, N>(sum, stages, c, 0, count);
	}

	static __device__ __forceinline__ void sync_finishers() { named_barrier_sync<FINISHERS>(1); }
	// sync_all waits until the sums and the scales of a block's last item are stored.
	static __device__ __forceinline__ void sync_all() { named_barrier_sync<CONSUMERS + FINISHERS>(2); }
	__device__ __forceinline__ bool is_last(int i) const {
		Item next;
		return !item(i + 1, next);
	}
	// Share is what a warpgroup finishes of an item: n tokens from `first` on.
	struct Share {
		int first, n;
	};
	// share_of returns the share of warpgroup 0 to 2 of an item that all finish.
	__device__ __forceinline__ Share share_of(const Item &w, int group) const {
		constexpr int EACH = T / 3 / TOKEN_GROUP * TOKEN_GROUP;
		return {group * EACH, min(max(token_count(w) - group * EACH, 0), EACH)};
	}
	template <class E> __device__ __forceinline__ E epilogue_of(const Item &w, const Share &share, int thread) const {
		return {op, a.handover, shared + SUMS + share.first * PITCH * 4, shared + SCALES, tokenInfo, first_unit(w),
			plan.endUnit, first_token(w), share.first, share.n, thread};
	}
	// finish passes the items' sums to the op.
	__device__ __forceinline__ void finish() const {
		const int thread = threadIdx.x - CONSUMERS;
		Item w;
#pragma unroll 1
		for (int i = 0; item(i, w); i++) {
			for (int t = thread; Op::NORMED && t < token_count(w); t += FINISHERS) {
				tokenInfo[t] = op.token_info(first_token(w) + t);
				store_shared(shared + SCALES + t * 4, scale_of(first_token(w) + t));
			}
			if (Op::NORMED) sync_finishers();
			const bool last = is_last(i);
			const Share all = {0, token_count(w)}, share = last ? share_of(w, 0) : all;
			const BlockEpilogue epilogue = epilogue_of<BlockEpilogue>(w, share, thread);
			typename BlockEpilogue::Lookahead lookahead;
			epilogue.look_ahead(lookahead);
			if (last)
				sync_all();
			else
				mbarrier_wait(stored(), i & 1);
			epilogue.finish(lookahead);
			mbarrier_arrive_warp(finished());
			if (Op::NORMED) sync_finishers(); // all have read the scales
		}
	}
	__device__ __forceinline__ float scale_of(int token) const {
		const float *p = a.rounded.scales + token;
		float scale = *p;
		if (!a.rounded.squares) return scale;
#pragma unroll 8
		for (int s = 1; s < a.rounded.squares; s++) scale = __fadd_rn(scale, p[(size_t)s * a.rounded.tokens]);
		return rms_scale(in, scale);
	}
};

template <class Op, class D, int T, int STAGES> __device__ __forceinline__ void whole(const StreamKArgs<Op> &a) {
	using Block = Whole<Op, D, T, STAGES>;
	extern __shared__ __align__(1024) char wholeShared[];
	const Op op(a.op);
	const Block b(op, a, wholeShared);
	const int warp = threadIdx.x / 32 - (Block::CONSUMERS + Block::FINISHERS) / 32;
	if (warp == 0) b.start_barriers();
	cluster_sync();
	if (threadIdx.x < Block::CONSUMERS) {
		increase_registers<184>();
		if (!Op::ATTENTION_NEXT) pdl_launch_dependents();
		b.consume();
	} else if (warp < 0) {
		decrease_registers<104>();
		begin_product<Op::ATTENTION_NEXT>();
		b.finish();
	} else {
		decrease_registers<40>();
		if (warp == 1) {
			if (!Op::ATTENTION_NEXT) pdl_launch_dependents();
			b.produce_weights();
		} else if (warp == 0) {
			begin_product<Op::ATTENTION_NEXT>();
			b.produce_activations();
		}
	}
	cluster_sync(); // a block's barriers stay while the other one arrives at them
}
#endif
