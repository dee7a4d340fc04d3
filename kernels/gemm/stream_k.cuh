// Products of a prompt's tokens on Hopper, where the activations were rounded
// (round.cu). A unit is 128 outputs. The pieces of all units, laid end to end, are cut into
// spans (spans.cuh), and each block works through one of them for up to T tokens at a time: so all
// blocks take about the same time, begin once, and keep their weights coming while they hand over
// results. One warp has the copy engine bring activations, another one weights; two
// warpgroups multiply with wgmma, a row tile a warp: the weights from registers, the
// activations from shared memory. Other warps do beside them what would hold these up.
//
// A kernel finds its own instructions in no cache but L2, so what a block runs only once or
// twice is as short as can be, and not written out at several tokenInfo.
//
// The order of a prompt's sums is not that of common.cuh: a part is what a span has of a
// unit, one sum in ascending order; a unit's parts are added, the last one first and then
// the others in ascending order. Where spans end depends on the weight's shape alone, so a
// token's result is the same in any company and in any chunk.
#pragma once
#include "gemm/epilogue.cuh"
#include "gemm/operands.cuh"
#include "gemm/rounded.cuh"
#include "gemm/work_slices.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"

// What a prompt's product reads beside its op's arguments.
template <class Op> struct StreamKArgs {
	typename Op::Args op;
	RoundedInput rounded;
	Handover handover;
	float4 *partials;         // [tiles][spans][T/8][256]: parts that are added to others
	uint32_t *arrivals;   // [tiles][spans][came, left], 0 between launches
	SlicePlan plan;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Cursor is where a thread is in a ring of stages, and the phase of their barriers.
template <int SIZE> struct StageCursor {
	int at = 0, phase = 0;
	__device__ __forceinline__ void next() {
		if (++at == SIZE) at = 0, phase ^= 1;
	}
};

// Where the sums take many registers a whole warpgroup helps, and gives up its own.
template <int T> __device__ __forceinline__ void release_registers() {
	if (T > 56) decrease_registers<72>();
}
template <int T> __device__ __forceinline__ void claim_registers() {
	if (T > 56) increase_registers<216>();
}

template <class Op, class D, int T, int STAGES_> struct StreamK : WorkSlices<StreamK<Op, D, T, STAGES_>> {
	static constexpr int STAGES = STAGES_; // pieces of weights and activations in shared memory
	static constexpr int CONSUMERS = 256, PRODUCERS = 64, HELPERS = T > 56 ? 64 : 32, THREADS = CONSUMERS + PRODUCERS + HELPERS;
	static constexpr int TILES = 8, UNITS = TILES / Op::R, TOKEN_GROUPS = T / TOKEN_GROUP;
	static constexpr int ROWS = T * TOKEN_BLOCK_BYTES, WEIGHTS = TILES * TILE_BLOCK_BYTES; // bytes of a stage of each
	using TokenInfo = typename Op::TokenInfo;         // of a token, as the op wants it
	using BlockEpilogue = Epilogue<Op, D, CONSUMERS>;   // of a unit, which take the place of activations
	static constexpr int GROUP_SUMS = CONSUMERS * 16; // bytes of a block's sums of eight tokens: a lane's float4
	static constexpr int GROUPS_LOW = ROWS / GROUP_SUMS, GROUPS_HELD = GROUPS_LOW + WEIGHTS / GROUP_SUMS; // eights of a part that a stage holds: in the place of activations, and of both
	static constexpr int SCALES = 256, TOKEN_INFO = (SCALES + T * 4 + 1023) / 1024 * 1024;
	static constexpr int BARRIERS = TOKEN_INFO + (sizeof(TokenInfo) * T + 1023) / 1024 * 1024, BYTES = BARRIERS + STAGES * (ROWS + WEIGHTS);
	static_assert(STAGES * 16 + 32 <= SCALES && BYTES <= 227 * 1024 && T * BlockEpilogue::PITCH * 4 <= STAGES * ROWS && T % TOKEN_GROUP == 0);

	const Op &op;
	const StreamKArgs<Op> &a;
	const Activations &in;
	const uint32_t shared;
	TokenInfo *const tokenInfo; // [T]
	const SlicePlan &plan;
	const int steps; // of a unit

	__device__ __forceinline__ StreamK(const Op &op, const StreamKArgs<Op> &a, char *shared)
		: op(op), a(a), in(op.activations()), shared(shared_address(shared)), tokenInfo(reinterpret_cast<TokenInfo *>(shared + TOKEN_INFO)), plan(a.plan), steps(in.cols / MMA_K) {}

	__device__ __forceinline__ uint32_t full(int s) const { return shared + s * 16; }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	__device__ __forceinline__ uint32_t stagesFree() const { return full(STAGES); } // over: results make room
	__device__ __forceinline__ uint32_t scalesReady() const { return stagesFree() + 8; } // a tile's scales are there
	__device__ __forceinline__ uint32_t scalesRead() const { return stagesFree() + 16; } // and were read
	__device__ __forceinline__ uint32_t partialsArrived() const { return stagesFree() + 24; } // a clerk passed a tile's sums on
	__device__ __forceinline__ uint32_t rows(int s) const { return shared + BARRIERS + s * ROWS; }
	__device__ __forceinline__ uint32_t weights(int s) const { return shared + BARRIERS + STAGES * ROWS + s * WEIGHTS; }

	__device__ __forceinline__ void start_barriers() {
		if (elect_one()) { // of several lanes the compiler would make a loop over them
#pragma unroll
			for (int i = 0; i < STAGES; i++) {
				mbarrier_init(full(i), 1 + WARP_ARRIVALS);
				mbarrier_init(empty(i), CONSUMERS / 32 * WARP_ARRIVALS);
			}
			mbarrier_init(stagesFree(), CONSUMERS / 32 * WARP_ARRIVALS);
			mbarrier_init(scalesReady(), HELPERS / 32 * WARP_ARRIVALS);
			mbarrier_init(scalesRead(), CONSUMERS / 32 * WARP_ARRIVALS);
			mbarrier_init(partialsArrived(), WARP_ARRIVALS);
		}
		mbarrier_fence_init();
	}
	// Attention may begin when what came before this kernel is there: producers and clerks, who wait
	// for that, let it (begin_product).
	static __device__ __forceinline__ void launch_dependents_early() {
		if (!Op::ATTENTION_NEXT) pdl_launch_dependents();
	}
	// What consumers leave a clerk, and what they wait for.
	__device__ __forceinline__ void signal_helper(int &signals) const {
		if (signals > 0) mbarrier_wait(partialsArrived(), signals - 1 & 1); // the part before
		signals++;
		named_barrier_arrive<CONSUMERS + 32>(2);
	}
	static __device__ __forceinline__ void wait_for_signal() { named_barrier_sync<CONSUMERS + 32>(2); }
	static __device__ __forceinline__ void sync_consumers() { named_barrier_sync<CONSUMERS>(1); }
	__device__ __forceinline__ int first_token(int tile) const { return tile * plan.tokens; } // of a tile's tokens
	__device__ __forceinline__ int token_count(int tile) const { return min(plan.tokens, in.n - first_token(tile)); }
	__device__ __forceinline__ int token_groups(int tile) const { return (token_count(tile) + TOKEN_GROUP - 1) / TOKEN_GROUP; } // of its tokens

	// Brings a piece's activations.
	__device__ __forceinline__ void copy_activations(int tile, int piece, int stage) {
		const int bytes = token_groups(tile) * GROUP_BYTES;
		mbarrier_expect(full(stage), bytes);
		bulk_copy(EVICT_LAST, rows(stage), a.rounded.rows + ((size_t)piece * (a.rounded.tokens / TOKEN_GROUP) + first_token(tile) / TOKEN_GROUP) * GROUP_BYTES, bytes, full(stage));
	}

	__device__ __forceinline__ void produce_activations() {
		if (threadIdx.x != CONSUMERS) return;
		StageCursor<STAGES> c;
		int taken = 0, epilogues = 0;
		bool over = false; // results take the place of activations
		SlicePosition w = this->begin(0);
		do {
			if (over) mbarrier_wait(stagesFree(), epilogues++ & 1);
#pragma unroll 1
			for (int p = w.kBlock; p < w.end; p++, c.next()) {
				take_stage(c, taken);
				copy_activations(this->token_tile(w), p, c.at);
			}
			over = this->finishes_tile(w) && !defers_epilogue();
			if (this->adds_partials(w)) copy_partials(w, c, taken);
		} while (this->advance(w));
	}
	// Waits until a stage is free.
	__device__ __forceinline__ void take_stage(const StageCursor<STAGES> &c, int &taken) const {
		if (taken < STAGES)
			taken++;
		else
			mbarrier_wait(empty(c.at), c.phase ^ 1);
	}
	// How many stages a part takes.
	__device__ __forceinline__ int stages_per_partial(const SlicePosition &part) const { return (token_groups(this->token_tile(part)) + GROUPS_HELD - 1) / GROUPS_HELD; }

	// Brings the parts before it, a few stages each, behind the part's last piece.
	__device__ __forceinline__ void copy_partials(const SlicePosition &part, StageCursor<STAGES> &c, int &taken) {
		const int all = token_groups(this->token_tile(part));
		for (int s = this->first_slice(part); s < this->slice(part); s++) {
			uint32_t *m = arrival(this->token_tile(part), s);
			wait_for_count(m, 1);
			*m = 0;
			fence_async_global(); // the copy engine reads what threads of another block wrote
#pragma unroll 1
			for (int i = 0; i < all; i += GROUPS_HELD, c.next()) {
				take_stage(c, taken);
				const int low = min(GROUPS_LOW, all - i), high = min(GROUPS_HELD, all - i) - low;
				const float4 *const from = partials_of(this->token_tile(part), s) + i * CONSUMERS;
				mbarrier_expect(full(c.at), (low + high) * GROUP_SUMS);
				if (GROUPS_LOW) bulk_copy(rows(c.at), from, low * GROUP_SUMS, full(c.at));
				if (high) bulk_copy(weights(c.at), from + low * CONSUMERS, high * GROUP_SUMS, full(c.at));
			}
		}
	}

	// A warp brings weights, STAGES pieces before they are multiplied; zeros for steps that are
	// not there. They may come before the kernel before has ended.
	__device__ __forceinline__ void produce_weights() const {
		const int lane = threadIdx.x % 32;
		StageCursor<STAGES> c;
		int taken = 0;
		SlicePosition w = this->begin(0);
		do {
			const int u = w.outputTile * UNITS + lane % TILES / Op::R, last = op.units() - 1; // beyond, anything may be multiplied
			const uint64_t mine = reinterpret_cast<uint64_t>(op.weights(min(u, last), lane % Op::R));
			const char *from[TILES];
#pragma unroll
			for (int i = 0; i < TILES; i++) from[i] = reinterpret_cast<const char *>(__shfl_sync(~0u, mine, i));
#pragma unroll 1
			for (int p = w.kBlock; p < w.end; p++, c.next()) {
				take_stage(c, taken);
				const int bytes = min(BLOCK_STEPS, steps - p * BLOCK_STEPS) * 512;
				const uint32_t to = weights(c.at);
				if (bytes < TILE_BLOCK_BYTES) {
#pragma unroll 1
					for (int i = lane * 16; i < WEIGHTS; i += 512)
						if (i % TILE_BLOCK_BYTES >= bytes) store_shared_zeros(to + i);
					__syncwarp();
				}
				if (elect_one()) {
					mbarrier_expect(full(c.at), TILES * bytes);
#pragma unroll
					for (int i = 0; i < TILES; i++) bulk_copy(EVICT_FIRST, to + i * TILE_BLOCK_BYTES, from[i] + (size_t)p * TILE_BLOCK_BYTES, bytes, full(c.at));
				} else if (WARP_ARRIVALS > 1) {
					mbarrier_arrive(full(c.at));
				}
			}
#pragma unroll 1
			for (int i = this->adds_partials(w) ? stages_per_partial(w) * (this->slice(w) - this->first_slice(w)) : 0; i > 0; i--, c.next()) {
				take_stage(c, taken);
				mbarrier_arrive_warp(full(c.at));
			}
		} while (this->advance(w));
	}

	// Leaves the scale and the place of each of a tile's tokens for finish.
	__device__ __forceinline__ void compute_scales(int tile) const {
		for (int t = threadIdx.x - CONSUMERS - PRODUCERS; t < token_count(tile); t += HELPERS) {
			tokenInfo[t] = op.token_info(first_token(tile) + t);
			const float *p = a.rounded.scales + first_token(tile) + t;
			float scale = *p;
			if (a.rounded.squares) {
#pragma unroll 8
				for (int i = 1; i < a.rounded.squares; i++) scale = __fadd_rn(scale, p[(size_t)i * a.rounded.tokens]);
				scale = rms_scale(in, scale);
			}
			store_shared(shared + SCALES + t * 4, scale);
		}
	}

	// What clerks do: each tile's scales, while the first pieces are multiplied; and one of
	// them waits for memory and for other blocks.
	__device__ __forceinline__ void help() const {
		int tile = -1;
		SlicePosition w = this->begin(0);
		do {
			if (Op::NORMED && this->token_tile(w) != tile) {
				if (tile >= 0) mbarrier_wait(scalesRead(), (w.pass - 1) & 1);
				compute_scales(this->token_tile(w));
				mbarrier_arrive_warp(scalesReady());
			}
			tile = this->token_tile(w);
			if (threadIdx.x / 32 == (CONSUMERS + PRODUCERS) / 32 && (this->shares_results() || !this->finishes_tile(w))) announce_partials(w);
		} while (this->advance(w));
	}
	// A part's sums are for other blocks.
	__device__ __forceinline__ void announce_partials(const SlicePosition &part) const {
		wait_for_signal();
		const int perTile = plan.perTile;
		if (threadIdx.x % 32 == 0) {
			uint32_t *m = arrival(this->token_tile(part), perTile ? part.outputTile * perTile : this->slice(part));
			arrive(m);
			if (perTile) {
				wait_for_count(m, perTile);
				if (atomicInc(m + 1, perTile - 1) == perTile - 1) *m = 0; // the last to leave
			}
		}
		mbarrier_arrive_warp(partialsArrived());
	}

	// Whether a block hands over its shares when it has multiplied for all tiles: what it waits
	// for is there by then, and activations keep coming. Scales of the tiles before would be gone.
	__device__ __forceinline__ bool defers_epilogue() const { return !Op::NORMED && this->shares_results(); }

	// A warp's 16 outputs of each unit, over the block's parts.
	__device__ __forceinline__ void consume() {
		StageCursor<STAGES> c;
		int signals = 0, tile = -1; // parts to a clerk; of the part before
		bool multiplied = false;  // for all tiles
		SlicePosition w = this->begin(0);
		while (true) {
			float sum[T / 2];
			if (!multiplied) {
				if (Op::NORMED && this->token_tile(w) != tile && tile >= 0) {
					// A block that hands over nothing has not awaited its clerks, who must not find a
					// tile's barrier two phases on.
					mbarrier_wait(scalesReady(), (w.pass - 1) & 1);
					mbarrier_arrive_warp(scalesRead());
				}
				tile = this->token_tile(w);
#pragma unroll
				for (int e = 0; e < T / 2; e++) sum[e] = 0;
				multiply_part(sum, w, c);
				if (this->shares_results() || !this->finishes_tile(w)) {
					store_partials(w, sum);
					signal_helper(signals);
				}
			}
			if (multiplied || this->finishes_tile(w) && !defers_epilogue()) run_epilogue(w, sum, c, signals);
			if (this->advance(w)) continue;
			if (multiplied || !defers_epilogue()) return;
			multiplied = true, w = this->begin(0);
		}
	}

	// Multiplies a part's pieces, for no more tokens than there are, or a few.
	__device__ __forceinline__ void multiply_part(float (&sum)[T / 2], const SlicePosition &w, StageCursor<STAGES> &c) const {
		if constexpr (T == 208) {
			const int all = token_groups(this->token_tile(w));
			if (all <= 152 / TOKEN_GROUP) return multiply_tokens<152>(sum, w.end - w.kBlock, c);
			if (all <= 200 / TOKEN_GROUP) return multiply_tokens<200>(sum, w.end - w.kBlock, c);
		}
		multiply_tokens<T>(sum, w.end - w.kBlock, c);
	}
	// While a step is multiplied the next ones' weights come to registers, so that the tensor
	// cores have always something to do.
	template <int N> __device__ __forceinline__ void multiply_tokens(float (&all)[T / 2], int left, StageCursor<STAGES> &c) const {
		float (&sum)[N / 2] = reinterpret_cast<float (&)[N / 2]>(all);
		const uint32_t mine = weights(0) + threadIdx.x / 32 * TILE_BLOCK_BYTES + threadIdx.x % 32 * 16;
		uint4 v[BLOCK_STEPS];
		wgmma_pin(sum);
#pragma unroll 1
		for (bool first = true; left > 0; left--, first = false) {
			mbarrier_wait(full(c.at), c.phase);
#pragma unroll
			for (int j = 0; j < BLOCK_STEPS; j++) {
				v[j] = load_shared(mine + c.at * WEIGHTS + j * 512);
				wgmma_fence();
				wgmma<D, N>(sum, v[j], wgmma_descriptor(rows(c.at) + j * MMA_K * 2));
				wgmma_commit();
				wgmma_wait<3>();
				if (j == 2) release_stage(c, !first);
			}
			c.next();
		}
		wgmma_wait<0>();
		wgmma_pin(sum);
		release_stage(c, true);
	}
	// The stage before it was read.
	__device__ __forceinline__ void release_stage(const StageCursor<STAGES> &c, bool any) const { mbarrier_arrive_warp_if(any, empty(c.at ? c.at - 1 : STAGES - 1)); }

	// Hands over the results of a unit, or a share of them.
	__device__ __forceinline__ void run_epilogue(const SlicePosition &part, float (&sum)[T / 2], StageCursor<STAGES> &c, int signals) const {
		const int thread = opaque((int)threadIdx.x); // what depends on it takes no registers while pieces are multiplied
		const bool shares = this->shares_results();
		const int tile = this->token_tile(part), all = token_groups(tile), which = this->slice(part) - part.outputTile * plan.perTile;
		const int from = shares ? __umulhi(all * which, plan.inverse) : 0, to = shares ? __umulhi(all * (which + 1), plan.inverse) : all; // eights of tokens that this block hands over
		const int first = from * TOKEN_GROUP, n = min(token_count(tile), to * TOKEN_GROUP) - first;
		if (Op::NORMED) mbarrier_wait(scalesReady(), this->tiles_before(part) & 1);
		typename BlockEpilogue::Lookahead lookahead;
		const BlockEpilogue epilogue = {op, a.handover, shared + BARRIERS, shared + SCALES, tokenInfo, part.outputTile, first_token(tile), first, n, thread};
		if (shares) {
			epilogue.look_ahead(lookahead);
			// A clerk heard of the other blocks; of those in turns before the last one, signal_helper knows.
			if (Op::NORMED || part.pass == plan.tokenTiles - 1) mbarrier_wait(partialsArrived(), signals - 1 & 1);
			sync_consumers();
			stage_share(epilogue, part, from, to, thread);
		} else {
			if (this->adds_partials(part)) add_partials(part, sum, c, thread);
			sync_consumers(); // nobody reads activations any more
			epilogue.stage_all(sum);
			epilogue.look_ahead(lookahead);
		}
		sync_consumers();
		epilogue.finish(lookahead);
		fence_async_shared();
		if (!defers_epilogue()) mbarrier_arrive_warp(stagesFree()); // else no activations come any more
	}

	// A part's sums, and where blocks hear of them.
	__device__ __forceinline__ float4 *partials_of(int tile, int span) const { return a.partials + (size_t)(tile * plan.slices + span) * TOKEN_GROUPS * CONSUMERS; }
	__device__ __forceinline__ uint32_t *arrival(int tile, int span) const { return a.arrivals + (tile * plan.slices + span) * 2; }
	// Those of the block's other warps that this thread has waited for come before it.
	static __device__ __forceinline__ void arrive(uint32_t *arrival) { increment_release(arrival); }

	// Leaves a part's sums.
	__device__ __forceinline__ void store_partials(const SlicePosition &part, const float (&sum)[T / 2]) const {
		const int thread = opaque((int)threadIdx.x);
		float4 *const p = opaque(partials_of(this->token_tile(part), this->slice(part)) + thread);
		const int all = token_groups(this->token_tile(part));
#pragma unroll
		for (int i = 0; i < TOKEN_GROUPS; i++)
			if (i < all) store_evict_last(p + i * CONSUMERS, {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]});
	}

	// Adds to the last part of a unit the parts before it, which come through the stages.
	__device__ __forceinline__ void add_partials(const SlicePosition &part, float (&sum)[T / 2], StageCursor<STAGES> &c, int thread) const {
		const int all = token_groups(this->token_tile(part));
		for (int s = this->first_slice(part); s < this->slice(part); s++) {
#pragma unroll
			for (int h = 0; h < TOKEN_GROUPS; h += GROUPS_HELD) {
				if (h >= all) continue;
				mbarrier_wait(full(c.at), c.phase);
				const uint32_t low = rows(c.at) + thread * 16, high = weights(c.at) - GROUPS_LOW * GROUP_SUMS + thread * 16;
#pragma unroll
				for (int i = 0; i < GROUPS_HELD && h + i < TOKEN_GROUPS; i++) {
					const float4 v = load_shared_float4((i < GROUPS_LOW ? low : high) + i * GROUP_SUMS);
					float *const to = sum + 4 * (h + i);
					to[0] = __fadd_rn(to[0], v.x), to[1] = __fadd_rn(to[1], v.y), to[2] = __fadd_rn(to[2], v.z), to[3] = __fadd_rn(to[3], v.w);
				}
				mbarrier_arrive_warp(empty(c.at));
				c.next();
			}
		}
	}

	// Keeps the sums of all parts of eights of a unit's tokens, this block's share.
	__device__ __forceinline__ void stage_share(const BlockEpilogue &epilogue, const SlicePosition &part, int from, int to, int thread) const {
		const float4 *const first = partials_of(this->token_tile(part), part.outputTile * plan.perTile) + from * CONSUMERS + thread;
		if (plan.perTile == 4)
			sum_partials<4, (TOKEN_GROUPS + 3) / 4>(epilogue, first, to - from);
		else
			sum_partials<0, 1>(epilogue, first, to - from);
	}
	// The same of so many parts, or of any number. The sums of E eights are on their way together:
	// they may be more than are there.
	template <int PARTS, int E> __device__ __forceinline__ void sum_partials(const BlockEpilogue &epilogue, const float4 *first, int n) const {
		const int parts = PARTS ? PARTS : plan.perTile;
		const uint32_t staged = epilogue.stagedSums();
#pragma unroll 1
		for (int i = 0; i < n; i += E, first += E * CONSUMERS) {
			float4 v[PARTS ? PARTS : 1][E];
#pragma unroll
			for (int s = 0; s < (PARTS ? PARTS : 1); s++) // the last part first
#pragma unroll
				for (int e = 0; e < E; e++) v[s][e] = __ldcg(first + ((s ? s - 1 : parts - 1) * TOKEN_GROUPS + e) * CONSUMERS);
#pragma unroll
			for (int s = 1; s < PARTS; s++)
#pragma unroll
				for (int e = 0; e < E; e++) v[0][e] = add(v[0][e], v[s][e]);
#pragma unroll 4
			for (int s = 0; s < (PARTS ? 0 : parts - 1); s++) v[0][0] = add(v[0][0], __ldcg(first + s * TOKEN_GROUPS * CONSUMERS));
#pragma unroll
			for (int e = 0; e < E; e++) BlockEpilogue::stage(staged, i + e, v[0][e]);
		}
	}
};

template <class Op, class D, int T, int STAGES> __device__ __forceinline__ void stream_k(const StreamKArgs<Op> &a) {
	using Block = StreamK<Op, D, T, STAGES>;
	extern __shared__ __align__(1024) char streamKShared[];
	const Op op(a.op);
	Block b(op, a, streamKShared);
	const int warp = threadIdx.x / 32 - Block::CONSUMERS / 32;
	if (warp == 0) b.start_barriers();
	__syncthreads();
	if (warp < 0) {
		claim_registers<T>();
		Block::launch_dependents_early();
		b.consume();
		return;
	}
	release_registers<T>();
	if (warp == 1) {
		Block::launch_dependents_early();
		b.produce_weights();
		return;
	}
	begin_product<Op::ATTENTION_NEXT>();
	if (warp == 0)
		b.produce_activations();
	else
		b.help();
}
#endif
