#include "attention/deferred_rope.cuh"
#include "ptx/mma.cuh"
#include "ptx/pdl.cuh"
#include <type_traits>

// AttendSource locates keys and values for the lanes of a tile's warps. A row is one head's key or
// value at one position; rows are counted from the start of the pool. ANY: a row has at most 32*CHUNKS elements, else
// more than 32*(CHUNKS-1) too.
template <int CHUNKS, bool ANY> struct AttendSource {
	static constexpr int HALVES = (CHUNKS + 1) / 2;
	const int32_t *table;
	const uint4 *keys, *values; // this lane's part of the pool's first row
	uint32_t first, page;       // row of this layer and KV head in page 0; rows per page
	int shift, chunks;          // 1<<shift tokens per page; 16-byte chunks per row
	int key, value;             // the lane's last chunk of a row, or an earlier one if the row has no more; ANY: the row's

	__device__ __forceinline__ AttendSource(const AttendArgs &a, const AttendTile &tile) {
		const int in = threadIdx.x % 32 / 4, by = threadIdx.x % 4;
		const uint32_t plane = a.kvHeads << a.pageShift; // rows of keys, or values, of one layer in a page
		shift = a.pageShift, chunks = a.dim / 8;
		table = a.blockTable + (size_t)tile.slot * a.pages;
		page = plane * 2 * a.layers, first = plane * 2 * a.layer + ((uint32_t)tile.kvHead << shift);
		keys = (const uint4 *)a.pool + by;
		values = (const uint4 *)a.pool + (size_t)plane * chunks + in;
		key = ANY ? chunks - 1 - by : 4 * (CHUNKS - 1) + by < chunks ? 4 * (CHUNKS - 1) : -by;
		value = ANY ? chunks - 1 - in : 8 * (HALVES - 1) + in < chunks ? 8 * (HALVES - 1) : -in;
	}
	// row_of returns lane l's row: that of position from+l, or of the nearest position that the
	// tile sees and the pool has. Memory further on may hold NaN, and 0·NaN is NaN.
	__device__ __forceinline__ uint32_t row_of(const AttendTile &tile, int from) const {
		const int p = min(max(from + (int)threadIdx.x % 32, tile.first), tile.kept);
		// volatile, or the compiler moves it behind the loads of keys and values.
		const uint32_t at = load_l2(table + (p >> shift));
		return first + at * page + (p & (1 << shift) - 1);
	}
};

// AttendBlock is a warp's block of positions in registers, in the layout of mma operands. `in` is
// lane/4 and `by` lane%4.
template <int CHUNKS> struct AttendBlock {
	static constexpr int HALVES = (CHUNKS + 1) / 2, BLOCK = AttendSplits<CHUNKS>::BLOCK;
	uint4 key[BLOCK / 8][CHUNKS];   // [i][j]: elements 32j + 8by + 0…7 of position 8i+in
	uint4 value[HALVES][BLOCK / 4]; // [h][i]: elements 64h + 8in + 0…7 of position 16(i/4) + 2by + {0, 1, 8, 9}[i%4]

	// Start loads of keys and values, rows as AttendSource::row_of gives them. Chunks of no
	// position or no element are multiplied by 0 or ignored. The loads are never conditional within
	// the loop: a register that may keep its value is loaded elsewhere and moved, and the move
	// waits for the load.
	template <bool ANY> __device__ __forceinline__ void load_keys(const AttendSource<CHUNKS, ANY> &s, uint32_t rows) {
		const int in = threadIdx.x % 32 / 4;
#pragma unroll
		for (int i = 0; i < BLOCK / 8; i++) {
			const uint4 *k = s.keys + (uint64_t)__shfl_sync(~0u, rows, 8 * i + in) * (uint32_t)s.chunks;
#pragma unroll
			for (int j = 0; j < CHUNKS - 1; j++) load_l2(key[i][j], k + (ANY ? min(4 * j, s.key) : 4 * j));
			load_l2(key[i][CHUNKS - 1], k + (ANY ? min(4 * (CHUNKS - 1), s.key) : s.key));
		}
	}
	template <bool ANY> __device__ __forceinline__ void load_values(
		const AttendSource<CHUNKS, ANY> &s, uint32_t rows) {
		const int two = 2 * (threadIdx.x % 4);
#pragma unroll
		for (int i = 0; i < BLOCK / 4; i++) {
			const int row = 16 * (i / 4) + i % 2 + i / 2 % 2 * 8;
			const uint4 *v = s.values + (uint64_t)__shfl_sync(~0u, rows, row + two) * (uint32_t)s.chunks;
#pragma unroll
			for (int h = 0; h < HALVES - 1; h++) load_l2(value[h][i], v + (ANY ? min(8 * h, s.value) : 8 * h));
			load_l2(value[HALVES - 1][i], v + (ANY ? min(8 * (HALVES - 1), s.value) : s.value));
		}
	}
};

