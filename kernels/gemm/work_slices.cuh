// Work slices of products on Hopper (stream_k.cuh, whole.cuh, many.cuh), and the order in which a
// block of stream-K goes through them. stream_k.go and many.go compute the slices: in the kernel,
// each role would first have to fetch the code of the divisions.
#pragma once
#include "gemm/operands.cuh"
#include <cstdint>

// SlicePlan divides a product; it mirrors slicePlan of args.go. The K blocks of all
// output tiles, laid end to end, are cut into slices.
struct SlicePlan {
	int32_t slices;
	int32_t tokenTiles; // tiles of tokens
	int32_t kBlocks;    // K blocks per output tile
	// Slices per output tile if each slice lies within one tile and its block finishes a share of
	// the results, else 0.
	int32_t perTile;
	uint32_t inverse;     // 2³²/perTile, rounded up
	int32_t tokens;       // tokens per tile, a multiple of 8; the last tile may have fewer
	int32_t firstUnit, endUnit; // of the op's units, those that the product computes
	int32_t rounds;             // of a block: slices or token tiles
	uint32_t starts[134]; // of each slice, and the end of the last: output tile<<16 | K block
};
static_assert(sizeof(SlicePlan) == 572, "in Go: slicePlan of args.go");

// KBlockOrder goes through the K blocks of an output tile in the order of a prompt's sums over weights of 16 bits: first
// those of partial sum 0 of operands.cuh (0, 16, 32, …), then those of 1, and so on. So a product of generated rows can go
// through the same slices beside it (mixed.cuh). Slices count K blocks in this order.
struct KBlockOrder {
	const int kBlocks;
	int partial, at; // the K block, and the partial sum that it belongs to

	// from is how many K blocks come before.
	__device__ __forceinline__ KBlockOrder(int kBlocks, int from) : kBlocks(kBlocks) {
		const int each = kBlocks / PARTIALS, longer = kBlocks % PARTIALS; // so many partial sums have one K block more
		const int past = max(from - longer * (each + 1), 0);
		int begin;
		if (past == 0) {
			partial = quotient(from, each + 1);
			begin = partial * (each + 1);
		} else {
			partial = quotient(past, each);
			begin = from - past + partial * each;
			partial += longer;
		}
		at = partial + (from - begin) * PARTIALS;
	}
	__device__ __forceinline__ void next() {
		at += PARTIALS;
		if (at >= kBlocks) at = ++partial;
	}
	// next_of does so, or begins anew after the last K block.
	__device__ __forceinline__ void next_of(bool last) {
		next();
		if (last) partial = at = 0;
	}
	// quotient divides small numbers: an integer division has ten times the instructions.
	static __device__ __forceinline__ int quotient(int x, int by) { return __fdividef(x + 0.5f, by); }
};

// SlicePosition is a thread's position in its block's work: pass after pass, each a slice for one
// token tile. Within a slice, the part in the last output tile comes first, so that partials for
// other blocks are ready early.
struct SlicePosition {
	int pass;
	int outputTile, kBlock, end; // the part has K blocks kBlock to end-1 of the output tile, in the order of sums
};

// SliceSchedule walks through slices. Product has a member `plan`.
template <class Product> struct SliceSchedule {
	__device__ __forceinline__ const SlicePlan &plan() const { return static_cast<const Product &>(*this).plan; }

	// side_by_side reports whether the blocks of a grid row process one slice at the same time,
	// each for its own token tile. All but the first then find the weights in L2.
	static __device__ __forceinline__ bool side_by_side() { return gridDim.x > 1; }
	static __device__ __forceinline__ int token_tile(const SlicePosition &w) {
		return side_by_side() ? blockIdx.x : w.pass;
	}
	static __device__ __forceinline__ int slice(const SlicePosition &w) {
		return blockIdx.y + (side_by_side() ? w.pass * gridDim.y : 0);
	}

	// begin returns the first position of a pass.
	__device__ __forceinline__ SlicePosition begin(int pass) const {
		const SlicePosition w = {pass};
		const uint32_t high = plan().starts[slice(w) + 1], kBlock = high & 0xffff;
		return kBlock ? part_of(pass, high >> 16, kBlock) : part_of(pass, (high >> 16) - 1, plan().kBlocks);
	}
	// part_of returns the slice's part of an output tile that ends before K block `end`.
	__device__ __forceinline__ SlicePosition part_of(int pass, int outputTile, int end) const {
		SlicePosition w = {pass, outputTile, 0, end};
		const uint32_t low = plan().starts[slice(w)];
		if (outputTile == low >> 16) w.kBlock = low & 0xffff;
		return w;
	}
	// advance moves to the next part and reports whether there is one.
	__device__ __forceinline__ bool advance(SlicePosition &w) const {
		if (w.outputTile > plan().starts[slice(w)] >> 16)
			w = part_of(w.pass, w.outputTile - 1, plan().kBlocks);
		else if (++w.pass < plan().rounds)
			w = begin(w.pass);
		else
			return false;
		return true;
	}
	// tiles_before returns how many token tiles the block has finished.
	static __device__ __forceinline__ int tiles_before(const SlicePosition &w) { return side_by_side() ? 0 : w.pass; }

	__device__ __forceinline__ bool shares_results() const { return plan().perTile > 0; }
	// finishes_tile reports whether the part's block passes results to the op.
	__device__ __forceinline__ bool finishes_tile(const SlicePosition &w) const {
		return w.end == plan().kBlocks || shares_results();
	}
	// adds_partials reports whether the part is the last of several of its output tile, so that its
	// block adds the others.
	__device__ __forceinline__ bool adds_partials(const SlicePosition &w) const {
		return !shares_results() && w.end == plan().kBlocks && w.kBlock > 0;
	}
	// first_slice returns the first slice with a part of this output tile, at most the position's
	// own.
	__device__ __forceinline__ int first_slice(const SlicePosition &w) const {
		int s = slice(w);
#pragma unroll 1
		while (plan().starts[s] > (uint32_t)w.outputTile << 16) s--;
		return s;
	}
};
