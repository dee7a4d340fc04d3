// Decode attention of many rows on Hopper (attend_many.cu): blocks stay on their SMs and take units of work, the long
// ones first, from a counter. A producer warp copies keys and values through a ring in shared memory, far ahead of the
// warps that multiply, across the borders of units. Sums are those of attend.cu: the same warps and splits in the same
// order. The rows' own keys and values are stored before: with deferred RoPE by a kernel of its own (qkpost.cu).
#pragma once
#include "attention/blocks.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/pdl.cuh"
#include "ptx/warp.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// SHARING_ROWS is how many rows may share their splits among blocks: attendSplitRows of attend.go.
constexpr int SHARING_ROWS = 64;

// attend_taken counts the units that blocks have taken beyond their first. It is 0 between launches.
__device__ __forceinline__ unsigned *attend_taken(const AttendArgs &a) { return a.arrived + SHARING_ROWS * a.heads; }

// AttendConsumers are the threads that multiply.
struct AttendConsumers {
	static constexpr int THREADS = 32 * WARPS;
	static __device__ __forceinline__ void sync() { named_barrier_sync<THREADS>(1); }
};

// AttendManyTile is the tile of a unit. `share` counts the rows whose splits several blocks share.
struct AttendManyTile : AttendTile {
	int share;

	__device__ __forceinline__ size_t place(const AttendArgs &a, int entry) const {
		return (size_t)share * a.heads + head + entry;
	}
	__device__ __forceinline__ unsigned *arrived(const AttendArgs &a) const { return a.arrived + share * a.heads + head; }
};

// AttendUnit is what a block computes at a time: splits `begin` to `end`-1 of a tile, which has `units` of them. There
// is none if units is 0.
struct AttendUnit {
	AttendManyTile tile;
	int begin, end, units;
};

// AttendManyRow is a row's part of the plan: rows before it, and itself, have `full` units of as many splits as a unit
// has at most, and `rest` shorter ones, for each of their heads.
struct AttendManyRow {
	int slot, last, share, full, rest;
};

template <int CHUNKS> struct AttendManyShared {
	static constexpr int BLOCK = AttendSplits<CHUNKS>::BLOCK, DIM = 32 * CHUNKS;
	static constexpr int STAGE_BYTES = BLOCK * DIM * 2, MOST_STAGES = 32, QUEUE = 2;

	AttendUnit units[QUEUE];
	SoftmaxState states[2][WARPS][ENTRIES];
	uint64_t full[MOST_STAGES], empty[MOST_STAGES], unitFull[QUEUE], unitEmpty[QUEUE];
	// From ATTEND_MANY_SHARED on: the ring [a.parts][STAGE_BYTES], keys or values of a warp's block; queries float
	// [QUEUE][group][dim], sums float [2][WARPS][group][WIDE], AttendSum [group][WIDE], AttendManyRow [T].
};
constexpr int ATTEND_MANY_SHARED = 1280; // attendManyShared of attend_many_cuda.go

// AttendCursor is a stage of the ring, and the parity of the times that it was used.
struct AttendCursor {
	int stage, phase;

	__device__ __forceinline__ AttendCursor ahead(int by, int stages) const {
		AttendCursor c = {stage + by, phase};
		if (c.stage >= stages) c.stage -= stages, c.phase ^= 1;
		return c;
	}
};

