#include "attend.cuh"

// A row's positions are cut into splits of SPLIT, and a split into a block of BLOCK
// positions for each warp. Warps are added in their order, then splits in theirs. So
// a row's sums have one order, whatever else is in the step.
constexpr int BLOCK = 16, WARPS = 8, SPLIT = BLOCK * WARPS, ENTRIES = 16;

// One block of threads serves a tile: up to ENTRIES queries that read the same keys,
// which are the query heads of one KV head, for consecutive rows of one sequence.
struct AttendTile {
	int row, rows;  // first row, rows
	int first;      // position of the first row
	int slot, head; // first query head
	int group;      // query heads of the tile's KV head, at most ENTRIES of them
	int kvHead;
};

// The tile that begins at a row; its rows are 0 where that row is inside another's:
// of rows of one sequence in a row, those whose positions are alike but for the rest
// by `most` are together. Every warp finds out by itself.
__device__ static AttendTile attend_tile(const AttendArgs &a, int row) {
	AttendTile tile;
	const int all = a.heads / a.kvHeads, parts = (all + ENTRIES - 1) / ENTRIES, part = blockIdx.y % parts * ENTRIES;
	const int most = ENTRIES / min(ENTRIES, all), lane = threadIdx.x % 32;
	// Lane i looks at row + i - 1: whether it is in one tile with the row after it.
	const int at = min(max(row + lane - 1, 0), a.T - 1);
	const int slot = a.slot[at], position = a.position[at];
	const int nextSlot = __shfl_down_sync(~0u, slot, 1), next = __shfl_down_sync(~0u, position, 1);
	bool together = slot == nextSlot && position + 1 == next && position / most == next / most;
	together = together && row + lane >= 1 && row + lane < a.T && lane < 31;
	const uint32_t joined = __ballot_sync(~0u, together);
	tile.row = row;
	tile.rows = joined & 1 ? 0 : __ffs(~(joined >> 1));
	tile.slot = __shfl_sync(~0u, slot, 1);
	tile.first = __shfl_sync(~0u, position, 1);
	tile.kvHead = blockIdx.y / parts;
	tile.head = tile.kvHead * all + part;
	tile.group = min(ENTRIES, all - part);
	return tile;
}

// A tile's queries, rounded, as a lane needs them: of entries lane/4 and lane/4+8,
// elements 32j + 8(lane%4) + 0…7. The order of elements within a product is free, and
// this one makes loads of keys 16 bytes.
template <int CHUNKS> struct AttendQueries {
	uint4 v[CHUNKS][2][32];
};

// What warp j < CHUNKS brings of them: chunk j.
struct AttendQueryLoad {
	float4 x[2], y[2];

	__device__ __forceinline__ void begin(const AttendArgs &a, const AttendTile &tile) {
		const int lane = threadIdx.x % 32, at = threadIdx.x / 32 * 32 + lane % 4 * 8;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int entry = lane / 4 + 8 * half, row = entry / tile.group;
			x[half] = y[half] = {};
			if (row >= tile.rows || at >= a.dim) continue;
			const float4 *q = (const float4 *)(a.q + ((size_t)(tile.row + row) * a.heads + tile.head + entry % tile.group) * a.dim + at);
			x[half] = __ldcg(q), y[half] = __ldcg(q + 1);
		}
	}
	template <int CHUNKS> __device__ __forceinline__ void end(AttendQueries<CHUNKS> &q) const {
		const int chunk = threadIdx.x / 32;
		if (chunk >= CHUNKS) return;
#pragma unroll
		for (int half = 0; half < 2; half++)
			q.v[chunk][half][threadIdx.x % 32] = {attend_pair(x[half].x, x[half].y), attend_pair(x[half].z, x[half].w),
			                                      attend_pair(y[half].x, y[half].y), attend_pair(y[half].z, y[half].w)};
	}
};

// Where an element of an entry's sums lies in a warp's [halves][ENTRIES][64]: so that
// a warp writes all banks at once.
__device__ __forceinline__ int attend_place(int entry, int element) {
	return (element / 64 * ENTRIES + entry) * 64 + (element % 64 ^ (element >> 3 & 4) ^ (entry & 1) << 3);
}

