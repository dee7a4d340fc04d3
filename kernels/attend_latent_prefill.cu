#include "attention/latent.cuh"
#include "attention/prefill.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/pdl.cuh"
#include "ptx/wgmma.cuh"

// Latent attention of a prompt's rows, on Hopper. A block of threads has a tile of up to 64 entries: all pairs of some
// rows and up to 64 query heads, which share the keys that it loads. Of a block of 64 positions each of two warpgroups
// computes the scores of 32; their weights meet in shared memory, and each adds up half of a value's elements. Splits,
// blocks and their order are those of other prefill attention (attention/prefill.cuh), so no bit of a row depends on
// neighbouring rows, on where a chunk began, or on the grid.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int TILE_ENTRIES = 64, TILE_GROUPS = 2, TILE_THREADS = 128 * TILE_GROUPS;
constexpr int TILE_RUNS = LATENT_DIM / 64;     // of 64 elements, which lie together in shared memory
constexpr int TILE_RUN = TILE_ENTRIES * 8;     // of 64 rows: 16-byte chunks
constexpr int TILE_COPIES = PREFILL_KEYS * 8 / TILE_THREADS; // rows that a thread copies a part of
constexpr int TILE_VALUE_RUNS = LATENT_VALUES / 64 / TILE_GROUPS; // of a warpgroup

// LatentTileShared is the dynamic shared memory of a block. Queries and keys are in the order that wgmma reads: chunk c
// of a run of row r is at c^r%8.
struct LatentTileShared {
	uint4 q[TILE_RUNS * TILE_RUN], keys[2][TILE_RUNS * TILE_RUN];
	uint16_t weights[TILE_ENTRIES][PREFILL_KEYS + 8];
	float state[TILE_GROUPS][TILE_ENTRIES]; // what the warpgroups exchange: largest scores, sums of weights
};

// LatentTile computes the runs of a tile. Of an mma's result a lane has entries lane/4 and lane/4+8 of its warp's 16.
struct LatentTile {
	const AttendLatentArgs &a;
	LatentTileShared &s;
	const int head, group; // the first query head, and how many
	int limit;             // the row after the tile's last one
	PrefillRun run;
	PrefillSplits<true> splits;
	int page[TILE_COPIES];                    // of the positions that the thread copies next
	int position[2], least, last;             // of the lane's entries, or -1; of the warp's
	float o[TILE_VALUE_RUNS][32];             // sums of the split
	float most[2], weight[2];                 // of the split: largest score, sum of the lane's weights
	float allMost[2], allWeight[2];           // of the splits before

	__device__ __forceinline__ LatentTile(const AttendLatentArgs &a, LatentTileShared &s)
		: a(a), s(s), head(blockIdx.x * TILE_ENTRIES), group(min(TILE_ENTRIES, a.heads - head)) {}

	static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
	static __device__ __forceinline__ int warpgroup() { return threadIdx.x / 128; }
	static __device__ __forceinline__ int entry(int half) { return threadIdx.x / 32 % 4 * 16 + lane() / 4 + 8 * half; }
	// at returns the index in [T][heads] of an entry; those past the run's end have another's.
	__device__ __forceinline__ int at(int entry) const {
		return min(run.row + entry / group, limit - 1) * a.heads + head + entry % group;
	}
	static __device__ __forceinline__ int place(int row, int chunk) {
		return chunk / 8 * TILE_RUN + row * 8 + (chunk % 8 ^ row % 8);
	}

