// How a prompt's product is cut into spans, and which block goes through which of them
// (prompt.cuh). parts.go cuts it: in the kernel each role would have to fetch the divisions
// before it begins.
#pragma once
#include <cstdint>

// How a product is cut: cut of prompt_cuda.go.
struct SlicePlan {
	int32_t slices;
	int32_t tokenTiles;    // of tokens
	int32_t kBlocks;   // of a outputTile
	int32_t perTile;    // of a outputTile, where units are cut into spans of their own, whose blocks each hand over a share; or else 0
	uint32_t inverse; // 2³²/parts, rounded up
	int32_t tokens;   // of a tile, a multiple of 8; the last one may have fewer
	uint32_t starts[136]; // of each span, and where the last one ends: outputTile<<16 | kBlock
};
static_assert(sizeof(SlicePlan) == 568, "as prompt_cuda_test.go has it");

// Where a thread is among its block's work: pass after pass, each a span for a tile of tokens,
// and for each the span's parts, the last outputTile's first. So what another block waits for is
// done early.
struct SlicePosition {
	int pass;
	int outputTile, kBlock, end; // where the part begins and ends, of its outputTile's pieces
};

// Product has cut.
template <class Product> struct WorkSlices {
	__device__ __forceinline__ const SlicePlan &plan() const { return static_cast<const Product &>(*this).plan; }

	// Whether a row of blocks goes through a span side_by_side, each for its tile of tokens: they
	// find its weights in L2 when another one has asked for them.
	static __device__ __forceinline__ bool side_by_side() { return gridDim.x > 1; }
	static __device__ __forceinline__ int token_tile(const SlicePosition &w) { return side_by_side() ? blockIdx.x : w.pass; }
	static __device__ __forceinline__ int slice(const SlicePosition &w) { return blockIdx.y + (side_by_side() ? w.pass * gridDim.y : 0); }

	// What a block begins a pass with.
	__device__ __forceinline__ SlicePosition begin(int pass) const {
		const SlicePosition w = {pass};
		const uint32_t high = plan().starts[slice(w) + 1], kBlock = high & 0xffff;
		return kBlock ? part_of(pass, high >> 16, kBlock) : part_of(pass, (high >> 16) - 1, plan().kBlocks);
	}
	// The span's part that ends in a outputTile, before its kBlock `end`.
	__device__ __forceinline__ SlicePosition part_of(int pass, int outputTile, int end) const {
		SlicePosition w = {pass, outputTile, 0, end};
		const uint32_t low = plan().starts[slice(w)];
		if (outputTile == low >> 16) w.kBlock = low & 0xffff;
		return w;
	}
	// move goes to the next part, and tells whether there is one.
	__device__ __forceinline__ bool advance(SlicePosition &w) const {
		if (w.outputTile > plan().starts[slice(w)] >> 16)
			w = part_of(w.pass, w.outputTile - 1, plan().kBlocks);
		else if (++w.pass < plan().tokenTiles)
			w = begin(w.pass);
		else
			return false;
		return true;
	}
	// How many tiles of tokens the block has had.
	static __device__ __forceinline__ int tiles_before(const SlicePosition &w) { return side_by_side() ? 0 : w.pass; }

	__device__ __forceinline__ bool shares_results() const { return plan().perTile > 0; }
	// Whether a part's block hands over results.
	__device__ __forceinline__ bool finishes_tile(const SlicePosition &w) const { return w.end == plan().kBlocks || shares_results(); }
	// Whether a part is the last of several of a outputTile, and its block adds the others.
	__device__ __forceinline__ bool adds_partials(const SlicePosition &w) const { return !shares_results() && w.end == plan().kBlocks && w.kBlock > 0; }
	// The first span that has some of a part's outputTile, not after the part's own.
	__device__ __forceinline__ int first_slice(const SlicePosition &w) const {
		int s = slice(w);
#pragma unroll 1
		while (plan().starts[s] > (uint32_t)w.outputTile << 16) s--;
		return s;
	}
};
