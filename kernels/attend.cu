#include "step.cuh"
#include <cuda_bf16.h>

struct AttendArgs {
	const float *q;            // [T][heads][dim]
	const __nv_bfloat16 *pool; // [page][layers][key, value][kvHeads][pageTokens][dim]
	float *out;                // out: [T][heads][dim]
	float *partial;            // [SPLIT_ROWS][heads][splits][dim + 2]: sums, largest score, sum of weights
	unsigned *arrived;         // [SPLIT_ROWS][heads]: 0 between launches
	const int32_t *slot, *position; // [T]
	const int32_t *blockTable; // [slots][pages]
	int32_t T, layer, layers, heads, kvHeads, dim;
	int32_t pages, pageShift, splits; // 1<<pageShift tokens a page
	float scale;               // of scores, times log2(e)
	int32_t window;            // rows of a block
	int32_t pad;
};

// A row's positions are cut into splits of SPLIT positions. In a split, warp w takes
// blocks w, w+WARPS, … of BLOCK positions; warps are added in their order, then
// splits in theirs. So a row's sums have one order, whatever else is in the step.
constexpr int SPLIT = 256, BLOCK = 16, WARPS = 4, ENTRIES = 16;

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

__device__ __forceinline__ uint32_t attend_pair(float low, float high) {
	__nv_bfloat162 v = __floats2bfloat162_rn(low, high);
	return *reinterpret_cast<uint32_t *>(&v);
}

// c[16][8] += A[16][16] · B[16][8]
__device__ __forceinline__ void attend_mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float attend_exp2(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// A lane's queries: of entries lane/4 and lane/4+8, elements 32j + 8(lane%4) + 0…7.
// The order of elements within a product is free, and this one makes loads of keys 16 bytes.
template <int CHUNKS> struct AttendQueries {
	uint32_t v[CHUNKS][2][4];

	__device__ __forceinline__ void load(const AttendArgs &a, const AttendTile &tile) {
		int lane = threadIdx.x % 32;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int entry = lane / 4 + 8 * half, row = entry / tile.group;
			const float *q = a.q + ((size_t)(tile.row + row) * a.heads + tile.head + entry % tile.group) * a.dim;
#pragma unroll
			for (int j = 0; j < CHUNKS; j++) {
				int at = 32 * j + lane % 4 * 8;
				float4 x = {}, y = {};
				if (row < tile.rows && at < a.dim) {
					x = __ldcg((const float4 *)(q + at));
					y = __ldcg((const float4 *)(q + at) + 1);
				}
				v[j][half][0] = attend_pair(x.x, x.y), v[j][half][1] = attend_pair(x.z, x.w);
				v[j][half][2] = attend_pair(y.x, y.y), v[j][half][3] = attend_pair(y.z, y.w);
			}
		}
	}
};

