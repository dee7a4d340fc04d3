// How a prompt's product is cut into spans, and which block goes through which of them
// (prompt.cuh; parts.go says how many there are).
#pragma once
#include "common.cuh"

// Where a thread is among its block's work: turn after turn, each a span for a tile of tokens,
// and for each the span's parts, the last unit's first. So what another block waits for is
// done early.
struct Walk {
	int turn, tile, span;
	int low;              // the span's first piece, of all units'
	int unit, piece, end; // where the part begins and ends, of its unit's pieces
};

// How a product is cut.
struct Cut {
	int32_t spans, tiles; // of tokens
	int32_t together;     // whether as many blocks as there are tiles go through a span, each for a tile
	int32_t unused;
};

// Product has units(), pieces (of a unit), shares (whether units are cut into spans of their own,
// whose blocks each hand over a share), and cut.
template <class Product> struct Spans {
	__device__ __forceinline__ const Product &of() const { return static_cast<const Product &>(*this); }

	// Where a span starts: a unit, and which of its pieces. A unit counts as some pieces more than
	// it has, as many as its block could multiply while it hands it over; fewer than a span has
	// at least (parts.go), so that no span is empty.
	__device__ __forceinline__ int2 start_of(uint32_t span) const {
		constexpr uint32_t HANDING = 5;
		const uint32_t each = of().pieces + (of().shares ? 0 : HANDING), at = of().units() * each * span / of().cut.spans, unit = at / each;
		return {(int)unit, (int)min(at - unit * each, (uint32_t)of().pieces)};
	}

	// What a block begins a turn with. The blocks that go through a span together find its
	// weights in L2 when another one has asked for them.
	__device__ __forceinline__ Walk begin(int turn) const {
		const int block = blockIdx.x;
		Walk w = {turn, turn, block};
		const Cut &c = of().cut;
		if (c.together) w.tile = block % c.tiles, w.span = turn * (c.spans / c.tiles) + block / c.tiles;
		const int2 low = start_of(w.span), high = start_of(w.span + 1);
		w.low = low.x * of().pieces + low.y;
		return high.y ? part_of(w, high.x, high.y) : part_of(w, high.x - 1, of().pieces);
	}
	// The span's part that ends in a unit, before its piece `end`.
	__device__ __forceinline__ Walk part_of(Walk w, int unit, int end) const {
		w.unit = unit, w.piece = max(w.low - unit * of().pieces, 0), w.end = end;
		return w;
	}
	// move goes to the next part, and tells whether there is one.
	__device__ __forceinline__ bool move(Walk &w) const {
		if (w.unit * of().pieces + w.piece > w.low)
			w = part_of(w, w.unit - 1, of().pieces);
		else if (++w.turn < of().cut.tiles)
			w = begin(w.turn);
		else
			return false;
		return true;
	}
	// How many tiles of tokens the block has had.
	__device__ __forceinline__ int tiles_before(const Walk &w) const { return of().cut.together ? 0 : w.turn; }

	// Whether a part's block hands over results.
	__device__ __forceinline__ bool finishes(const Walk &w) const { return w.end == of().pieces || of().shares; }
	// Whether a part is the last of several of a unit, and its block adds the others.
	__device__ __forceinline__ bool adds(const Walk &w) const { return !of().shares && w.end == of().pieces && w.piece > 0; }
	// How many spans a unit has, where they share it.
	__device__ __forceinline__ int parts() const { return of().cut.spans / of().units(); }
	// The first span that has some of a unit.
	__device__ __forceinline__ int first_span(int unit) const {
		const int s = unit * of().cut.spans / of().units();
		const int2 next = start_of(s + 1);
		return s + (next.x * of().pieces + next.y <= unit * of().pieces);
	}
};