// One warp's block of positions. A lane holds entries lane/4 and lane/4+8.
template <int CHUNKS, int HALVES, bool WINDOWED> struct AttendWarp {
	static constexpr int PLACES = 8 * HALVES; // of 16 bytes, for a key or a value
	float most[2], weight[2];

	// Where 16 bytes of a key and of a value lie: so that a warp reads all banks at once.
	static __device__ __forceinline__ int of_key(int row, int chunk) { return row * PLACES + (chunk ^ (row & 1) << 2); }
	static __device__ __forceinline__ int of_value(int row, int chunk) { return row * PLACES + (chunk ^ (row & 6)); }

	static constexpr int COPIES = BLOCK * PLACES / 32; // of 16 bytes, of a lane: keys, and as many of values
	int page[COPIES];                                   // of each copy; -1 where nothing is to be copied

	// Finds the pages of positions from `from` on.
	__device__ __forceinline__ void find(const AttendArgs &a, const AttendTile &tile, int from) {
		const int32_t *table = a.blockTable + (size_t)tile.slot * a.pages;
#pragma unroll
		for (int i = 0; i < COPIES; i++) {
			const int at = threadIdx.x % 32 + 32 * i, p = from + at / PLACES;
			// What lies beyond the last position may be NaN, and 0·NaN is NaN.
			page[i] = p < tile.first + tile.rows && 8 * (at % PLACES) < a.dim ? table[p >> a.pageShift] : -1;
		}
	}

	// Begins to copy them into the warp's own shared memory, 2·BLOCK·PLACES.
	__device__ __forceinline__ void begin(const AttendArgs &a, const AttendTile &tile, uint4 *room, int from) const {
		const size_t plane = ((size_t)a.kvHeads << a.pageShift) * a.dim; // keys or values of one layer of a page
		const __nv_bfloat16 *keys = a.pool + a.layer * 2 * plane + ((size_t)tile.kvHead << a.pageShift) * a.dim;
#pragma unroll
		for (int which = 0; which < 2; which++) { // keys, then values
#pragma unroll
			for (int i = 0; i < COPIES; i++) {
				const int row = (threadIdx.x % 32 + 32 * i) / PLACES, chunk = (threadIdx.x % 32 + 32 * i) % PLACES;
				const __nv_bfloat16 *source = keys + which * plane;
				if (page[i] >= 0) source += page[i] * (plane * 2 * a.layers) + ((from + row) & (1 << a.pageShift) - 1) * a.dim + 8 * chunk;
				attend_copy(room + which * BLOCK * PLACES + (which ? of_value(row, chunk) : of_key(row, chunk)), source, page[i] >= 0 ? 16 : 0);
			}
			attend_batch();
		}
	}

	// Computes what was copied.
	__device__ __forceinline__ void compute(const AttendArgs &a, const AttendTile &tile, const AttendQueries<CHUNKS> &q, uint4 *room, int from) {
		const int lane = threadIdx.x % 32, in = lane / 4, by = lane % 4;
		const uint4 *k = room, *v = room + BLOCK * PLACES;
		attend_await<1>();
		float s[2][4] = {};
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			const uint4 low = q.v[j][0][lane], high = q.v[j][1][lane];
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const uint4 key = k[of_key(8 * i + in, 4 * j + by)];
				attend_mma(s[i], low.x, high.x, low.y, high.y, key.x, key.y);
				attend_mma(s[i], low.z, high.z, low.w, high.w, key.z, key.w);
			}
		}
		weigh(a, tile, s, from);
		const uint32_t p0 = attend_pair(s[0][0], s[0][1]), p1 = attend_pair(s[0][2], s[0][3]);
		const uint32_t p2 = attend_pair(s[1][0], s[1][1]), p3 = attend_pair(s[1][2], s[1][3]);
		attend_await<0>();
