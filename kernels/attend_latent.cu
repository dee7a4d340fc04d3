#include "attention/latent.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"
#include "ptx/pdl.cuh"

// Latent attention: out[t][h] = Σ_j softmax_j(q[t][h]·c_j·scale)·v_j over the positions j of row t's sequence up to its
// own, or the last `visible` of them. A row c_j of the pool is a key for all heads, and its first elements are the
// value v_j. All classes have this kernel, and so one order of sums. Where keys and values are APART, a row is a key of one
// KV head, of up to WIDE_DIM elements, and its value is as wide.
// A row's positions are cut into splits: of SHORT_SPLIT up to LATENT_SHORT positions, then of LONG_SPLIT. A split is one
// or more blocks of LATENT_KEYS, which shared memory holds. latentSplits of attend.go mirrors these.
constexpr int LATENT_SHORT = 4096, SHORT_SPLIT = 64, LONG_SPLIT = 128;
#ifndef LATENT_KEYS
constexpr int LATENT_KEYS = 64;
#endif
constexpr int LATENT_WARPS = 8, LATENT_ENTRIES = 16; // entries: query heads of a block of threads
constexpr int ATTEND_LATENT_THREADS = 32 * LATENT_WARPS;
constexpr int LATENT_PAIRS = LATENT_VALUES / 16 / LATENT_WARPS; // of a warp: pairs of eight elements of the result
constexpr int LATENT_SLICES = 4;                                // of a key: its elements are cut for as many warps
constexpr int WEIGHTS_PITCH = LATENT_KEYS + 8, SCORES_PITCH = LATENT_KEYS + 8;
constexpr int LATENT_EACH = LATENT_KEYS / 16; // positions whose weights a thread computes

__device__ __forceinline__ int latent_split(int position) {
	return position < LATENT_SHORT ? position / SHORT_SPLIT
								   : LATENT_SHORT / SHORT_SPLIT + (position - LATENT_SHORT) / LONG_SPLIT;
}
__device__ __forceinline__ int latent_split_begin(int split) {
	constexpr int SHORTS = LATENT_SHORT / SHORT_SPLIT;
	return split < SHORTS ? split * SHORT_SPLIT : LATENT_SHORT + (split - SHORTS) * LONG_SPLIT;
}

constexpr int LATENT_MERGED = 64;        // splits that a merge takes at a time, at most
constexpr int WIDE_DIM = LATENT_VALUES; // at most, of keys and values apart

// LatentFactors are the factors of the sums before a split, and of its own, and its sum of weights.
struct LatentFactors {
	float keep[LATENT_ENTRIES][LATENT_MERGED], add[LATENT_ENTRIES][LATENT_MERGED], weight[LATENT_ENTRIES][LATENT_MERGED];
};

// LatentShared is the dynamic shared memory of a block. The merge uses that of keys for sums.
template <bool APART> struct LatentShared {
	static constexpr int DIM = APART ? WIDE_DIM : LATENT_DIM; // at most
	static constexpr int PITCH = DIM + 8; // elements from row to row in shared memory, against bank conflicts
	static constexpr int MERGE_UNITS = APART ? 2048 : 2304; // of four elements, that a merge takes at a time
	union {
		uint16_t q[LATENT_ENTRIES][PITCH]; // until they are in registers
		float scores[LATENT_SLICES][LATENT_ENTRIES][SCORES_PITCH];
		LatentFactors merge;
	};
	uint16_t weights[LATENT_ENTRIES][WEIGHTS_PITCH];
	// Of an entry: the factor of a split's sums before a block, its largest score and its sum of weights.
	float factor[LATENT_ENTRIES], most[LATENT_ENTRIES], weight[LATENT_ENTRIES];
	union {
		uint16_t keys[1][LATENT_KEYS][PITCH]; // [stages]; the last one has values, where they are apart
		float4 sums[2][MERGE_UNITS];
	};
};