// One warp's sums over the blocks it takes. A lane holds entries lane/4 and lane/4+8;
// sum[h][e][i] belongs to element 64h + 8·(2(lane%4) + i%2) + e of entry lane/4 + 8(i/2).
template <int CHUNKS, int HALVES> struct AttendWarp {
	float most[2], weight[2], sum[HALVES][8][4];

	__device__ __forceinline__ void clear() {
#pragma unroll
		for (int i = 0; i < 2; i++) most[i] = -INFINITY, weight[i] = 0;
#pragma unroll
		for (int i = 0; i < HALVES * 8 * 4; i++) sum[i / 32][i / 4 % 8][i % 4] = 0;
	}

	// Adds BLOCK positions from `from` on. keys and values are of the tile's layer and
	// KV head at page 0; at[] are the split's pages times pageStride.
	__device__ __forceinline__ void add(const AttendArgs &a, const AttendTile &tile, const AttendQueries<CHUNKS> &q,
	                                    const __nv_bfloat16 *keys, const __nv_bfloat16 *values, const size_t *at, int from) {
		const int lane = threadIdx.x % 32, in = lane / 4, by = lane % 4, last = tile.first + tile.rows - 1;
		const int within = (1 << a.pageShift) - 1;
		uint4 k[2][CHUNKS], v[4][HALVES];
#pragma unroll
		for (int i = 0; i < 2; i++) {
			int p = from + 8 * i + in;
			bool live = p <= last;
			const __nv_bfloat16 *key = keys + (live ? at[p % SPLIT >> a.pageShift] + (p & within) * a.dim : 0);
#pragma unroll
			for (int j = 0; j < CHUNKS; j++) {
				k[i][j] = {};
				if (live && 32 * j + 8 * by < a.dim) k[i][j] = __ldcg((const uint4 *)(key + 32 * j + 8 * by));
			}
		}
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int p = from + 2 * by + i % 2 + i / 2 * 8;
			bool live = p <= last; // what lies beyond may be NaN, and 0·NaN is NaN
			const __nv_bfloat16 *value = values + (live ? at[p % SPLIT >> a.pageShift] + (p & within) * a.dim : 0);
#pragma unroll
			for (int h = 0; h < HALVES; h++) {
				v[i][h] = {};
				if (live && 64 * h + 8 * in < a.dim) v[i][h] = __ldcg((const uint4 *)(value + 64 * h + 8 * in));
			}
		}
		float s[2][4] = {};
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int j = 0; j < CHUNKS; j++) {
				attend_mma(s[i], q.v[j][0][0], q.v[j][1][0], q.v[j][0][1], q.v[j][1][1], k[i][j].x, k[i][j].y);
				attend_mma(s[i], q.v[j][0][2], q.v[j][1][2], q.v[j][0][3], q.v[j][1][3], k[i][j].z, k[i][j].w);
			}
		weigh(a, tile, s, from);
		const uint32_t p0 = attend_pair(s[0][0], s[0][1]), p1 = attend_pair(s[0][2], s[0][3]);
		const uint32_t p2 = attend_pair(s[1][0], s[1][1]), p3 = attend_pair(s[1][2], s[1][3]);
#pragma unroll
		for (int h = 0; h < HALVES; h++)
#pragma unroll
			for (int e = 0; e < 8; e++) {
				const uint32_t which = e % 2 ? 0x7632 : 0x5410;
				uint32_t b0 = __byte_perm((&v[0][h].x)[e / 2], (&v[1][h].x)[e / 2], which);
				uint32_t b1 = __byte_perm((&v[2][h].x)[e / 2], (&v[3][h].x)[e / 2], which);
				attend_mma(sum[h][e], p0, p1, p2, p3, b0, b1);
			}
	}

	// Turns scores into weights 2^(score - most), after most and what was summed
	// under the old one have been brought up to date.
	__device__ __forceinline__ void weigh(const AttendArgs &a, const AttendTile &tile, float (&s)[2][4], int from) {
		const int lane = threadIdx.x % 32;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int row = (lane / 4 + 8 * half) / tile.group;
			int last = row < tile.rows ? tile.first + row : -1;
			float high = most[half];
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float &x = s[i / 2][2 * half + i % 2];
				x = from + i / 2 * 8 + lane % 4 * 2 + i % 2 <= last ? x * a.scale : -INFINITY;
				high = fmaxf(high, x);
			}
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
			float base = high == -INFINITY ? 0 : high; // no position yet: all weights are 0
			float old = attend_exp2(most[half] - base);
			most[half] = high;
			weight[half] *= old;