#pragma unroll
		for (int h = 0; h < HALVES; h++) {
			const uint4 v0 = v[of_value(2 * by, 8 * h + in)], v1 = v[of_value(2 * by + 1, 8 * h + in)];
			const uint4 v2 = v[of_value(2 * by + 8, 8 * h + in)], v3 = v[of_value(2 * by + 9, 8 * h + in)];
			float sum[8][4] = {};
#pragma unroll
			for (int e = 0; e < 8; e++) {
				const uint32_t which = e % 2 ? 0x7632 : 0x5410;
				uint32_t b0 = __byte_perm((&v0.x)[e / 2], (&v1.x)[e / 2], which);
				uint32_t b1 = __byte_perm((&v2.x)[e / 2], (&v3.x)[e / 2], which);
				attend_mma(sum[e], p0, p1, p2, p3, b0, b1);
			}
			// The first of two halves lies where the keys did, and the last one where the values did.
			if (h == HALVES - 1) __syncwarp();
			store((float *)room, h, sum);
		}
	}

	// Turns scores into weights 2^(score - most).
	__device__ __forceinline__ void weigh(const AttendArgs &a, const AttendTile &tile, float (&s)[2][4], int from) {
		const int lane = threadIdx.x % 32;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int row = (lane / 4 + 8 * half) / tile.group;
			const int last = row < tile.rows ? tile.first + row : -1;
			float high = -INFINITY;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float &x = s[i / 2][2 * half + i % 2];
				const int p = from + i / 2 * 8 + lane % 4 * 2 + i % 2;
				x = p <= last && (!WINDOWED || p > last - a.see) ? x * a.scale : -INFINITY;
				high = fmaxf(high, x);
			}
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
			const float base = high == -INFINITY ? 0 : high; // no position of the row is here: all weights are 0
			most[half] = high, weight[half] = 0;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float &x = s[i / 2][2 * half + i % 2];
				// The sum of weights is of those that values are multiplied by.
				x = __bfloat162float(__float2bfloat16_rn(attend_exp2(x - base)));
				weight[half] += x;
			}
		}
	}

	// Leaves half h of the sums in shared memory, for all warps: sum[e][i] is element
	// 8·(2(lane%4) + i%2) + e of it, of entry lane/4 + 8(i/2).
	static __device__ __forceinline__ void store(float *sums, int h, const float (&sum)[8][4]) {
		const int lane = threadIdx.x % 32;
#pragma unroll
		for (int i = 0; i < 8; i++) { // which entry, which of two columns, which four of eight
			const int half = i / 4, column = i / 2 % 2, e = i % 2 * 4, at = 2 * half + column;
			float4 x = {sum[e][at], sum[e + 1][at], sum[e + 2][at], sum[e + 3][at]};
			*(float4 *)(sums + attend_place(lane / 4 + 8 * half, 64 * h + 8 * (lane % 4 * 2 + column) + e)) = x;
		}
	}

	// Leaves what the sums go with: of each entry its largest score and sum of weights.
	__device__ __forceinline__ void mark(float (&marks)[ENTRIES][2]) const {
		const int lane = threadIdx.x % 32;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float w = weight[half];
			w += __shfl_xor_sync(~0u, w, 1);
			w += __shfl_xor_sync(~0u, w, 2);
			if (lane % 4 == 0) marks[lane / 4 + 8 * half][0] = most[half], marks[lane / 4 + 8 * half][1] = w;
		}
	}
};

// Entry i/dim of a tile is query head `head` of row `row`.
struct AttendPlace {
	int row, head, element;

	__device__ __forceinline__ AttendPlace(const AttendArgs &a, const AttendTile &tile, int i) {
		int entry = i / a.dim;
		element = i % a.dim;
		row = tile.row + entry / tile.group;
		head = tile.head + entry % tile.group;
	}
	__device__ __forceinline__ float *out(const AttendArgs &a) const { return a.out + ((size_t)row * a.heads + head) * a.dim + element; }
	__device__ __forceinline__ float *partial(const AttendArgs &a, int split) const {
		return a.partial + (((size_t)row * a.heads + head) * a.splits + split) * (a.dim + 2);
	}
};

// The first split that a row of the tile sees. To a row that sees none of it, a split
// adds nothing: its largest score is -infinity and its weights are 0.
template <bool WINDOWED> __device__ __forceinline__ int attend_first(const AttendArgs &a, const AttendTile &tile) {
	return WINDOWED ? max(0, tile.first + 1 - a.see) / SPLIT : 0;
}