// LatentAttend is a block of threads. It has one row and up to LATENT_ENTRIES of its query heads, from `head` on; or
// `count` rows of one sequence with all query heads of a KV head, row after row. Of results a lane has entries lane/4 and
// lane/4+8; a warp has LATENT_PAIRS pairs of eight elements, and of each the elements 2(lane%4) and the next one of both.
// Of weights a thread has LATENT_EACH positions of entry threadIdx.x/16.
template <bool APART> struct LatentAttend {
	using Shared = LatentShared<APART>;
	static constexpr int PITCH = Shared::PITCH, MERGE_UNITS = Shared::MERGE_UNITS;
	static constexpr int STEPS = Shared::DIM / 16 / LATENT_SLICES; // of 16 elements, of a slice

	const AttendLatentArgs &a;
	Shared &s;
	const int row, count, kvHead, head, end; // query heads head to end
	const int slot, last, first;             // first to last: positions that the rows see
	int entryLast, entryFirst;               // those that the thread's entry of weights sees
	const int fresh;                        // the first position whose key may not be written when the kernel begins
	uint32_t q[STEPS][4];                   // of the warp's slice, as A operand of mma
	float o[LATENT_PAIRS][8];               // sums of a split
	float most, weight;                     // of a split and the thread's entry of weights
	float all[LATENT_PAIRS][8];             // sums of the splits before
	float allMost[2], allWeight[2];

	__device__ __forceinline__ LatentAttend(const AttendLatentArgs &a, Shared &s, int row, int count)
		: a(a), s(s), row(row), count(APART ? count : 1), kvHead(APART ? blockIdx.y / blocks(a) : 0),
		  head(kvHead * a.group + (APART ? blockIdx.y % blocks(a) : blockIdx.y) * LATENT_ENTRIES),
		  end(APART ? (kvHead + 1) * a.group : a.heads), slot(__ldcg(a.slot + row)),
		  last(__ldcg(a.position + row + this->count - 1)),
		  first(first_of(this->count > 1 ? __ldcg(a.position + row) : last)), fresh(fresh_from()) {
		entryLast = last, entryFirst = first;
		if (this->count == 1) return;
		entryLast = __ldcg(a.position + row + entry_of(threadIdx.x / 16) / a.group);
		entryFirst = first_of(entryLast);
	}
	__device__ __forceinline__ int first_of(int position) const {
		return max(APART ? a.earliest : 0, position + 1 - a.visible);
	}
	// entry_of returns an entry, or the last one for what is none, where rows are together.
	__device__ __forceinline__ int entry_of(int entry) const { return min(entry, count * a.group - 1); }
	// blocks returns those of a KV head's query heads.
	static __device__ __forceinline__ int blocks(const AttendLatentArgs &a) {
		return (a.group + LATENT_ENTRIES - 1) / LATENT_ENTRIES;
	}

	// fresh_from returns the position of the first row of those that are alone, unless this row pads them.
	__device__ __forceinline__ int fresh_from() const {
		if (a.rows == 0) return 0;
		const int begin = row - row % a.rows;
		return __ldcg(a.slot + begin) == slot ? min(last, __ldcg(a.position + begin)) : 0;
	}

	static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
	static __device__ __forceinline__ int warp() { return threadIdx.x / 32; }
	static __device__ __forceinline__ int slice() { return warp() % LATENT_SLICES; }
	// entry_head returns the query head of one of the lane's two entries, or -1 for none.
	__device__ __forceinline__ int entry_head(int half) const {
		const int entry = lane() / 4 + 8 * half, h = head + entry;
		if (count > 1) return entry < count * a.group ? head + entry % a.group : -1;
		return h < end ? h : -1;
	}
	__device__ __forceinline__ int entry_row(int half) const {
		return count > 1 ? row + (lane() / 4 + 8 * half) / a.group : row;
	}
	__device__ __forceinline__ int column(int pair) const { return 16 * (warp() * LATENT_PAIRS + pair); }
	// step returns the first element of a step of the warp's slice, or dim past its end.
	__device__ __forceinline__ int step(int k) const {
		const int steps = a.dim / 16, from = steps * slice() / LATENT_SLICES, past = steps * (slice() + 1) / LATENT_SLICES;
		return from + k < past ? 16 * (from + k) : a.dim;
	}

	__device__ __forceinline__ void load_queries() {
		const int entry = threadIdx.x / 16, by = threadIdx.x % 16;
		const int of = count > 1 ? row + entry_of(entry) / a.group : row;
		const int h = count > 1 ? head + entry_of(entry) % a.group : min(head + entry, end - 1);
		const float4 *from = (const float4 *)(a.q + ((size_t)of * a.heads + h) * a.dim);
		float4 x[Shared::DIM / 64];
#pragma unroll
		for (int i = 0; i < Shared::DIM / 64; i++) x[i] = __ldcg(from + min(by + 16 * i, a.dim / 4 - 1));
#pragma unroll
		for (int i = 0; i < Shared::DIM / 64; i++)
			if (by + 16 * i < a.dim / 4)
				*(uint2 *)&s.q[entry][4 * (by + 16 * i)] = {attend_pack(x[i].x, x[i].y), attend_pack(x[i].z, x[i].w)};
		__syncthreads();
#pragma unroll
		for (int k = 0; k < STEPS; k++) {
			const int at = min(step(k), a.dim - 16);
			const uint4 v = ldmatrix(shared_address(&s.q[lane() % 16][at + lane() / 16 * 8]));
			q[k][0] = v.x, q[k][1] = v.y, q[k][2] = v.z, q[k][3] = v.w;
		}
		__syncthreads(); // scores come to the same place
	}

	// copy_keys begins to copy the positions from `from` on: those before `fresh`, those from there on, or both. Those
	// that none of the rows sees are zeros: the pool may hold NaN there, and 0·NaN is NaN. start: where they begin in
	// the layer, in bytes.
	__device__ __forceinline__ void copy_keys(int stage, int from, bool older, bool newer, int64_t start = 0) {
		const int chunks = a.dim / 8, mask = (1 << a.pageShift) - 1;
		const int32_t *table = a.blockTable + (size_t)slot * a.pages;
		const int by = threadIdx.x % 8;
		const char *source[LATENT_KEYS * 8 / ATTEND_LATENT_THREADS];
#pragma unroll
		for (int i = 0; i < LATENT_KEYS * 8 / ATTEND_LATENT_THREADS; i++) {
			const int p = min(max(from + (int)threadIdx.x / 8 + i * ATTEND_LATENT_THREADS / 8, first), last);
			source[i] = a.pool + __ldcg(table + (p >> a.pageShift)) * a.pageBytes + a.layerStart + start +
				(uint32_t)((kvHead << a.pageShift) + (p & mask)) * a.dim * 2;
		}
#pragma unroll
		for (int i = 0; i < LATENT_KEYS * 8 / ATTEND_LATENT_THREADS; i++) {
			const int key = threadIdx.x / 8 + i * ATTEND_LATENT_THREADS / 8, p = from + key;
			if (!(p >= fresh && p <= last ? newer : older)) continue;
			const int bytes = p >= first && p <= last ? 16 : 0;
#pragma unroll 3
			for (int chunk = by; chunk < chunks; chunk += 8)
				cp_async_zero_fill(&s.keys[stage][key][8 * chunk], source[i] + 16 * chunk, bytes);
		}
	}

	__device__ __forceinline__ void copy_values(int from, bool older, bool newer) {
		copy_keys(a.stages - 1, from, older, newer, a.valuesStart);
	}

	// scores computes those of the warp's half of the positions, over its slice of elements.
	__device__ __forceinline__ void scores(int stage) {
		constexpr int POSITIONS = LATENT_KEYS / (LATENT_WARPS / LATENT_SLICES);
		const int from = warp() / LATENT_SLICES * POSITIONS;
		float x[POSITIONS / 8][4] = {};
		const uint32_t keys =
			shared_address(&s.keys[stage][from + lane() % 8 + lane() / 16 * 8][lane() / 8 % 2 * 8]);
#pragma unroll
		for (int k = 0; k < STEPS; k++) {
			if (step(k) >= a.dim) break;
#pragma unroll
			for (int i = 0; i < POSITIONS / 8; i += 2) {
				const uint4 b = ldmatrix(keys + 2 * (step(k) + 8 * i * PITCH));
				mma_bf16(x[i], q[k][0], q[k][1], q[k][2], q[k][3], b.x, b.y);
				mma_bf16(x[i + 1], q[k][0], q[k][1], q[k][2], q[k][3], b.z, b.w);
			}
		}
#pragma unroll
		for (int i = 0; i < POSITIONS / 8; i++)
#pragma unroll
			for (int half = 0; half < 2; half++)
				*(float2 *)&s.scores[slice()][lane() / 4 + 8 * half][from + 8 * i + lane() % 4 * 2] = {
					x[i][2 * half], x[i][2 * half + 1]};
	}

	// weigh adds the slices of scores, puts weights 2^(score - most) into shared memory, and the factor of the split's
	// sums so far.
	__device__ __forceinline__ void weigh(int from) {
		const int entry = threadIdx.x / 16, at = threadIdx.x % 16 * LATENT_EACH;
		float x[LATENT_EACH], high = -INFINITY;
#pragma unroll
		for (int i = 0; i < LATENT_EACH; i++) {
			x[i] = s.scores[0][entry][at + i];
#pragma unroll
			for (int slice = 1; slice < LATENT_SLICES; slice++) x[i] = __fadd_rn(x[i], s.scores[slice][entry][at + i]);
			const int p = from + at + i;
			x[i] = p >= entryFirst && p <= entryLast ? a.logits.score(x[i], a.scale) : -INFINITY;
			high = fmaxf(high, x[i]);
		}
#pragma unroll
		for (int apart = 8; apart > 0; apart /= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, apart));
		// A row alone sees some position of each block. Of several, one may see none of this block, nor of those before.
		float top = fmaxf(most, high);
		const float newMost = top;
		if (APART && top == -INFINITY) top = 0;
		const float factor = APART && newMost == -INFINITY ? 1 : exp2_approx(__fsub_rn(most, top));
		float sum = 0;
#pragma unroll
		for (int i = 0; i < LATENT_EACH; i += 2) {
			const uint32_t pair = attend_pack(exp2_approx(__fsub_rn(x[i], top)), exp2_approx(__fsub_rn(x[i + 1], top)));
			*(uint32_t *)&s.weights[entry][at + i] = pair;
			// The sum of weights uses the rounded weights that multiply the values.
			sum = __fadd_rn(sum, __fadd_rn(BF16::low(pair), BF16::high(pair)));
		}
#pragma unroll
		for (int apart = 8; apart > 0; apart /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, apart));
		most = newMost, weight = __fmaf_rn(weight, factor, sum);
		if (threadIdx.x % 16 == 0) s.factor[entry] = factor, s.most[entry] = most, s.weight[entry] = weight;
	}

	// add_values adds weights times values of the block. begins: it is the first of its split.
	__device__ __forceinline__ void add_values(int stage, bool begins) {
		const float factor[2] = {s.factor[lane() / 4], s.factor[lane() / 4 + 8]};
#pragma unroll
		for (int i = 0; i < 8 * LATENT_PAIRS; i++)
			o[i / 8][i % 8] = begins ? 0 : __fmul_rn(o[i / 8][i % 8], factor[i % 4 / 2]);
#pragma unroll
		for (int k = 0; k < LATENT_KEYS / 16; k++) {
			const uint4 w = ldmatrix(shared_address(&s.weights[lane() % 16][16 * k + lane() / 16 * 8]));
#pragma unroll
			for (int pair = 0; pair < LATENT_PAIRS; pair++) {
				if (column(pair) >= a.values) continue;
				const uint4 v = ldmatrix_transposed(
					shared_address(&s.keys[stage][16 * k + lane() % 16][column(pair) + lane() / 16 * 8]));
				mma_bf16(o[pair], w.x, w.y, w.z, w.w, v.x, v.y);
				mma_bf16(o[pair] + 4, w.x, w.y, w.z, w.w, v.z, v.w);
			}
		}
	}

	// begin sets the sum before the first split: a sink has weight 1 and no value.
	__device__ __forceinline__ void begin() {
#pragma unroll
		for (int i = 0; i < 8 * LATENT_PAIRS; i++) all[i / 8][i % 8] = 0;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const AttendSum sum = before(entry_head(half));
			allMost[half] = sum.most, allWeight[half] = sum.weight;
		}
		most = -INFINITY, weight = 0;
	}
	__device__ __forceinline__ AttendSum before(int of) const {
		const bool sink = a.logits.sinks && of >= 0;
		return {0, sink ? a.logits.sink(of) : -INFINITY, sink ? 1.f : 0.f};
	}
	// add adds the split in o to the splits before, as AttendSum::add does.
	__device__ __forceinline__ void add() {
		float mine[2], its[2];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const float m = s.most[lane() / 4 + 8 * half], w = s.weight[lane() / 4 + 8 * half];
			AttendSum total = {0, allMost[half], allWeight[half]};
			if (APART && m == -INFINITY) { // a split of which the row sees nothing
				mine[half] = 1, its[half] = 0;
				continue;
			}
			total.factors(m, mine[half], its[half]);
			total.add(0, m, w);
			allMost[half] = total.most, allWeight[half] = total.weight;
		}
