// Decode attention (attend.cu): how a row's positions are divided, and how the parts are added.
#pragma once
#include "attention/softmax.cuh"
#include "gemm/rounded.cuh"
#include "ptx/packets.cuh"
#include "ptx/tagged.cuh"

// A row's positions are cut into splits of SPLIT, and a split into BLOCK positions for each of
// WARPS warps. Warps are added in their order, then splits in theirs, so a row's sums have one
// order in every step. The keys and values of a block are a warp's in registers: heads of more than 32*4 elements have
// half as many positions. attendSplitOf of attend.go mirrors SPLIT.
constexpr int WARPS = 4;
template <int CHUNKS> struct AttendSplits {
	static constexpr int BLOCK = CHUNKS > 4 ? 16 : 32, SPLIT = BLOCK * WARPS;
};
// A block serves up to ENTRIES query heads that read the same keys: of one row, or of a verify pass's group of rows.
constexpr int ENTRIES = 8;

// AttendHeldLogits are the logits of one tile, with its sinks in shared memory. Read from L2 where sums are added, each
// sink would delay the results of its head.
struct AttendHeldLogits : AttendLogits {
	const float *held; // shared [ENTRIES], in units of log 2

	template <class Tile> __device__ __forceinline__ AttendSum before(
		const AttendArgs &, const Tile &tile, int entry) const {
		if (!sinks || entry >= tile.group) return {0, -INFINITY, 0};
		return {0, held[entry], 1};
	}
};
// attend_hold returns the logits of a block's tile, with HOLD as AttendHeldLogits: their before may be called after the
// block's next barrier. Blocks of one split read sinks from memory: with heads of 128 they have no register left.
template <bool HOLD, class Logits, class Tile> __device__ __forceinline__ decltype(auto) attend_hold(
	const Logits &logits, const AttendArgs &a, const Tile &tile) {
	if constexpr (HOLD && Logits::IS) {
		__shared__ float held[ENTRIES];
		if (const int entry = threadIdx.x; logits.sinks && entry < tile.group)
			held[entry] = logits.sink((uint32_t)tile.index(a, entry) % a.heads);
		return AttendHeldLogits{logits, held};
	} else {
		return (logits);
	}
}

// MERGED is how many splits are merged at a time, for results of WIDE elements: fewer where sums leave little
// shared memory.
template <int WIDE> constexpr int MERGED = WIDE > 128 ? 32 : 64;

// AttendTile is the work of a block. DEFERRED: the row's own key and value are not in the pool yet.
struct AttendTile {
	static constexpr bool VERIFY = false;
	int row, slot, first, last; // first to last: positions that the row sees
	int kept;                   // the last of them in the pool; at least `first`
	int head, group, kvHead;    // query heads head to head+group-1

	// index returns the place of an entry among all query heads of all rows.
	__device__ __forceinline__ size_t index(const AttendArgs &a, int entry) const {
		return (size_t)row * a.heads + head + entry;
	}
	// place returns the place of an entry's partials.
	__device__ __forceinline__ size_t place(const AttendArgs &a, int entry) const { return index(a, entry); }
	__device__ __forceinline__ unsigned *arrived(const AttendArgs &a) const { return a.arrived + row * a.heads + head; }
	// fresh returns the first position whose key QKV may still write when this kernel begins.
	__device__ __forceinline__ int fresh() const { return last; }
	// begin and end are the first and the last position that the lane's entry sees.
	__device__ __forceinline__ int begin() const { return first; }
	__device__ __forceinline__ int end() const { return last; }
};

template <bool DEFERRED> __device__ __forceinline__ AttendTile attend_tile(const AttendArgs &a) {
	AttendTile tile;
	tile.row = blockIdx.x;
	tile.slot = __ldcg(a.slot + tile.row), tile.last = __ldcg(a.position + tile.row);
	tile.first = max(0, tile.last + 1 - a.visible);
	tile.kept = DEFERRED ? max(tile.first, tile.last - 1) : tile.last;
	const int parts = (a.group + ENTRIES - 1) / ENTRIES;
	tile.kvHead = blockIdx.y;
	int part = 0;
	// Only then is the division needed.
	if (parts > 1) tile.kvHead = blockIdx.y / parts, part = blockIdx.y % parts * ENTRIES;
	tile.head = tile.kvHead * a.group + part;
	tile.group = min(ENTRIES, a.group - part);
	return tile;
}