// AttendMany is a thread's view of a block.
template <int CHUNKS> struct AttendMany {
	using Shared = AttendManyShared<CHUNKS>;
	using Cursor = AttendCursor;
	static constexpr int BLOCK = Shared::BLOCK, SPLIT = AttendSplits<CHUNKS>::SPLIT;
	static constexpr int HALVES = AttendBlock<CHUNKS>::HALVES, WIDE = 64 * HALVES, QUEUE = Shared::QUEUE;
	static_assert(sizeof(Shared) <= ATTEND_MANY_SHARED && sizeof(AttendManyRow) == 20, "as in attend_many_cuda.go");

	const AttendArgs &a;
	Shared &s;
	const int stages; // at least 2*WARPS: a split's keys and values are in the ring at once
	char *const ring;
	float *const queries, *const sums;
	AttendSum *const run;
	AttendManyRow *const rows;
	const int most; // entries of a tile

	__device__ __forceinline__ AttendMany(const AttendArgs &a, Shared &s)
		: a(a), s(s), stages(a.parts), ring((char *)&s + ATTEND_MANY_SHARED),
		  queries((float *)(ring + stages * Shared::STAGE_BYTES)), sums(queries + QUEUE * min(ENTRIES, a.group) * a.dim),
		  run((AttendSum *)(sums + 2 * WARPS * min(ENTRIES, a.group) * WIDE)),
		  rows((AttendManyRow *)(run + min(ENTRIES, a.group) * WIDE)), most(min(ENTRIES, a.group)) {}

	// start makes the barriers.
	__device__ __forceinline__ void start() const {
		if (threadIdx.x == 0) {
			for (int i = 0; i < stages; i++) {
				mbarrier_init(shared_address(&s.full[i]), 1);
				mbarrier_init(shared_address(&s.empty[i]), WARP_ARRIVALS);
			}
			for (int i = 0; i < QUEUE; i++) {
				mbarrier_init(shared_address(&s.unitFull[i]), 1);
				mbarrier_init(shared_address(&s.unitEmpty[i]), WARPS * WARP_ARRIVALS);
			}
			mbarrier_fence_init();
		}
	}

	__device__ __forceinline__ char *stage(const Cursor &c) const { return ring + c.stage * Shared::STAGE_BYTES; }

	// The blocks of positions of a split that a tile sees: warps low to high.
	static __device__ __forceinline__ int low(const AttendTile &t, int split) {
		return max(0, (t.first - split * SPLIT) / BLOCK);
	}
	static __device__ __forceinline__ int high(const AttendTile &t, int split) {
		return min(WARPS - 1, (t.last - split * SPLIT) / BLOCK);
	}
};