#pragma unroll
		for (int i = 0; i < 8 * LATENT_PAIRS; i++)
			all[i / 8][i % 8] = __fmaf_rn(o[i / 8][i % 8], its[i % 4 / 2], __fmul_rn(all[i / 8][i % 8], mine[i % 4 / 2]));
	}

	// each calls f(x, at) for the pairs of values at x in sums, which lie at element `at` of the entry `half`.
	template <class F> __device__ __forceinline__ void each(float (&sums)[LATENT_PAIRS][8], F f) {
#pragma unroll
		for (int pair = 0; pair < LATENT_PAIRS; pair++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				if (column(pair) < a.values && entry_head(i % 2) >= 0)
					f(&sums[pair][2 * i], i % 2, column(pair) + i / 2 * 8 + lane() % 4 * 2);
	}
	// place returns the index of a split of a query head among all partials.
	__device__ __forceinline__ size_t place(int of, int split) const {
		return ((size_t)row * a.heads + of) * a.splits + split;
	}
	__device__ __forceinline__ float2 *state(int of, int split) const { return latent_state(a, place(of, split)); }
	__device__ __forceinline__ void store_partial(int split) {
		each(o, [&](float *x, int half, int at) {
			*(float2 *)(a.partial + place(entry_head(half), split) * a.values + at) = {x[0], x[1]};
		});
		const int entry = threadIdx.x;
		if (entry < LATENT_ENTRIES && head + entry < end)
			*state(head + entry, split) = {s.most[entry], s.weight[entry]};
	}
	__device__ __forceinline__ void write() {
		each(all, [&](float *x, int half, int at) {
			const float by = __frcp_rn(allWeight[half]);
			*(float2 *)(a.out + ((size_t)entry_row(half) * a.heads + entry_head(half)) * a.values + at) = {
				__fmul_rn(x[0], by), __fmul_rn(x[1], by)};
		});
	}

	// copy_first begins to copy the first block of keys, and of values where there is room for them.
	__device__ __forceinline__ void copy_first(int from) {
		const bool early = a.rows != 0, values = APART && a.stages > 1;
		copy_keys(0, from, true, !early);
		if (values && early) copy_values(from, true, false);
		if (early) {
			pdl_wait();
			copy_keys(0, from, false, true);
		}
		cp_async_commit();
		if (!APART) return;
		if (values) copy_values(from, !early, true);
		cp_async_commit();
	}

	// compute computes every `sharing`-th split from `split` on; the first block of keys was copied before.
	__device__ __forceinline__ void compute(int split, int splits, int sharing) {
		int from = max(latent_split_begin(split), first / LATENT_KEYS * LATENT_KEYS);
		bool begins = true;
		for (int stage = 0; split < splits; stage = !APART && a.stages > 1 ? stage ^ 1 : 0) {
			const bool ends = from + LATENT_KEYS > last || from + LATENT_KEYS >= latent_split_begin(split + 1);
			const int next = ends ? latent_split_begin(split + sharing) : from + LATENT_KEYS;
			const bool more = !ends || split + sharing < splits;
			if (APART) {
				step_apart(from, next, more, begins);
			} else {
				cp_async_wait<0>();
				__syncthreads(); // keys are complete, and what comes next overwrites what all have read
				if (more && a.stages > 1) copy_keys(stage ^ 1, next, true, true);
				cp_async_commit();
				scores(stage);
				__syncthreads();
				weigh(from);
				__syncthreads();
				add_values(stage, begins);
			}
			if (ends) {
				if (sharing > 1)
					store_partial(split);
				else
					add();
				split += sharing, most = -INFINITY, weight = 0;
			}
			if (!APART && more && a.stages == 1) {
				__syncthreads(); // keys are read
				copy_keys(0, next, true, true);
				cp_async_commit();
			}
			begins = ends, from = next;
		}
	}

	// step_apart computes a block whose keys are on their way, and then, with room for both, its values. The next block's
	// keys come while values are added, and its values while it has scores; without room each waits for the other one.
	__device__ __forceinline__ void step_apart(int from, int next, bool more, bool begins) {
		const bool both = a.stages > 1;
		cp_async_wait<1>();
		if (!both) cp_async_wait<0>();
		__syncthreads(); // keys are complete
		scores(0);
		__syncthreads(); // they are read
		if (!both)
			copy_values(from, true, true);
		else if (more)
			copy_keys(0, next, true, true);
		cp_async_commit();
		weigh(from);
		if (both)
			cp_async_wait<1>();
		else
			cp_async_wait<0>();
		__syncthreads(); // values are complete, and weights
		add_values(a.stages - 1, begins);
		__syncthreads(); // they are read
		if (more && both)
			copy_values(next, true, true);
		else if (more)
			copy_keys(0, next, true, true);
		cp_async_commit();
	}

	// Merge: the sums of units of four elements, of all heads of the block one after another.
	__device__ __forceinline__ void copy_sums(int buffer, int unit, int units, int split, int count) {
		const int each = a.values / 4;
		for (int i = threadIdx.x; i < units * count; i += ATTEND_LATENT_THREADS) {
			const int k = i / units, u = unit + i - k * units, entry = u / each;
			cp_async<16>(&s.sums[buffer][i],
				(const float4 *)(a.partial + place(head + entry, split + k) * a.values) + u - entry * each);
		}
		cp_async_commit();
	}
	// factors computes those of `count` splits from `split` on, as AttendSum::add would. Missing splits change no sum. A
	// warp handles one entry; `top` is its largest score before.
	__device__ __forceinline__ void factors(float &top, int entry, int split, int count) {
		for (int from = 0; from < count; from += 32) {
			const int k = from + lane();
			const float2 x = k < count ? __ldcg(state(head + entry, split + k)) : float2{-INFINITY, -0.f};
			float high = x.x; // largest score up to this lane's split
#pragma unroll
			for (int by = 1; by < 32; by *= 2) {
				const float other = __shfl_up_sync(~0u, high, by);
				if (lane() >= by) high = fmaxf(high, other);
			}
			const float before = __shfl_up_sync(~0u, high, 1);
			AttendSum sum = {0, lane() ? fmaxf(top, before) : top, 0};
			sum.factors(x.x, s.merge.keep[entry][k], s.merge.add[entry][k]);
			s.merge.weight[entry][k] = x.y;
			top = fmaxf(top, __shfl_sync(~0u, high, 31));
		}
	}

	// merge adds the splits of part `part` of `parts` of the block's elements.
	__device__ __forceinline__ void merge(int first, int splits, int part, int parts) {
		const int each = a.values / 4, heads = min(LATENT_ENTRIES, end - head);
		const int all = heads * each, past = all * (part + 1) / parts;
		for (int unit = all * part / parts; unit < past; unit += ATTEND_LATENT_THREADS)
			merge_units(unit, min(ATTEND_LATENT_THREADS, past - unit), first, splits);
	}
	__device__ __forceinline__ void merge_units(int unit, int units, int first, int splits) {
		const int each = a.values / 4, once = min(LATENT_MERGED, MERGE_UNITS / units);
		const int mine = unit + min((int)threadIdx.x, units - 1), entry = mine / each;
		const int entries = (unit + units - 1) / each + 1, begins = unit / each + warp();
		float4 sum = {};
		float weight = before(head + entry).weight;
		float top[LATENT_ENTRIES / LATENT_WARPS];
#pragma unroll
		for (int i = 0; i < LATENT_ENTRIES / LATENT_WARPS; i++) {
			const int of = head + begins + i * LATENT_WARPS;
			top[i] = before(of < end ? of : -1).most;
		}
		copy_sums(0, unit, units, first, min(once, splits - first));
		for (int split = first, buffer = 0; split < splits; split += once, buffer ^= 1) {
			const int count = min(once, splits - split), next = split + once;
			if (next < splits)
				copy_sums(buffer ^ 1, unit, units, next, min(once, splits - next));
			else
				cp_async_commit();
#pragma unroll
			for (int i = 0; i < LATENT_ENTRIES / LATENT_WARPS; i++)
				if (begins + i * LATENT_WARPS < entries) factors(top[i], begins + i * LATENT_WARPS, split, count);
			cp_async_wait<1>();
			__syncthreads();
#pragma unroll 8
			for (int k = 0; k < count; k++) {
				const float4 x = s.sums[buffer][k * units + mine - unit];
				const float keep = s.merge.keep[entry][k], add = s.merge.add[entry][k];
				sum = {__fmaf_rn(x.x, add, __fmul_rn(sum.x, keep)), __fmaf_rn(x.y, add, __fmul_rn(sum.y, keep)),
					__fmaf_rn(x.z, add, __fmul_rn(sum.z, keep)), __fmaf_rn(x.w, add, __fmul_rn(sum.w, keep))};
				weight = __fmaf_rn(s.merge.weight[entry][k], add, __fmul_rn(weight, keep));
			}
			__syncthreads();
		}
		if (threadIdx.x >= units) return;
		const float by = __frcp_rn(weight);
		((float4 *)(a.out + ((size_t)row * a.heads + head + entry) * a.values))[mine - entry * each] = {
			__fmul_rn(sum.x, by), __fmul_rn(sum.y, by), __fmul_rn(sum.z, by), __fmul_rn(sum.w, by)};
	}
};