// Adds the splits of a tile in their order, in the last to arrive of `blocks` blocks.
template <bool WINDOWED> __device__ static void attend_merge(const AttendArgs &a, const AttendTile &tile, int splits, int blocks) {
	if (!attend_last(a.arrived + tile.row * a.heads + tile.head, blocks)) return;
	for (int i = threadIdx.x; i < tile.rows * tile.group * a.dim; i += blockDim.x) {
		AttendPlace place(a, tile, i);
		AttendSum s = {0, -INFINITY, 0};
#pragma unroll 2
		for (int split = attend_first<WINDOWED>(a, tile); split < splits; split++) {
			const float *p = place.partial(a, split);
			s.add(__ldcg(p + place.element), __ldcg(p + a.dim), __ldcg(p + a.dim + 1));
		}
		*place.out(a) = s.sum / s.weight;
	}
}

// What a block of threads shares, beside the warps' sums.
struct AttendShared {
	float marks[WARPS][ENTRIES][2]; // of each warp: largest score, sum of weights
	float share[WARPS][ENTRIES];    // what a warp's sums count in those of the split
	float split[ENTRIES][2];        // of the split: largest score, sum of weights
	AttendSum before[ENTRIES];      // of the splits before: largest score, sum of weights
	float keep[ENTRIES], add[ENTRIES]; // what the sums before and the split's count in the sum of both
};

// Leaves, of each entry, what sums count when they are added. One thread an entry.
__device__ __forceinline__ void attend_shares(AttendShared &s, bool first) {
	const int entry = threadIdx.x;
	if (entry >= ENTRIES) return;
	float high = -INFINITY, weight = 0;
#pragma unroll
	for (int w = 0; w < WARPS; w++) high = fmaxf(high, s.marks[w][entry][0]);
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		float share = high == -INFINITY ? 0 : attend_exp2(s.marks[w][entry][0] - high);
		s.share[w][entry] = share;
		weight = __fmaf_rn(s.marks[w][entry][1], share, weight);
	}
	s.split[entry][0] = high, s.split[entry][1] = weight;
	AttendSum before = {0, -INFINITY, 0};
	if (!first) before = s.before[entry];
	before.factors(high, s.keep[entry], s.add[entry]);
	before.add(0, high, weight);
	s.before[entry] = before;
}

// Computes one split of a tile; room [WARPS][HALVES][ENTRIES][64] holds its sums when
// all threads are through, and s what they count. The first one brings the queries.
template <int CHUNKS, int HALVES, bool WINDOWED>
__device__ __forceinline__ void attend_split(const AttendArgs &a, const AttendTile &tile, AttendShared &s, AttendQueries<CHUNKS> &q, float *room, int from, bool first) {
	using Warp = AttendWarp<CHUNKS, HALVES, WINDOWED>;
	const int warp = threadIdx.x / 32;
	float *mine = room + warp * ENTRIES * 64 * HALVES;
	from += warp * BLOCK;
	const bool live = from < tile.first + tile.rows;
	Warp w;
	AttendQueryLoad queries;
	if (first) queries.begin(a, tile);
	w.find(a, tile, from);
	__syncthreads(); // the split before has been added
	if (first) queries.end(q);
	if (live) w.begin(a, tile, (uint4 *)mine, from);
	if (first) __syncthreads();
	if (live) {
		w.compute(a, tile, q, (uint4 *)mine, from);
		w.mark(s.marks[warp]);
	} else if (threadIdx.x % 32 < ENTRIES) {
		s.marks[warp][threadIdx.x % 32][0] = -INFINITY, s.marks[warp][threadIdx.x % 32][1] = 0;
	}
#ifndef REEL_RACE // which shows that racecheck finds a missing barrier
	__syncthreads();
#endif
	attend_shares(s, first);
	__syncthreads();
}

