// Prefill attention (attend_prefill.cu): the tile of a block, the runs of a tile, and the order in which a block takes
// the splits of a run.
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
	int part, parts; // the block is one of `parts`, which compute the splits of the rows together
	int base;        // the first element of the values that the block adds up
};

// A block has sums of VALUES elements at most: registers have no room for more. A larger head has HALVES blocks, of
// which each computes all scores.
template <int DIM> struct PrefillValues {
	static constexpr int HALVES = DIM > 128 ? 2 : 1, VALUES = DIM / HALVES;
};

// PrefillBlock is blockIdx, read anew each time: so a tile is computed again behind the loop over keys, not kept in
// registers through it.
struct PrefillBlock {
	int x, y, z;
	__device__ __forceinline__ PrefillBlock() {
		asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
		asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(y));
		asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(z));
	}
};

// prefill_tile returns this block's tile. It reads nothing that other kernels write.
template <int DIM> __device__ __forceinline__ PrefillTile prefill_tile(const AttendArgs &a) {
	using Values = PrefillValues<DIM>;
	const int all = a.heads / a.kvHeads, parts = (all + PREFILL_ENTRIES - 1) / PREFILL_ENTRIES;
	const PrefillBlock block;
	const int x = block.x / Values::HALVES, part = x % parts * PREFILL_ENTRIES;
	PrefillTile t;
	t.base = block.x % Values::HALVES * Values::VALUES;
	t.kvHead = x / parts;
	t.head = t.kvHead * all + part;
	t.group = min(PREFILL_ENTRIES, all - part);
	t.inverse = 65536 / t.group + 1;
	t.first = ((int)gridDim.y - 1 - block.y) * a.window;
	t.limit = min(t.first + a.window, a.T);
	t.part = block.z;
	t.parts = gridDim.z;
	return t;
}

// prefill_joined returns the union of the a.join tiles around this one; their blocks, at most a.parts of them, share
// its splits. Blocks that start first have the first parts, so none of them waits for the SM of one beyond a.parts.
__device__ __forceinline__ PrefillTile prefill_joined(const AttendArgs &a, PrefillTile t) {
	const int index = (int)gridDim.y - 1 - PrefillBlock().y, first = index / a.join * a.join,
			  count = min(a.join, (int)gridDim.y - first);
	t.first = first * a.window;
	t.limit = min((first + count) * a.window, a.T);
	t.part = t.part * count + first + count - 1 - index;
	t.parts = min(t.parts * count, a.parts);
	return t;
}

// PrefillRun is consecutive rows of one sequence. Entry e of a run is query head e%group of the
// tile in row e/group of the run.
struct PrefillRun {
	int row, rows, slot;
	int begin, end; // smallest position of the rows, and largest plus 1
};

// prefill_run returns the run that begins at `row`. Every warp computes it for itself, from 32·AT_ONCE rows at a time,
// without a branch between them, before which the loads of the next 32 rows would wait.
template <bool WINDOWED, int AT_ONCE = 1, class Args>
__device__ __forceinline__ PrefillRun prefill_run(const Args &a, int row, int limit) {
	PrefillRun run = {row, 0, load_l2_ordered(a.slot + row), INT32_MAX, 0};
	const int lane = threadIdx.x % 32;
	int more;
	do {
		const int from = row + run.rows + lane;
		int slot[AT_ONCE], position[AT_ONCE], least = INT32_MAX, end = 0;
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const int at = min(from + 32 * i, limit - 1);
			slot[i] = load_l2_ordered(a.slot + at), position[i] = load_l2_ordered(a.position + at);
		}
		more = 0;
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const uint32_t others = ~__ballot_sync(~0u, from + 32 * i < limit && slot[i] == run.slot);
			if (more == 32 * i) more += others ? __ffs(others) - 1 : 32;
			const bool in = 32 * i + lane < more;
			least = in ? min(least, position[i]) : least, end = in ? max(end, position[i] + 1) : end;
		}
		if (WINDOWED) run.begin = min(run.begin, __reduce_min_sync(~0u, least));
		run.end = max(run.end, __reduce_max_sync(~0u, end));
		run.rows += more;
	} while (more == 32 * AT_ONCE && row + run.rows < limit);
	return run;
}

// PrefillTurn is block n of a run's keys, which a block of threads computes after `round` other splits.
struct PrefillTurn {
	int n, round;
};

// PrefillSplits is the order in which the blocks of a tile take the splits of a run. They are dealt in rounds, long
// ones before short ones, and every other round from the last block to the first: so no block has much more than
// another when all are dealt. A block that computes all splits takes them in their order.
template <bool WINDOWED> struct PrefillSplits {
	int begins;      // first block of keys that a row sees
	int blocks;      // blocks of keys up to the run's last position
	int part, parts; // of the tile

	__device__ __forceinline__ int first() const { return WINDOWED ? prefill_split(begins) : 0; }

	// begin returns the first block of keys of a round, which is `blocks` if no split is left.
	__device__ __forceinline__ PrefillTurn begin(int round) const {
		const int end = prefill_split(blocks - 1) + 1;
		const int index = round * parts + (round % 2 ? parts - 1 - part : part);
		const int longs = parts > 1 ? max(0, end - max(first(), SHORT_SPLITS)) : 0;
		if (index >= end - first()) return {blocks, round};
		const int split = index < longs ? end - longs + index : first() + index - longs;
		return {WINDOWED ? max(prefill_first_block(split), begins) : prefill_first_block(split), round};
	}

	// step goes to the next block of keys, if there is one.
	__device__ __forceinline__ void step(PrefillTurn &t) const {
		if (t.n >= blocks) return;
		const int n = t.n + 1;
		if (n == blocks || prefill_split(n) != prefill_split(t.n))
			t = begin(t.round + 1);
		else
			t.n = n;
	}
};

// prefill_splits returns the splits of a run.
template <bool WINDOWED> __device__ __forceinline__ PrefillSplits<WINDOWED> prefill_splits(
	const AttendArgs &a, const PrefillTile &tile, const PrefillRun &run) {
	PrefillSplits<WINDOWED> s;
	s.blocks = (run.end + PREFILL_KEYS - 1) / PREFILL_KEYS;
	s.begins = WINDOWED ? max(0, run.begin + 1 - a.visible) / PREFILL_KEYS : 0;
	s.part = tile.part, s.parts = tile.parts;
	return s;
}
