// Prefill attention of a tile's rows by a block of PREFILL_WARPS warps (attend_prefill.cu), whose operations
// prefill_long.cuh has in another arrangement.
#pragma once
#include "attention/prefill.cuh"
#include "attention/prefill_copies.cuh"
#include "attention/prefill_merge.cuh"
#include "ptx/wgmma.cuh"

// Prefill attention: out[t][i] = Σ_j softmax_j(q[t][i]·k_j·scale)·v_j over the positions j of row
// t's sequence up to its own, or the last a.visible of them, in blocks of PREFILL_KEYS positions
// that all rows of a tile share (recurrence: Dao, FlashAttention-2, 2023).
//
// A row's positions are cut into splits (attention/prefill.cuh), and splits into blocks. Within a split
// the sum continues from block to block; splits are added in order. A block of which a row sees
// nothing does not change the row. So no bit of a row depends on neighbouring rows, on where a
// chunk began, or on the grid.

// Prefill computes one run with one block of threads. A warp has 16 entries. A lane holds entries
// lane/4 and lane/4+8, and of each the elements 8i + 2(lane%4) and the next one.
template <int DIM, bool EXACT, bool WINDOWED, class Logits> struct Prefill : PrefillCopies<DIM, EXACT> {
	using Copies = PrefillCopies<DIM, EXACT>;
	using Copies::a, Copies::tile, Copies::run, Copies::stages, Copies::dim, Copies::find_rows, Copies::copy_ahead;
	using Copies::load_pages, Copies::wait_for_block, Copies::swizzle, Copies::run_offset;
	using Copies::KEYS, Copies::STAGE, Copies::VALUES, Copies::RUN, Copies::WGMMA;
	static constexpr int STEPS = DIM / 16, VALUE_STEPS = VALUES / 16; // of 16 elements

	int position[2];                // of the lane's entries; -1: none
	int least, last;                // smallest and largest position of the warp's entries
	uint32_t q[STEPS][4];           // rounded queries, as A operand of mma
	float o[8 * VALUE_STEPS];       // sums of the split, as result of mma
	float most[2], weight[2];       // of the split: largest score, sum of the lane's weights
	float allMost[2], allWeight[2]; // of the splits before
	PrefillSplits<WINDOWED> splits; // of the run
	const Logits &logits;

	__device__ __forceinline__ Prefill(
		const AttendArgs &a, const Logits &logits, const PrefillTile &tile, uint4 *stages)
		: Copies(a, tile, stages), logits(logits) {}

	static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
	static __device__ __forceinline__ int entry(int half) { return threadIdx.x / 32 * 16 + lane() / 4 + 8 * half; }

	// row returns the row of the run of one of the lane's entries, and at its index in [T][heads].
	__device__ __forceinline__ int row(int half) const { return entry(half) * tile.inverse >> 16; }
	__device__ __forceinline__ int at(int half) const {
		const int r = row(half);
		return min(run.row + r, tile.limit - 1) * a.heads + tile.head + entry(half) - r * tile.group;
	}

	// load_queries loads the queries and positions of the run. With FEW, queries past the
	// run's rows are not loaded: nothing uses them.
	template <bool FEW = false> __device__ __forceinline__ void load_queries(float2 (&x)[STEPS][4]) {
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int r = row(half);
			position[half] = r < run.rows ? a.position[min(run.row + r, tile.limit - 1)] : -1;
			const bool in = !FEW || r < run.rows;
			const float *from = a.q + (size_t)at(half) * dim(a) + lane() % 4 * 2;
#pragma unroll
			for (int i = 0; i < 2 * STEPS; i++)
				x[i / 2][i % 2 * 2 + half] = in && 8 * i < dim(a) ? __ldcg((const float2 *)(from + 8 * i)) : float2{};
		}
	}

	__device__ __forceinline__ void round_queries(const float2 (&x)[STEPS][4]) {
#pragma unroll
		for (int i = 0; i < 4 * STEPS; i++) q[i / 4][i % 4] = attend_pack(x[i / 4][i % 4].x, x[i / 4][i % 4].y);
		last = __reduce_max_sync(~0u, max(position[0], position[1]));
		least = __reduce_min_sync(~0u, (int)min((unsigned)position[0], (unsigned)position[1]) & INT32_MAX);
	}

	// scores: s[4i], … = scores of positions 8i to 8i+7 of the block, before scaling.
	__device__ __forceinline__ void scores(float (&s)[32], int stage) const {
#pragma unroll
		for (int i = 0; i < 32; i++) s[i] = 0;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
		if (WGMMA) {
			const uint32_t keys = shared_address(stages + stage * STAGE);
			wgmma_pin(s);
			wgmma_fence();
#pragma unroll
			for (int k = 0; k < STEPS; k++)
				wgmma_bf16_64<0>(s, q[k][0], q[k][1], q[k][2], q[k][3],
					wgmma_descriptor(keys + 16 * run_offset(k / 4) + k % 4 * 32));
			wgmma_commit(), wgmma_wait<0>();
			wgmma_pin(s);
			return;
		}
#endif
		const int row = lane() % 8 + lane() / 16 * 8, chunk = lane() / 8 % 2 ^ swizzle(row);
		const uint32_t keys = shared_address(stages + stage * STAGE + row * RUN);
#pragma unroll
		for (int k = 0; k < STEPS; k++) {
#pragma unroll
			for (int i = 0; i < 8; i += 2) {
				const uint4 b = ldmatrix(keys + 16 * (run_offset(2 * k / RUN) + (2 * k % RUN ^ chunk) + 8 * i * RUN));
				mma_bf16(s + 4 * i, q[k][0], q[k][1], q[k][2], q[k][3], b.x, b.y);
				mma_bf16(s + 4 * i + 4, q[k][0], q[k][1], q[k][2], q[k][3], b.z, b.w);
			}
		}
	}

	__device__ __forceinline__ void mask(float (&s)[32], int from) const {
#pragma unroll
		for (int i = 0; i < 8; i++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				if (const int p = from + 8 * i + lane() % 4 * 2 + e % 2;
					p > position[e / 2] || (WINDOWED && p <= position[e / 2] - a.visible))
					s[4 * i + e] = -INFINITY;
	}

	// exponentials replaces scores by weights 2^(score·scale - most), and finds the factors of the sums so far.
	__device__ __forceinline__ void exponentials(float (&factor)[2], float (&s)[32], int from) {
		const float scale = Logits::IS ? 1 : a.scale;
#pragma unroll
		for (int i = 0; Logits::IS && i < 32; i++) s[i] = logits.score(s[i], a.scale);
		if (from + PREFILL_KEYS - 1 > least || (WINDOWED && from <= last - a.visible)) mask(s, from);
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float high = -INFINITY;
#pragma unroll
			for (int i = 0; i < 8; i++) high = fmaxf(high, fmaxf(s[4 * i + 2 * half], s[4 * i + 2 * half + 1]));
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
			const float top = fmaxf(most[half], __fmul_rn(high, scale));
			const float base = top == -INFINITY ? 0 : top; // the row sees none of these positions: all weights are 0
			factor[half] = exp2_approx(__fsub_rn(most[half], base));
			most[half] = top;
#pragma unroll
			for (int i = 0; i < 8; i++)
#pragma unroll
				for (int e = 2 * half; e < 2 * half + 2; e++) s[4 * i + e] = exp2_approx(__fmaf_rn(s[4 * i + e], scale, -base));
		}
	}

	// round_weights rounds the weights, as pairs, and adds them up.
	__device__ __forceinline__ void round_weights(uint32_t (&p)[8][2], const float (&s)[32], const float (&factor)[2]) {
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float sum = __fmul_rn(weight[half], factor[half]);
#pragma unroll
			for (int i = 0; i < 8; i++) {
				p[i][half] = attend_pack(s[4 * i + 2 * half], s[4 * i + 2 * half + 1]);
				// The sum of weights uses the rounded weights that multiply the values.
				sum = __fadd_rn(sum, __fadd_rn(BF16::low(p[i][half]), BF16::high(p[i][half])));
			}
			weight[half] = sum;
		}
	}

	// rescale multiplies the sums so far by their factors.
	__device__ __forceinline__ void rescale(const float (&factor)[2]) {
		if (!__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) return; // all factors are 1
#pragma unroll
		for (int i = 0; i < 8 * VALUE_STEPS; i++) o[i] = __fmul_rn(o[i], factor[i / 2 % 2]);
	}

	// weigh makes weights of scores, and rescales the sums so far.
	__device__ __forceinline__ void weigh(uint32_t (&p)[8][2], float (&s)[32], int from) {
		float factor[2];
		exponentials(factor, s, from);
		round_weights(p, s, factor);
		rescale(factor);
	}

	// add_values adds weights times values of the block.
	__device__ __forceinline__ void add_values(const uint32_t (&p)[8][2], int stage) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
		if (WGMMA) {
			const uint32_t values = shared_address(stages + stage * STAGE + KEYS);
			wgmma_pin(o);
			wgmma_fence();
#pragma unroll
			for (int k = 0; k < 4; k++)
#pragma unroll
				for (int h = 0; h < VALUES / 64; h++)
					wgmma_bf16_64<1>(o + 32 * h, p[2 * k][0], p[2 * k][1], p[2 * k + 1][0], p[2 * k + 1][1],
						wgmma_descriptor(values + 16 * run_offset(h) + k * 2048));
			wgmma_commit(), wgmma_wait<0>();
			wgmma_pin(o);
			return;
		}