// AttendProducer is the warp that takes units and copies.
template <int CHUNKS> struct AttendProducer : AttendMany<CHUNKS> {
	using Base = AttendMany<CHUNKS>;
	using Base::a, Base::s, Base::stages, Base::rows, Base::queries, Base::most;
	using typename Base::Cursor;
	static constexpr int BLOCK = Base::BLOCK, SPLIT = Base::SPLIT, QUEUE = Base::QUEUE;

	const int lane, tiles, run; // tiles of a row; positions that a lane copies at once, of one page
	int size, full, units;      // splits of a unit; units with at least as many and all, of all rows
	int each;                   // rows that a lane plans
	int fullEnd, restEnd;       // units up to the lane's last row, of a tile
	bool waited;                // for QKV
	int issued;                 // blocks of positions copied before that

	__device__ __forceinline__ AttendProducer(const Base &b)
		: Base(b), lane(threadIdx.x % 32), tiles(a.kvHeads * ((a.group + ENTRIES - 1) / ENTRIES)),
		  run(min(1 << a.pageShift, BLOCK)), waited(!a.afterQKV), issued(0) {}

	__device__ __forceinline__ int first(int last) const { return max(0, last + 1 - a.visible); }
	__device__ __forceinline__ int splits(int last) const { return last / SPLIT - first(last) / SPLIT + 1; }

	static __device__ __forceinline__ int sum_before(int v) {
		const int lane = threadIdx.x % 32;
		int sum = v;
		for (int i = 1; i < 32; i *= 2) {
			const int x = __shfl_up_sync(~0u, sum, i);
			if (lane >= i) sum += x;
		}
		return sum - v;
	}

	// blocks returns how many blocks of positions a row sees.
	__device__ __forceinline__ int blocks(int last) const { return last / BLOCK - first(last) / BLOCK + 1; }
	// cuts returns how many units a tile of a row that shares its splits is cut into: all of `size` splits but the last,
	// which has half as many to half as many more.
	__device__ __forceinline__ int cuts(int last) const {
		return max(1, (blocks(last) + (WARPS / 2) * size - 1) / (WARPS * size));
	}

	// load_rows loads the lane's rows, begin to end-1, and returns how many blocks of positions they see.
	__device__ __forceinline__ int load_rows(int begin, int end) const {
		constexpr int BATCH = 8; // loads at once
		int all = 0;
#pragma unroll 1
		for (int r = begin; r < end; r += BATCH) {
			int slot[BATCH], last[BATCH];
#pragma unroll
			for (int i = 0; i < BATCH; i++)
				slot[i] = load_l2(a.slot + min(r + i, end - 1)), last[i] = load_l2(a.position + min(r + i, end - 1));
#pragma unroll
			for (int i = 0; i < BATCH; i++) {
				if (r + i >= end) break;
				rows[r + i].slot = slot[i], rows[r + i].last = last[i];
				all += blocks(last[i]);
			}
		}
		return all;
	}

	// plan cuts the work into units, which have at most half or an eighth of a block's share, so that all blocks end at
	// about the same time: half where there are few tiles, and an eighth but at least 4 splits where there are more, as
	// shared splits have to be merged.
	__device__ __forceinline__ void plan() {
		each = (a.T + 31) / 32;
		const int begin = min(lane * each, a.T), end = min(begin + each, a.T);
		const int all = __reduce_add_sync(~0u, load_rows(begin, end)) * tiles;
		const int share = all / (WARPS * (int)gridDim.x); // splits of a block
		size = 2 * a.T * tiles >= 3 * (int)gridDim.x ? max(4, share / 8) : max(2, share / 2);
		count_units(begin, end);
		__syncwarp();
		full = __shfl_sync(~0u, fullEnd, 31) * tiles, units = full + __shfl_sync(~0u, restEnd, 31) * tiles;
	}

	// count_units counts the units up to each of the lane's rows. Of all rows the first SHARING_ROWS long ones are cut.
	__device__ __forceinline__ void count_units(int begin, int end) {
		int sharing = 0, whole = 0, rest = 0;
#pragma unroll 1
		for (int r = begin; r < end; r++) sharing += cuts(rows[r].last) > 1;
		sharing = sum_before(sharing);
#pragma unroll 1
		for (int r = begin; r < end; r++) {
			AttendManyRow &row = rows[r];
			const int n = splits(row.last), k = cuts(row.last);
			row.share = k > 1 && sharing < SHARING_ROWS ? sharing : -1;
			sharing += k > 1;
			const bool isLong = n - (row.share < 0 ? 0 : (k - 1) * size) >= size; // the last unit
			whole += (row.share < 0 ? 0 : k - 1) + isLong, rest += !isLong;
			row.full = whole, row.rest = rest;
		}
		const int wholeBefore = sum_before(whole), restBefore = sum_before(rest);
#pragma unroll 1
		for (int r = begin; r < end; r++) rows[r].full += wholeBefore, rows[r].rest += restBefore;
		fullEnd = wholeBefore + whole, restEnd = restBefore + rest;
	}

	// unit returns unit number n.
	__device__ __forceinline__ AttendUnit unit(int n) const {
		AttendUnit u;
		u.units = 0;
		if (n >= units) return u;
		const bool isFull = n < full;
		if (!isFull) n -= full;
		const int of = n / tiles, tile = n - of * tiles;
		// The first row with more units than `of` up to its end: the lane that planned it, then its place there.
		int low = (__ffs(__ballot_sync(~0u, (isFull ? fullEnd : restEnd) > of)) - 1) * each;
		const int r = min(low + lane, a.T - 1);
		low += __ffs(__ballot_sync(~0u, (isFull ? rows[r].full : rows[r].rest) > of)) - 1;
		const AttendManyRow row = rows[low];
		AttendManyTile &t = u.tile;
		t.row = low, t.slot = row.slot, t.last = row.last, t.first = first(row.last), t.share = row.share;
		t.kept = t.last;
		const int parts = tiles / a.kvHeads, n0 = t.first / SPLIT, count = splits(row.last);
		t.kvHead = tile / parts;
		const int part = (tile - t.kvHead * parts) * ENTRIES;
		t.head = t.kvHead * a.group + part, t.group = min(ENTRIES, a.group - part);
		u.begin = n0, u.end = n0 + count, u.units = 1;
		if (row.share < 0) return u;
		u.units = cuts(row.last);
		const int last = n0 + (u.units - 1) * size; // where the last unit begins
		u.begin = isFull ? min(n0 + (of - (low ? rows[low - 1].full : 0)) * size, last) : last;
		if (u.begin < last) u.end = u.begin + size;
		return u;
	}

	__device__ __forceinline__ void publish(const AttendUnit &u, int n) {
		const int q = n % QUEUE;
		if (lane > 0) return;
		const uint32_t barrier = shared_address(&s.unitFull[q]);
		if (u.units == 0) return mbarrier_arrive(barrier);
		const int bytes = u.tile.group * a.dim * 4;
		mbarrier_expect(barrier, bytes);
		bulk_copy(shared_address(queries + q * most * a.dim), a.q + u.tile.index(a, 0) * a.dim, bytes, barrier);
	}

	__device__ __forceinline__ void wait(const AttendUnit &u, int n) {
		if (waited) return;
		pdl_wait();
		fence_async_global();
		waited = true;
		publish(u, n);
	}

	// copy fills two stages with keys and values of block w of a split. at is the page of the lane's run.
	__device__ __forceinline__ void copy(const AttendUnit &u, int n, int split, int w, uint32_t at, Cursor &c) {
		const AttendTile &t = u.tile;
		const int from = split * SPLIT + w * BLOCK, begin = max(from, t.first), end = min(from + BLOCK - 1, t.kept);
		if (end == t.last || 2 * ++issued > stages) wait(u, n);
		const int mine = split * SPLIT + lane * run, low = max(mine, begin), high = min(mine + run - 1, end);
		const uint32_t plane = a.kvHeads << a.pageShift, page = plane * 2 * a.layers;
		const uint32_t row = plane * 2 * a.layer + ((uint32_t)t.kvHead << a.pageShift) + at * page +
			(low & (1 << a.pageShift) - 1);
		const int rowBytes = a.dim * 2;
		const char *keys = (const char *)a.pool + (uint64_t)row * rowBytes;
		const bool copies = mine / BLOCK * BLOCK == from && low <= high;
#pragma unroll
		for (int v = 0; v < 2; v++) {
			const uint32_t full = shared_address(&s.full[c.stage]);
			mbarrier_wait(shared_address(&s.empty[c.stage]), c.phase);
			if (lane == 0) mbarrier_expect(full, max(end - begin + 1, 0) * rowBytes);
			__syncwarp();
			if (copies)
				bulk_copy(EVICT_FIRST, shared_address(this->stage(c)) + (low - from) * rowBytes,
					keys + (uint64_t)(v ? plane : 0) * rowBytes, (high - low + 1) * rowBytes, full);
			c = c.ahead(1, stages);
		}
	}

	// page returns the page of the lane's run of a split.
	__device__ __forceinline__ uint32_t page(const AttendTile &t, int split) const {
		const int p = min(max(split * SPLIT + lane * run, t.first), t.last);
		return load_l2(a.blockTable + (size_t)t.slot * a.pages + (p >> a.pageShift));
	}

	// copy_all copies a unit's keys and values. next is the page of its first split.
	__device__ __forceinline__ void copy_all(const AttendUnit &u, int n, uint32_t next, Cursor &c) {
#pragma unroll 1
		for (int split = u.begin; split < u.end; split++) {
			const uint32_t at = next;
			if (split + 1 < u.end) next = page(u.tile, split + 1);
#pragma unroll 1
			for (int w = Base::low(u.tile, split); w <= Base::high(u.tile, split); w++) copy(u, n, split, w, at, c);
		}
	}

	__device__ __forceinline__ void operator()() {
		Cursor c = {0, 1};
		int number = blockIdx.x;
		for (int n = 0;; n++) {
			const AttendUnit u = unit(number);
			unsigned taken = 0;
			uint32_t first = 0;
			if (u.units) first = page(u.tile, u.begin);
			if (u.units && lane == 0) taken = atomicAdd(attend_taken(a), 1u);
			mbarrier_wait(shared_address(&s.unitEmpty[n % QUEUE]), n / QUEUE & 1 ^ 1);
			__syncwarp(); // once the unit is published, this phase may end too, and a lane would wait for the one after
			if (lane == 0) s.units[n % QUEUE] = u;
			if (!u.units) {
				bring_ahead(a.ahead, blockIdx.x);
				// The next kernel waits for this one alone, so this one waits for those before, also for one beside it.
				if (!waited || a.beside) pdl_wait();
				return publish(u, n);
			}
			if (waited) publish(u, n);
			copy_all(u, n, first, c);
			wait(u, n);
			if (lane == 0 && taken == units - 1) *attend_taken(a) = 0; // nobody takes another
			number = gridDim.x + __shfl_sync(~0u, taken, 0);
		}
	}
};