	__device__ __forceinline__ void load_queries() {
		const int entry = threadIdx.x / 4;
		const float4 *from = (const float4 *)(a.q + (size_t)at(entry) * a.dim);
#pragma unroll 6
		for (int chunk = threadIdx.x % 4; chunk < LATENT_DIM / 8; chunk += 4) {
			float4 x = {}, y = {};
			if (8 * chunk < a.dim) x = __ldcg(from + 2 * chunk), y = __ldcg(from + 2 * chunk + 1);
			s.q[place(entry, chunk)] = {attend_pack(x.x, x.y), attend_pack(x.z, x.w), attend_pack(y.x, y.y),
				attend_pack(y.z, y.w)};
		}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int row = this->entry(half) / group;
			position[half] = row < run.rows ? a.position[min(run.row + row, limit - 1)] : -1;
		}
		last = __reduce_max_sync(~0u, max(position[0], position[1]));
		least = __reduce_min_sync(~0u, (int)min((unsigned)position[0], (unsigned)position[1]) & INT32_MAX);
	}

	// copied returns the position in a block of the i-th row that a thread copies.
	static __device__ __forceinline__ int copied(int i) { return threadIdx.x / 8 + i * TILE_THREADS / 8; }

	// load_pages starts loading the page numbers for block n.
	__device__ __forceinline__ void load_pages(int n) {
		const int32_t *table = a.blockTable + (size_t)run.slot * a.pages;
#pragma unroll
		for (int i = 0; i < TILE_COPIES; i++)
			page[i] = __ldcg(table + (min(n * PREFILL_KEYS + copied(i), run.end - 1) >> a.pageShift));
	}

	// copy_keys begins to copy block n, whose pages are loaded. What lies behind the run's last position are zeros: the
	// pool may hold NaN there, and 0·NaN is NaN. So are elements that keys do not have.
	__device__ __forceinline__ void copy_keys(int stage, int n) {
		const int by = threadIdx.x % 8, chunks = a.dim / 8;
#pragma unroll
		for (int i = 0; i < TILE_COPIES; i++) {
			const int p = n * PREFILL_KEYS + copied(i), kept = min(p, run.end - 1);
			const uint4 *from = (const uint4 *)(a.pool + page[i] * a.pageBytes + a.layerStart) +
				(kept & (1 << a.pageShift) - 1) * chunks;
			uint4 *to = s.keys[stage] + place(copied(i), by);
#pragma unroll
			for (int j = 0; j < TILE_RUNS; j++) {
				const bool is = by + 8 * j < chunks;
				cp_async_zero_fill(to + j * TILE_RUN, from + (is ? by + 8 * j : 0), is && p < run.end ? 16 : 0);
			}
		}
	}

	// begin_scores begins to compute those of the warpgroup's 32 positions: x[4i+2h+c] of entry h and position
	// 8i + 2(lane%4) + c.
	__device__ __forceinline__ void begin_scores(float (&x)[16], int stage) const {
		const uint32_t q = shared_address(s.q), keys = shared_address(s.keys[stage]) + warpgroup() * 32 * 128;
#pragma unroll
		for (int i = 0; i < 16; i++) x[i] = 0;
		wgmma_pin(x);
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < LATENT_DIM / 16; k++) {
			const int at = k / 4 * TILE_RUN * 16 + k % 4 * 32;
			wgmma_bf16_32_shared(x, wgmma_descriptor(q + at), wgmma_descriptor(keys + at));
		}
		wgmma_commit();
	}

	// exchange returns the other warpgroup's value of an entry of each half.
	__device__ __forceinline__ void exchange(const float (&mine)[2], float (&its)[2]) {
#pragma unroll
		for (int half = 0; half < 2; half++)
			if (lane() % 4 == 0) s.state[warpgroup()][entry(half)] = mine[half];
		__syncthreads();
#pragma unroll
		for (int half = 0; half < 2; half++) its[half] = s.state[warpgroup() ^ 1][entry(half)];
	}

	// weigh puts weights 2^(score - most) into shared memory, and rescales the split's sums.
	__device__ __forceinline__ void weigh(float (&x)[16], int n) {
		const int from = n * PREFILL_KEYS + warpgroup() * 32;
		const bool all = from + 31 <= least && from > last - a.visible;
		float high[2], other[2], factor[2];
		if (a.logits.cap != 0) {
#pragma unroll
			for (int i = 0; i < 16; i++) x[i] = a.logits.score(x[i], a.scale);
		} else {
#pragma unroll
			for (int i = 0; i < 16; i++) x[i] = __fmul_rn(x[i], a.scale);
		}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			high[half] = -INFINITY;
#pragma unroll
			for (int i = 0; i < 8; i++) {
				float &v = x[i / 2 * 4 + 2 * half + i % 2];
				const int p = from + i / 2 * 8 + lane() % 4 * 2 + i % 2;
				if (!all && (p > position[half] || p <= position[half] - a.visible)) v = -INFINITY;
				high[half] = fmaxf(high[half], v);
			}
			high[half] = fmaxf(high[half], __shfl_xor_sync(~0u, high[half], 1));
			high[half] = fmaxf(high[half], __shfl_xor_sync(~0u, high[half], 2));
		}
		exchange(high, other);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const float top = fmaxf(most[half], fmaxf(high[half], other[half]));
			const float base = top == -INFINITY ? 0 : top; // the row sees none of these positions: all weights are 0
			factor[half] = exp2_approx(__fsub_rn(most[half], base));
			most[half] = top;
			float sum = __fmul_rn(weight[half], factor[half]);
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const uint32_t pair = attend_pack(exp2_approx(__fsub_rn(x[4 * i + 2 * half], base)),
					exp2_approx(__fsub_rn(x[4 * i + 2 * half + 1], base)));
				*(uint32_t *)&s.weights[entry(half)][warpgroup() * 32 + 8 * i + lane() % 4 * 2] = pair;
				// The sum of weights uses the rounded weights that multiply the values.
				sum = __fadd_rn(sum, __fadd_rn(BF16::low(pair), BF16::high(pair)));
			}
			weight[half] = sum;
		}
		if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
			for (int i = 0; i < 32 * TILE_VALUE_RUNS; i++) o[i / 32][i % 32] = __fmul_rn(o[i / 32][i % 32], factor[i / 2 % 2]);
		}
		__syncthreads(); // weights are there
	}

	// value_run returns the first element of the h-th run of values of the warpgroup.
	static __device__ __forceinline__ int value_run(int h) { return 64 * (warpgroup() * TILE_VALUE_RUNS + h); }

	// add_values adds weights times values of the block.
	__device__ __forceinline__ void add_values(int stage) {
		const uint32_t values = shared_address(s.keys[stage]);
		uint4 w[PREFILL_KEYS / 16];
#pragma unroll
		for (int k = 0; k < PREFILL_KEYS / 16; k++)
			w[k] = ldmatrix(shared_address(&s.weights[threadIdx.x / 32 % 4 * 16 + lane() % 16][16 * k + lane() / 16 * 8]));
		pin_values();
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < PREFILL_KEYS / 16; k++)
#pragma unroll
			for (int h = 0; h < TILE_VALUE_RUNS; h++)
				wgmma_bf16_64<1>(o[h], w[k].x, w[k].y, w[k].z, w[k].w,
					wgmma_descriptor(values + value_run(h) / 64 * TILE_RUN * 16 + k * 2048));
		wgmma_commit(), wgmma_wait<0>();
		pin_values();
	}
	__device__ __forceinline__ void pin_values() {
#pragma unroll
		for (int h = 0; h < TILE_VALUE_RUNS; h++) wgmma_pin(o[h]);
	}

	__device__ __forceinline__ void clear() {
#pragma unroll
		for (int i = 0; i < 32 * TILE_VALUE_RUNS; i++) o[i / 32][i % 32] = 0;
		most[0] = most[1] = -INFINITY, weight[0] = weight[1] = 0;
	}

	// each calls f(x, at) for the pairs of values at x of a half, which lie at element `at` of its entry.
	template <class F> __device__ __forceinline__ void each(int half, F f) {
#pragma unroll
		for (int i = 0; i < 8 * TILE_VALUE_RUNS; i++)
			if (const int at = value_run(i / 8) + i % 8 * 8; at < a.values)
				f(&o[i / 8][i % 8 * 4 + 2 * half], at + lane() % 4 * 2);
	}

	__device__ __forceinline__ void store_partial(int half, int split) {
		const size_t to = (size_t)at(entry(half)) * a.splits + split;
		each(half, [&](float *x, int i) { *(float2 *)(a.partial + to * a.values + i) = {x[0], x[1]}; });
		if (warpgroup() == 0 && lane() % 4 == 0) *latent_state(a, to) = {most[half], weight[half]};
	}
	// add adds the sums of earlier splits, which are in `out`, to this split's. A single split stays as it is.
	__device__ __forceinline__ void add(int half, int split) {
		AttendSum sum = {0, allMost[half], allWeight[half]};
		float mine, its;
		sum.factors(most[half], mine, its);
		sum.add(0, most[half], weight[half]);
		allMost[half] = sum.most, allWeight[half] = weight[half] = sum.weight;
		const bool begins = split == splits.first();
		const float *before = a.out + (size_t)at(entry(half)) * a.values;
		each(half, [&](float *x, int i) {
			float2 sum = {};
			if (!begins) sum = *(const float2 *)(before + i);
			x[0] = __fmaf_rn(x[0], its, __fmul_rn(sum.x, mine)), x[1] = __fmaf_rn(x[1], its, __fmul_rn(sum.y, mine));
		});
	}
	// store leaves sums in `out` for the next split, or the row's result.
	__device__ __forceinline__ void store(int half, bool ends) {
		const int of = at(entry(half));
		const float top = position[half] >= SHORT_BLOCKS * PREFILL_KEYS ? allMost[half] : most[half];
		const float by = ends ? __frcp_rn(a.logits.total(of % a.heads, top, weight[half])) : 1;
		each(half, [&](float *x, int i) {
			*(float2 *)(a.out + (size_t)of * a.values + i) = {__fmaf_rn(x[0], by, 0.f), __fmaf_rn(x[1], by, 0.f)};
		});
	}

	// end finishes a split for the rows that reach it.
	__device__ __forceinline__ void end(int split, bool whole) {
		float other[2];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			weight[half] = __fadd_rn(weight[half], __shfl_xor_sync(~0u, weight[half], 1));
			weight[half] = __fadd_rn(weight[half], __shfl_xor_sync(~0u, weight[half], 2));
		}
		exchange(weight, other);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			weight[half] = __fadd_rn(weight[half], other[half]);
			if (position[half] < prefill_first_block(split) * PREFILL_KEYS) continue;
			if (!whole) {
				store_partial(half, split);
				continue;
			}
			if (position[half] >= SHORT_BLOCKS * PREFILL_KEYS) add(half, split);
			store(half, position[half] < prefill_first_block(split + 1) * PREFILL_KEYS);
		}
		clear();
	}

	// attend computes this block's splits of the run.
	__device__ __forceinline__ void attend(int part, int parts, bool whole) {
		splits.blocks = (run.end + PREFILL_KEYS - 1) / PREFILL_KEYS;
		splits.begins = max(0, run.begin + 1 - a.visible) / PREFILL_KEYS;
		splits.part = part, splits.parts = parts;
		PrefillTurn turn = splits.begin(0);
		if (turn.n >= splits.blocks) return;
		__syncthreads(); // all have read what the run before left in shared memory
		load_pages(turn.n);
		copy_keys(0, turn.n);
		cp_async_commit();
		load_queries();
		int n = turn.n;
		splits.step(turn);
		if (turn.n < splits.blocks) load_pages(turn.n);
		allMost[0] = allMost[1] = -INFINITY, allWeight[0] = allWeight[1] = 0;
		clear();
		for (int stage = 0; n < splits.blocks; stage ^= 1) {
			const int next = turn.n, split = prefill_split(n);
			float x[16];
			wait_for_keys(); // the other stage was read too
			begin_scores(x, stage);
			if (next < splits.blocks) { // while scores are computed
				copy_keys(stage ^ 1, next);
				splits.step(turn);
				if (turn.n < splits.blocks) load_pages(turn.n);
			}
			cp_async_commit();
			wgmma_wait<0>();
			wgmma_pin(x);
			weigh(x, n);
			add_values(stage);
			if (next >= splits.blocks || prefill_split(next) != split) end(split, whole);
			n = next;
		}
	}
	// wait_for_keys returns when the keys that were copied last are there, and before the first ones queries.
	static __device__ __forceinline__ void wait_for_keys() {
		cp_async_wait<0>();
		fence_async_shared();
		__syncthreads();
	}

	// merge adds the splits of the rows from `first` on in order, as `add` does; of the elements it adds part `part` of
	// `parts`.
	__device__ __forceinline__ void merge(int first, int part, int parts) const {
		constexpr int ONCE = 8;
		const int pairs = a.values / 2, end = (limit - first) * group * pairs;
		for (int i = part * TILE_THREADS + threadIdx.x; i < end; i += parts * TILE_THREADS) {
			const int entry = i / pairs, row = first + entry / group, of = row * a.heads + head + entry % group;
			const int position = a.position[row], splits = prefill_split(position / PREFILL_KEYS) + 1;
			AttendSum x = {0, -INFINITY, 0}, y = x;
			for (int split = prefill_split(max(0, position + 1 - a.visible) / PREFILL_KEYS); split < splits; split += ONCE) {
				float2 sum[ONCE], state[ONCE];
#pragma unroll
				for (int k = 0; k < ONCE; k++) {
					const size_t from = (size_t)of * a.splits + min(split + k, splits - 1);
					sum[k] = __ldcg((const float2 *)(a.partial + from * a.values) + i % pairs);
					state[k] = __ldcg(latent_state(a, from));
				}
#pragma unroll
				for (int k = 0; k < ONCE; k++)
					if (split + k < splits)
						x.add(sum[k].x, state[k].x, state[k].y), y.add(sum[k].y, state[k].x, state[k].y);
			}
			const float by = __frcp_rn(a.logits.total(of % a.heads, x.most, x.weight));
			((float2 *)(a.out + (size_t)of * a.values))[i % pairs] = {__fmaf_rn(x.sum, by, 0.f), __fmaf_rn(y.sum, by, 0.f)};
		}
	}
};
#endif

