#include "gemm/operands.cuh"
#include "ptx/pdl.cuh"

struct EmbedArgs {
	const uint4 *table;   // packed [vocab][hidden]
	const int32_t *token; // [T]
	float *x;             // out: [T][hidden]
	int32_t vocab, hidden;
};

// embed: X[t] = Table[token[t]]. A block is a row; a thread takes four columns.
template <class D> __device__ __forceinline__ void embed(const EmbedArgs &a) {
	pdl_begin();
	const int token = min(max(a.token[blockIdx.x], 0), a.vocab - 1), row = token % 16;
	const uint2 *tile = reinterpret_cast<const uint2 *>(a.table + (size_t)(token / 16) * (a.hidden / MMA_K) * 32);
	float4 *x = reinterpret_cast<float4 *>(a.x + (size_t)blockIdx.x * a.hidden);
	for (int i = threadIdx.x; i < a.hidden / 4; i += blockDim.x) {
		// Registers {row, row+8} of columns 0 1, then of columns 2 3.
		const uint2 *lane = tile + ((size_t)(i / 4) * 32 + row % 8 * 4 + i % 4) * 2;
		uint32_t low = row < 8 ? lane[0].x : lane[0].y, high = row < 8 ? lane[1].x : lane[1].y;
		x[i] = {D::low(low), D::high(low), D::low(high), D::high(high)};
	}
}

extern "C" __global__ void reel_embed_bf16(const __grid_constant__ EmbedArgs a) { embed<BF16>(a); }
extern "C" __global__ void reel_embed_f16(const __grid_constant__ EmbedArgs a) { embed<F16>(a); }