template <bool APART> __device__ __forceinline__ void attend_latent(const AttendLatentArgs &a) {
	extern __shared__ __align__(128) char latent_shared[];
	pdl_launch_dependents();
	if (a.rows == 0) pdl_wait();
	LatentShared<APART> &shared = *(LatentShared<APART> *)latent_shared;
	if (APART && a.together > 1) {
		const int end = min(a.T, ((int)blockIdx.x + 1) * a.together);
		for (int row = blockIdx.x * a.together, count; row < end; row += count) {
			const int slot = __ldcg(a.slot + row);
			int position = __ldcg(a.position + row);
			for (count = 1; row + count < end && __ldcg(a.slot + row + count) == slot; count++) {
				const int next = __ldcg(a.position + row + count);
				if (next < position) break;
				position = next;
			}
			LatentAttend<APART> p(a, shared, row, count);
			const int split = latent_split(p.first);
			p.copy_first(max(latent_split_begin(split), p.first / LATENT_KEYS * LATENT_KEYS));
			p.load_queries();
			p.begin();
			p.compute(split, latent_split(p.last) + 1, 1);
			p.write();
		}
		return;
	}
	LatentAttend<APART> p(a, shared, blockIdx.x, 1);
	const int first = latent_split(p.first), splits = latent_split(p.last) + 1;
	const int sharing = min((int)gridDim.z, splits - first), split = first + blockIdx.z;
	if ((int)blockIdx.z >= sharing) return;
	p.copy_first(max(latent_split_begin(split), p.first / LATENT_KEYS * LATENT_KEYS));
	p.load_queries();
	p.begin();
	p.compute(split, splits, sharing);
	if (sharing == 1) {
		p.write();
		return;
	}
	unsigned *arrived = a.arrived + (size_t)p.row * a.heads + p.head;
	if (a.shareMerge)
		attend_wait_for_all(arrived, sharing);
	else if (!attend_is_last(arrived, sharing))
		return;
	p.merge(first, splits, a.shareMerge ? blockIdx.z : 0, a.shareMerge ? sharing : 1);
	if (a.shareMerge) attend_leave(arrived, sharing);
}

// attend_latent: grid [T, or groups of rows together][groups of LATENT_ENTRIES query heads][blocks that share a row's
// splits]. The bits do not depend on the grid. attend_wide: keys and values are apart; groups are those of each KV head.
extern "C" __global__ void __launch_bounds__(ATTEND_LATENT_THREADS, 1)
	reel_attend_latent(const __grid_constant__ AttendLatentArgs a) {
	attend_latent<false>(a);
}
extern "C" __global__ void __launch_bounds__(ATTEND_LATENT_THREADS, 1)
	reel_attend_wide(const __grid_constant__ AttendLatentArgs a) {
	attend_latent<true>(a);
}
