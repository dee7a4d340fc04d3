#include "ptx/pdl.cuh"

constexpr int DRAFT_ROWS_PARAMS = 14, DRAFT_ROWS_PROMPT = 1; // words of a slot's parameters, and the prompt's length

struct DraftRowsArgs {
	const int32_t *ofSlot, *ofPosition, *ofToken; // [T]
	const int32_t *ofSample;                      // [groups]
	const int32_t *history;                       // [slots][context]
	const int32_t *params;                        // [slots][DRAFT_ROWS_PARAMS]
	int32_t *slot, *position, *token;             // out: [rows]
	int32_t *sample;                              // out: [groups]
	int32_t rows, queries, draft, vocab, context, single;
};

// Writes the rows of a draft model's pass as DraftRows.Host does. A thread is one of them.
extern "C" __global__ void reel_draftrows(const __grid_constant__ DraftRowsArgs a) {
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
	pdl_begin();
	if (i >= a.rows) return;
	const int each = a.draft == 1 && !a.single ? 2 : 1, group = i / each, first = group * a.queries;
	const int from = a.draft == 0 ? i : first + a.draft - 1, slot = a.ofSlot[from];
	const bool last = i % each == each - 1;
	int position = a.ofPosition[from], token = a.ofToken[from];
	// The row before a group's first one is set back by one token, unless that is a prompt token.
	if (!last && position - 1 >= max(0, a.params[slot * DRAFT_ROWS_PARAMS + DRAFT_ROWS_PROMPT]))
		token = a.history[(size_t)slot * a.context + --position];
	if (a.single) position = max(1, position);
	a.slot[i] = slot, a.position[i] = position, a.token[i] = token >= a.vocab ? 0 : token;
	if (a.draft > 0 && last) a.sample[group] = a.ofSample[first] < 0 ? -1 : i;
}