// AttendQueries is a tile's queries: elements 32j + 8by + 0…7 of entry `in`, rounded in v.
template <int CHUNKS> struct AttendQueries {
	float4 x[CHUNKS][2];
	uint4 v[CHUNKS];

	template <class Tile> __device__ __forceinline__ void load(const AttendArgs &a, const Tile &tile) {
		const int in = threadIdx.x % 32 / 4, by = threadIdx.x % 4;
		const float4 *q = (const float4 *)(a.q + tile.index(a, in) * a.dim + 8 * by);
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			x[j][0] = x[j][1] = {};
			if (in < tile.group && 32 * j + 8 * by < a.dim)
				x[j][0] = __ldcg(q + 8 * j), x[j][1] = __ldcg(q + 8 * j + 1);
		}
	}
	__device__ __forceinline__ void round() {
#pragma unroll
		for (int j = 0; j < CHUNKS; j++)
			v[j] = {attend_pack(x[j][0].x, x[j][0].y), attend_pack(x[j][0].z, x[j][0].w),
				attend_pack(x[j][1].x, x[j][1].y), attend_pack(x[j][1].z, x[j][1].w)};
	}
	// The same for heads after QK post-processing, [group][32*CHUNKS] in shared memory.
	__device__ __forceinline__ void load_processed(const uint16_t *processed, const AttendTile &tile) {
		const int in = threadIdx.x % 32 / 4, by = threadIdx.x % 4;
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			v[j] = {};
			if (in < tile.group) v[j] = *(const uint4 *)(processed + 32 * (in * CHUNKS + j) + 8 * by);
		}
	}
};

// AttendSharedQueries is the same in shared memory, for heads whose keys and values leave no registers for queries.
template <int CHUNKS> struct AttendSharedQueries {
	struct {
		const uint16_t *at; // [ENTRIES][32*CHUNKS]

		__device__ __forceinline__ uint4 operator[](int j) const {
			return *(const uint4 *)(at + 32 * (threadIdx.x % 32 / 4 * CHUNKS + j) + 8 * (threadIdx.x % 4));
		}
	} v;

	// load rounds the tile's queries, with all THREADS of the block. A barrier must follow.
	template <int THREADS, class Tile> __device__ __forceinline__ void load(const AttendArgs &a, const Tile &tile) {
		__shared__ __align__(16) uint16_t all[ENTRIES * 32 * CHUNKS];
		v.at = all;
#pragma unroll 1
		for (int i = threadIdx.x; i < ENTRIES * 4 * CHUNKS; i += THREADS) {
			const int entry = i / (4 * CHUNKS), element = i % (4 * CHUNKS) * 8;
			float4 x = {}, y = {};
			if (entry < tile.group && element < a.dim) {
				const float4 *q = (const float4 *)(a.q + tile.index(a, entry) * a.dim + element);
				x = __ldcg(q), y = __ldcg(q + 1);
			}
			*(uint4 *)(all + 8 * i) = {attend_pack(x.x, x.y), attend_pack(x.z, x.w), attend_pack(y.x, y.y),
				attend_pack(y.z, y.w)};
		}
	}
	// load_processed takes heads after QK post-processing where they are. Entries past the tile's group give results
	// that nobody reads.
	__device__ __forceinline__ void load_processed(const uint16_t *processed, const AttendTile &) { v.at = processed; }
};