// Computes of a tile's splits, from the first that it sees, the blockIdx.z-th and every
// gridDim.z-th after it.
template <int CHUNKS, int HALVES, bool WINDOWED>
__device__ __forceinline__ void attend_one(const AttendArgs &a, const AttendTile &tile, AttendShared &s, AttendQueries<CHUNKS> &q, float *room) {
	constexpr int WIDE = 64 * HALVES;
	float *run = room + WARPS * ENTRIES * WIDE; // [ENTRIES][dim]: the sum of the splits before, each element its thread's own
	const int end = tile.first + tile.rows, splits = (end - 1) / SPLIT + 1, elements = tile.rows * tile.group * a.dim;
	const int first = attend_first<WINDOWED>(a, tile);
	const bool whole = gridDim.z == 1 || splits - first == 1;
	if ((int)blockIdx.z >= splits - first) return;
	for (int split = first + blockIdx.z; split < splits; split += gridDim.z) {
		attend_split<CHUNKS, HALVES, WINDOWED>(a, tile, s, q, room, split * SPLIT, split == first + (int)blockIdx.z);
		const int warps = min(WARPS, (end - split * SPLIT + BLOCK - 1) / BLOCK); // the others have nothing
		for (int i = threadIdx.x; i < elements; i += WARPS * 32) {
			const int entry = i / a.dim, at = attend_place(entry, i % a.dim);
			float sum = 0;
#pragma unroll 2
			for (int w = 0; w < warps; w++) sum = __fmaf_rn(room[w * ENTRIES * WIDE + at], s.share[w][entry], sum);
			AttendPlace place(a, tile, i);
			if (!whole) {
				float *p = place.partial(a, split);
				p[place.element] = sum;
				if (place.element == 0) p[a.dim] = s.split[entry][0], p[a.dim + 1] = s.split[entry][1];
				continue;
			}
			sum = __fmaf_rn(sum, s.add[entry], __fmul_rn(split != first ? run[i] : 0, s.keep[entry]));
			if (split < splits - 1)
				run[i] = sum;
			else
				*place.out(a) = sum / s.before[entry].weight;
		}
	}
	if (!whole) attend_merge<WINDOWED>(a, tile, splits, min((int)gridDim.z, splits - first));
}

// out[t][i] = Σ_j softmax_j(q[t][i]·k_j·scale)·v_j over positions j of row t's sequence
// up to its own, or the last a.see of them. Grid: [rows by a.window][KV heads, by 16 query heads][at most splits].
// A block takes the tiles that begin in its window of rows, and of each every
// gridDim.z-th split. The bits are the same whatever the window and the grid.
template <int CHUNKS, int HALVES, bool WINDOWED = false> __device__ __forceinline__ void attend(const AttendArgs &a) {
	// [WARPS], of each: keys and values of a block, bfloat16 [2][BLOCK][64·HALVES]; then
	// sums, float32 [HALVES][ENTRIES][64]. After them the sums of the splits before.
	extern __shared__ __align__(128) float attend_room[];
	__shared__ AttendShared s;
	__shared__ AttendQueries<CHUNKS> q;
	step_begin();
	const int row = blockIdx.x * a.window;
	for (int t = row; t < min(row + a.window, a.T); t++) {
		const AttendTile tile = attend_tile(a, t);
		if (tile.rows > 0) attend_one<CHUNKS, HALVES, WINDOWED>(a, tile, s, q, attend_room);
	}
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) reel_attend_32(const __grid_constant__ AttendArgs a) { attend<1, 1>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) reel_attend_64(const __grid_constant__ AttendArgs a) { attend<2, 1>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) reel_attend_96(const __grid_constant__ AttendArgs a) { attend<3, 2>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) reel_attend_128(const __grid_constant__ AttendArgs a) { attend<4, 2>(a); }

// The same for rows that see a.see positions.
extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) reel_attend_32_window(const __grid_constant__ AttendArgs a) { attend<1, 1, true>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) reel_attend_64_window(const __grid_constant__ AttendArgs a) { attend<2, 1, true>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) reel_attend_96_window(const __grid_constant__ AttendArgs a) { attend<3, 2, true>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) reel_attend_128_window(const __grid_constant__ AttendArgs a) { attend<4, 2, true>(a); }
