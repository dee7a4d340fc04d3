#include "ptx/pdl.cuh"

struct RecentArgs {
	const int32_t *slot, *position;   // [T]
	const int32_t *blockTable;        // [slots][pages]
	int32_t *view;                    // out: [groups+1][viewPages]
	int32_t *viewSlot, *viewPosition; // out: [T]
	int32_t queries, pages, viewPages, pageTokens, first, window, trash, viewTrash;
};

// Makes the view of group blockIdx.x as Recent.Host does.
extern "C" __global__ void reel_recent(const __grid_constant__ RecentArgs a) {
	pdl_begin();
	const int group = blockIdx.x, row = group * a.queries, slot = a.slot[row];
	// Before position `window` the difference is negative; its quotient then does not matter.
	const int out = max(a.first, (a.position[row] + 1 - a.window) / a.pageTokens) - a.first;
	for (int i = threadIdx.x; i < a.viewPages; i += blockDim.x) {
		const int from = i < a.first ? i : i + out;
		a.view[(size_t)group * a.viewPages + i] = from < a.pages ? a.blockTable[(size_t)slot * a.pages + from] : 0;
	}
	if (threadIdx.x >= a.queries) return;
	const int t = row + threadIdx.x;
	const bool padding = a.slot[t] != slot || slot == a.trash;
	a.viewSlot[t] = padding ? a.viewTrash : group;
	a.viewPosition[t] = padding ? 1 : a.position[t] - out * a.pageTokens;
}