// AttendWeights is a warp's scores, later weights, of its block: s[i][c] belongs to entry `in` and
// position 8i + 2by + c. The other results of mma are unused.
template <int CHUNKS> struct AttendWeights {
	static constexpr int BLOCK = AttendSplits<CHUNKS>::BLOCK;
	float s[BLOCK / 8][4];
	float most, weight; // largest score, and the lane's part of the sum of weights

	template <class Queries> __device__ __forceinline__ void score(const Queries &q, const AttendBlock<CHUNKS> &b) {
#pragma unroll
		for (int i = 0; i < BLOCK / 8; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
#pragma unroll
			for (int i = 0; i < BLOCK / 8; i++)
				mma_bf16(s[i], q.v[j].x, 0, q.v[j].y, 0, b.key[i][j].x, b.key[i][j].y);
#pragma unroll
			for (int i = 0; i < BLOCK / 8; i++)
				mma_bf16(s[i], q.v[j].z, 0, q.v[j].w, 0, b.key[i][j].z, b.key[i][j].w);
		}
	}

	// score_own replaces the score of the block's position `at` by that of the row's own key k,
	// which the pool did not have.
	template <class Queries> __device__ __forceinline__ void score_own(const Queries &q, const uint16_t *k, int at) {
		const int by = threadIdx.x % 4;
		float x[4] = {}; // all columns of B hold the same key
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			const uint4 own = *(const uint4 *)(k + 32 * j + 8 * by);
			mma_bf16(x, q.v[j].x, 0, q.v[j].y, 0, own.x, own.y);
			mma_bf16(x, q.v[j].z, 0, q.v[j].w, 0, own.z, own.w);
		}
#pragma unroll
		for (int i = 0; i < BLOCK / 4; i++)
			if (i / 2 * 8 + 2 * by + i % 2 == at) s[i / 2][i % 2] = x[i % 2];
	}

	// mask scales and bounds scores, sets those of positions that the entry does not see to -infinity, and finds the
	// largest score.
	template <class Tile, class Logits> __device__ __forceinline__ void mask(
		const AttendArgs &a, const Logits &logits, const Tile &tile, int from) {
		const int by = threadIdx.x % 4;
		most = -INFINITY;
#pragma unroll
		for (int i = 0; i < BLOCK / 4; i++) {
			float &x = s[i / 2][i % 2];
			const int p = from + i / 2 * 8 + 2 * by + i % 2;
			x = p >= tile.begin() && p <= tile.end() ? logits.score(x, a.scale) : -INFINITY;
			most = fmaxf(most, x);
		}
		most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
		most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
	}
	// weigh replaces scores by weights 2^(score - most).
	__device__ __forceinline__ void weigh() {
		const float base = most == -INFINITY ? 0 : most;
		weight = 0;
#pragma unroll
		for (int i = 0; i < BLOCK / 4; i++) {
			float &x = s[i / 2][i % 2];
			// The sum of weights uses the rounded weights that multiply the values.
			x = __bfloat162float(__float2bfloat16_rn(exp2_approx(x - base)));
			weight += x;
		}
		weight += __shfl_xor_sync(~0u, weight, 1);
		weight += __shfl_xor_sync(~0u, weight, 2);
	}

	// sum computes Σ weight·value of the tile's entries into sums [group][64·HALVES]. With OWN, the
	// row's own value v replaces that of its position and of all further ones, which may be NaN.
	template <bool OWN> __device__ __forceinline__ void sum(
		const AttendBlock<CHUNKS> &b, const AttendTile &tile, int from, const uint16_t *v, float *sums) const {
		constexpr int HALVES = AttendBlock<CHUNKS>::HALVES;
		const int in = threadIdx.x % 32 / 4, by = threadIdx.x % 4;
		uint32_t w[BLOCK / 8];
#pragma unroll
		for (int i = 0; i < BLOCK / 8; i++) w[i] = attend_pack(s[i][0], s[i][1]);
#pragma unroll
		for (int h = 0; h < HALVES; h++) {
			uint4 own = {};
			if (OWN) own = *(const uint4 *)(v + min(64 * h + 8 * in, 32 * CHUNKS - 8));
			float y[4][4] = {}; // [u][c]: elements 64h + 8in + 2u + c/2 of entry 2by + c%2
#pragma unroll
			for (int half = 0; half < BLOCK / 16; half++) {
				const uint4 *values = b.value[h] + 4 * half;
#pragma unroll
				for (int u = 0; u < 4; u++) {
					const auto value = [&](int i) {
						const int p = from + 16 * half + i / 2 * 8 + 2 * by + i % 2;
						return OWN && max(p, tile.first) >= tile.last ? (&own.x)[u] : (&values[i].x)[u];
					};
					const uint32_t v0 = value(0), v1 = value(1), v2 = value(2), v3 = value(3);
					mma_bf16(y[u], __byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
						__byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632), w[2 * half], w[2 * half + 1]);
				}
			}
#pragma unroll
			for (int c = 0; c < 2; c++) {
				if (2 * by + c >= tile.group) continue;
				float4 *to = (float4 *)(sums + (2 * by + c) * 64 * HALVES + 64 * h + 8 * in);
				to[0] = {y[0][c], y[0][c + 2], y[1][c], y[1][c + 2]};
				to[1] = {y[2][c], y[2][c + 2], y[3][c], y[3][c + 2]};
			}
		}
	}
};