// AttendRingBlock is a warp's block of positions in the ring, as AttendBlock has it in registers. Positions outside the
// tile are not there: the nearest one is read, and multiplied by 0.
template <int CHUNKS> struct AttendRingBlock {
	static constexpr int HALVES = AttendBlock<CHUNKS>::HALVES;
	const uint4 *keys, *values; // this lane's part of the stages' first rows
	int low, high, chunks;      // rows that are there; 16-byte chunks per row

	__device__ __forceinline__ int clamp(int row) const { return min(max(row, low), high); }
	__device__ __forceinline__ uint4 key_of(int i, int j) const {
		const int in = threadIdx.x % 32 / 4, by = threadIdx.x % 4, chunk = 4 * j + by < chunks ? 4 * j : -by;
		return keys[clamp(8 * i + in) * chunks + (j < CHUNKS - 1 ? 4 * j : chunk)];
	}
	__device__ __forceinline__ uint4 value_of(int h, int i) const {
		const int in = threadIdx.x % 32 / 4, by = threadIdx.x % 4, chunk = 8 * h + in < chunks ? 8 * h : -in;
		const int row = clamp(16 * (i / 4) + i % 2 + i / 2 % 2 * 8 + 2 * by);
		return values[row * chunks + (h < HALVES - 1 ? 8 * h : chunk)];
	}
};