// AttendVerifyArgs marks a verify pass, whose rows come in groups of `window` of one sequence.
struct AttendVerifyArgs : AttendArgs {};

// AttendVerifyTile is the work of a block of a verify pass: pairs of a row of a group and a query head are its entries,
// so that they share the keys and values that a block loads. `row` is the group's first row, `first` to `last` are the
// positions that some entry sees, and `group` is the number of entries.
struct AttendVerifyTile : AttendTile {
	static constexpr bool VERIFY = true;
	const int *places;          // shared [ENTRIES], for index
	int newest;                 // position of the group's first row
	int ownFirst, ownLast;      // the positions that the lane's entry, lane/4, sees

	__device__ __forceinline__ size_t index(const AttendArgs &, int entry) const { return places[entry]; }
	__device__ __forceinline__ size_t place(const AttendArgs &, int entry) const { return places[entry]; }
	__device__ __forceinline__ unsigned *arrived(const AttendArgs &a) const { return a.arrived + places[0]; }
	__device__ __forceinline__ int fresh() const { return newest; }
	__device__ __forceinline__ int begin() const { return ownFirst; }
	__device__ __forceinline__ int end() const { return ownLast; }
};

// attend_verify_tile returns the block's tile. Padding rows of a group have another slot. They attend over the key of
// the group's first row alone: their results do not matter, and its key is a number.
__device__ __forceinline__ AttendVerifyTile attend_verify_tile(const AttendArgs &a) {
	__shared__ int places[ENTRIES];
	const int entries = a.window * a.group, parts = (entries + ENTRIES - 1) / ENTRIES, in = threadIdx.x % 32 / 4;
	AttendVerifyTile tile;
	tile.row = blockIdx.x * a.window, tile.kvHead = blockIdx.y / parts, tile.head = tile.kvHead * a.group;
	const int begin = blockIdx.y % parts * ENTRIES, entry = min(begin + in, entries - 1), row = entry / a.group;
	tile.group = min(ENTRIES, entries - begin);
	tile.slot = __ldcg(a.slot + tile.row), tile.newest = __ldcg(a.position + tile.row);
	const int slot = __ldcg(a.slot + tile.row + row), position = __ldcg(a.position + tile.row + row);
	tile.ownLast = slot == tile.slot ? position : tile.newest;
	tile.ownFirst = slot == tile.slot ? max(0, position + 1 - a.visible) : tile.newest;
	tile.first = tile.ownFirst, tile.last = tile.ownLast;
#pragma unroll
	for (int apart = 4; apart < 32; apart *= 2) {
		tile.first = min(tile.first, __shfl_xor_sync(~0u, tile.first, apart));
		tile.last = max(tile.last, __shfl_xor_sync(~0u, tile.last, apart));
	}
	tile.kept = tile.last;
	if (threadIdx.x < 32 && threadIdx.x % 4 == 0)
		places[in] = (tile.row + row) * a.heads + tile.head + entry - row * a.group;
	tile.places = places;
	__syncthreads();
	return tile;
}

// AttendFromArgs are those of rows that see nothing before a position.
struct AttendFromArgs : AttendArgs {
	int32_t earliest, unused;
};

// attend_tile_of returns the tile of a kernel with these arguments.
template <bool DEFERRED> __device__ __forceinline__ AttendTile attend_tile_of(const AttendArgs &a) {
	return attend_tile<DEFERRED>(a);
}
template <bool DEFERRED> __device__ __forceinline__ AttendTile attend_tile_of(const AttendFromArgs &a) {
	AttendTile tile = attend_tile<DEFERRED>(a);
	tile.first = max(tile.first, a.earliest);
	return tile;
}
template <bool DEFERRED> __device__ __forceinline__ AttendVerifyTile attend_tile_of(const AttendVerifyArgs &a) {
	return attend_verify_tile(a);
}

// TOGETHER is how many neighbouring elements of a head have to be stored at once, by lanes of one warp.
template <class Out> constexpr int TOGETHER = 1;