// attend: out[t][i] = Σ_j softmax_j(q[t][i]·k_j·scale)·v_j over the positions j of row t's sequence
// up to its own, or the last a.visible of them. Grid: [rows][KV heads × groups of ENTRIES query
// heads][at most splits/TEAMS]. A block computes TEAMS splits at once, then those gridDim.z*TEAMS
// further on; the keys and values of the next splits are loaded while some are added. The bits do
// not depend on the grid, on TEAMS, or on whether QK post-processing happens here
// (AttendDeferredArgs). In a verify pass (AttendVerifyArgs) the grid is [groups of rows][KV heads × groups of ENTRIES
// pairs of row and query head][…], and each row has the bits that it has alone.
template <int CHUNKS, int TEAMS, bool ANY = false, class Args, class Logits = AttendPlain, class Out = AttendStore>
__device__ __forceinline__ void attend(const Args &a, const Logits &logits = {}, Out out = {}) {
	using Own = AttendOwnHeads<32 * CHUNKS, ANY, WARPS * TEAMS, Args>;
	constexpr bool DEFERRED = Own::DEFERRED;
	constexpr int BLOCK = AttendSplits<CHUNKS>::BLOCK, SPLIT = AttendSplits<CHUNKS>::SPLIT;
	constexpr int WIDE = 64 * AttendBlock<CHUNKS>::HALVES, ALL = WARPS * TEAMS, THREADS = 32 * ALL;
	// [2][ALL][group][WIDE], then AttendSum [group][WIDE] of earlier splits.
	extern __shared__ __align__(128) float attend_shared[];
	__shared__ SoftmaxState states[2][ALL][ENTRIES];
	pdl_launch_dependents();
	// QKV's kernels let this one start after their own pdl_wait, so everything may be read but what
	// QKV writes: queries, and the row's own key and value.
	if (!a.afterQKV) pdl_wait();
	const auto tile = attend_tile_of<DEFERRED>(a);
	constexpr bool VERIFY = decltype(tile)::VERIFY;
	const int first = tile.first / SPLIT, splits = tile.last / SPLIT + 1, step = gridDim.z * TEAMS;
	int split = first + blockIdx.z * TEAMS; // first split of the block
	if (split >= splits) return;            // the context is short
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const bool whole = gridDim.z == 1 || splits - first <= TEAMS;
	const AttendSource<CHUNKS, ANY> source(a, tile);
	AttendBlock<CHUNKS> b;
	constexpr bool SHARED = CHUNKS > 4; // queries
	typename std::conditional<SHARED, AttendSharedQueries<CHUNKS>, AttendQueries<CHUNKS>>::type q;
	int from = split * SPLIT + warp * BLOCK;
	bool live = from <= tile.last && from + BLOCK > tile.first;
	// The table entries of the next split are loaded before this one's keys. Behind them they would
	// arrive too late, and nothing would be in flight when the next keys are requested.
	uint32_t rows = source.row_of(tile, from), next = source.row_of(tile, from + step * SPLIT);
	const bool newest = !DEFERRED && from + BLOCK > tile.fresh(); // needs the row's own key
	if (newest) pdl_wait();
	const Own own(a, tile, DEFERRED && (splits - 1 - first) / TEAMS % gridDim.z == blockIdx.z);
	own.prefetch();
	AttendSum *run = (AttendSum *)(attend_shared + 2 * ALL * tile.group * WIDE);
	int buffer = 0;
	AttendWeights<CHUNKS> w;
	const auto store_sums = [&](bool mine) { // store a warp's sums for the block
		if (live) {
			w.weigh();
			float *sums = attend_shared + (buffer * ALL + warp) * tile.group * WIDE;
			if (DEFERRED && mine)
				w.template sum<true>(b, tile, from, own.value(), sums);
			else
				w.template sum<false>(b, tile, from, nullptr, sums);
		} else {
			w.most = -INFINITY, w.weight = 0;
		}
		if (lane % 4 == 0) states[buffer][warp][lane / 4] = {w.most, w.weight};
	};
	const auto add_splits = [&](bool last) { // add the warps' sums of the splits
#ifndef REEL_RACE // a test shows that racecheck finds the missing barrier
		__syncthreads(); // also: buffers read below are written again only after the next barrier
#endif
		for (int i = threadIdx.x; i < tile.group * WIDE; i += THREADS) {
			const int entry = i / WIDE, element = i % WIDE;
			if (element >= a.dim) continue;
			AttendSum all = logits.before(a, tile, entry);
			if (whole && split > first) all = run[i];
#pragma unroll
			for (int t = 0; t < TEAMS; t++) {
				if (t > 0 && split + t >= splits) break;
				const int from = buffer * ALL + t * WARPS;
				AttendSum sum = attend_add<WIDE, VERIFY>(
					states[buffer] + t * WARPS, attend_shared + from * tile.group * WIDE, tile.group, i);
				if (whole) {
					all.add(sum.sum, sum.most, sum.weight);
					continue;
				}
				float *p = attend_partial(a, tile, entry, split + t);
				p[element] = sum.sum;
				if (element == 0) p[a.dim] = sum.most, p[a.dim + 1] = sum.weight;
			}
			if (!whole) continue;
			if (!last)
				run[i] = all;
			else
				out.store(a, tile.index(a, entry), element, all.sum / all.weight);
		}
	};
	// The only place with loads of keys and values. If registers were loaded at two places, the
	// compiler would load others and move them, and a move waits for its load.
	for (bool any = false; live || split + step < splits || (DEFERRED || SHARED) && !any; any = true) {
		if (any && live) w.score(q, b), w.mask(a, logits, tile, from);
		__syncwarp(); // keeps the loads behind it
		b.load_keys(source, rows);
		if (any) store_sums(false);
		if (DEFERRED && ANY && !any) { // before values take the registers that this needs
			if (!newest) pdl_wait();
			own.process();
			__syncthreads();
			q.load_processed(own.queries(), tile);
		}
		__syncwarp();
		b.load_values(source, rows);
		if (any) {
			add_splits(false);
			split += step, buffer ^= 1, from += step * SPLIT;
			live = from <= tile.last;
		} else if (!DEFERRED || !ANY) {
			if (!newest) pdl_wait();
			if (DEFERRED) {
				own.process();
				__syncthreads();
				q.load_processed(own.queries(), tile);
			} else if constexpr (SHARED) {
				q.template load<THREADS>(a, tile);
				__syncthreads();
			} else {
				q.load(a, tile);
				q.round();
			}
		}
		if (split + step >= splits) break;
		rows = next, next = source.row_of(tile, from + 2 * step * SPLIT);
	}
	if (!DEFERRED && !live && !newest) pdl_wait();
	out.begin();
	const bool mine = DEFERRED && live && from + BLOCK > tile.last; // the warp has the row's own position
	if (live) w.score(q, b);
	if (mine) w.score_own(q, own.key(), tile.last - from);
	if (live) w.mask(a, logits, tile, from);
	store_sums(mine);
	add_splits(true);
	if (!whole)
		attend_merge<WIDE, THREADS>(
			a, logits, tile, run, first, splits, min((int)gridDim.z, (splits - first + TEAMS - 1) / TEAMS), out);
}

