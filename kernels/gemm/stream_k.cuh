// Products of a prompt's tokens on Hopper, where the activations were rounded
// (round.cu). A unit is 128 outputs. The pieces of all units, laid end to end, are cut into
// spans (spans.cuh), and each block works through one of them for up to T tokens at a time: so all
// blocks take about the same time, begin once, and keep their weights coming while they hand over
// results. One warp has the copy engine bring activations, another one weights; two
// warpgroups multiply with wgmma, a row tile a warp: the weights from registers, the
// activations from shared memory. Other warps do beside them what would hold these up.
//
// A kernel finds its own instructions in no cache but L2, so what a block runs only once or
// twice is as short as can be, and not written out at several places.
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
template <class Op> struct PromptArgs {
	typename Op::Args op;
	Rounded rounded;
	Onward next;
	float4 *sums;         // [tiles][spans][T/8][256]: parts that are added to others
	uint32_t *meetings;   // [tiles][spans][came, left], 0 between launches
	Cut cut;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Cursor is where a thread is in a ring of stages, and the phase of their barriers.
template <int SIZE> struct Cursor {
	int at = 0, phase = 0;
	__device__ __forceinline__ void next() {
		if (++at == SIZE) at = 0, phase ^= 1;
	}
};

// Where the sums take many registers a whole warpgroup helps, and gives up its own.
template <int T> __device__ __forceinline__ void give_registers() {
	if (T > 56) decrease_registers<72>();
}
template <int T> __device__ __forceinline__ void take_registers() {
	if (T > 56) increase_registers<216>();
}

template <class Op, class D, int T, int STAGES_> struct Prompt : Spans<Prompt<Op, D, T, STAGES_>> {
	static constexpr int STAGES = STAGES_; // pieces of weights and activations in shared memory
	static constexpr int CONSUMERS = 256, HELPERS = 64, CLERKS = T > 56 ? 64 : 32, THREADS = CONSUMERS + HELPERS + CLERKS;
	static constexpr int TILES = 8, UNITS = TILES / Op::R, EIGHTS = T / ATOM;
	static constexpr int ROWS = T * PIECE_BYTES, WEIGHTS = TILES * TILE_PIECE; // bytes of a stage of each
	using Place = typename Op::Place;         // of a token, as the op wants it
	using Done = Results<Op, D, CONSUMERS>;   // of a unit, which take the place of activations
	static constexpr int EIGHT = CONSUMERS * 16; // bytes of a block's sums of eight tokens: a lane's float4
	static constexpr int LOW = ROWS / EIGHT, HELD = LOW + WEIGHTS / EIGHT; // eights of a part that a stage holds: in the place of activations, and of both
	static constexpr int SCALES = 256, PLACES = (SCALES + T * 4 + 1023) / 1024 * 1024;
	static constexpr int BARRIERS = PLACES + (sizeof(Place) * T + 1023) / 1024 * 1024, BYTES = BARRIERS + STAGES * (ROWS + WEIGHTS);
	static_assert(STAGES * 16 + 32 <= SCALES && BYTES <= 227 * 1024 && T * Done::PITCH * 4 <= STAGES * ROWS && T % ATOM == 0);

	const Op &op;
	const PromptArgs<Op> &a;
	const Activations &in;
	const uint32_t shared;
	Place *const places; // [T]
	const Cut &cut;
	const int steps; // of a unit

	__device__ __forceinline__ Prompt(const Op &op, const PromptArgs<Op> &a, char *shared)
		: op(op), a(a), in(op.activations()), shared(shared_address(shared)), places(reinterpret_cast<Place *>(shared + PLACES)), cut(a.cut), steps(in.cols / STEP) {}

	__device__ __forceinline__ uint32_t full(int s) const { return shared + s * 16; }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	__device__ __forceinline__ uint32_t handed() const { return full(STAGES); } // over: results make room
	__device__ __forceinline__ uint32_t scaled() const { return handed() + 8; } // a tile's scales are there
	__device__ __forceinline__ uint32_t tiled() const { return handed() + 16; } // and were read
	__device__ __forceinline__ uint32_t passed() const { return handed() + 24; } // a clerk passed a tile's sums on
	__device__ __forceinline__ uint32_t rows(int s) const { return shared + BARRIERS + s * ROWS; }
	__device__ __forceinline__ uint32_t weights(int s) const { return shared + BARRIERS + STAGES * ROWS + s * WEIGHTS; }

	__device__ __forceinline__ void start_barriers() {
		if (elect_one()) { // of several lanes the compiler would make a loop over them
#pragma unroll
			for (int i = 0; i < STAGES; i++) {
				mbarrier_init(full(i), 1 + WARP_ARRIVALS);
				mbarrier_init(empty(i), CONSUMERS / 32 * WARP_ARRIVALS);
			}
			mbarrier_init(handed(), CONSUMERS / 32 * WARP_ARRIVALS);
			mbarrier_init(scaled(), CLERKS / 32 * WARP_ARRIVALS);
			mbarrier_init(tiled(), CONSUMERS / 32 * WARP_ARRIVALS);
			mbarrier_init(passed(), WARP_ARRIVALS);
		}
		mbarrier_fence_init();
	}
	// Attention may begin when what came before this kernel is there: producers and clerks, who wait
	// for that, let it (pdl_begin_product).
	static __device__ __forceinline__ void let_unattended_begin() {
		if (!Op::ATTENDED) pdl_launch_dependents();
	}
	// What consumers leave a clerk, and what they wait for.
	__device__ __forceinline__ void give_clerk(int &given) const {
		if (given > 0) mbarrier_wait(passed(), given - 1 & 1); // the part before
		given++;
		named_barrier_arrive<CONSUMERS + 32>(2);
	}
	static __device__ __forceinline__ void await_consumers() { named_barrier_sync<CONSUMERS + 32>(2); }
	static __device__ __forceinline__ void wait_for_consumers() { named_barrier_sync<CONSUMERS>(1); }
	__device__ __forceinline__ int first_of(int tile) const { return tile * cut.tokens; } // of a tile's tokens
	__device__ __forceinline__ int live(int tile) const { return min(cut.tokens, in.n - first_of(tile)); }
	__device__ __forceinline__ int eights(int tile) const { return (live(tile) + ATOM - 1) / ATOM; } // of its tokens

	// Brings a piece's activations.
	__device__ __forceinline__ void bring_rows(int tile, int piece, int stage) {
		const int bytes = eights(tile) * ATOM_BYTES;
		mbarrier_expect(full(stage), bytes);
		bulk_copy(EVICT_LAST, rows(stage), a.rounded.rows + ((size_t)piece * (a.rounded.tokens / ATOM) + first_of(tile) / ATOM) * ATOM_BYTES, bytes, full(stage));
	}

	__device__ __forceinline__ void produce() {
		if (threadIdx.x != CONSUMERS) return;
		Cursor<STAGES> c;
		int brought = 0, deliveries = 0;
		bool over = false; // results take the place of activations
		Walk w = this->begin(0);
		do {
			if (over) mbarrier_wait(handed(), deliveries++ & 1);
#pragma unroll 1
			for (int p = w.piece; p < w.end; p++, c.next()) {
				take(c, brought);
				bring_rows(this->tile(w), p, c.at);
			}
			over = this->finishes(w) && !defers();
			if (this->adds(w)) bring_parts(w, c, brought);
		} while (this->move(w));
	}
	// Waits until a stage is free.
	__device__ __forceinline__ void take(const Cursor<STAGES> &c, int &brought) const {
		if (brought < STAGES)
			brought++;
		else
			mbarrier_wait(empty(c.at), c.phase ^ 1);
	}
	// How many stages a part takes.
	__device__ __forceinline__ int part_stages(const Walk &part) const { return (eights(this->tile(part)) + HELD - 1) / HELD; }

	// Brings the parts before it, a few stages each, behind the part's last piece.
	__device__ __forceinline__ void bring_parts(const Walk &part, Cursor<STAGES> &c, int &brought) {
		const int all = eights(this->tile(part));
		for (int s = this->first_span(part); s < this->span(part); s++) {
			uint32_t *m = meeting(this->tile(part), s);
			wait_for_count(m, 1);
			*m = 0;
			fence_async_global(); // the copy engine reads what threads of another block wrote
#pragma unroll 1
			for (int i = 0; i < all; i += HELD, c.next()) {
				take(c, brought);
				const int low = min(LOW, all - i), high = min(HELD, all - i) - low;
				const float4 *const from = sums_of(this->tile(part), s) + i * CONSUMERS;
				mbarrier_expect(full(c.at), (low + high) * EIGHT);
				if (LOW) bulk_copy(rows(c.at), from, low * EIGHT, full(c.at));
				if (high) bulk_copy(weights(c.at), from + low * CONSUMERS, high * EIGHT, full(c.at));
			}
		}
	}

	// A warp brings weights, STAGES pieces before they are multiplied; zeros for steps that are
	// not there. They may come before the kernel before has ended.
	__device__ __forceinline__ void produce_weights() const {
		const int lane = threadIdx.x % 32;
		Cursor<STAGES> c;
		int brought = 0;
		Walk w = this->begin(0);
		do {
			const int u = w.unit * UNITS + lane % TILES / Op::R, last = op.units() - 1; // beyond, anything may be multiplied
			const uint64_t mine = reinterpret_cast<uint64_t>(op.tile(min(u, last), lane % Op::R));
			const char *from[TILES];
#pragma unroll
			for (int i = 0; i < TILES; i++) from[i] = reinterpret_cast<const char *>(__shfl_sync(~0u, mine, i));
#pragma unroll 1
			for (int p = w.piece; p < w.end; p++, c.next()) {
				take(c, brought);
				const int bytes = min(PIECE, steps - p * PIECE) * 512;
				const uint32_t to = weights(c.at);
				if (bytes < TILE_PIECE) {
#pragma unroll 1
					for (int i = lane * 16; i < WEIGHTS; i += 512)
						if (i % TILE_PIECE >= bytes) store_shared_zeros(to + i);
					__syncwarp();
				}
				if (elect_one()) {
					mbarrier_expect(full(c.at), TILES * bytes);
#pragma unroll
					for (int i = 0; i < TILES; i++) bulk_copy(EVICT_FIRST, to + i * TILE_PIECE, from[i] + (size_t)p * TILE_PIECE, bytes, full(c.at));
				} else if (WARP_ARRIVALS > 1) {
					mbarrier_arrive(full(c.at));
				}
			}
#pragma unroll 1
			for (int i = this->adds(w) ? part_stages(w) * (this->span(w) - this->first_span(w)) : 0; i > 0; i--, c.next()) {
				take(c, brought);
				mbarrier_arrive_warp(full(c.at));
			}
		} while (this->move(w));
	}

	// Leaves the scale and the place of each of a tile's tokens for finish.
	__device__ __forceinline__ void scale_tokens(int tile) const {
		for (int t = threadIdx.x - CONSUMERS - HELPERS; t < live(tile); t += CLERKS) {
			places[t] = op.place(first_of(tile) + t);
			const float *p = a.rounded.scales + first_of(tile) + t;
			float scale = *p;
			if (a.rounded.parts) {
#pragma unroll 8
				for (int i = 1; i < a.rounded.parts; i++) scale = __fadd_rn(scale, p[(size_t)i * a.rounded.tokens]);
				scale = rms_scale(in, scale);
			}
			store_shared(shared + SCALES + t * 4, scale);
		}
	}

	// What clerks do: each tile's scales, while the first pieces are multiplied; and one of
	// them waits for memory and for other blocks.
	__device__ __forceinline__ void assist() const {
		int tile = -1;
		Walk w = this->begin(0);
		do {
			if (Op::NORMED && this->tile(w) != tile) {
				if (tile >= 0) mbarrier_wait(tiled(), (w.turn - 1) & 1);
				scale_tokens(this->tile(w));
				mbarrier_arrive_warp(scaled());
			}
			tile = this->tile(w);
			if (threadIdx.x / 32 == (CONSUMERS + HELPERS) / 32 && (this->shares() || !this->finishes(w))) pass_on(w);
		} while (this->move(w));
	}
	// A part's sums are for other blocks.
	__device__ __forceinline__ void pass_on(const Walk &part) const {
		await_consumers();
		const int parts = cut.parts;
		if (threadIdx.x % 32 == 0) {
			uint32_t *m = meeting(this->tile(part), parts ? part.unit * parts : this->span(part));
			come(m);
			if (parts) {
				wait_for_count(m, parts);
				if (atomicInc(m + 1, parts - 1) == parts - 1) *m = 0; // the last to leave
			}
		}
		mbarrier_arrive_warp(passed());
	}

	// Whether a block hands over its shares when it has multiplied for all tiles: what it waits
	// for is there by then, and activations keep coming. Scales of the tiles before would be gone.
	__device__ __forceinline__ bool defers() const { return !Op::NORMED && this->shares(); }

	// A warp's 16 outputs of each unit, over the block's parts.
	__device__ __forceinline__ void consume() {
		Cursor<STAGES> c;
		int given = 0, tile = -1; // parts to a clerk; of the part before
		bool multiplied = false;  // for all tiles
		Walk w = this->begin(0);
		while (true) {
			float sum[T / 2];
			if (!multiplied) {
				if (Op::NORMED && this->tile(w) != tile && tile >= 0) {
					// A block that hands over nothing has not awaited its clerks, who must not find a
					// tile's barrier two phases on.
					mbarrier_wait(scaled(), (w.turn - 1) & 1);
					mbarrier_arrive_warp(tiled());
				}
				tile = this->tile(w);
#pragma unroll
				for (int e = 0; e < T / 2; e++) sum[e] = 0;
				multiply_part(sum, w, c);
				if (this->shares() || !this->finishes(w)) {
					leave(w, sum);
					give_clerk(given);
				}
			}
			if (multiplied || this->finishes(w) && !defers()) hand_over(w, sum, c, given);
			if (this->move(w)) continue;
			if (multiplied || !defers()) return;
			multiplied = true, w = this->begin(0);
		}
	}

	// Multiplies a part's pieces, for no more tokens than there are, or a few.
	__device__ __forceinline__ void multiply_part(float (&sum)[T / 2], const Walk &w, Cursor<STAGES> &c) const {
		if constexpr (T == 208) {
			const int all = eights(this->tile(w));
			if (all <= 152 / ATOM) return multiply_tokens<152>(sum, w.end - w.piece, c);
			if (all <= 200 / ATOM) return multiply_tokens<200>(sum, w.end - w.piece, c);
		}
		multiply_tokens<T>(sum, w.end - w.piece, c);
	}
	// While a step is multiplied the next ones' weights come to registers, so that the tensor
	// cores have always something to do.
	template <int N> __device__ __forceinline__ void multiply_tokens(float (&all)[T / 2], int left, Cursor<STAGES> &c) const {
		float (&sum)[N / 2] = reinterpret_cast<float (&)[N / 2]>(all);
		const uint32_t mine = weights(0) + threadIdx.x / 32 * TILE_PIECE + threadIdx.x % 32 * 16;
		uint4 v[PIECE];
		wgmma_pin(sum);
#pragma unroll 1
		for (bool first = true; left > 0; left--, first = false) {
			mbarrier_wait(full(c.at), c.phase);
#pragma unroll
			for (int j = 0; j < PIECE; j++) {
				v[j] = load_shared(mine + c.at * WEIGHTS + j * 512);
				wgmma_fence();
				wgmma<D, N>(sum, v[j], wgmma_descriptor(rows(c.at) + j * STEP * 2));
				wgmma_commit();
				wgmma_wait<3>();
				if (j == 2) release(c, !first);
			}
			c.next();
		}
		wgmma_wait<0>();
		wgmma_pin(sum);
		release(c, true);
	}
	// The stage before it was read.
	__device__ __forceinline__ void release(const Cursor<STAGES> &c, bool any) const { mbarrier_arrive_warp_if(any, empty(c.at ? c.at - 1 : STAGES - 1)); }

	// Hands over the results of a unit, or a share of them.
	__device__ __forceinline__ void hand_over(const Walk &part, float (&sum)[T / 2], Cursor<STAGES> &c, int given) const {
		const int me = opaque((int)threadIdx.x); // what depends on it takes no registers while pieces are multiplied
		const bool shares = this->shares();
		const int tile = this->tile(part), all = eights(tile), which = this->span(part) - part.unit * cut.parts;
		const int from = shares ? __umulhi(all * which, cut.inverse) : 0, to = shares ? __umulhi(all * (which + 1), cut.inverse) : all; // eights of tokens that this block hands over
		const int first = from * ATOM, n = min(live(tile), to * ATOM) - first;
		if (Op::NORMED) mbarrier_wait(scaled(), this->tiles_before(part) & 1);
		typename Done::Ahead ahead;
		const Done done = {op, a.next, shared + BARRIERS, shared + SCALES, places, part.unit, first_of(tile), first, n, me};
		if (shares) {
			done.look_ahead(ahead);
			// A clerk heard of the other blocks; of those in turns before the last one, give_clerk knows.
			if (Op::NORMED || part.turn == cut.tiles - 1) mbarrier_wait(passed(), given - 1 & 1);
			wait_for_consumers();
			keep_shared(done, part, from, to, me);
		} else {
			if (this->adds(part)) gather(part, sum, c, me);
			wait_for_consumers(); // nobody reads activations any more
			done.keep_all(sum);
			done.look_ahead(ahead);
		}
		wait_for_consumers();
		done.finish(ahead);
		fence_async_shared();
		if (!defers()) mbarrier_arrive_warp(handed()); // else no activations come any more
	}

	// A part's sums, and where blocks hear of them.
	__device__ __forceinline__ float4 *sums_of(int tile, int span) const { return a.sums + (size_t)(tile * cut.spans + span) * EIGHTS * CONSUMERS; }
	__device__ __forceinline__ uint32_t *meeting(int tile, int span) const { return a.meetings + (tile * cut.spans + span) * 2; }
	// Those of the block's other warps that this thread has waited for come before it.
	static __device__ __forceinline__ void come(uint32_t *meeting) { increment_release(meeting); }

	// Leaves a part's sums.
	__device__ __forceinline__ void leave(const Walk &part, const float (&sum)[T / 2]) const {
		const int me = opaque((int)threadIdx.x);
		float4 *const p = opaque(sums_of(this->tile(part), this->span(part)) + me);
		const int all = eights(this->tile(part));
#pragma unroll
		for (int i = 0; i < EIGHTS; i++)
			if (i < all) store_evict_last(p + i * CONSUMERS, {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]});
	}

	// Adds to the last part of a unit the parts before it, which come through the stages.
	__device__ __forceinline__ void gather(const Walk &part, float (&sum)[T / 2], Cursor<STAGES> &c, int me) const {
		const int all = eights(this->tile(part));
		for (int s = this->first_span(part); s < this->span(part); s++) {
#pragma unroll
			for (int h = 0; h < EIGHTS; h += HELD) {
				if (h >= all) continue;
				mbarrier_wait(full(c.at), c.phase);
				const uint32_t low = rows(c.at) + me * 16, high = weights(c.at) - LOW * EIGHT + me * 16;
#pragma unroll
				for (int i = 0; i < HELD && h + i < EIGHTS; i++) {
					const float4 v = load_shared_float4((i < LOW ? low : high) + i * EIGHT);
					float *const to = sum + 4 * (h + i);
					to[0] = __fadd_rn(to[0], v.x), to[1] = __fadd_rn(to[1], v.y), to[2] = __fadd_rn(to[2], v.z), to[3] = __fadd_rn(to[3], v.w);
				}
				mbarrier_arrive_warp(empty(c.at));
				c.next();
			}
		}
	}

	// Keeps the sums of all parts of eights of a unit's tokens, this block's share.
	__device__ __forceinline__ void keep_shared(const Done &done, const Walk &part, int from, int to, int me) const {
		const float4 *const first = sums_of(this->tile(part), part.unit * cut.parts) + from * CONSUMERS + me;
		if (cut.parts == 4)
			keep_parts<4, (EIGHTS + 3) / 4>(done, first, to - from);
		else
			keep_parts<0, 1>(done, first, to - from);
	}
	// The same of so many parts, or of any number. The sums of E eights are on their way together:
	// they may be more than are there.
	template <int PARTS, int E> __device__ __forceinline__ void keep_parts(const Done &done, const float4 *first, int n) const {
		const int parts = PARTS ? PARTS : cut.parts;
		const uint32_t kept = done.kept();
#pragma unroll 1
		for (int i = 0; i < n; i += E, first += E * CONSUMERS) {
			float4 v[PARTS ? PARTS : 1][E];
#pragma unroll
			for (int s = 0; s < (PARTS ? PARTS : 1); s++) // the last part first
#pragma unroll
				for (int e = 0; e < E; e++) v[s][e] = __ldcg(first + ((s ? s - 1 : parts - 1) * EIGHTS + e) * CONSUMERS);
#pragma unroll
			for (int s = 1; s < PARTS; s++)
#pragma unroll
				for (int e = 0; e < E; e++) v[0][e] = add(v[0][e], v[s][e]);
#pragma unroll 4
			for (int s = 0; s < (PARTS ? 0 : parts - 1); s++) v[0][0] = add(v[0][0], __ldcg(first + s * EIGHTS * CONSUMERS));
#pragma unroll
			for (int e = 0; e < E; e++) Done::keep(kept, i + e, v[0][e]);
		}
	}
};

template <class Op, class D, int T, int STAGES> __device__ __forceinline__ void prompt(const PromptArgs<Op> &a) {
	using Block = Prompt<Op, D, T, STAGES>;
	extern __shared__ __align__(1024) char promptShared[];
	const Op op(a.op);
	Block b(op, a, promptShared);
	const int warp = threadIdx.x / 32 - Block::CONSUMERS / 32;
	if (warp == 0) b.start_barriers();
	__syncthreads();
	if (warp < 0) {
		take_registers<T>();
		Block::let_unattended_begin();
		b.consume();
		return;
	}
	give_registers<T>();
	if (warp == 1) {
		Block::let_unattended_begin();
		b.produce_weights();
		return;
	}
	pdl_begin_product<Op::ATTENDED>();
	if (warp == 0)
		b.produce();
	else
		b.assist();
}
#endif