// AttendStore stores an element of query head `index` among those of all rows, and rounded if a product reads it so.
struct AttendStore {
	__device__ __forceinline__ void begin() {}
	__device__ __forceinline__ void store(const AttendArgs &a, size_t index, int element, float v) const {
		a.out[index * a.dim + element] = v;
		if (!a.rounded) return;
		const uint32_t row = (uint32_t)index / a.heads, column = ((uint32_t)index - row * a.heads) * a.dim + element;
		const uint32_t k = column % 8, half = k % 2;
		const uint32_t pair = a.f16 ? F16::pack(v, 0) : BF16::pack(v, 0);
		RoundedToken(a.rounded, a.tokens, row, column).put_half(k - half, half, pair);
	}
};

// AttendSend gives them to all ranks instead, of which each has the same number of heads.
struct AttendSend {
	const Spread &to;
	uint32_t number;

	// begin follows pdl_wait.
	__device__ __forceinline__ void begin() { number = to.packets.number(); }
	__device__ __forceinline__ void store(const AttendArgs &a, size_t index, int element, float v) const {
		const int at = (int)index * a.dim + element, row = at / to.part_cols;
		const int k = row * to.width + to.begin(to.packets.rank) + at % to.part_cols;
		to.all[k] = v;
		to.packets.send(number, k, v);
	}
};

// AttendGive gives them to the next product as tagged pairs of bfloat16. Heads are multiples of 32 elements, and whole
// warps store neighbours.
template <class T = Tags> struct AttendGive {
	const T &to;
	uint32_t tag;

	__device__ __forceinline__ void begin() { tag = to.base() + to.given; }
	__device__ __forceinline__ void store(const AttendArgs &a, size_t index, int element, float v) const {
		v = __fmul_rn(v, to.scale);
		const float next = __shfl_xor_sync(~0u, v, 1);
		if (element % 2 == 0) give_tagged(to, to.out + (index * a.dim + element) / 2, attend_pack(v, next), tag);
	}
};

// SoftmaxState belongs to a warp's sums: the largest score and the sum of weights of an entry.
struct SoftmaxState {
	float most, weight;
};

template <class Tile> __device__ __forceinline__ float *attend_partial(
	const AttendArgs &a, const Tile &tile, int entry, int split) {
	return a.partial + (tile.place(a, entry) * a.splits + split) * (a.dim + 2);
}

// AttendMerge is shared memory of a block that merges splits.
template <int ONCE> struct AttendMerge {
	static constexpr int MERGED = ONCE;
	float keep[ENTRIES][MERGED], add[ENTRIES][MERGED]; // factors of the sums before a split, and of its own
	float weight[ENTRIES][MERGED];
};

// attend_factors computes the factors and weights of MERGED splits from `from` on, as
// AttendSum::add would. Missing splits change no sum. A warp handles one entry; most is the entry's
// largest score before.
template <class Merge, class Tile> __device__ __forceinline__ void attend_factors(
	const AttendArgs &a, const Tile &tile, Merge &s, float &most, int entry, int from, int splits) {
	constexpr int MERGED = Merge::MERGED;
	const int lane = threadIdx.x % 32;
	if (entry >= tile.group) return;
	float m[MERGED / 32], w[MERGED / 32];
#pragma unroll
	for (int i = 0; i < MERGED / 32; i++) {
		const int split = from + 32 * i + lane;
		const float *p = attend_partial(a, tile, entry, split) + a.dim;
		m[i] = split < splits ? __ldcg(p) : -INFINITY, w[i] = split < splits ? __ldcg(p + 1) : -0.f;
	}
#pragma unroll
	for (int i = 0; i < MERGED / 32; i++) {
		float high = m[i]; // largest score up to this lane's split
#pragma unroll
		for (int by = 1; by < 32; by *= 2) {
			const float x = __shfl_up_sync(~0u, high, by);
			if (lane >= by) high = fmaxf(high, x);
		}
		const float before = __shfl_up_sync(~0u, high, 1);
		AttendSum sum = {0, lane ? fmaxf(most, before) : most, 0};
		sum.factors(m[i], s.keep[entry][32 * i + lane], s.add[entry][32 * i + lane]);
		s.weight[entry][32 * i + lane] = w[i];
		most = fmaxf(most, __shfl_sync(~0u, high, 31));
	}
}

