// Products of a prompt's tokens on Hopper, where the activations were rounded
// (round.cu). A unit is 128 outputs. The pieces of all units, laid end to end, are cut into
// equal spans, and each block works through one of them for T tokens at a time: so all
// blocks have the same to do, begin once, and keep their weights coming while they hand over
// results. One thread has the copy engine bring activations; each of two warpgroups' warps
// copies its row tile's weights, and multiplies with wgmma: the weights from registers, the
// activations from shared memory. Other warps do beside them what would hold these up.
//
// The order of a prompt's sums is not that of common.cuh: a part is what a span has of a
// unit, one sum in ascending order; a unit's parts are added, the last one first and then
// the others in ascending order. Where spans end depends on the weight's shape alone, so a
// token's result is the same in any company and in any chunk.
#pragma once
#include "async.cuh"
#include "results.cuh"

// What a prompt's product reads beside its op's arguments.
template <class Op> struct PromptArgs {
	typename Op::Args op;
	Rounded rounded;
	Onward next;
	float2 *sums;         // [tiles][spans][T/4][256]: parts that another block adds
	uint32_t *meetings;   // [tiles][spans][came, left], 0 between launches
	int32_t spans, tiles; // of tokens
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Op, class D, int T, int AHEAD_, int STAGES_> struct Prompt {
	static constexpr int AHEAD = AHEAD_, STAGES = STAGES_; // pieces of weights and of activations in shared memory
	static constexpr int CONSUMERS = 256, CLERKS = T > 56 ? 96 : 32, THREADS = CONSUMERS + 32 + CLERKS;
	static constexpr int TILES = 8, UNITS = TILES / Op::R, EIGHTS = T / ATOM;
	static constexpr int ROWS = T * PIECE_BYTES, WEIGHTS = TILES * AHEAD * TILE_PIECE; // bytes of a stage, and of all weights
	using Place = typename Op::Place;         // of a token, as the op wants it
	using Done = Results<Op, D, CONSUMERS>;   // of a unit, which take the place of activations
	static constexpr int HALF = CONSUMERS * 8; // bytes of a block's sums of four tokens' worth: a lane's float2
	static constexpr int HALVES = ROWS / HALF; // of a part that a stage holds
	static constexpr int SCALES = 512, PLACES = 2048, BARRIERS = PLACES + (sizeof(Place) * T + 1023) / 1024 * 1024, BYTES = BARRIERS + STAGES * ROWS + WEIGHTS;
	static_assert(STAGES * 16 + 32 <= SCALES && SCALES + T * 4 <= PLACES);
	static_assert(T * Done::PITCH * 4 <= STAGES * ROWS && T % ATOM == 0);
	static_assert((EIGHTS + 1) / 2 * (ATOM * Done::PITCH * 4 + 2 * HALF) <= STAGES * ROWS, "a share's results, and its own sums");

	const Op &op;
	const PromptArgs<Op> &a;
	const Activations &in;
	const uint32_t shared;
	Place *const places; // [T]
	const int span, steps, pieces; // pieces of a unit
	int low, high;                 // the span's pieces, of all units'
	bool shares;                   // whether units are cut into spans of their own, whose blocks each hand over a share

	__device__ __forceinline__ Prompt(const Op &op, const PromptArgs<Op> &a, char *shared)
		: op(op), a(a), in(op.activations()), shared(shared_address(shared)), places(reinterpret_cast<Place *>(shared + PLACES)), span(blockIdx.x), steps(in.cols / STEP),
		  pieces((steps + PIECE - 1) / PIECE) {
		shares = a.spans > units() && a.spans % units() == 0;
		low = start_of(span);
		high = start_of(span + 1);
	}

	// Of 128 outputs each.
	__device__ __forceinline__ int units() const { return (op.units() + UNITS - 1) / UNITS; }
	// Where a span starts. A unit counts as some pieces more than it has, as many as its block
	// could multiply while it hands it over; fewer than a span has at least (parts.go), so that
	// no span is empty.
	__device__ __forceinline__ uint32_t start_of(int span) const {
		constexpr uint32_t HANDING = 5;
		const uint32_t each = pieces + (shares ? 0 : HANDING), at = units() * each * span / a.spans, unit = at / each;
		return unit * pieces + min(at - unit * each, (uint32_t)pieces);
	}

	__device__ __forceinline__ uint32_t full(int s) const { return shared + s * 16; }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	__device__ __forceinline__ uint32_t handed() const { return full(STAGES); } // over: results make room
	__device__ __forceinline__ uint32_t scaled() const { return handed() + 8; } // a tile's scales are there
	__device__ __forceinline__ uint32_t tiled() const { return handed() + 16; } // and were read
	__device__ __forceinline__ uint32_t passed() const { return handed() + 24; } // a clerk passed a tile's sums on
	__device__ __forceinline__ uint32_t rows(int s) const { return shared + BARRIERS + s * ROWS; }

	__device__ __forceinline__ Done results() const { return {op, a.next, shared + BARRIERS, shared + SCALES, places}; }

	__device__ __forceinline__ void start_barriers() {
		if (threadIdx.x == CONSUMERS) {
			for (int s = 0; s < STAGES; s++) {
				barrier_init(full(s), 1);
				barrier_init(empty(s), CONSUMERS / 32 * WARP_ARRIVALS);
			}
			barrier_init(handed(), CONSUMERS / 32 * WARP_ARRIVALS);
			barrier_init(scaled(), CLERKS / 32 * WARP_ARRIVALS);
			barrier_init(tiled(), CONSUMERS / 32 * WARP_ARRIVALS);
			barrier_init(passed(), WARP_ARRIVALS);
			asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
		}
		__syncwarp();
	}
	// When it returns, what the kernel before wrote is there.
	static __device__ __forceinline__ void begin_after() {
		let_next_begin();
		await_previous();
	}
	// What consumers leave a clerk, and what they wait for.
	static __device__ __forceinline__ void give_clerk() { asm volatile("bar.arrive 2, %0;" ::"n"(CONSUMERS + 32) : "memory"); }
	static __device__ __forceinline__ void await_consumers() { asm volatile("bar.sync 2, %0;" ::"n"(CONSUMERS + 32) : "memory"); }
	static __device__ __forceinline__ void give_consumers() { asm volatile("bar.arrive 3, %0;" ::"n"(CONSUMERS + 32) : "memory"); }
	static __device__ __forceinline__ void await_clerk() { asm volatile("bar.sync 3, %0;" ::"n"(CONSUMERS + 32) : "memory"); }
	static __device__ __forceinline__ void wait_for_consumers() { asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory"); }
	// Where a thread is among its block's pieces: tile after tile of tokens, and for each
	// the span's parts, the last unit's first. So what another block waits for is done early.
	struct Walk {
		int tile, unit, piece, end; // piece of the unit, and where the part ends
		int before;                 // pieces of the span that come before the part
	};
	__device__ __forceinline__ Walk part_before(int tile, int high) const {
		const int unit = (high - 1) / pieces, base = unit * pieces, from = max(low, base);
		return {tile, unit, from - base, high - base, from - low};
	}
	__device__ __forceinline__ Walk begin() const { return part_before(0, high); }
	__device__ __forceinline__ bool there(const Walk &w) const { return w.tile < a.tiles; }
	__device__ __forceinline__ Walk part_after(const Walk &w) const { return w.before ? part_before(w.tile, low + w.before) : part_before(w.tile + 1, high); }
	// move goes to the next piece, and tells whether another part begins there.
	__device__ __forceinline__ bool move(Walk &w) const {
		if (++w.piece < w.end) return false;
		w = part_after(w);
		return true;
	}
	// Whether a part's block hands over results.
	__device__ __forceinline__ bool finishes(const Walk &w) const { return w.end == pieces || shares; }
	__device__ __forceinline__ int live(int tile) const { return min(T, in.n - tile * T); }
	__device__ __forceinline__ int eights(int tile) const { return (live(tile) + ATOM - 1) / ATOM; } // of its tokens

	// Brings a piece's activations.
	__device__ __forceinline__ void bring_rows(const Walk &w, int stage) {
		const int bytes = eights(w.tile) * ATOM_BYTES;
		barrier_expect(full(stage), bytes);
		bring(rows(stage), a.rounded.rows + ((size_t)w.piece * (a.rounded.tokens / ATOM) + w.tile * EIGHTS) * ATOM_BYTES, bytes, full(stage));
	}

	__device__ __forceinline__ void produce() {
		if (threadIdx.x != CONSUMERS) return;
		Cursor<STAGES> c;
		int brought = 0, phase = 0;
		for (Walk w = begin(); there(w); c.next()) {
			take(c, brought);
			bring_rows(w, c.at);
			const Walk was = w;
			if (!move(w) || !finishes(was)) continue;
			if (adds(was)) bring_parts(was, c, brought);
			if (there(w)) {
				barrier_wait(handed(), phase);
				phase ^= 1;
			}
		}
	}
	// Waits until a stage is free.
	__device__ __forceinline__ void take(const Cursor<STAGES> &c, int &brought) const {
		if (brought < STAGES)
			brought++;
		else
			barrier_wait(empty(c.at), c.phase ^ 1);
	}

	// Whether a part is the last of several of a unit, and its block adds the others.
	__device__ __forceinline__ bool adds(const Walk &w) const { return !shares && w.end == pieces && w.unit * pieces < low; }
	// The first span that has some of a unit.
	__device__ __forceinline__ int first_span(int unit) const {
		const int s = unit * a.spans / units();
		return s + (start_of(s + 1) <= unit * pieces);
	}

	// Brings the parts before it, a few stages each, behind the part's last piece.
	__device__ __forceinline__ void bring_parts(const Walk &part, Cursor<STAGES> &c, int &brought) {
		const int halves = 2 * eights(part.tile);
		for (int s = first_span(part.unit); s < span; s++) {
			uint32_t *m = meeting(part.tile, s);
			await_count(m, 1);
			*m = 0;
			asm volatile("fence.proxy.async.global;" ::: "memory"); // the copy engine reads what threads of another block wrote
			for (int h = 0; h < halves; h += HALVES) {
				c.next();
				take(c, brought);
				const int bytes = min(HALVES, halves - h) * HALF;
				barrier_expect(full(c.at), bytes);
				bring(rows(c.at), part_of(part.tile, s) + h * CONSUMERS, bytes, full(c.at));
			}
		}
	}

	// A warp's row tile's weights, AHEAD pieces before they are multiplied.
	struct Feed {
		Walk w;
		const char *from; // this lane's 16 bytes of the unit's step 0, or null
		uint32_t ring;    // and where they come to
	};
	__device__ __forceinline__ const char *weights_of(int unit) const {
		const int warp = threadIdx.x >> 5, u = unit * UNITS + warp / Op::R;
		return u < op.units() ? reinterpret_cast<const char *>(op.tile(u, warp % Op::R)) + threadIdx.x % 32 * 16 : nullptr;
	}
	__device__ __forceinline__ Feed feed() const {
		const Walk w = begin();
		return {w, weights_of(w.unit), shared + BARRIERS + STAGES * ROWS + (threadIdx.x >> 5) * (AHEAD * TILE_PIECE) + threadIdx.x % 32 * 16};
	}

	// Begins to copy the next piece's weights; zeros for steps that are not there.
	__device__ __forceinline__ void fetch(Feed &f, int at) const {
		if (there(f.w)) {
#pragma unroll
			for (int j = 0; j < PIECE; j++) {
				const int step = f.w.piece * PIECE + j;
				const bool there = f.from && step < steps;
				copy_once_or_zero(f.ring + at * TILE_PIECE + j * 512, there ? f.from + (size_t)step * 512 : a.rounded.rows, there);
			}
			if (move(f.w)) f.from = weights_of(f.w.unit);
		}
		end_copies();
	}
	// Weights may come before the kernel before has ended.
	__device__ __forceinline__ void begin_weights(Feed &f) const {
		for (int i = 0; i < AHEAD; i++) fetch(f, i);
	}

	// Leaves the scale and the place of each of a tile's tokens for finish.
	__device__ __forceinline__ void scale_tokens(int tile) const {
		for (int t = threadIdx.x - CONSUMERS - 32; t < live(tile); t += CLERKS) {
			places[t] = op.place(tile * T + t);
			const float *p = a.rounded.scales + tile * T + t;
			float scale = *p;
			if (a.rounded.parts) {
#pragma unroll 8
				for (int i = 1; i < a.rounded.parts; i++) scale = __fadd_rn(scale, p[(size_t)i * a.rounded.tokens]);
				scale = rms_scale(in, scale);
			}
			asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + SCALES + t * 4), "f"(scale) : "memory");
		}
	}

	// What clerks do: each tile's scales, while the first pieces are multiplied; and one of
	// them waits for memory and for other blocks.
	__device__ __forceinline__ void assist() const {
		int tile = -1;
		for (Walk w = begin(); there(w); w = part_after(w)) {
			if (Op::NORMED && w.tile != tile) {
				if (w.tile > 0) barrier_wait(tiled(), (w.tile - 1) & 1);
				scale_tokens(w.tile);
				warp_arrive(scaled());
			}
			tile = w.tile;
			if (threadIdx.x / 32 == CONSUMERS / 32 + 1 && (shares || w.end < pieces)) pass_on(w);
		}
	}

	// A part's sums are for other blocks.
	__device__ __forceinline__ void pass_on(const Walk &part) const {
		await_consumers();
		const int parts = a.spans / units();
		if (threadIdx.x % 32 == 0) {
			uint32_t *m = meeting(part.tile, shares ? part.unit * parts : span);
			come(m);
			if (shares) {
				await_count(m, parts);
				if (atomicInc(m + 1, parts - 1) == parts - 1) *m = 0; // the last to leave
			}
		}
		warp_arrive(passed());
		if (shares) give_consumers();
	}

	// A warp's 16 outputs of each unit, over the block's parts.
	__device__ __forceinline__ void consume(Feed &f) {
		Cursor<STAGES> c;
		Cursor<AHEAD> ring;
		for (Walk w = begin(); there(w);) {
			const Walk part = w;
			float sum[T / 2];
#pragma unroll
			for (int e = 0; e < T / 2; e++) sum[e] = 0;
			do {
				await_copies<AHEAD - 1>();
				uint4 weights[PIECE];
#pragma unroll
				for (int j = 0; j < PIECE; j++) weights[j] = load_shared(f.ring + ring.at * TILE_PIECE + j * 512);
				barrier_wait(full(c.at), c.phase);
				multiply<D, T>(sum, weights, rows(c.at));
				fetch(f, ring.at);
				asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
				hold(sum);
				warp_arrive(empty(c.at));
				c.next();
				ring.next();
			} while (!move(w));
			deliver(part, sum, c);
			if (Op::NORMED && w.tile != part.tile) {
				// A block that hands over nothing has not awaited its clerks, who must not find a
				// tile's barrier two phases on.
				barrier_wait(scaled(), part.tile & 1);
				warp_arrive(tiled());
			}
		}
		await_copies<0>();
	}

	// Hands over the results of a part, or leaves its sums to the block that does.
	__device__ __forceinline__ void deliver(const Walk &part, float (&sum)[T / 2], Cursor<STAGES> &c) {
		const int all = eights(part.tile);
		int from = 0, to = all; // eights of tokens that this block hands over
		int me = threadIdx.x;
		asm volatile("" : "+r"(me)); // what depends on it takes no registers while pieces are multiplied
		if (shares || part.end < pieces) {
			to = 0;
			if (shares) {
				const int parts = a.spans / units(), which = span % parts;
				from = all * which / parts;
				to = all * (which + 1) / parts;
			}
			leave(part.tile, sum, from, to, me);
			if (part.tile > 0) barrier_wait(passed(), part.tile - 1 & 1);
			give_clerk();
			if (!shares) return;
			wait_for_consumers(); // nobody reads activations any more
			keep_own(sum, from, to, me);
			await_clerk();
			keep_shared(part, from, to, me);
		} else {
			if (adds(part)) gather(part, sum, c, me);
			wait_for_consumers();
#pragma unroll
			for (int i = 0; i < EIGHTS; i++)
				if (i < all) results().keep(i, {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]}, me);
		}
		wait_for_consumers();
		if (Op::NORMED) barrier_wait(scaled(), part.tile & 1);
		results().finish(part.unit, part.tile * T, from * ATOM, min(live(part.tile), to * ATOM), me);
		asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
		warp_arrive(handed());
	}

	// A part's sums, and where blocks hear of them.
	__device__ __forceinline__ float2 *part_of(int tile, int span) const { return a.sums + (size_t)(tile * a.spans + span) * 2 * EIGHTS * CONSUMERS; }
	__device__ __forceinline__ uint32_t *meeting(int tile, int span) const { return a.meetings + (tile * a.spans + span) * 2; }
	// Those of the block's other warps that this thread has waited for come before it.
	static __device__ __forceinline__ void come(uint32_t *meeting) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(meeting) : "memory"); }

	// Leaves a part's sums, but for the eights of tokens that this block itself hands over.
	__device__ __forceinline__ void leave(int tile, const float (&sum)[T / 2], int from, int to, int me) const {
		float2 *p = part_of(tile, span) + me;
		const int all = eights(tile);
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
			if (i >= all || (i >= from && i < to)) continue;
			__stcg(p + 2 * i * CONSUMERS, float2{sum[4 * i], sum[4 * i + 1]});
			__stcg(p + (2 * i + 1) * CONSUMERS, float2{sum[4 * i + 2], sum[4 * i + 3]});
		}
	}

	// Adds to the last part of a unit the parts before it, which come through the stages.
	__device__ __forceinline__ void gather(const Walk &part, float (&sum)[T / 2], Cursor<STAGES> &c, int me) const {
		const int halves = 2 * eights(part.tile);
		for (int s = first_span(part.unit); s < span; s++) {
#pragma unroll
			for (int h = 0; h < 2 * EIGHTS; h += HALVES) {
				if (h >= halves) continue;
				barrier_wait(full(c.at), c.phase);
				const uint32_t from = rows(c.at) + me * 8;
#pragma unroll
				for (int i = 0; i < HALVES && h + i < 2 * EIGHTS; i++) {
					const float2 v = load_two(from + i * HALF);
					sum[2 * (h + i)] = __fadd_rn(sum[2 * (h + i)], v.x);
					sum[2 * (h + i) + 1] = __fadd_rn(sum[2 * (h + i) + 1], v.y);
				}
				warp_arrive(empty(c.at));
				c.next();
			}
		}
	}

	// Where a thread keeps its own sums of an eight of tokens while it awaits those of others:
	// behind the results of a share.
	__device__ __forceinline__ uint32_t own(int i, int me) const { return shared + BARRIERS + (EIGHTS + 1) / 2 * ATOM * Done::PITCH * 4 + i * 2 * HALF + me * 16; }
	__device__ __forceinline__ void keep_own(const float (&sum)[T / 2], int from, int to, int me) const {
#pragma unroll
		for (int i = 0; i < EIGHTS; i++)
			if (i >= from && i < to)
				asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(own(i - from, me)), "f"(sum[4 * i]), "f"(sum[4 * i + 1]), "f"(sum[4 * i + 2]), "f"(sum[4 * i + 3]) : "memory");
	}

	// Keeps the sums of all parts of eights of a unit's tokens, this block's share. The sums of
	// four parts and E eights are on their way together: they may be more than are there.
	__device__ __forceinline__ void keep_shared(const Walk &part, int from, int to, int me) const {
		constexpr int E = (EIGHTS + 3) / 4;
		const int parts = a.spans / units(), first = part.unit * parts, last = first + parts - 1;
		if (parts == 4) {
			float4 v[4][E];
			load_part(v[0], part.tile, last, from, from, me);
			load_part(v[1], part.tile, first, from, from, me);
			load_part(v[2], part.tile, first + 1, from, from, me);
			load_part(v[3], part.tile, first + 2, from, from, me);
#pragma unroll
			for (int e = 0; e < E; e++) results().keep(e, add(add(add(v[0][e], v[1][e]), v[2][e]), v[3][e]), me);
			return;
		}
#pragma unroll 1
		for (int i = from; i < to; i++) {
			float4 v[1], sum[1];
			load_part(sum, part.tile, last, from, i, me);
#pragma unroll 4
			for (int s = first; s < last; s++) {
				load_part(v, part.tile, s, from, i, me);
				sum[0] = add(sum[0], v[0]);
			}
			results().keep(i - from, sum[0], me);
		}
	}
	// Asks for a thread's sums of eights of tokens from i on.
	template <int E> __device__ __forceinline__ void load_part(float4 (&v)[E], int tile, int s, int from, int i, int me) const {
		if (s == span) {
#pragma unroll
			for (int e = 0; e < E; e++) v[e] = load_four(own(i + e - from, me));
			return;
		}
		const float2 *p = part_of(tile, s) + 2 * i * CONSUMERS + me;
#pragma unroll
		for (int e = 0; e < E; e++) {
			const float2 low = __ldcg(p + 2 * e * CONSUMERS), high = __ldcg(p + (2 * e + 1) * CONSUMERS);
			v[e] = {low.x, low.y, high.x, high.y};
		}
	}
};

template <class Op, class D, int T, int AHEAD, int STAGES> __device__ __forceinline__ void prompt(const PromptArgs<Op> &a) {
	using Block = Prompt<Op, D, T, AHEAD, STAGES>;
	extern __shared__ __align__(1024) char promptShared[];
	const Op op(a.op);
	Block b(op, a, promptShared);
	const bool produces = threadIdx.x / 32 == Block::CONSUMERS / 32;
	if (produces) b.start_barriers();
	__syncthreads();
	if (threadIdx.x >= Block::CONSUMERS) {
		give_registers<T>();
		b.begin_after();
		if (produces)
			b.produce();
		else
			b.assist();
	} else {
		take_registers<T>();
		typename Block::Feed feed = b.feed();
		b.begin_weights(feed);
		b.begin_after();
		b.consume(feed);
	}
}
#endif
