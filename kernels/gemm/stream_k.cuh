// The stream-K prefill GEMM for Hopper: products of a prompt's tokens, whose activations are
// rounded already (round.cu, or the epilogue of the product before). An output tile has 128
// outputs. The K blocks of all output tiles, laid end to end, are cut into work slices
// (work_slices.cuh); each block processes one slice, for up to T tokens at a time. So all blocks
// take about the same time, start once, and keep loading weights during epilogues. One warp copies
// activations and one, or two, copy weights; two warpgroups multiply with wgmma, one row tile per warp,
// weights from registers and activations from shared memory. Helper warps wait for memory and other
// blocks beside them.
//
// A kernel fetches its own instructions from L2, so code that a block runs once or twice is as
// short as possible and appears in one place.
//
// The order of sums is not that of operands.cuh. A partial is one sum over a slice's K blocks of an
// output tile. The K blocks of quantised weights ascend, those of others have KBlockOrder. The partials of an output tile are added: the last one first,
// then the others in ascending order. Slices depend on the weight's shape alone, so a token's
// result is the same in any batch and any chunk. (Osama et al., "Stream-K: Work-Centric Parallel
// Decomposition for Dense Matrix-Matrix Multiplication on the GPU", 2023.)
#pragma once
#include "gemm/codes_stage.cuh"
#include "gemm/epilogue.cuh"
#include "gemm/operands.cuh"
#include "gemm/places.cuh"
#include "gemm/rounded.cuh"
#include "gemm/stage_ring.cuh"
#include "gemm/work_slices.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"
#include "ptx/warp.cuh"

