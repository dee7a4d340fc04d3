// RoundedInput activations: where products leave and find rows in 16 bits, in the order that wgmma reads.
#pragma once
#include "gemm/operands.cuh"

constexpr int TOKEN_GROUP = 8;                             // tokens that wgmma's swizzle takes together
constexpr int TOKEN_BLOCK_BYTES = K_BLOCK * 2;       // of a token
constexpr int GROUP_BYTES = TOKEN_GROUP * TOKEN_BLOCK_BYTES;
constexpr int TILE_BLOCK_BYTES = BLOCK_STEPS * 512;             // bytes of a block of a row tile

// RoundedInput activations are [pieces][tokens/8][8 tokens][128 bytes], the 16-byte chunks
// of a token exchanged as wgmma's 128-byte swizzle wants them.
struct RoundArgs {
	Activations in;
	char *out;
	float *scales;  // out: [tokens], where in has a norm
	int32_t tokens; // a multiple of 8, not below in.n
	int32_t unused;
};

// What a deep product reads beside its op's arguments.
struct RoundedInput {
	const char *rows;    // as above
	const float *scales; // [tokens]; or, where parts is not 0, squares [parts][tokens] that make them
	int32_t tokens;      // a multiple of 8
	int32_t squares;
};

// Where a product leaves its rows rounded for the next one, or null.
struct Handover {
	char *rows;        // as RoundedInput has them
	const float *norm; // [columns], or null: what the next product multiplies them with first
	float *squares;    // [columns/128][tokens], where there is a norm: each row's, over 128 columns
	int32_t tokens, unused;
};

// The row of columns k and k+1 of token t among rounded activations; k a multiple of 4. Those
// of k+2 and k+3 are 16 bytes of a token on, exchanged as they are.
__device__ __forceinline__ void store_rounded(char *rows, int tokens, int t, int k, uint2 v) {
	const int block = k / (K_BLOCK), quad = k / 4 % (K_BLOCK / 4), row = t % TOKEN_GROUP;
	uint32_t *to = reinterpret_cast<uint32_t *>(rows) + ((size_t)block * (tokens / TOKEN_GROUP) + t / TOKEN_GROUP) * (GROUP_BYTES / 4) + row * (TOKEN_BLOCK_BYTES / 4) + quad % 4;
	to[(quad / 4 * 2 ^ row) * 4] = v.x;
	to[((quad / 4 * 2 + 1) ^ row) * 4] = v.y;
}

// A token's row among rounded activations, from some column on, a multiple of 8.
struct RoundedToken {
	char *block;     // the token's part of that column's block
	uint32_t stride; // bytes from block to block
	uint32_t group; // of the block, in which the column is
	uint32_t row;  // of the token in its atom

	__device__ __forceinline__ RoundedToken(char *rows, int tokens, uint32_t t, uint32_t column)
		: block(rows + ((size_t)(column / (K_BLOCK)) * (tokens / TOKEN_GROUP) + t / TOKEN_GROUP) * GROUP_BYTES + t % TOKEN_GROUP * TOKEN_BLOCK_BYTES),
		  stride(tokens / TOKEN_GROUP * GROUP_BYTES), group(column / 8 % (K_BLOCK / 8)), row(t % TOKEN_GROUP) {}

	// Puts columns 8i+k and the next, counted from there; k even and below 8.
	__device__ __forceinline__ void put(uint32_t i, uint32_t k, uint32_t v) const {
		const uint32_t at = group + i, chunk = at % 8 / 2 * 2 + k / 2 % 2, word = at % 2 * 2 + k / 4;
		*reinterpret_cast<uint32_t *>(block + (size_t)(at / 8) * stride + (chunk ^ row) * 16 + word * 4) = v;
	}
};
