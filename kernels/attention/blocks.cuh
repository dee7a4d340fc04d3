// Decode attention (attend.cu, attend_many.cu): a warp's block of positions, its queries and its products.
#pragma once
#include "attention/splits.cuh"
#include "ptx/mma.cuh"

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

	__device__ __forceinline__ const uint4 &key_of(int i, int j) const { return key[i][j]; }
	__device__ __forceinline__ const uint4 &value_of(int h, int i) const { return value[h][i]; }

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

	template <class Queries, class Block> __device__ __forceinline__ void score(const Queries &q, const Block &b) {
#pragma unroll
		for (int i = 0; i < BLOCK / 8; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			uint4 k[BLOCK / 8];
#pragma unroll
			for (int i = 0; i < BLOCK / 8; i++) k[i] = b.key_of(i, j);
#pragma unroll
			for (int i = 0; i < BLOCK / 8; i++) mma_bf16(s[i], q.v[j].x, 0, q.v[j].y, 0, k[i].x, k[i].y);
#pragma unroll
			for (int i = 0; i < BLOCK / 8; i++) mma_bf16(s[i], q.v[j].z, 0, q.v[j].w, 0, k[i].z, k[i].w);
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
	template <bool OWN, class Block> __device__ __forceinline__ void sum(
		const Block &b, const AttendTile &tile, int from, const uint16_t *v, float *sums) const {
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
				uint4 values[4];
#pragma unroll
				for (int i = 0; i < 4; i++) values[i] = b.value_of(h, 4 * half + i);
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
