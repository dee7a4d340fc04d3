// Prefill attention (attend_prefill.cu): the tile of a block, the runs of a tile, and the sum of
// its splits.
#pragma once
#include "attention/softmax.cuh"
#include "gemm/rounded.cuh"
#include "ptx/memory.cuh"
#include "ptx/mma.cuh"

constexpr int PREFILL_WARPS = 4, PREFILL_ENTRIES = 16 * PREFILL_WARPS, PREFILL_KEYS = 64;

// Splits, in blocks of PREFILL_KEYS positions: the first SHORT_SPLITS have SHORT_BLOCKS, so that the blocks of a GPU
// share even a short history; later ones have LONG_BLOCKS, since each split costs a merge. The borders are the same
// for all rows, so a row's sums depend on its own position alone. prefillSplits of attend.go mirrors them.
constexpr int SHORT_BLOCKS = 8, LONG_BLOCKS = 16, SHORT_SPLITS = 8;

// prefill_split returns the split of block n.
__device__ __forceinline__ int prefill_split(int n) {
	return n < SHORT_SPLITS * SHORT_BLOCKS ? n / SHORT_BLOCKS
										   : n / LONG_BLOCKS + SHORT_SPLITS - SHORT_SPLITS * SHORT_BLOCKS / LONG_BLOCKS;
}
// prefill_first_block returns the first block of a split.
__device__ __forceinline__ int prefill_first_block(int split) {
	return split < SHORT_SPLITS ? split * SHORT_BLOCKS
								: (split - SHORT_SPLITS) * LONG_BLOCKS + SHORT_SPLITS * SHORT_BLOCKS;
}

// PrefillTile is the work of a block: query heads head to head+group-1, which read KV head kvHead,
// of rows first to limit-1.
struct PrefillTile {
	int kvHead, head, group;
	int inverse; // e/group = e*inverse >> 16 for e < PREFILL_ENTRIES
	int first, limit;
	int part, parts; // the block computes splits part, part+parts, …
};

// prefill_tile returns this block's tile. It reads nothing that other kernels write.
__device__ __forceinline__ PrefillTile prefill_tile(const AttendArgs &a) {
	const int all = a.heads / a.kvHeads, parts = (all + PREFILL_ENTRIES - 1) / PREFILL_ENTRIES;
	const int part = blockIdx.x % parts * PREFILL_ENTRIES;
	PrefillTile t;
	t.kvHead = blockIdx.x / parts;
	t.head = t.kvHead * all + part;
	t.group = min(PREFILL_ENTRIES, all - part);
	t.inverse = 65536 / t.group + 1;
	t.first = (gridDim.y - 1 - blockIdx.y) * a.window;
	t.limit = min(t.first + a.window, a.T);
	t.part = blockIdx.z;
	t.parts = gridDim.z;
	return t;
}

// prefill_joined returns the union of the a.join tiles around this one; their blocks share its
// splits.
__device__ __forceinline__ PrefillTile prefill_joined(const AttendArgs &a, PrefillTile t) {
	const int index = gridDim.y - 1 - blockIdx.y, first = index / a.join * a.join,
			  count = min(a.join, (int)gridDim.y - first);
	t.first = first * a.window;
	t.limit = min((first + count) * a.window, a.T);
	t.part = t.part * count + index - first;
	t.parts *= count;
	return t;
}

// PrefillRun is consecutive rows of one sequence. Entry e of a run is query head e%group of the
// tile in row e/group of the run.
struct PrefillRun {
	int row, rows, slot;
	int begin, end; // smallest position of the rows, and largest plus 1
};

// prefill_run returns the run that begins at `row`. Every warp computes it for itself.
template <bool WINDOWED> __device__ __forceinline__ PrefillRun prefill_run(const AttendArgs &a, int row, int limit) {
	PrefillRun run = {row, 0, load_l2_ordered(a.slot + row), INT32_MAX, 0};
	int more;
	do {
		const int t = row + run.rows + threadIdx.x % 32, at = min(t, limit - 1);
		const int slot = load_l2_ordered(a.slot + at), position = load_l2_ordered(a.position + at);
		const uint32_t others = ~__ballot_sync(~0u, t < limit && slot == run.slot);
		more = others ? __ffs(others) - 1 : 32;
		if (WINDOWED)
			run.begin = min(run.begin, __reduce_min_sync(~0u, (int)(threadIdx.x % 32) < more ? position : INT32_MAX));
		run.end = max(run.end, __reduce_max_sync(~0u, (int)(threadIdx.x % 32) < more ? position + 1 : 0));
		run.rows += more;
	} while (more == 32);
	return run;
}

// prefill_mean returns sum/weight. Adding 0 turns -0 into +0, in which sums with blocks of weight 0
// may differ.
__device__ __forceinline__ float prefill_mean(float sum, float inverse) { return __fmaf_rn(sum, inverse, 0.f); }

// prefill_merge adds the splits of a tile's rows in order, as Prefill::add does; of the elements it adds part `part`
// of `parts`. The sums of up to ONCE splits are loaded at once.
template <bool WINDOWED> __device__ static void prefill_merge(
	const AttendArgs &a, const PrefillTile &tile, int part, int parts) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	constexpr int ONCE = 16;
#else
	constexpr int ONCE = 8; // more would spill
#endif
	const int pairs = a.dim / 2;
	const int end = (tile.limit - tile.first) * tile.group * pairs;
	for (int i = part * blockDim.x + threadIdx.x; i < end; i += parts * blockDim.x) {
		const int entry = i / pairs, element = i % pairs * 2, row = tile.first + entry / tile.group;
		const int head = tile.head + entry % tile.group;
		const size_t at = (size_t)row * a.heads + head;
		const int splits = prefill_split(a.position[row] / PREFILL_KEYS) + 1;
		AttendSum x = {0, -INFINITY, 0}, y = x;
		const int first = WINDOWED ? prefill_split(max(0, a.position[row] + 1 - a.visible) / PREFILL_KEYS) : 0;
		for (int split = first; split < splits; split += ONCE) {
			const float *p = a.partial + (at * a.splits + split) * (a.dim + 2);
			float2 sum[ONCE], state[ONCE];
#pragma unroll
			for (int s = 0; s < ONCE; s++) {
				if (split + s >= splits) continue;
				sum[s] = __ldcg((const float2 *)(p + s * (a.dim + 2) + element));
				state[s] = __ldcg((const float2 *)(p + s * (a.dim + 2) + a.dim));
			}
#pragma unroll
			for (int s = 0; s < ONCE; s++)
				if (split + s < splits)
					x.add(sum[s].x, state[s].x, state[s].y), y.add(sum[s].y, state[s].x, state[s].y);
		}
		const float inverse = __frcp_rn(x.weight);
		const float2 mean = {prefill_mean(x.sum, inverse), prefill_mean(y.sum, inverse)};
		if (a.rounded)
			RoundedToken(a.rounded, a.tokens, row, head * a.dim)
				.put(element / 8, element % 8, a.f16 ? F16::pack(mean.x, mean.y) : BF16::pack(mean.x, mean.y));
		else
			*(float2 *)(a.out + at * a.dim + element) = mean;
	}
}
