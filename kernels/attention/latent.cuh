// Latent attention (attend_latent.cu, attend_latent_prefill.cu): arguments, and how a generated row's positions are
// divided.
#pragma once
#include "attention/softmax.cuh"

struct AttendLatentArgs {
	const float *q;                 // [T][heads][dim]
	const char *pool;               // bfloat16; a layer of a page is [token][dim]
	float *out;                     // out: [T][heads][values]
	float *partial;                 // [T][heads][splits][values], then states [T][heads][splits]
	unsigned *arrived;              // [T][heads]: 0 between launches
	const int32_t *slot, *position; // [T]
	const int32_t *blockTable;      // [slots][pages]
	int64_t pageBytes, layerStart;
	int32_t T, heads, dim, values; // dim and values are multiples of 16
	int32_t pages, pageShift;      // 1<<pageShift tokens per page
	int32_t splits, visible;
	AttendLogits logits;
	float scale; // multiplies scores; includes log2(e)
	// Prefill: rows of a tile. Else, if not 0, rows come in groups of so many, which are the only ones of their sequence,
	// and the ops before write only queries and the keys of these rows once the kernel has begun.
	int32_t rows;
	int32_t stages;     // blocks of keys, or of keys and values apart, in shared memory at once: 1 or 2
	int32_t shareMerge; // whether all blocks of a row merge its splits; they must all run at the same time
	// Of keys and values apart, where a layer of a page is [key, value][KV head][token][dim]: query heads of a KV head,
	// bytes from keys to values, and the first position that a row sees.
	int32_t group, earliest;
	int64_t valuesStart;
	// together: consecutive rows that a block has together where they are of one sequence, of up to LATENT_ENTRIES query
	// heads in all; more than 1 only without splits that blocks share.
	int32_t together, unused;
};

constexpr int LATENT_DIM = 576, LATENT_VALUES = 512; // at most

// latent_state returns the largest score and the sum of weights of the partial `at` of [T][heads][splits].
__device__ __forceinline__ float2 *latent_state(const AttendLatentArgs &a, size_t at) {
	return (float2 *)(a.partial + (size_t)a.T * a.heads * a.splits * a.values) + at;
}
