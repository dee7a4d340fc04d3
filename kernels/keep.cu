#include "ptx/pdl.cuh"

struct KeepArgs {
	const float *x;                          // [T][cols]
	const int32_t *slot, *position, *length; // [T], [T], [slots]
	const int32_t *blockTable;               // [slots][pages]
	float *kept;                             // out: the feature of page 0
	int64_t pageStride;                      // elements from a page's feature to the next one's
	int32_t cols, pages, pageTokens, trash;
};

// Keeps the feature of row blockIdx.x as Keep.Host does: of each page one row at most writes it.
extern "C" __global__ void reel_keep(const __grid_constant__ KeepArgs a) {
	pdl_begin();
	const int slot = a.slot[blockIdx.x], next = a.position[blockIdx.x] + 1, length = a.length[slot];
	if (slot == a.trash || next > length || next < length && next % a.pageTokens) return;
	const int page = a.blockTable[(size_t)slot * a.pages + (next - 1) / a.pageTokens];
	const float4 *x = reinterpret_cast<const float4 *>(a.x + (size_t)blockIdx.x * a.cols);
	float4 *out = reinterpret_cast<float4 *>(a.kept + page * a.pageStride);
	for (int i = threadIdx.x; i < a.cols / 4; i += blockDim.x) out[i] = x[i];
}
