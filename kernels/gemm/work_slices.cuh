// How a prompt's product is cut into spans, and which block goes through which of them
// (prompt.cuh). parts.go cuts it: in the kernel each role would have to fetch the divisions
// before it begins.
#pragma once
#include <cstdint>

// How a product is cut: cut of prompt_cuda.go.
struct Cut {
	int32_t spans;
	int32_t tiles;    // of tokens
	int32_t pieces;   // of a unit
	int32_t parts;    // of a unit, where units are cut into spans of their own, whose blocks each hand over a share; or else 0
	uint32_t inverse; // 2³²/parts, rounded up
	int32_t tokens;   // of a tile, a multiple of 8; the last one may have fewer
	uint32_t starts[136]; // of each span, and where the last one ends: unit<<16 | piece
};
static_assert(sizeof(Cut) == 568, "as prompt_cuda_test.go has it");

// Where a thread is among its block's work: turn after turn, each a span for a tile of tokens,
// and for each the span's parts, the last unit's first. So what another block waits for is
// done early.
struct Walk {
	int turn;
	int unit, piece, end; // where the part begins and ends, of its unit's pieces
};

// Product has cut.
template <class Product> struct Spans {
	__device__ __forceinline__ const Cut &cut() const { return static_cast<const Product &>(*this).cut; }

	// Whether a row of blocks goes through a span together, each for its tile of tokens: they
	// find its weights in L2 when another one has asked for them.
	static __device__ __forceinline__ bool together() { return gridDim.x > 1; }
	static __device__ __forceinline__ int tile(const Walk &w) { return together() ? blockIdx.x : w.turn; }
	static __device__ __forceinline__ int span(const Walk &w) { return blockIdx.y + (together() ? w.turn * gridDim.y : 0); }

	// What a block begins a turn with.
	__device__ __forceinline__ Walk begin(int turn) const {
		const Walk w = {turn};
		const uint32_t high = cut().starts[span(w) + 1], piece = high & 0xffff;
		return piece ? part_of(turn, high >> 16, piece) : part_of(turn, (high >> 16) - 1, cut().pieces);
	}
	// The span's part that ends in a unit, before its piece `end`.
	__device__ __forceinline__ Walk part_of(int turn, int unit, int end) const {
		Walk w = {turn, unit, 0, end};
		const uint32_t low = cut().starts[span(w)];
		if (unit == low >> 16) w.piece = low & 0xffff;
		return w;
	}
	// move goes to the next part, and tells whether there is one.
	__device__ __forceinline__ bool move(Walk &w) const {
		if (w.unit > cut().starts[span(w)] >> 16)
			w = part_of(w.turn, w.unit - 1, cut().pieces);
		else if (++w.turn < cut().tiles)
			w = begin(w.turn);
		else
			return false;
		return true;
	}
	// How many tiles of tokens the block has had.
	static __device__ __forceinline__ int tiles_before(const Walk &w) { return together() ? 0 : w.turn; }

	__device__ __forceinline__ bool shares() const { return cut().parts > 0; }
	// Whether a part's block hands over results.
	__device__ __forceinline__ bool finishes(const Walk &w) const { return w.end == cut().pieces || shares(); }
	// Whether a part is the last of several of a unit, and its block adds the others.
	__device__ __forceinline__ bool adds(const Walk &w) const { return !shares() && w.end == cut().pieces && w.piece > 0; }
	// The first span that has some of a part's unit, not after the part's own.
	__device__ __forceinline__ int first_span(const Walk &w) const {
		int s = span(w);
#pragma unroll 1
		while (cut().starts[s] > (uint32_t)w.unit << 16) s--;
		return s;
	}
};