// attend_merge adds a tile's splits in order, in the last of `blocks` blocks to arrive. It does the
// operations of AttendSum::add, but loads sums and factors of many splits at once. run
// [group][WIDE] holds each thread's own sums.
template <int WIDE, int THREADS, class Threads = AllThreads, class Logits, class Tile, class Out>
__device__ static void attend_merge(
	const AttendArgs &a, const Logits &logits, const Tile &tile, AttendSum *run, int first, int splits, int blocks,
	const Out &out) {
	constexpr int LOADS = THREADS / 8; // more would need more registers than smaller blocks have
	constexpr int MERGED = ::MERGED<WIDE>;
	__shared__ AttendMerge<MERGED> s;
	if (!attend_is_last<Threads>(tile.arrived(a), blocks)) return;
	constexpr int ALL = THREADS / 32, EACH = ENTRIES / ALL; // warps, and entries per warp
	float most[EACH], x[LOADS];
#pragma unroll
	for (int e = 0; e < EACH; e++) most[e] = logits.before(a, tile, threadIdx.x / 32 + e * ALL).most;
	// load starts loads of element i%WIDE of entry i/WIDE for splits from `at` on.
	const auto load = [&](int i, int at) {
		const int element = min(i % WIDE, a.dim - 1);
		const float *p = attend_partial(a, tile, i / WIDE, at) + element;
#pragma unroll
		for (int u = 0; u < LOADS; u++) x[u] = at + u < splits ? __ldcg(p + u * (a.dim + 2)) : -0.f;
	};
	for (int from = first; from < splits; from += MERGED) {
		if (from > first) Threads::sync(); // all threads have read the factors
		if (threadIdx.x < tile.group * WIDE) load(threadIdx.x, from); // overlaps with computing the factors
#pragma unroll
		for (int e = 0; e < EACH; e++) attend_factors(a, tile, s, most[e], threadIdx.x / 32 + e * ALL, from, splits);
		Threads::sync();
		const int count = min(MERGED, splits - from);
		for (int i = threadIdx.x; i < tile.group * WIDE; i += THREADS) {
			const int entry = i / WIDE, element = i % WIDE;
			if (element >= a.dim) continue;
			AttendSum sum = {0, 0, logits.before(a, tile, entry).weight};
			if (from > first) sum = run[i];
			for (int k = 0; k < count; k += LOADS) {
				if (k > 0 || i >= THREADS) load(i, from + k);
#pragma unroll
				for (int u = 0; u < LOADS; u++) {
					const float keep = s.keep[entry][k + u], add = s.add[entry][k + u];
					sum.sum = __fmaf_rn(x[u], add, __fmul_rn(sum.sum, keep));
					sum.weight = __fmaf_rn(s.weight[entry][k + u], add, __fmul_rn(sum.weight, keep));
				}
			}
			if (from + MERGED < splits)
				run[i] = sum;
			else
				out.store(a, tile.index(a, entry), element, sum.sum / sum.weight);
		}
	}
}

// attend_add adds the sums of a split's warps, one element per thread. In a verify pass a row may see nothing of a split
// that others of its group see: -0 changes no sum, as in attend_factors.
template <int WIDE, bool VERIFY> __device__ __forceinline__ AttendSum attend_add(
	const SoftmaxState (*states)[ENTRIES], const float *sums, int group, int i) {
	AttendSum sum = {0, -INFINITY, 0};
#pragma unroll
	for (int w = 0; w < WARPS; w++) sum.most = fmaxf(sum.most, states[w][i / WIDE].most);
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		const SoftmaxState state = states[w][i / WIDE];
		const float x = sums[w * group * WIDE + i];
		const bool none = state.most == -INFINITY; // the warp had no position
		const float share = none ? 0 : exp2_approx(state.most - sum.most);
		sum.sum = __fmaf_rn(none ? 0 : x, share, sum.sum);
		sum.weight = __fmaf_rn(state.weight, share, sum.weight);
	}
	if (VERIFY && sum.most == -INFINITY) sum.sum = sum.weight = -0.f;
	return sum;
}
