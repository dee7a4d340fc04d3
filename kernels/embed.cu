#include "gemm/formats.cuh"
#include "ptx/pdl.cuh"
#include "ptx/tagged.cuh"

struct EmbedArgs {
	const uint4 *table;   // packed [vocab][hidden]
	const int32_t *token; // [T]
	float *x;             // out: [T][hidden]
	int32_t vocab, hidden;
	float scale;
	int32_t unused;
};

// embed_row passes the columns of row t, four from a column on, to put(column, v).
template <class D, class Put> __device__ __forceinline__ void embed_row(const EmbedArgs &a, uint32_t t, Put put) {
	const int token = min(max(a.token[t], 0), a.vocab - 1), row = token % 16;
	const uint2 *tile = reinterpret_cast<const uint2 *>(a.table + (size_t)(token / 16) * (a.hidden / MMA_K) * 32);
	for (int i = threadIdx.x; i < a.hidden / 4; i += blockDim.x) {
		// Registers {row, row+8} of columns 0 1, then of columns 2 3.
		const uint2 *lane = tile + ((size_t)(i / 4) * 32 + row % 8 * 4 + i % 4) * 2;
		uint32_t low = row < 8 ? lane[0].x : lane[0].y, high = row < 8 ? lane[1].x : lane[1].y;
		put(4 * i, times({D::low(low), D::high(low), D::low(high), D::high(high)}, {a.scale, a.scale, a.scale, a.scale}));
	}
}

__device__ __forceinline__ void store(const EmbedArgs &a, int column, const float4 &v) {
	*reinterpret_cast<float4 *>(a.x + (size_t)blockIdx.x * a.hidden + column) = v;
}

// embed: X[t] = scale Table[token[t]]. A block is a row; a thread takes four columns.
template <class D> __device__ __forceinline__ void embed(const EmbedArgs &a) {
	pdl_begin();
	embed_row<D>(a, blockIdx.x, [&](int column, const float4 &v) { store(a, column, v); });
}

extern "C" __global__ void reel_embed_bf16(const __grid_constant__ EmbedArgs a) { embed<BF16>(a); }
extern "C" __global__ void reel_embed_f16(const __grid_constant__ EmbedArgs a) { embed<F16>(a); }

// embed_codes_row does so of quantised rows, which are decoded as the reference does. A thread takes the 16 columns that a
// lane has of a quarter of a brick.
template <class F, class Put> __device__ __forceinline__ void embed_codes_row(const EmbedArgs &a, uint32_t t, Put put) {
	const int token = min(max(a.token[t], 0), a.vocab - 1), h = token % 16 / 8;
	const char *tile = reinterpret_cast<const char *>(a.table) + (size_t)(token / 16) * F::bricks(a.hidden) * F::BYTES;
	for (int i = threadIdx.x; i / 4 * QUARTER_COLUMNS < a.hidden; i += blockDim.x) {
		const int quarter = i / 4, lane = token % 8 * 4 + i % 4, q = quarter % F::QUARTERS;
		const char *brick = tile + (size_t)(quarter / F::QUARTERS) * F::BYTES;
		typename F::Codes codes;
		typename F::Scales scales;
		codes.load(true, F::codes_of(brick, q), lane);
		scales.load(true, F::scales_of(brick), lane);
#pragma unroll
		for (int step = 0; step < QUARTER_STEPS; step++) {
			const int column = quarter * QUARTER_COLUMNS + step * MMA_K + i % 4 * 4;
			if (column >= a.hidden) break;
			const int g = q * F::GROUPS + step / F::Scales::STEPS;
			const uint4 v = F::Code::operand(codes, step, scales, g);
			const float2 scale = scales.scale(g), minimum = scales.minimum(F::scales_of(brick), lane, g);
			const float by = h ? scale.y : scale.x, and_add = h ? minimum.y : minimum.x;
			const uint32_t first = h ? v.y : v.x, second = h ? v.w : v.z;
			float4 y = {BF16::low(first), BF16::high(first), BF16::low(second), BF16::high(second)};
			y = times(y, {by, by, by, by});
			if (F::Scales::MINIMUMS != NONE) y = add(y, {and_add, and_add, and_add, and_add});
			put(column, times(y, {a.scale, a.scale, a.scale, a.scale}));
		}
	}
}
template <class F> __device__ __forceinline__ void embed_codes(const EmbedArgs &a) {
	pdl_begin();
	embed_codes_row<F>(a, blockIdx.x, [&](int column, const float4 &v) { store(a, column, v); });
}

#define REEL_EMBED_CODES(format, F) \
	extern "C" __global__ void reel_embed_##format(const __grid_constant__ EmbedArgs a) { embed_codes<F>(a); }
REEL_FORMATS(REEL_EMBED_CODES)

struct EmbedTaggedArgs {
	EmbedArgs of;
	Tags tags;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// embed_tagged begins a pass whose values are tagged (ptx/tagged.cuh), in one block. embed(put) passes its row to put.
template <class Embed> __device__ __forceinline__ void embed_tagged(const EmbedTaggedArgs &a, Embed embed) {
	pdl_begin();
	const uint32_t base = a.tags.base() + TAGS_OF_PASS, tag = base + a.tags.given;
	embed([&](int column, const float4 &v) {
		uint64_t *const to = a.tags.out + column;
		put_tagged(to, v.x, tag), put_tagged(to + 1, v.y, tag), put_tagged(to + 2, v.z, tag), put_tagged(to + 3, v.w, tag);
	});
	__syncthreads(); // all threads have read the number
	if (threadIdx.x == 0) *a.tags.pass = base;
}

extern "C" __global__ void reel_embed_bf16_tagged(const __grid_constant__ EmbedTaggedArgs a) {
	embed_tagged(a, [&](auto put) { embed_row<BF16>(a.of, 0, put); });
}
#define REEL_EMBED_TAGGED(format, F)                                                                  \
	extern "C" __global__ void reel_embed_##format##_tagged(const __grid_constant__ EmbedTaggedArgs a) { \
		embed_tagged(a, [&](auto put) { embed_codes_row<F>(a.of, 0, put); });                           \
	}
REEL_USUAL_FORMATS(REEL_EMBED_TAGGED)
#endif