// attend_latent_prefill: grid [groups of 64 query heads][tiles of a.rows rows, the last first][blocks that share a
// tile's splits, which all run at the same time].
extern "C" __global__ void __launch_bounds__(256, 1)
	reel_attend_latent_prefill(const __grid_constant__ AttendLatentArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	extern __shared__ __align__(1024) char latent_tile_shared[];
	pdl_begin();
	LatentTile p(a, *(LatentTileShared *)latent_tile_shared);
	const int first = ((int)gridDim.y - 1 - (int)blockIdx.y) * a.rows, part = blockIdx.z, parts = gridDim.z;
	p.limit = min(first + a.rows, a.T);
	const int lane = threadIdx.x % 32, end = p.limit - 1;
	const int most = __reduce_max_sync(~0u, max(a.position[min(first + lane, end)], a.position[min(first + lane + 32, end)]));
	const int splits = prefill_split(most / PREFILL_KEYS) + 1, sharing = min(parts, splits);
	if (part >= sharing) return;
	const bool whole = splits == 1 || parts == 1;
	for (int row = first; row < p.limit; row += p.run.rows) {
		p.run = prefill_run<true>(a, row, p.limit);
		p.attend(part, parts, whole);
	}
	if (whole) return;
	unsigned *const arrived = a.arrived + blockIdx.y * gridDim.x + blockIdx.x;
	attend_wait_for_all(arrived, sharing);
	p.merge(first, part, sharing);
	attend_leave(arrived, sharing);
#endif
}