#endif
		const int row = lane() % 16, chunk = lane() / 16 ^ swizzle(row);
		const uint32_t values = shared_address(stages + stage * STAGE + KEYS + row * RUN);
#pragma unroll
		for (int k = 0; k < 4; k++) {
#pragma unroll
			for (int i = 0; i < VALUE_STEPS; i++) {
				const uint4 b =
					ldmatrix_transposed(values + 16 * (run_offset(2 * i / RUN) + (2 * i % RUN ^ chunk) + 16 * k * RUN));
				mma_bf16(o + 8 * i, p[2 * k][0], p[2 * k][1], p[2 * k + 1][0], p[2 * k + 1][1], b.x, b.y);
				mma_bf16(o + 8 * i + 4, p[2 * k][0], p[2 * k][1], p[2 * k + 1][0], p[2 * k + 1][1], b.z, b.w);
			}
		}
	}

	__device__ __forceinline__ void clear() {
#pragma unroll
		for (int i = 0; i < 8 * VALUE_STEPS; i++) o[i] = 0;
		most[0] = most[1] = -INFINITY, weight[0] = weight[1] = 0;
	}

	static __device__ __forceinline__ void no_weights(uint32_t (&p)[8][2]) {
#pragma unroll
		for (int i = 0; i < 8; i++) p[i][0] = p[i][1] = 0;
	}

	// compute computes block n from a stage. Meanwhile keys and values of the block `after` are copied to the other
	// stage, and `after` steps on.
	__device__ __forceinline__ void compute(int n, PrefillTurn &after, int stage) {
		const bool live = n * PREFILL_KEYS <= last; // else all rows of the warp end before this block
		const bool more = after.n < splits.blocks;
		uint32_t p[8][2];
		float s[32];
		wait_for_block(); // keys are complete, and the other stage was read
		if (more) find_rows(after.n);
		copy_ahead(more, stage ^ 1, 0);
		if (WGMMA || live) scores(s, stage);
		if (live)
			weigh(p, s, n * PREFILL_KEYS);
		else
			no_weights(p);
		wait_for_block();
		constexpr bool again = WGMMA ? DIM > 64 : DIM == 64 || DIM > 128; // where registers are short
		if (again && more) this->find_rows_again(after.n);
		copy_ahead(more, stage ^ 1, 1);
		splits.step(after);
		load_pages(after.n);
		if (WGMMA || live) add_values(p, stage);
	}

	// base is the first element of the block's values.
	__device__ __forceinline__ int base() const { return VALUES == DIM ? 0 : tile.base; }

	// store_partial stores the sums of a split for prefill_merge.
	__device__ __forceinline__ void store_partial(int half, int split) const {
		float *to = a.partial + ((size_t)at(half) * a.splits + split) * prefill_apart<DIM>(dim(a));
#pragma unroll
		for (int i = 0; i < 2 * VALUE_STEPS; i++)
			if (base() + 8 * i < dim(a))
				*(float2 *)(to + base() + 8 * i + lane() % 4 * 2) = {o[4 * i + 2 * half], o[4 * i + 2 * half + 1]};
		if (lane() % 4 == 0) *(float2 *)(to + prefill_state<DIM>(dim(a), tile)) = {most[half], weight[half]};
	}

	// add adds the sums of earlier splits, of which before(i) returns a lane's i-th pair, to this split's.
	template <class Before> __device__ __forceinline__ void add_before(int half, const Before &before) {
		AttendSum sum = {0, allMost[half], allWeight[half]};
		float mine, its;
		sum.factors(most[half], mine, its);
		sum.add(0, most[half], weight[half]);
		allMost[half] = sum.most, allWeight[half] = weight[half] = sum.weight;
#pragma unroll
		for (int i = 0; i < 2 * VALUE_STEPS; i++) {
			if (base() + 8 * i >= dim(a)) continue;
			const float2 x = before(i);
			o[4 * i + 2 * half] = __fmaf_rn(o[4 * i + 2 * half], its, __fmul_rn(x.x, mine));
			o[4 * i + 2 * half + 1] = __fmaf_rn(o[4 * i + 2 * half + 1], its, __fmul_rn(x.y, mine));
		}
	}
	// add does so with the sums in `out`. A single split stays as it is.
	__device__ __forceinline__ void add(int half, int split) {
		const float *before = a.out + (size_t)at(half) * dim(a) + base() + lane() % 4 * 2;
		const bool begins = split == splits.first();
		add_before(half, [&](int i) { return begins ? float2{} : *(const float2 *)(before + 8 * i); });
	}

	// store_sums keeps sums in `out` for the next split.
	__device__ __forceinline__ void store_sums(int half) const {
		float *to = a.out + (size_t)at(half) * dim(a) + base() + lane() % 4 * 2;
#pragma unroll
		for (int i = 0; i < 2 * VALUE_STEPS; i++)
			if (base() + 8 * i < dim(a)) *(float2 *)(to + 8 * i) = {o[4 * i + 2 * half], o[4 * i + 2 * half + 1]};
	}

	// write stores a row's result.
	__device__ __forceinline__ void write(int half) {
		const float top = position[half] >= SHORT_BLOCKS * PREFILL_KEYS ? allMost[half] : most[half];
		const float inverse = __frcp_rn(logits.total((uint32_t)at(half) % a.heads, top, weight[half]));
#pragma unroll
		for (int i = 0; i < 2 * VALUE_STEPS; i++)
			o[4 * i + 2 * half] = prefill_mean(o[4 * i + 2 * half], inverse),
						  o[4 * i + 2 * half + 1] = prefill_mean(o[4 * i + 2 * half + 1], inverse);
		if (!a.rounded)
			store_sums(half);
		else if (a.f16)
			write_rounded<F16>(half);
		else
			write_rounded<BF16>(half);
	}
	template <class D> __device__ __forceinline__ void write_rounded(int half) const {
		const uint32_t row = (uint32_t)at(half) / a.heads, head = at(half) - row * a.heads;
		const RoundedToken to(a.rounded, a.tokens, row, head * dim(a) + base());
#pragma unroll
		for (int i = 0; i < 2 * VALUE_STEPS; i++)
			if (base() + 8 * i < dim(a)) to.put(i, lane() % 4 * 2, D::pack(o[4 * i + 2 * half], o[4 * i + 2 * half + 1]));
	}

	// end finishes a split for the rows that reach it.
	__device__ __forceinline__ void end(int split, bool whole) {
#pragma unroll
		for (int half = 0; half < 2; half++) {
			weight[half] = __fadd_rn(weight[half], __shfl_xor_sync(~0u, weight[half], 1));
			weight[half] = __fadd_rn(weight[half], __shfl_xor_sync(~0u, weight[half], 2));
			if (position[half] < prefill_first_block(split) * PREFILL_KEYS) continue;
			if (!whole) {
				store_partial(half, split);
				continue;
			}
			if (position[half] >= SHORT_BLOCKS * PREFILL_KEYS) add(half, split);
			if (position[half] < prefill_first_block(split + 1) * PREFILL_KEYS)
				write(half);
			else
				store_sums(half);
		}
		clear();
	}

	// attend computes this block's splits of the run, beginning with the first block of keys that a
	// row sees.
	__device__ __forceinline__ void attend(bool whole) {
		splits = prefill_splits<WINDOWED>(a, tile, run);
		PrefillTurn after = splits.begin(0);
		int n = after.n;
		if (n >= splits.blocks) return;
		float2 queries[STEPS][4];
		// Only data that QKV writes needs the wait.
		load_pages(n);
		if (!WGMMA) pdl_wait(); // too few registers to find rows before the wait
		find_rows(n);
		if (WGMMA) pdl_wait();
		copy_ahead(true, 0, 0), copy_ahead(true, 0, 1);
		load_queries(queries);
		splits.step(after);
		load_pages(after.n);
		round_queries(queries);
		allMost[0] = allMost[1] = -INFINITY, allWeight[0] = allWeight[1] = 0;
		clear();
		for (int stage = 0; n < splits.blocks; stage ^= 1) {
			const int next = after.n, split = prefill_split(n);
			compute(n, after, stage);
			if (next >= splits.blocks || prefill_split(next) != split) end(split, whole);
			n = next;
		}
		__syncthreads(); // all threads have read the stages
	}
};
