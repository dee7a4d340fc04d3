// Rounded activations: rows in 16 bits, in the order that wgmma reads. Products read their input in
// this form, and may store their output in it for the next product.
//
// Rounded activations are [K blocks][tokens/8][8 tokens][128 bytes]. The 16-byte chunks of a token
// are permuted by wgmma's 128-byte swizzle: chunk c of token t lies at c ^ t%8.
#pragma once
#include "gemm/operands.cuh"

constexpr int TOKEN_GROUP = 8;                 // tokens per 128-byte swizzle pattern of wgmma
constexpr int TOKEN_BLOCK_BYTES = K_BLOCK * 2; // of one token in a K block
constexpr int GROUP_BYTES = TOKEN_GROUP * TOKEN_BLOCK_BYTES;
constexpr int TILE_BLOCK_BYTES = BLOCK_STEPS * 512; // of a weight's row tile in a K block

// RoundArgs are the arguments of round.cu.
struct RoundArgs {
	Activations in;
	char *out;
	float *scales;  // out: [tokens], if in has a norm
	int32_t tokens; // a multiple of 8, at least in.n
	int32_t unused;
};

// RoundedInput is the rounded input of a product.
struct RoundedInput {
	const char *rows; // rounded activations
	// [tokens]; or, if squares is above 0, sums of squares [squares][tokens], from which the scales
	// follow; if it is below 0, memory for scales, which the product computes.
	const float *scales;
	int32_t tokens; // a multiple of 8
	int32_t squares;
};

// Handover is the place of a product's output, rounded as input of the next product; all null: the
// output is not rounded.
struct Handover {
	char *rows;        // rounded activations
	const float *norm; // [columns], or null: norm weights of the next product, by which the output is multiplied
	float *squares;    // [columns/128][tokens], if norm is not null: sums of squares over 128 columns of a row
	int32_t tokens;
	int32_t unused;
};

// store_rounded stores columns k to k+3 of token t, k a multiple of 4: v.x has k and k+1. v.y goes
// one chunk further.
__device__ __forceinline__ void store_rounded(char *rows, int tokens, int t, int k, uint2 v) {
	const int block = k / K_BLOCK, quad = k / 4 % (K_BLOCK / 4), row = t % TOKEN_GROUP;
	uint32_t *to = reinterpret_cast<uint32_t *>(rows) +
		((size_t)block * (tokens / TOKEN_GROUP) + t / TOKEN_GROUP) * (GROUP_BYTES / 4) + row * (TOKEN_BLOCK_BYTES / 4) +
		quad % 4;
	to[(quad / 4 * 2 ^ row) * 4] = v.x;
	to[((quad / 4 * 2 + 1) ^ row) * 4] = v.y;
}

// RoundedToken is the place of one token among rounded activations, from a column on that is a
// multiple of 8.
struct RoundedToken {
	char *block;     // the token's part of the K block that holds the column
	uint32_t stride; // bytes from K block to K block
	uint32_t group;  // the column's eighth of the K block
	uint32_t row;    // of the token in its group of 8

	__device__ __forceinline__ RoundedToken(char *rows, int tokens, uint32_t t, uint32_t column)
		: block(rows + ((size_t)(column / K_BLOCK) * (tokens / TOKEN_GROUP) + t / TOKEN_GROUP) * GROUP_BYTES +
			  t % TOKEN_GROUP * TOKEN_BLOCK_BYTES),
		  stride(tokens / TOKEN_GROUP * GROUP_BYTES),
		  group(column / 8 % (K_BLOCK / 8)),
		  row(t % TOKEN_GROUP) {}

	// at returns the place of columns 8i+k and 8i+k+1 counted from the first column; k is even and below 8.
	__device__ __forceinline__ char *at(uint32_t i, uint32_t k) const {
		const uint32_t at = group + i, chunk = at % 8 / 2 * 2 + k / 2 % 2, word = at % 2 * 2 + k / 4;
		return block + (size_t)(at / 8) * stride + (chunk ^ row) * 16 + word * 4;
	}
	// put stores these two columns.
	__device__ __forceinline__ void put(uint32_t i, uint32_t k, uint32_t v) const {
		*reinterpret_cast<uint32_t *>(at(i, k)) = v;
	}
	// put_half stores one of them, the lower half of v.
	__device__ __forceinline__ void put_half(uint32_t k, uint32_t half, uint32_t v) const {
		*reinterpret_cast<uint16_t *>(at(0, k) + half * 2) = v;
	}
};