// AttendConsumer is a thread that multiplies.
template <int CHUNKS, class Logits> struct AttendConsumer : AttendMany<CHUNKS> {
	using Base = AttendMany<CHUNKS>;
	using Base::a, Base::s, Base::stages, Base::queries, Base::sums, Base::run, Base::most;
	using typename Base::Cursor;
	static constexpr int BLOCK = Base::BLOCK, SPLIT = Base::SPLIT, QUEUE = Base::QUEUE, WIDE = Base::WIDE;
	static constexpr int HALVES = Base::HALVES;

	using Queries = AttendQueries<CHUNKS>;

	const Logits &logits;
	const int warp, lane;

	__device__ __forceinline__ AttendConsumer(const Base &b, const Logits &logits)
		: Base(b), logits(logits), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {}

	__device__ __forceinline__ void load_queries(Queries &q, const AttendTile &t, int n) const {
		const int in = lane / 4, by = lane % 4;
		const float4 *from = (const float4 *)(queries + (n % QUEUE * most + min(in, t.group - 1)) * a.dim + 8 * by);
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			q.x[j][0] = q.x[j][1] = {};
			if (in < t.group && 32 * j + 8 * by < a.dim) q.x[j][0] = from[8 * j], q.x[j][1] = from[8 * j + 1];
		}
		q.round();
	}

	// block computes the warp's sums of its block of a split, whose stages begin at c.
	__device__ __forceinline__ void block(
		const Queries &q, const AttendTile &t, int from, Cursor c, float *to, SoftmaxState *state) const {
		const Cursor v = c.ahead(1, stages);
		const AttendRingBlock<CHUNKS> b = {(const uint4 *)this->stage(c) + lane % 4,
			(const uint4 *)this->stage(v) + lane / 4, t.first - from, max(t.kept - from, 0), a.dim / 8};
		AttendWeights<CHUNKS> w;
		mbarrier_wait(shared_address(&s.full[c.stage]), c.phase);
		w.score(q, b);
		mbarrier_free_warp(shared_address(&s.empty[c.stage]));
		w.mask(a, logits, t, from);
		w.weigh();
		mbarrier_wait(shared_address(&s.full[v.stage]), v.phase);
		w.template sum<false>(b, t, from, nullptr, to);
		mbarrier_free_warp(shared_address(&s.empty[v.stage]));
		if (lane % 4 == 0) state[lane / 4] = {w.most, w.weight};
	}

	// buffer_at returns one of two buffers for the warps' sums. A unit with fewer entries than the one before must not
	// move them: others may still read its sums.
	__device__ __forceinline__ float *buffer_at(int buffer) const { return sums + buffer * WARPS * most * WIDE; }

	// add adds the warps' sums of a split, to those of the splits before if the block has them all. A thread has an
	// element of each entry, or of every second one; all of them are loaded before any is stored.
	__device__ __forceinline__ void add(const AttendUnit &u, int split, int buffer) const {
		constexpr int BATCH = 4;
		const int all = u.tile.group * WIDE;
#pragma unroll 1
		for (int from = threadIdx.x; from < all; from += BATCH * AttendConsumers::THREADS) {
			AttendSum sum[BATCH], before[BATCH];
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				const int i = from + k * AttendConsumers::THREADS;
				if (i >= all) break;
				sum[k] = attend_add<WIDE, false>(s.states[buffer], buffer_at(buffer), u.tile.group, i);
				before[k] = split > u.begin ? run[i] : logits.before(a, u.tile, i / WIDE);
			}
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				const int i = from + k * AttendConsumers::THREADS;
				if (i >= all) break;
				if (i % WIDE < a.dim) keep(u, split, i, sum[k], before[k]);
			}
		}
	}
	// keep stores element i of a split's sums: as partial sums, added to those before, or as results.
	__device__ __forceinline__ void keep(
		const AttendUnit &u, int split, int i, const AttendSum &sum, AttendSum all) const {
		const int entry = i / WIDE, element = i % WIDE;
		if (u.units > 1) {
			float *p = attend_partial(a, u.tile, entry, split);
			p[element] = sum.sum;
			if (element == 0) p[a.dim] = sum.most, p[a.dim + 1] = sum.weight;
			return;
		}
		all.add(sum.sum, sum.most, sum.weight);
		if (split + 1 < u.end)
			run[i] = all;
		else
			AttendStore().store(a, u.tile.index(a, entry), element, all.sum / all.weight);
	}

	__device__ __forceinline__ void operator()() {
		Cursor c = {0, 0};
		int buffer = 0;
		for (int n = 0;; n++) {
			mbarrier_wait(shared_address(&s.unitFull[n % QUEUE]), n / QUEUE & 1);
			const AttendUnit u = s.units[n % QUEUE];
			if (!u.units) return;
			const AttendManyTile &t = u.tile;
			Queries q;
			load_queries(q, t, n);
			mbarrier_free_warp(shared_address(&s.unitEmpty[n % QUEUE]));
#pragma unroll 1
			for (int split = u.begin; split < u.end; split++, buffer ^= 1) {
				const int low = Base::low(t, split), high = Base::high(t, split);
				if (warp >= low && warp <= high)
					block(q, t, split * SPLIT + warp * BLOCK, c.ahead(2 * (warp - low), stages),
						buffer_at(buffer) + warp * t.group * WIDE, s.states[buffer][warp]);
				else if (lane % 4 == 0)
					s.states[buffer][warp][lane / 4] = {-INFINITY, 0};
				AttendConsumers::sync(); // also: buffers read below are written again only after the next one
				add(u, split, buffer);
				c = c.ahead(2 * (high - low + 1), stages);
			}
			if (u.units > 1) {
				const int begin = t.first / SPLIT, end = t.last / SPLIT + 1;
				attend_merge<WIDE, AttendConsumers::THREADS, AttendConsumers>(
					a, logits, t, run, begin, end, u.units, AttendStore());
			}
		}
	}
};

template <int CHUNKS, class Logits = AttendPlain>
__device__ __forceinline__ void attend_many(const AttendArgs &a, const Logits &logits = {}) {
	extern __shared__ __align__(128) char attend_many_shared[];
	const AttendMany<CHUNKS> block(a, *reinterpret_cast<AttendManyShared<CHUNKS> *>(attend_many_shared));
	pdl_launch_dependents();
	if (!a.afterQKV) {
		if (!a.beside) pdl_wait();
		fence_async_global(); // bulk copies read what earlier kernels wrote
	}
	if (threadIdx.x / 32 == WARPS) {
		AttendProducer<CHUNKS> producer(block);
		producer.plan();
		__syncthreads(); // the barriers are there
		producer();
	} else {
		block.start();
		__syncthreads();
		AttendConsumer<CHUNKS, Logits>{block, logits}();
	}
}
#endif