template <class Args> struct AttendSpreadArgs {
	Args of;
	Spread to;
};

// attend_spread gives the results to all ranks. The last row of blocks computes nothing: the first ones of it store what
// others send.
template <int CHUNKS, int TEAMS, class Args> __device__ __forceinline__ void attend_spread(const AttendSpreadArgs<Args> &a) {
	const Packets &packets = a.to.packets;
	if (blockIdx.y < gridDim.y - 1 || blockIdx.z > 0) {
		if (blockIdx.y < gridDim.y - 1) attend<CHUNKS, TEAMS, false, Args, AttendPlain, AttendSend>(a.of, {}, {a.to, 0});
		__syncthreads(); // all threads know the number
		if (threadIdx.x > 0) return;
		pdl_wait(); // a block without splits has not waited
		packets.begun();
		return;
	}
	pdl_begin();
	const uint32_t number = packets.number();
	__syncthreads();
	if (blockIdx.x > 0 && threadIdx.x == 0) packets.begun();
	a.to.template receive<8>(number, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
	__syncthreads();
	if (blockIdx.x == 0 && threadIdx.x == 0) packets.end(number, gridDim.x * gridDim.y * gridDim.z - 1);
}

// The kernels by head size (32*CHUNKS), with the blocks per SM that registers allow: with one split per
// block at a time and with two, the same with deferred RoPE, the same for a verify pass, and the same from
// a position on. Those of 256 are for all sizes from 136 on, and have no room for two splits at a time.
#define ATTEND_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS, ARGS)                             \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)         \
		NAME(const __grid_constant__ ARGS a) { attend<CHUNKS, TEAMS, (CHUNKS > 4)>(a); }
#define ATTEND_ONE_KERNELS(SIZE, CHUNKS, BLOCKS)                                              \
	ATTEND_KERNEL(reel_attend_##SIZE, CHUNKS, 1, BLOCKS, AttendArgs)                          \
	ATTEND_KERNEL(reel_attend_##SIZE##_deferred, CHUNKS, 1, BLOCKS, AttendDeferredArgs)       \
	ATTEND_KERNEL(reel_attend_##SIZE##_verify, CHUNKS, 1, BLOCKS, AttendVerifyArgs)           \
	ATTEND_KERNEL(reel_attend_##SIZE##_from, CHUNKS, 1, BLOCKS, AttendFromArgs)
#define ATTEND_KERNELS(SIZE, CHUNKS, BLOCKS)                                                  \
	ATTEND_ONE_KERNELS(SIZE, CHUNKS, BLOCKS)                                                  \
	ATTEND_KERNEL(reel_attend_##SIZE##_two, CHUNKS, 2, 1, AttendArgs)                         \
	ATTEND_KERNEL(reel_attend_##SIZE##_two_deferred, CHUNKS, 2, 1, AttendDeferredArgs)        \
	ATTEND_KERNEL(reel_attend_##SIZE##_two_verify, CHUNKS, 2, 1, AttendVerifyArgs)            \
	ATTEND_KERNEL(reel_attend_##SIZE##_two_from, CHUNKS, 2, 1, AttendFromArgs)
ATTEND_KERNELS(32, 1, 3)
ATTEND_KERNELS(64, 2, 3)
ATTEND_KERNELS(96, 3, 2)
ATTEND_KERNELS(128, 4, 2)
ATTEND_ONE_KERNELS(256, 8, 2)

// Those of the head sizes of large models whose results go to all ranks.
#define ATTEND_SPREAD_KERNEL(NAME, CHUNKS, TEAMS, BLOCKS, ARGS)                      \
	extern "C" __global__ void __launch_bounds__(WARPS * 32 * TEAMS, BLOCKS)         \
		NAME(const __grid_constant__ AttendSpreadArgs<ARGS> a) { attend_spread<CHUNKS, TEAMS>(a); }
#define ATTEND_SPREAD_KERNELS(SIZE, CHUNKS, BLOCKS)                                                \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_spread, CHUNKS, 1, BLOCKS, AttendArgs)               \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_deferred_spread, CHUNKS, 1, BLOCKS, AttendDeferredArgs) \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_two_spread, CHUNKS, 2, 1, AttendArgs)                \
	ATTEND_SPREAD_KERNEL(reel_attend_##SIZE##_two_deferred_spread, CHUNKS, 2, 1, AttendDeferredArgs)
ATTEND_SPREAD_KERNELS(64, 2, 3)
ATTEND_SPREAD_KERNELS(128, 4, 2)

// The same with a softcap or sinks, one split per block at a time, for all head sizes up to 32*CHUNKS.
#define ATTEND_LOGITS_KERNEL(NAME, CHUNKS, BLOCKS, ARGS)                             \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)                 \
		NAME(const __grid_constant__ AttendLogitsArgs<ARGS> a) { attend<CHUNKS, 1, true>(a.of, a.logits); }
#define ATTEND_LOGITS_KERNELS(SIZE, CHUNKS, BLOCKS)                                           \
	ATTEND_LOGITS_KERNEL(reel_attend_##SIZE##_logits, CHUNKS, BLOCKS, AttendArgs)             \
	ATTEND_LOGITS_KERNEL(reel_attend_##SIZE##_logits_deferred, CHUNKS, BLOCKS, AttendDeferredArgs) \
	ATTEND_LOGITS_KERNEL(reel_attend_##SIZE##_logits_verify, CHUNKS, BLOCKS, AttendVerifyArgs)
ATTEND_LOGITS_KERNELS(64, 2, 3)
ATTEND_LOGITS_KERNELS(128, 4, 2)
ATTEND_LOGITS_KERNELS(256, 8, 2)