// StreamKArgs are the kernel's arguments; streamKArgs of args.go mirrors them.
template <class Op> struct StreamKArgs {
	typename Op::Args op;
	RoundedInput rounded;
	Handover handover;
	// Split-K workspace: [token tiles][slices][T/8][256], partials for other blocks; if PLACED, places (places.cuh).
	float4 *partials;
	uint32_t *arrivals; // [token tiles][slices][arrived, left]: counters, 0 between launches
	SlicePlan plan;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// With many sums per thread, a whole warpgroup of helpers gives its registers to the others.
template <int T> __device__ __forceinline__ void release_registers() {
	if (T > 56) decrease_registers<72>();
}
template <int T> __device__ __forceinline__ void claim_registers() {
	if (T > 56) increase_registers<216>();
}

// StreamK computes a product with activations of type D; W says how weights come (codes_stage.cuh). Before the prompt's
// tokens there are G generated rows, of which a stage has activations too, and which mixed.cuh multiplies.
template <class Op, class D, int T, int STAGES_, class W = Elements<D>, int G = 0>
struct StreamK : SliceSchedule<StreamK<Op, D, T, STAGES_, W, G>> {
	static constexpr int STAGES = STAGES_; // K blocks in shared memory
	// One warp copies activations. With few tokens a K block of quantised weights takes so little time that two warps
	// copy weights.
	static constexpr int WEIGHT_WARPS = W::QUANTISED && T <= 104 ? 2 : 1;
	static constexpr int CONSUMERS = 256, PRODUCERS = 32 + WEIGHT_WARPS * 32,
						 HELPERS = T > 56 ? 128 - PRODUCERS : 32, THREADS = CONSUMERS + PRODUCERS + HELPERS;
	static constexpr bool PLACED = T <= PLACED_ROWS; // blocks wait for partials, and for no counters
	static constexpr int TILES = 8, UNITS = TILES / Op::R, TOKEN_GROUPS = T / TOKEN_GROUP, GENERATED_GROUPS = G / TOKEN_GROUP;
	// Bytes of activations and of weights in a stage.
	static constexpr int ROWS = (G + T) * TOKEN_BLOCK_BYTES, WEIGHTS = TILES * W::TILE_BYTES;
	using TokenInfo = typename Op::TokenInfo;         // per token, as the op defines it
	// Of an output tile; beside generated rows there are registers for one batch ahead.
	using BlockEpilogue = Epilogue<Op, D, CONSUMERS, (G ? Op::QUADS_AHEAD > 0 : Op::QUADS_AHEAD)>; // staged in the memory of activations
	static constexpr int GROUP_SUMS = CONSUMERS * 16; // bytes of a block's sums of eight tokens, a float4 per thread
	// GROUPS_HELD: groups of eight tokens of a partial that a stage holds; the first GROUPS_LOW lie
	// in the memory of activations, the others in that of weights.
	static constexpr int GROUPS_LOW = ROWS / GROUP_SUMS, GROUPS_HELD = GROUPS_LOW + WEIGHTS / GROUP_SUMS;
	// Shared memory: barriers, scales [G+T] at SCALES, token info [G+T] at TOKEN_INFO, then from HEADER_BYTES on the
	// stages of activations and those of weights.
	static constexpr int SCALES = STAGES * 16 + 32 <= 256 ? 256 : 512,
						 TOKEN_INFO = (SCALES + (G + T) * 4 + 1023) / 1024 * 1024;
	// STAGED: bytes of results that the epilogue stages and for which the stages' activations leave no room. With five
	// stages there are none.
	static constexpr int ALL_STAGED = (G + T) * BlockEpilogue::PITCH * 4,
						 STAGED = ALL_STAGED > STAGES * ROWS ? (ALL_STAGED - STAGES * ROWS + 1023) / 1024 * 1024 : 0;
	static constexpr int HEADER_BYTES = TOKEN_INFO + (sizeof(TokenInfo) * (G + T) + 1023) / 1024 * 1024,
						 BYTES = HEADER_BYTES + STAGES * (ROWS + WEIGHTS) + STAGED;
	static_assert(
		STAGES * 16 + 32 <= SCALES && BYTES <= 227 * 1024 && G % TOKEN_GROUP == 0 && T % TOKEN_GROUP == 0);
	using Stages = StageRing<STAGES, HEADER_BYTES, ROWS, WEIGHTS, STAGED>;
	using Cursor = typename Stages::Cursor;

	const Op &op;
	const StreamKArgs<Op> &a;
	const Activations &in;
	const uint32_t shared;
	TokenInfo *const tokenInfo; // [G+T]
	const SlicePlan &plan;
	const int steps; // mma steps of an output tile
	const Stages stages;

	__device__ __forceinline__ StreamK(const Op &op, const StreamKArgs<Op> &a, char *shared)
		: op(op),
		  a(a),
		  in(op.activations()),
		  shared(shared_address(shared)),
		  tokenInfo(reinterpret_cast<TokenInfo *>(shared + TOKEN_INFO)),
		  plan(a.plan),
		  steps(in.cols / MMA_K),
		  stages{{this->shared}} {}

	// Results have left the memory of activations.
	__device__ __forceinline__ uint32_t stagesFree() const { return stages.full(STAGES); }
	// A token tile's scales are stored.
	__device__ __forceinline__ uint32_t scalesReady() const { return stagesFree() + 8; }
	// A token tile's scales were read.
	__device__ __forceinline__ uint32_t scalesRead() const { return stagesFree() + 16; }
	// A helper announced this block's partials, and the needed ones of other blocks arrived.
	__device__ __forceinline__ uint32_t partialsArrived() const { return stagesFree() + 24; }

	__device__ __forceinline__ void start_barriers() {
		if (elect_one()) { // the compiler knows that it is one lane; for several it would generate a loop
#pragma unroll
			for (int i = 0; i < STAGES; i++) {
				mbarrier_init(stages.full(i), 1 + WEIGHT_WARPS * WARP_ARRIVALS);
				mbarrier_init(stages.empty(i), CONSUMERS / 32 * WARP_ARRIVALS);
			}
			mbarrier_init(stagesFree(), CONSUMERS / 32 * WARP_ARRIVALS);
			mbarrier_init(scalesReady(), HELPERS / 32 * WARP_ARRIVALS);
			mbarrier_init(scalesRead(), CONSUMERS / 32 * WARP_ARRIVALS);
			mbarrier_init(partialsArrived(), WARP_ARRIVALS);
		}
		mbarrier_fence_init();
	}
	// launch_dependents_early lets the next kernel start, unless attention is next: then producers
	// and helpers let it start after pdl_wait (begin_product).
	static __device__ __forceinline__ void launch_dependents_early() {
		if (!Op::ATTENTION_NEXT) pdl_launch_dependents();
	}
	// signal_helper tells a helper warp that the consumers have stored a partial.
	__device__ __forceinline__ void signal_helper(int &signals) const {
		if (signals > 0) mbarrier_wait(partialsArrived(), signals - 1 & 1); // the signal before was handled
		signals++;
		named_barrier_arrive<CONSUMERS + 32>(2);
	}
	static __device__ __forceinline__ void wait_for_signal() { named_barrier_sync<CONSUMERS + 32>(2); }
	static __device__ __forceinline__ void sync_consumers() { named_barrier_sync<CONSUMERS>(1); }
	__device__ __forceinline__ int first_token(int tile) const { return G + tile * plan.tokens; } // of a token tile
	__device__ __forceinline__ int token_count(int tile) const { return min(plan.tokens, in.n - first_token(tile)); }
	// Groups of eight tokens.
	__device__ __forceinline__ int token_groups(int tile) const {
		return (token_count(tile) + TOKEN_GROUP - 1) / TOKEN_GROUP;
	}

	// copy_activations starts the copy of a K block's activations.
	__device__ __forceinline__ void copy_activations(int tile, int kBlock, const Cursor &c) {
		const int bytes = (G / TOKEN_GROUP + token_groups(tile)) * GROUP_BYTES;
		mbarrier_expect(stages.full(c), bytes);
		bulk_copy(EVICT_LAST, stages.rows(c),
			a.rounded.rows +
				((size_t)kBlock * (a.rounded.tokens / TOKEN_GROUP) + (first_token(tile) - G) / TOKEN_GROUP) * GROUP_BYTES,
			bytes, stages.full(c));
	}

	__device__ __forceinline__ void produce_activations() {
		if (threadIdx.x != CONSUMERS) return;
		Cursor c;
		int taken = 0, epilogues = 0;
		bool over = false; // the epilogue uses the memory of activations
		SlicePosition w = this->begin(0);
		do {
			if (over) mbarrier_wait(stagesFree(), epilogues++ & 1);
			KBlockOrder order(plan.kBlocks, W::QUANTISED ? 0 : w.kBlock);
#pragma unroll 1
			for (int p = w.kBlock; p < w.end; p++, c.next(), order.next()) {
				stages.take(c, taken);
				copy_activations(this->token_tile(w), W::QUANTISED ? p : order.at, c);
			}
			over = this->finishes_tile(w) && !defers_epilogue();
			if (copies_partials(w)) copy_partials(w, c, taken);
		} while (this->advance(w));
	}
	// copies_partials reports whether earlier partials come to the part through the stages.
	__device__ __forceinline__ bool copies_partials(const SlicePosition &w) const {
		return !PLACED && this->adds_partials(w);
	}
	// stages_per_partial returns how many stages a partial takes.
	__device__ __forceinline__ int stages_per_partial(const SlicePosition &part) const {
		return (token_groups(this->token_tile(part)) + GROUPS_HELD - 1) / GROUPS_HELD;
	}

	// copy_partials copies the earlier partials of an output tile into stages, behind the last K
	// block of the part.
	__device__ __forceinline__ void copy_partials(const SlicePosition &part, Cursor &c, int &taken) {
		const int all = token_groups(this->token_tile(part));
		for (int s = this->first_slice(part); s < this->slice(part); s++) {
			uint32_t *m = arrival(this->token_tile(part), s);
			wait_for_count(m, 1);
			*m = 0;
			fence_async_global(); // bulk copies read data that threads of another block wrote
#pragma unroll 1
			for (int i = 0; i < all; i += GROUPS_HELD, c.next()) {
				stages.take(c, taken);
				const int low = min(GROUPS_LOW, all - i), high = min(GROUPS_HELD, all - i) - low;
				const float4 *const from = partials_of(this->token_tile(part), s) + i * CONSUMERS;
				mbarrier_expect(stages.full(c), (low + high) * GROUP_SUMS);
				if (GROUPS_LOW) bulk_copy(stages.rows(c), from, low * GROUP_SUMS, stages.full(c));
				if (high) bulk_copy(stages.weights(c), from + low * CONSUMERS, high * GROUP_SUMS, stages.full(c));
			}
		}
	}

	// produce_weights copies weights, up to STAGES K blocks ahead, with zeros for missing steps.
	// Weights may be copied before pdl_wait.
	__device__ __forceinline__ void produce_weights(int which) const {
		const int lane = threadIdx.x % 32;
		Cursor c;
		int taken = 0;
		SlicePosition w = this->begin(0);
		do {
			// Past the last unit any weights serve: results are not stored.
			const int u = plan.firstUnit + w.outputTile * UNITS + lane % TILES / Op::R, last = plan.endUnit - 1;
			const void *const mine = tile_of(min(u, last), lane % Op::R);
			const char *from[TILES / WEIGHT_WARPS];
			const int first = which * (TILES / WEIGHT_WARPS);
			tile_addresses(from, mine, first);
			KBlockOrder order(plan.kBlocks, W::QUANTISED ? 0 : w.kBlock);
#pragma unroll 1
			for (int p = w.kBlock; p < w.end; p++, c.next(), order.next()) {
				stages.take(c, taken);
				if constexpr (W::QUANTISED) {
					copy_codes<W>(stages, c, first, from, p, w.kBlock);
				} else {
					const int bytes = min(BLOCK_STEPS, steps - order.at * BLOCK_STEPS) * 512;
					const uint32_t to = stages.weights(c);
					if (bytes < TILE_BLOCK_BYTES) zero_missing<WEIGHTS>(to, bytes, lane);
					copy_elements(to, from, order.at, bytes, stages.full(c));
				}
			}
#pragma unroll 1
			for (int i = copies_partials(w) ? stages_per_partial(w) * (this->slice(w) - this->first_slice(w)) : 0;
				i > 0; i--, c.next()) {
				stages.take(c, taken);
				mbarrier_arrive_warp(stages.full(c));
			}
		} while (this->advance(w));
	}

	// tile_of returns the address of row tile r of a unit.
	__device__ __forceinline__ const void *tile_of(int unit, int r) const {
		if constexpr (W::QUANTISED)
			return W::tile(op.row_tile(unit, r), in.cols);
		else
			return fragments(op, unit, r);
	}

	// compute_scales stores the scale and the token info of each token of a tile.
	__device__ __forceinline__ void compute_scales(int tile) const {
		for (int t = threadIdx.x - CONSUMERS - PRODUCERS; t < token_count(tile); t += HELPERS) {
			tokenInfo[G + t] = op.token_info(first_token(tile) + t);
			const float *p = a.rounded.scales + first_token(tile) + t;
			float scale = *p;
			if (a.rounded.squares) {
#pragma unroll 8
				for (int i = 1; i < a.rounded.squares; i++) scale = __fadd_rn(scale, p[(size_t)i * a.rounded.tokens]);
				scale = rms_scale(in, scale);
			}
			store_shared(shared + SCALES + (G + t) * 4, scale);
		}
	}

	// help runs in helper warps: they compute each tile's scales while the first K blocks are
	// multiplied, and one of them announces partials.
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
			if (threadIdx.x / 32 == (CONSUMERS + PRODUCERS) / 32 && announces(w))
				announce_partials(w);
		} while (this->advance(w));
	}
	// announces reports whether other blocks learn from a counter that the partial of a part is there.
	__device__ __forceinline__ bool announces(const SlicePosition &w) const {
		return !PLACED && (this->shares_results() || !this->finishes_tile(w));
	}
	// announce_partials counts this block's partial for other blocks. If blocks share the epilogue,
	// it waits until the partials of all have arrived.
	__device__ __forceinline__ void announce_partials(const SlicePosition &part) const {
		wait_for_signal();
		const int perTile = plan.perTile;
		if (threadIdx.x % 32 == 0) {
			uint32_t *m = arrival(this->token_tile(part), perTile ? part.outputTile * perTile : this->slice(part));
			arrive(m);
			if (perTile) {
				wait_for_count(m, perTile);
				if (atomicInc(m + 1, perTile - 1) == perTile - 1) *m = 0; // the last to leave resets the counters
			}
		}
		mbarrier_arrive_warp(partialsArrived());
	}

	// defers_epilogue reports whether a block finishes its shares only after it has multiplied for
	// all token tiles. The other blocks' partials have arrived by then, and the copies of
	// activations are not interrupted. An op with norms cannot: the scales of earlier tiles are
	// overwritten.
	__device__ __forceinline__ bool defers_epilogue() const { return !Op::NORMED && this->shares_results(); }

	// consume multiplies: each warp has 16 outputs of each output tile, over all parts of the
	// slice.
	__device__ __forceinline__ void consume() {
		if (PLACED) pdl_wait(); // places are those of the kernel before until that has ended
		Cursor c;
		int signals = 0, tile = -1; // signals to the helper; token tile of the part before
		bool multiplied = false;    // for all token tiles
		SlicePosition w = this->begin(0);
		while (true) {
			float sum[T / 2];
			if (!multiplied) {
				if (Op::NORMED && this->token_tile(w) != tile && tile >= 0) {
					// Also a block without an epilogue waits for the scales, so that helpers never
					// get two phases ahead of the barrier.
					mbarrier_wait(scalesReady(), (w.pass - 1) & 1);
					mbarrier_arrive_warp(scalesRead());
				}
				tile = this->token_tile(w);
#pragma unroll
				for (int e = 0; e < T / 2; e++) sum[e] = 0;
				multiply_part(sum, w, c);
				if (this->shares_results() || !this->finishes_tile(w)) {
					store_partials(w, sum);
					if (announces(w)) signal_helper(signals);
				}
			}
			if (multiplied || this->finishes_tile(w) && !defers_epilogue()) run_epilogue(w, sum, c, signals);
			if (this->advance(w)) continue;
			if (multiplied || !defers_epilogue()) return;
			multiplied = true, w = this->begin(0);
		}
	}

	// multiply_part multiplies a part's K blocks for the smallest supported number of tokens.
	__device__ __forceinline__ void multiply_part(float (&sum)[T / 2], const SlicePosition &w, Cursor &c) const {
		const int all = token_groups(this->token_tile(w));
		if constexpr (T == 208) {
			if (all <= 152 / TOKEN_GROUP) return multiply_by<152>(sum, w, c);
			if (all <= 200 / TOKEN_GROUP) return multiply_by<200>(sum, w, c);
		}
		multiply_by<T>(sum, w, c);
	}
	template <int N>
	__device__ __forceinline__ void multiply_by(float (&sum)[T / 2], const SlicePosition &w, Cursor &c) const {
		// Operands beside the sums of 208 tokens would spill with all steps at once.
		if constexpr (W::QUANTISED)
			multiply_codes<D, N, (T > 104 ? 2 : BLOCK_STEPS), W>(sum, stages, c, w.kBlock, w.end);
		else
			multiply_elements<D, N>(sum, stages, c, w.kBlock, w.end);
	}

	// NoRows stages the sums of no generated rows.
	struct NoRows {
		__device__ __forceinline__ void operator()(const BlockEpilogue &, int, int) const {}
	};
	// run_epilogue finishes an output tile, or this block's share of it: generated rows, and then a token tile.
	// stageGenerated(epilogue, from, to) stages the sums of the generated rows among token groups `from` to `to`-1.
	template <class Stage = NoRows>
	__device__ __forceinline__ void run_epilogue(const SlicePosition &part, float (&sum)[T / 2], Cursor &c, int signals,
		const Stage &stageGenerated = {}) const {
		// opaque: values that depend on it take no registers while K blocks are multiplied.
		const int thread = opaque((int)threadIdx.x);
		const bool shares = this->shares_results();
		const int tile = this->token_tile(part), all = GENERATED_GROUPS + token_groups(tile),
				  which = this->slice(part) - part.outputTile * plan.perTile;
		// This block finishes token groups `from` to `to`-1.
		const int from = shares ? __umulhi(all * which, plan.inverse) : 0,
				  to = shares ? __umulhi(all * (which + 1), plan.inverse) : all;
		const int first = from * TOKEN_GROUP, n = min(G + token_count(tile), to * TOKEN_GROUP) - first;
		if (Op::NORMED) mbarrier_wait(scalesReady(), this->tiles_before(part) & 1);
		typename BlockEpilogue::Lookahead lookahead;
		const BlockEpilogue epilogue = {op, a.handover, shared + HEADER_BYTES, shared + SCALES, tokenInfo,
			plan.firstUnit + part.outputTile * UNITS, plan.endUnit, first_token(tile) - G, first, n, thread};
		if (shares) {
			epilogue.look_ahead(lookahead);
			// The helper waited for the other blocks. For passes before the last, signal_helper has
			// seen this phase.
			if (!PLACED && (Op::NORMED || part.pass == plan.rounds - 1)) mbarrier_wait(partialsArrived(), signals - 1 & 1);
			sync_consumers();
			stageGenerated(epilogue, from, to);
			stage_share(epilogue, part, from, to, thread);
		} else {
			if (this->adds_partials(part)) add_partials(part, sum, c, thread);
			sync_consumers(); // no thread reads activations any more
			stageGenerated(epilogue, from, to);
			epilogue.stage_all(sum, G);
			epilogue.look_ahead(lookahead);
		}
		sync_consumers();
		epilogue.finish(lookahead);
		fence_async_shared();
		// A deferred epilogue comes after the last activations.
		if (!defers_epilogue()) mbarrier_arrive_warp(stagesFree());
	}

	// Partials of a slice, and the counters at which blocks wait for them.
	__device__ __forceinline__ float4 *partials_of(int tile, int slice) const {
		return a.partials + (size_t)(tile * plan.slices + slice) * TOKEN_GROUPS * CONSUMERS;
	}
	__device__ __forceinline__ uint32_t *arrival(int tile, int slice) const {
		return a.arrivals + (tile * plan.slices + slice) * 2;
	}
	// arrive publishes all writes of the block that this thread has waited for.
	static __device__ __forceinline__ void arrive(uint32_t *arrival) { increment_release(arrival); }

	// store_partials stores a part's sums in the workspace.
	__device__ __forceinline__ void store_partials(const SlicePosition &part, const float (&sum)[T / 2]) const {
		const int thread = opaque((int)threadIdx.x);
		float4 *const p = opaque(partials_of(this->token_tile(part), this->slice(part)) + thread);
		const int all = token_groups(this->token_tile(part));
#pragma unroll
		for (int i = 0; i < TOKEN_GROUPS; i++)
			if (i < all)
				leave<PLACED>(p + i * CONSUMERS, {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]});
	}

	// add_partials adds the earlier partials to the last part of an output tile. They lie in places, or come through the
	// stages.
	__device__ __forceinline__ void add_partials(
		const SlicePosition &part, float (&sum)[T / 2], Cursor &c, int thread) const {
		for (int s = this->first_slice(part); s < this->slice(part); s++) {
			if constexpr (PLACED)
				add_placed(part, s, sum, thread);
			else
				add_copied(part, sum, c, thread);
		}
	}
	__device__ __forceinline__ void add_placed(
		const SlicePosition &part, int slice, float (&sum)[T / 2], int thread) const {
		float4 *const from = opaque(partials_of(this->token_tile(part), slice) + thread);
		const int last = token_groups(this->token_tile(part)) - 1;
		float4 v[TOKEN_GROUPS];
		take_sums(v, [&](int i) { return from + min(i, last) * CONSUMERS; });
#pragma unroll
		for (int i = 0; i < TOKEN_GROUPS; i++) add_to(sum + 4 * i, v[i]);
	}
	__device__ __forceinline__ void add_copied(
		const SlicePosition &part, float (&sum)[T / 2], Cursor &c, int thread) const {
		const int all = token_groups(this->token_tile(part));
#pragma unroll
		for (int h = 0; h < TOKEN_GROUPS; h += GROUPS_HELD) {
			if (h >= all) continue;
			stages.wait(c);
			const uint32_t low = stages.rows(c) + thread * 16,
						   high = stages.weights(c) - GROUPS_LOW * GROUP_SUMS + thread * 16;
#pragma unroll
			for (int i = 0; i < GROUPS_HELD && h + i < TOKEN_GROUPS; i++)
				add_to(sum + 4 * (h + i), load_shared_float4((i < GROUPS_LOW ? low : high) + i * GROUP_SUMS));
			mbarrier_free_warp(stages.empty(c.at));
			c.next();
		}
	}
	static __device__ __forceinline__ void add_to(float *sum, const float4 &v) {
		sum[0] = __fadd_rn(sum[0], v.x), sum[1] = __fadd_rn(sum[1], v.y), sum[2] = __fadd_rn(sum[2], v.z),
		sum[3] = __fadd_rn(sum[3], v.w);
	}

	// stage_share adds all partials of this block's share of the tokens and stages the sums, after those of generated rows.
	__device__ __forceinline__ void stage_share(
		const BlockEpilogue &epilogue, const SlicePosition &part, int from, int to, int thread) const {
		const int begin = G ? max(from, GENERATED_GROUPS) : from;
		float4 *const first = partials_of(this->token_tile(part), part.outputTile * plan.perTile) +
			(begin - GENERATED_GROUPS) * CONSUMERS + thread;
		const uint32_t staged = epilogue.stagedSums() + (begin - from) * TOKEN_GROUP * BlockEpilogue::PITCH * 4;
		if (plan.perTile == 4)
			sum_partials<4, (TOKEN_GROUPS + 3) / 4>(staged, first, to - begin);
		else
			sum_partials<0, 1>(staged, first, to - begin);
	}
	// sum_placed adds n sums in order, of which it takes some at once.
	template <class Place> static __device__ __forceinline__ float4 sum_placed(int n, const Place &place) {
		constexpr int ONCE = 4;
		float4 sum;
#pragma unroll 1
		for (int s = 0; s < n; s += ONCE) {
			float4 v[ONCE];
			take_sums(v, [&](int i) { return place(min(s + i, n - 1)); });
#pragma unroll
			for (int i = 0; i < ONCE; i++)
				if (s + i < n) sum = s + i ? add(sum, v[i]) : v[i];
		}
		return sum;
	}
	// sum_partials does so for COUNT partials, or any number with COUNT 0. The loads of E groups
	// are in flight together; they may be more than n.
	template <int COUNT, int E>
	__device__ __forceinline__ void sum_partials(uint32_t staged, float4 *first, int n) const {
		constexpr int EACH = COUNT ? COUNT : 1;
		const int partials = COUNT ? COUNT : plan.perTile;
#pragma unroll 1
		for (int i = 0; i < n; i += E, first += E * CONSUMERS) {
			float4 v[EACH * E];
			const auto place = [&](int s, int e) { // the last partial first
				return first + ((s ? s - 1 : partials - 1) * TOKEN_GROUPS + e) * CONSUMERS;
			};
			if constexpr (!PLACED) {
#pragma unroll
				for (int j = 0; j < EACH * E; j++) v[j] = __ldcg(place(j / E, j % E));
			} else if constexpr (COUNT) {
				take_sums(v, [&](int j) { return place(j / E, min(j % E, n - 1 - i)); });
			} else {
				v[0] = sum_placed(partials, [&](int s) { return place(s, 0); });
			}
#pragma unroll
			for (int j = E; j < EACH * E; j++) v[j % E] = add(v[j % E], v[j]);
#pragma unroll 4
			for (int s = 1; s < (COUNT || PLACED ? 0 : partials); s++) v[0] = add(v[0], __ldcg(place(s, 0)));
#pragma unroll
			for (int e = 0; e < E; e++) BlockEpilogue::stage(staged, i + e, v[e]);
		}
	}
};