#pragma unroll
			for (int i = 0; i < HALVES * 8 * 2; i++) sum[i / 16][i / 2 % 8][2 * half + i % 2] *= old;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float &x = s[i / 2][2 * half + i % 2];
				// The sum of weights is of those that values are multiplied by.
				x = __bfloat162float(__float2bfloat16_rn(attend_exp2(x - base)));
				weight[half] += x;
			}
		}
	}

	// Leaves the sums in shared memory, for all warps: sums [ENTRIES][64·HALVES], marks [ENTRIES][2].
	__device__ __forceinline__ void store(float *sums, float *marks) {
		const int lane = threadIdx.x % 32;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int entry = lane / 4 + 8 * half;
			float w = weight[half];
			w += __shfl_xor_sync(~0u, w, 1);
			w += __shfl_xor_sync(~0u, w, 2);
			if (lane % 4 == 0) marks[2 * entry] = most[half], marks[2 * entry + 1] = w;
#pragma unroll
			for (int i = 0; i < HALVES * 4; i++) { // h, which of two columns, which four of eight
				int h = i / 4, column = i / 2 % 2, e = i % 2 * 4;
				float4 x = {sum[h][e][2 * half + column], sum[h][e + 1][2 * half + column], sum[h][e + 2][2 * half + column],
				            sum[h][e + 3][2 * half + column]};
				*(float4 *)(sums + entry * 64 * HALVES + 64 * h + 8 * (lane % 4 * 2 + column) + e) = x;
			}
		}
	}
};

// The state of one element's softmax sum: Σ 2^(s-most)·v, and Σ 2^(s-most).
struct AttendSum {
	float sum, most, weight;

