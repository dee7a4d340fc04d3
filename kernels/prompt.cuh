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
#include "deep.cuh"

// What a prompt's product reads beside its op's arguments.
template <class Op> struct PromptArgs {
	typename Op::Args op;
	Rounded rounded;
	Onward next;
	float4 *sums;         // [tiles][spans][T/8][256]: parts that another block adds
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
	static constexpr int REGION = T * COLUMN; // floats of a row tile's results, which take the place of activations
	static constexpr int SCALES = 512, PLACES = 2048, BARRIERS = PLACES + (sizeof(Place) * T + 1023) / 1024 * 1024, BYTES = BARRIERS + STAGES * ROWS + WEIGHTS;
	static_assert(STAGES * 16 + 32 <= SCALES && SCALES + T * 4 <= PLACES);
	static_assert(TILES * REGION * 4 <= STAGES * ROWS && T % ATOM == 0);

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
		low = start_of(span);
		high = start_of(span + 1);
		shares = a.spans > units() && a.spans % units() == 0;
	}

	// Of 128 outputs each.
	__device__ __forceinline__ int units() const { return (op.units() + UNITS - 1) / UNITS; }
	__device__ __forceinline__ int start_of(int span) const { return (int64_t)units() * pieces * span / a.spans; }

	__device__ __forceinline__ uint32_t full(int s) const { return shared + s * 16; }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	__device__ __forceinline__ uint32_t handed() const { return full(STAGES); } // over: results make room
	__device__ __forceinline__ uint32_t scaled() const { return handed() + 8; } // a tile's scales are there
	__device__ __forceinline__ uint32_t tiled() const { return handed() + 16; } // and were read
	__device__ __forceinline__ uint32_t passed() const { return handed() + 24; } // a clerk passed a tile's sums on
	__device__ __forceinline__ uint32_t rows(int s) const { return shared + BARRIERS + s * ROWS; }

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

	// Where a thread is in a ring.
	template <int SIZE> struct Cursor {
		int at = 0, phase = 0;
		__device__ __forceinline__ void next() {
			if (++at == SIZE) at = 0, phase ^= 1;
		}
	};

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

	// Brings a piece's activations.
	__device__ __forceinline__ void bring_rows(const Walk &w, int stage) {
		const int bytes = (live(w.tile) + ATOM - 1) / ATOM * ATOM_BYTES;
		barrier_expect(full(stage), bytes);
		bring(rows(stage), a.rounded.rows + ((size_t)w.piece * (a.rounded.tokens / ATOM) + w.tile * EIGHTS) * ATOM_BYTES, bytes, full(stage));
	}

	__device__ __forceinline__ void produce() {
		if (threadIdx.x != CONSUMERS) return;
		Cursor<STAGES> c;
		int brought = 0, phase = 0;
		for (Walk w = begin(); there(w); c.next()) {
			if (brought < STAGES)
				brought++;
			else
				barrier_wait(empty(c.at), c.phase ^ 1);
			bring_rows(w, c.at);
			const bool last = finishes(w);
			if (move(w) && last && there(w)) {
				barrier_wait(handed(), phase);
				phase ^= 1;
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
				copy_or_zero(f.ring + at * TILE_PIECE + j * 512, there ? f.from + (size_t)step * 512 : a.rounded.rows, there);
			}
			if (move(f.w)) f.from = weights_of(f.w.unit);
		}
		end_batch();
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
	__device__ __forceinline__ float scale(int token) const {
		float v;
		asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(shared + SCALES + token * 4) : "memory");
		return v;
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
			__threadfence();
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
				await_batches<AHEAD - 1>();
				uint4 weights[PIECE];
#pragma unroll
				for (int j = 0; j < PIECE; j++) weights[j] = load_shared(f.ring + ring.at * TILE_PIECE + j * 512);
				barrier_wait(full(c.at), c.phase);
				multiply(sum, weights, rows(c.at));
				fetch(f, ring.at);
				asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
				fence(sum);
				warp_arrive(empty(c.at));
				c.next();
				ring.next();
			} while (!move(w));
			deliver(part, sum);
			if (Op::NORMED && w.tile != part.tile) {
				// A block that hands over nothing has not awaited its clerks, who must not find a
				// tile's barrier two phases on.
				barrier_wait(scaled(), part.tile & 1);
				warp_arrive(tiled());
			}
		}
		await_batches<0>();
	}

	__device__ __forceinline__ void multiply(float (&sum)[T / 2], const uint4 (&weights)[PIECE], uint32_t rows) {
		fence(sum);
		asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
		for (int j = 0; j < PIECE; j++) wgmma<D, T>(sum, weights[j], tile_of(rows + j * STEP * 2));
		asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
	}

	// The compiler leaves the sums where they are.
	static __device__ __forceinline__ void fence(float (&sum)[T / 2]) {
#pragma unroll
		for (int e = 0; e < T / 2; e++) asm volatile("" : "+f"(sum[e])::"memory");
	}

	// Hands over the results of a part, or leaves its sums to the block that does.
	__device__ __forceinline__ void deliver(const Walk &part, float (&sum)[T / 2]) {
		const int all = (live(part.tile) + ATOM - 1) / ATOM; // eights of tokens
		int from = 0, to = all;
		if (shares || part.end < pieces) {
			leave(part.tile, sum);
			if (part.tile > 0) barrier_wait(passed(), part.tile - 1 & 1);
			give_clerk();
		}
		if (shares) {
			const int parts = a.spans / units(), which = span % parts;
			from = all * which / parts;
			to = all * (which + 1) / parts;
			await_clerk(); // who has waited for all consumers: nobody reads activations any more
			keep_shared(part, from, to);
		} else if (part.end < pieces) {
			return;
		} else {
			if (part.piece > 0) gather(part, sum);
			wait_for_consumers();
			keep(sum);
		}
		wait_for_consumers();
		if (Op::NORMED) barrier_wait(scaled(), part.tile & 1);
		finish(part, from * ATOM, min(live(part.tile), to * ATOM));
		asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
		warp_arrive(handed());
	}

	// A part's sums, and where blocks hear of them.
	__device__ __forceinline__ float4 *sums(int tile, int span) const { return a.sums + (size_t)(tile * a.spans + span) * EIGHTS * CONSUMERS + threadIdx.x; }
	__device__ __forceinline__ uint32_t *meeting(int tile, int span) const { return a.meetings + (tile * a.spans + span) * 2; }
	static __device__ __forceinline__ void come(uint32_t *meeting) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(meeting) : "memory"); }

	__device__ __forceinline__ void leave(int tile, const float (&sum)[T / 2]) const {
		float4 *to = sums(tile, span);
#pragma unroll
		for (int i = 0; i < EIGHTS; i++)
			if (i * ATOM < live(tile)) __stcg(to + i * CONSUMERS, float4{sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]});
	}

	// Adds to the last part of a unit the parts before it.
	__device__ __forceinline__ void gather(const Walk &part, float (&sum)[T / 2]) const {
		int first = span;
		while (start_of(first) > part.unit * pieces) first--;
		if (threadIdx.x < span - first) {
			uint32_t *m = meeting(part.tile, first + threadIdx.x);
			await_count(m, 1);
			*m = 0;
		}
		wait_for_consumers();
		for (int s = first; s < span; s++) add_part(sums(part.tile, s), sum, live(part.tile));
	}

	// Keeps the sums of all parts of eights of a unit's tokens, this block's share.
	__device__ __forceinline__ void keep_shared(const Walk &part, int from, int to) const {
		constexpr int BATCH = 4;
		const int parts = a.spans / units(), first = part.unit * parts, last = first + parts - 1;
#pragma unroll 4
		for (int i = from; i < to; i++) {
			float4 sum = __ldcg(sums(part.tile, last) + i * CONSUMERS);
			for (int s = first; s < last; s += BATCH) {
				float4 v[BATCH];
#pragma unroll
				for (int k = 0; k < BATCH; k++)
					if (s + k < last) v[k] = __ldcg(sums(part.tile, s + k) + i * CONSUMERS);
#pragma unroll
				for (int k = 0; k < BATCH; k++)
					if (s + k < last) sum = {__fadd_rn(sum.x, v[k].x), __fadd_rn(sum.y, v[k].y), __fadd_rn(sum.z, v[k].z), __fadd_rn(sum.w, v[k].w)};
			}
			keep_eight(i, sum);
		}
	}

	__device__ __forceinline__ void add_part(const float4 *p, float (&sum)[T / 2], int live) const {
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
			if (i % 8 == 0) asm volatile("" ::: "memory"); // more on their way at a time would spill
			if (i * ATOM < live) {
				const float4 v = __ldcg(p + i * CONSUMERS);
				sum[4 * i] = __fadd_rn(sum[4 * i], v.x);
				sum[4 * i + 1] = __fadd_rn(sum[4 * i + 1], v.y);
				sum[4 * i + 2] = __fadd_rn(sum[4 * i + 2], v.z);
				sum[4 * i + 3] = __fadd_rn(sum[4 * i + 3], v.w);
			}
		}
	}

	// Leaves a warp's sums in shared memory: [row tile][token][COLUMN].
	__device__ __forceinline__ void keep(const float (&sum)[T / 2]) const {
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) keep_eight(i, {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]});
	}
	// A lane's sums of eight tokens: of two rows and two tokens.
	__device__ __forceinline__ void keep_eight(int i, const float4 &v) const {
		const int lane = threadIdx.x % 32;
		const uint32_t at = region(threadIdx.x >> 5) + ((i * ATOM + (lane & 3) * 2) * COLUMN + lane / 4) * 4;
		asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v.x) : "memory");
		asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + COLUMN * 4), "f"(v.y) : "memory");
		asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + 32), "f"(v.z) : "memory");
		asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + COLUMN * 4 + 32), "f"(v.w) : "memory");
	}
	__device__ __forceinline__ uint32_t region(int tile) const { return shared + BARRIERS + tile * REGION * 4; }

	// Four rows' results of a token.
	__device__ __forceinline__ float4 result(int tile, int token, int row) const {
		const uint4 v = load_shared(region(tile) + (token * COLUMN + row) * 4);
		return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
	}

	// Leaves four of a token's results, from column k on, for the next product. All threads
	// of a warp come here with the same token, and together have 128 columns of it where the
	// next product has a norm, of which the thread's is `norm`.
	__device__ __forceinline__ void hand_on(int token, int k, float4 v, const float4 &norm, bool there) const {
		const Onward &next = a.next;
		if (next.norm) {
			float square = there ? add_squares(0, v) : 0;
#pragma unroll
			for (int lane = 1; lane < 32; lane *= 2) square = __fadd_rn(square, __shfl_xor_sync(~0u, square, lane));
			if (threadIdx.x % 32 == 0) next.squares[(size_t)(k / 128) * next.tokens + token] = square;
			v = times(v, norm);
		}
		if (there) store_rounded(next.rows, next.tokens, token, k, ::rounded<D>(v));
	}

	// Hands the op the results of a tile's tokens, BATCH quads of rows of a thread at a
	// time: all that is read for them is on its way together.
	__device__ __forceinline__ void finish(const Walk &part, int from, int to) const {
		constexpr int BATCH = T > 16 ? 4 : 2;
		const int quads = (to - from) * UNITS * 4, first = part.tile * T;
		for (int i = threadIdx.x; i < quads; i += BATCH * CONSUMERS) {
			typename Op::Quad quad[BATCH];
			float4 norm[BATCH];
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				const int at = i + k * CONSUMERS, u = part.unit * UNITS + at / 4 % UNITS;
				quad[k].there = at < quads && u < op.units();
				if (!quad[k].there) continue;
				quad[k].prepare(op.o, u, at % 4 * 4, first + from + at / (4 * UNITS), places[from + at / (4 * UNITS)]);
				if (Op::ONWARD && a.next.norm) norm[k] = load_constant(a.next.norm + u * 16 + at % 4 * 4);
			}
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				const int at = i + k * CONSUMERS, row = at % 4 * 4, u = at / 4 % UNITS, token = from + at / (4 * UNITS);
				if (at >= quads) break;
				float4 v[Op::R] = {};
				if (quad[k].there) {
					const float by = Op::NORMED ? scale(token) : 1.f;
#pragma unroll
					for (int r = 0; r < Op::R; r++) v[r] = times(result(u * Op::R + r, token, row), {by, by, by, by});
					v[0] = quad[k].finish(op.o, v, a.next.rows);
				}
				if (Op::ONWARD && a.next.rows) hand_on(first + token, (part.unit * UNITS + u) * 16 + row, v[0], norm[k], quad[k].there);
			}
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