// Stages of quantised weights that fit beside T tokens, at most as many as there is room for barriers.
template <class W, int T> constexpr int STAGE_BYTES = T * TOKEN_BLOCK_BYTES + 8 * W::TILE_BYTES;
template <int T> constexpr int ROOM = 227 * 1024 - (512 + T * 4 + 1023) / 1024 * 1024 - (16 * T + 1023) / 1024 * 1024;
template <class W, int T>
constexpr int CODES_STAGES = ROOM<T> / STAGE_BYTES<W, T> < 28 ? ROOM<T> / STAGE_BYTES<W, T> : 28;

// run_block has each warp of a block for up to T tokens do its part: of StreamK, or of Mixed.
template <class Op, int T, class Block> __device__ __forceinline__ void run_block(Block &b) {
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
	if (warp > 0 && warp <= Block::WEIGHT_WARPS) {
		Block::launch_dependents_early();
		b.produce_weights(warp - 1);
		return;
	}
	begin_product<Op::ATTENTION_NEXT>();
	if (warp == 0)
		b.produce_activations();
	else
		b.help();
}

template <class Op, class D, int T, int STAGES, class W = Elements<D>>
__device__ __forceinline__ void stream_k(const StreamKArgs<Op> &a) {
	extern __shared__ __align__(1024) char streamKShared[];
	const Op op(a.op);
	StreamK<Op, D, T, STAGES, W> b(op, a, streamKShared);
	run_block<Op, T>(b);
}
#endif
