#include "ptx/memory.cuh"

// Words of a staged slot before its pages; restore.go defines the layout.
constexpr int RESTORE_HEAD = 16, RESTORE_PARAMS = 14;

struct RestoreArgs {
	const int32_t *staged; // [RESTORE_HEAD + pages + tokens], pinned
	int32_t *blockTable;   // [count][tablePages]
	int32_t *length;       // [count]
	int32_t *last;         // [count]: the last sampled token
	int32_t *history;      // [count][context]
	int32_t *params;       // [count][RESTORE_PARAMS]
	int32_t slot, pages, tokens, tablePages, context;
	int32_t pad;
};

// Sets the state of one slot, as Restore.Host does.
extern "C" __global__ void reel_restore(const __grid_constant__ RestoreArgs a) {
	const int words = RESTORE_HEAD + a.pages + a.tokens, stride = gridDim.x * blockDim.x;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) {
		const int page = i - RESTORE_HEAD, token = page - a.pages;
		if (i == RESTORE_PARAMS + 1) a.length[a.slot] = a.tokens;
		if (i > RESTORE_PARAMS && page < 0) continue;
		const int32_t value = load_from_host(a.staged + i);
		if (i < RESTORE_PARAMS)
			a.params[a.slot * RESTORE_PARAMS + i] = value;
		else if (page < 0)
			a.last[a.slot] = value;
		else if (token < 0)
			a.blockTable[(size_t)a.slot * a.tablePages + page] = value;
		else
			a.history[(size_t)a.slot * a.context + token] = value;
	}
}
