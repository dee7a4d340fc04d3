// Rounded activations: where products leave and find rows in 16 bits, in the order that wgmma reads.
#pragma once
#include "gemm/operands.cuh"

constexpr int ATOM = 8;                             // tokens that wgmma's swizzle takes together
constexpr int PIECE_BYTES = PIECE * STEP * 2;       // of a token
constexpr int ATOM_BYTES = ATOM * PIECE_BYTES;
constexpr int TILE_PIECE = PIECE * 512;             // bytes of a piece of a row tile

// Rounded activations are [pieces][tokens/8][8 tokens][128 bytes], the 16-byte chunks
// of a token exchanged as wgmma's 128-byte swizzle wants them.
struct RoundArgs {
	Activations in;
	char *out;
	float *scales;  // out: [tokens], where in has a norm
	int32_t tokens; // a multiple of 8, not below in.n
	int32_t unused;
};

// What a deep product reads beside its op's arguments.
struct Rounded {
	const char *rows;    // as above
	const float *scales; // [tokens]; or, where parts is not 0, squares [parts][tokens] that make them
	int32_t tokens;      // a multiple of 8
	int32_t parts;
};

// Where a product leaves its rows rounded for the next one, or null.
struct Onward {
	char *rows;        // as Rounded has them
	const float *norm; // [columns], or null: what the next product multiplies them with first
	float *squares;    // [columns/128][tokens], where there is a norm: each row's, over 128 columns
	int32_t tokens, unused;
};

// The place of columns k and k+1 of token t among rounded activations; k a multiple of 4. Those
// of k+2 and k+3 are 16 bytes of a token on, exchanged as they are.
__device__ __forceinline__ void store_rounded(char *rows, int tokens, int t, int k, uint2 v) {
	const int piece = k / (PIECE * STEP), quad = k / 4 % (PIECE * STEP / 4), place = t % ATOM;
	uint32_t *to = reinterpret_cast<uint32_t *>(rows) + ((size_t)piece * (tokens / ATOM) + t / ATOM) * (ATOM_BYTES / 4) + place * (PIECE_BYTES / 4) + quad % 4;
	to[(quad / 4 * 2 ^ place) * 4] = v.x;
	to[((quad / 4 * 2 + 1) ^ place) * 4] = v.y;
}

// A token's place among rounded activations, from some column on, a multiple of 8.
struct RoundedToken {
	char *piece;     // the token's part of that column's piece
	uint32_t stride; // bytes from piece to piece
	uint32_t eighth; // of the piece, in which the column is
	uint32_t place;  // of the token in its atom

	__device__ __forceinline__ RoundedToken(char *rows, int tokens, uint32_t t, uint32_t column)
		: piece(rows + ((size_t)(column / (PIECE * STEP)) * (tokens / ATOM) + t / ATOM) * ATOM_BYTES + t % ATOM * PIECE_BYTES),
		  stride(tokens / ATOM * ATOM_BYTES), eighth(column / 8 % (PIECE * STEP / 8)), place(t % ATOM) {}

	// Puts columns 8i+k and the next, counted from there; k even and below 8.
	__device__ __forceinline__ void put(uint32_t i, uint32_t k, uint32_t v) const {
		const uint32_t at = eighth + i, chunk = at % 8 / 2 * 2 + k / 2 % 2, word = at % 2 * 2 + k / 4;
		*reinterpret_cast<uint32_t *>(piece + (size_t)(at / 8) * stride + (chunk ^ place) * 16 + word * 4) = v;
	}
};