	// Adds what was summed over later positions.
	__device__ __forceinline__ void add(float s, float m, float w) {
		float high = fmaxf(most, m);
		if (high == -INFINITY) return;
		float mine = attend_exp2(most - high), its = attend_exp2(m - high);
		// Rounded as written, so that splits add up alike wherever this is inlined.
		sum = __fmaf_rn(s, its, __fmul_rn(sum, mine));
		weight = __fmaf_rn(w, its, __fmul_rn(weight, mine));
		most = high;
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

// Adds the splits of a tile in their order, in the last to arrive of `blocks` blocks.
__device__ static void attend_merge(const AttendArgs &a, const AttendTile &tile, int splits, int blocks) {
	__shared__ unsigned before;
	__threadfence();
	__syncthreads();
	// The count goes back to 0 when all have arrived.
	if (threadIdx.x == 0) before = atomicInc(a.arrived + tile.row * a.heads + tile.head, blocks - 1);
	__syncthreads();
	if (before != blocks - 1) return;
	__threadfence();
	for (int i = threadIdx.x; i < tile.rows * tile.group * a.dim; i += blockDim.x) {
		AttendPlace place(a, tile, i);
		AttendSum s = {0, -INFINITY, 0};
#pragma unroll 4
		for (int split = 0; split < splits; split++) {
			const float *p = place.partial(a, split);
			s.add(__ldcg(p + place.element), __ldcg(p + a.dim), __ldcg(p + a.dim + 1));
		}
		*place.out(a) = s.sum / s.weight;
	}
}

// What a block of threads shares, beside the warps' sums.
struct AttendShared {
	size_t at[SPLIT];               // of each page of a split: its first element in the pool
	float marks[WARPS][ENTRIES][2]; // of each warp: largest score, sum of weights
	float share[WARPS][ENTRIES];    // what a warp's sums count in those of the split
	float split[ENTRIES][2];        // of the split: largest score, sum of weights
};

// Leaves, of each entry, what each warp's sums count in those of the split.
__device__ static void attend_shares(AttendShared &s) {
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
}

// Computes one split of a tile; sums [WARPS][ENTRIES][64·HALVES] hold it when all
// threads are through, and s its shares.
template <int CHUNKS, int HALVES>
__device__ __forceinline__ void attend_split(const AttendArgs &a, const AttendTile &tile, const AttendQueries<CHUNKS> &q, AttendShared &s, float *sums, int from) {
	const size_t plane = ((size_t)a.kvHeads << a.pageShift) * a.dim; // keys or values of one layer of a page
	const __nv_bfloat16 *keys = a.pool + a.layer * 2 * plane + ((size_t)tile.kvHead << a.pageShift) * a.dim;
	const int warp = threadIdx.x / 32, end = min(from + SPLIT, tile.first + tile.rows);
	__syncthreads(); // the split before has been added
	for (int i = threadIdx.x; i <= end - from - 1 >> a.pageShift; i += blockDim.x)
		s.at[i] = a.blockTable[(size_t)tile.slot * a.pages + (from >> a.pageShift) + i] * (plane * 2 * a.layers);
	__syncthreads();
	AttendWarp<CHUNKS, HALVES> mine;
	mine.clear();
	for (int p = from + warp * BLOCK; p < end; p += WARPS * BLOCK) mine.add(a, tile, q, keys, keys + plane, s.at, p);
	mine.store(sums + warp * ENTRIES * 64 * HALVES, &s.marks[warp][0][0]);
	__syncthreads();
	attend_shares(s);
	__syncthreads();
}

// Computes a tile's splits blockIdx.z, blockIdx.z + gridDim.z, …
template <int CHUNKS, int HALVES>
__device__ __forceinline__ void attend_one(const AttendArgs &a, const AttendTile &tile, AttendShared &s, float *sums) {
	constexpr int WIDE = 64 * HALVES, EACH = ENTRIES * WIDE / (WARPS * 32);
	const int splits = (tile.first + tile.rows - 1) / SPLIT + 1, elements = tile.rows * tile.group * a.dim;
	const bool whole = gridDim.z == 1 || splits == 1;
	if ((int)blockIdx.z >= splits) return;
	AttendQueries<CHUNKS> q;
	q.load(a, tile);
	float run[EACH], most[EACH], weight[EACH];
#pragma unroll
	for (int n = 0; n < EACH; n++) run[n] = 0, most[n] = -INFINITY, weight[n] = 0;
	for (int split = blockIdx.z; split < splits; split += gridDim.z) {
		attend_split<CHUNKS, HALVES>(a, tile, q, s, sums, split * SPLIT);
#pragma unroll
		for (int n = 0; n < EACH; n++) {
			const int i = threadIdx.x + n * WARPS * 32, entry = i / a.dim;
			if (i >= elements) continue;
			float sum = 0;
#pragma unroll
			for (int w = 0; w < WARPS; w++) sum = __fmaf_rn(sums[(w * ENTRIES + entry) * WIDE + i % a.dim], s.share[w][entry], sum);
			AttendPlace place(a, tile, i);
			if (whole) {
				AttendSum all = {run[n], most[n], weight[n]};
				all.add(sum, s.split[entry][0], s.split[entry][1]);
				run[n] = all.sum, most[n] = all.most, weight[n] = all.weight;
				if (split == splits - 1) *place.out(a) = all.sum / all.weight;
				continue;
			}
			float *p = place.partial(a, split);
			p[place.element] = sum;
			if (place.element == 0) p[a.dim] = s.split[entry][0], p[a.dim + 1] = s.split[entry][1];
		}
	}
	if (!whole) attend_merge(a, tile, splits, min((int)gridDim.z, splits));
}

// out[t][i] = Σ_j softmax_j(q[t][i]·k_j·scale)·v_j over positions j of row t's sequence
// up to its own. Grid: [rows by a.window][KV heads, by 16 query heads][at most splits].
// A block takes the tiles that begin in its window of rows, and of each every
// gridDim.z-th split. The bits are the same whatever the window and the grid.
template <int CHUNKS, int HALVES> __device__ __forceinline__ void attend(const AttendArgs &a) {
	extern __shared__ __align__(16) float attend_sums[]; // [WARPS][ENTRIES][64·HALVES]
	__shared__ AttendShared s;
	step_begin();
	const int row = blockIdx.x * a.window;
	for (int t = row; t < min(row + a.window, a.T); t++) {
		const AttendTile tile = attend_tile(a, t);
		if (tile.rows > 0) attend_one<CHUNKS, HALVES>(a, tile, s, attend_sums);
	}
}

extern "C" __global__ void __launch_bounds__(WARPS * 32) reel_attend_32(const __grid_constant__ AttendArgs a) { attend<1, 1>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32) reel_attend_64(const __grid_constant__ AttendArgs a) { attend<2, 1>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32) reel_attend_96(const __grid_constant__ AttendArgs a) { attend<3, 2>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32) reel_attend_128(const __grid_constant__ AttendArgs a) { attend<4, 2>(a); }
