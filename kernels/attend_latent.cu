#include "attention/softmax.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"
#include "ptx/pdl.cuh"

// Latent attention: out[t][h] = Σ_j softmax_j(q[t][h]·c_j·scale)·v_j over the positions j of row t's sequence up to its
// own, or the last `visible` of them. A row c_j of the pool is a key for all heads, and its first elements are the
// value v_j. All classes have this kernel, and so one order of sums.
struct AttendLatentArgs {
	const float *q;                 // [T][heads][dim]
	const char *pool;               // bfloat16; a layer of a page is [token][dim]
	float *out;                     // out: [T][heads][values]
	float *partial;                 // [T][heads][splits][values + 2]: sums, largest score, sum of weights
	unsigned *arrived;              // [T][heads]: 0 between launches
	const int32_t *slot, *position; // [T]
	const int32_t *blockTable;      // [slots][pages]
	int64_t pageBytes, layerStart;
	int32_t T, heads, dim, values; // dim and values are multiples of 16
	int32_t pages, pageShift;      // 1<<pageShift tokens per page
	int32_t splits, visible;
	AttendLogits logits;
	float scale; // multiplies scores; includes log2(e)
	int32_t unused;
};

// A row's positions are cut into splits of LATENT_SPLIT, and a split into blocks of LATENT_KEYS, which shared memory
// holds. latentSplit of attend.go mirrors LATENT_SPLIT.
constexpr int LATENT_SPLIT = 128, LATENT_KEYS = 64;
constexpr int LATENT_WARPS = 4, LATENT_ENTRIES = 16;  // entries: query heads of a block of threads
constexpr int LATENT_DIM = 576, LATENT_VALUES = 512;  // at most
constexpr int LATENT_PITCH = LATENT_DIM + 8;          // elements from row to row in shared memory, against bank conflicts
constexpr int LATENT_PAIRS = LATENT_VALUES / 16 / LATENT_WARPS; // of a warp: pairs of eight elements of the result
constexpr int WEIGHTS_PITCH = LATENT_KEYS + 8;

// LatentShared is the dynamic shared memory of a block.
struct LatentShared {
	uint16_t keys[LATENT_KEYS][LATENT_PITCH];
	uint16_t q[LATENT_ENTRIES][LATENT_PITCH];
	uint16_t weights[LATENT_ENTRIES][WEIGHTS_PITCH];
	float most[LATENT_WARPS][LATENT_ENTRIES], weight[LATENT_WARPS][LATENT_ENTRIES];
};

// LatentAttend is a block of threads: one row, and up to LATENT_ENTRIES query heads from `head` on. Of results a lane
// has entries lane/4 and lane/4+8; warp w has the pairs w, w+LATENT_WARPS, … of eight elements, and of each the
// elements 2(lane%4) and the next one of both.
struct LatentAttend {
	const AttendLatentArgs &a;
	LatentShared &s;
	const int row, head, slot, last, first; // first to last: positions that the row sees
	float o[LATENT_PAIRS][8];               // sums of a split
	float most[2], weight[2];               // of a split
	float all[LATENT_PAIRS][8];             // sums of the splits before
	float allMost[2], allWeight[2];

	__device__ __forceinline__ LatentAttend(const AttendLatentArgs &a, LatentShared &s)
		: a(a), s(s), row(blockIdx.x), head(blockIdx.y * LATENT_ENTRIES), slot(__ldcg(a.slot + row)),
		  last(__ldcg(a.position + row)), first(max(0, last + 1 - a.visible)) {}

	static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
	static __device__ __forceinline__ int warp() { return threadIdx.x / 32; }
	// entry_head returns the query head of one of the lane's two entries, or -1 for none.
	__device__ __forceinline__ int entry_head(int half) const {
		const int h = head + lane() / 4 + 8 * half;
		return h < a.heads ? h : -1;
	}
	__device__ __forceinline__ int column(int pair) const { return 16 * (warp() + LATENT_WARPS * pair); }

	__device__ __forceinline__ void load_queries() {
		for (int i = threadIdx.x; i < LATENT_ENTRIES * a.dim / 2; i += 32 * LATENT_WARPS) {
			const int entry = i / (a.dim / 2), at = i % (a.dim / 2) * 2;
			float2 x = {};
			if (head + entry < a.heads)
				x = __ldcg((const float2 *)(a.q + ((size_t)row * a.heads + head + entry) * a.dim + at));
			*(uint32_t *)&s.q[entry][at] = attend_pack(x.x, x.y);
		}
	}

	// load_keys copies the positions from `from` on. Those that the row does not see are zeros: the pool may hold NaN
	// there, and 0·NaN is NaN.
	__device__ __forceinline__ void load_keys(int from) {
		const int chunks = a.dim / 8, mask = (1 << a.pageShift) - 1;
		const int32_t *table = a.blockTable + (size_t)slot * a.pages;
		for (int i = threadIdx.x; i < LATENT_KEYS * chunks; i += 32 * LATENT_WARPS) {
			const int key = i / chunks, chunk = i % chunks, p = min(max(from + key, first), last);
			const char *page = a.pool + __ldcg(table + (p >> a.pageShift)) * a.pageBytes + a.layerStart;
			cp_async_zero_fill(&s.keys[key][8 * chunk], page + ((p & mask) * chunks + chunk) * 16,
				p == from + key ? 16 : 0);
		}
		cp_async_commit();
		cp_async_wait<0>();
		__syncthreads();
	}

	// scores returns those of the warp's 16 positions: x[4i+2h+c] of entry h and position 8i + 2(lane%4) + c.
	__device__ __forceinline__ void scores(float (&x)[8]) const {
#pragma unroll
		for (int i = 0; i < 8; i++) x[i] = 0;
		const uint32_t q = shared_address(&s.q[lane() % 16][lane() / 16 * 8]);
		const uint32_t keys = shared_address(&s.keys[16 * warp() + lane() % 8 + lane() / 16 * 8][lane() / 8 % 2 * 8]);
#pragma unroll 4
		for (int k = 0; k < a.dim / 16; k++) {
			const uint4 rows = ldmatrix(q + 32 * k), columns = ldmatrix(keys + 32 * k);
			mma_bf16(x, rows.x, rows.y, rows.z, rows.w, columns.x, columns.y);
			mma_bf16(x + 4, rows.x, rows.y, rows.z, rows.w, columns.z, columns.w);
		}
	}

	// weigh puts weights 2^(score - most) of the block's positions into shared memory, and rescales the split's sums.
	__device__ __forceinline__ void weigh(float (&x)[8], int from) {
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float high = -INFINITY;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float &v = x[i / 2 * 4 + 2 * half + i % 2];
				const int p = from + 16 * warp() + i / 2 * 8 + lane() % 4 * 2 + i % 2;
				v = p >= first && p <= last ? a.logits.score(v, a.scale) : -INFINITY;
				high = fmaxf(high, v);
			}
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
			high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
			if (lane() % 4 == 0) s.most[warp()][lane() / 4 + 8 * half] = high;
		}
		__syncthreads();
		float factor[2];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int entry = lane() / 4 + 8 * half;
			float top = most[half], sum = 0;
#pragma unroll
			for (int w = 0; w < LATENT_WARPS; w++) top = fmaxf(top, s.most[w][entry]);
			factor[half] = exp2_approx(__fsub_rn(most[half], top)); // the block has a position that the row sees
			most[half] = top;
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const uint32_t pair = attend_pack(exp2_approx(__fsub_rn(x[4 * i + 2 * half], top)),
					exp2_approx(__fsub_rn(x[4 * i + 2 * half + 1], top)));
				*(uint32_t *)&s.weights[entry][16 * warp() + 8 * i + lane() % 4 * 2] = pair;
				// The sum of weights uses the rounded weights that multiply the values.
				sum = __fadd_rn(sum, __fadd_rn(BF16::low(pair), BF16::high(pair)));
			}
			sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 1));
			sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 2));
			if (lane() % 4 == 0) s.weight[warp()][entry] = sum;
		}
		__syncthreads();
#pragma unroll
		for (int half = 0; half < 2; half++) {
			weight[half] = __fmul_rn(weight[half], factor[half]);
#pragma unroll
			for (int w = 0; w < LATENT_WARPS; w++)
				weight[half] = __fadd_rn(weight[half], s.weight[w][lane() / 4 + 8 * half]);
		}
#pragma unroll
		for (int i = 0; i < 8 * LATENT_PAIRS; i++) o[i / 8][i % 8] = __fmul_rn(o[i / 8][i % 8], factor[i % 4 / 2]);
	}

	// add_values adds weights times values of the block.
	__device__ __forceinline__ void add_values() {
#pragma unroll
		for (int k = 0; k < LATENT_KEYS / 16; k++) {
			const uint4 w = ldmatrix(shared_address(&s.weights[lane() % 16][16 * k + lane() / 16 * 8]));
#pragma unroll
			for (int pair = 0; pair < LATENT_PAIRS; pair++) {
				if (column(pair) >= a.values) continue;
				const uint4 v = ldmatrix_transposed(
					shared_address(&s.keys[16 * k + lane() % 16][column(pair) + lane() / 16 * 8]));
				mma_bf16(o[pair], w.x, w.y, w.z, w.w, v.x, v.y);
				mma_bf16(o[pair] + 4, w.x, w.y, w.z, w.w, v.z, v.w);
			}
		}
		__syncthreads(); // keys and weights are read
	}

	// sum computes a split.
	__device__ __forceinline__ void sum(int split) {
#pragma unroll
		for (int i = 0; i < 8 * LATENT_PAIRS; i++) o[i / 8][i % 8] = 0;
		most[0] = most[1] = -INFINITY, weight[0] = weight[1] = 0;
		const int end = min(last, (split + 1) * LATENT_SPLIT - 1);
		for (int from = max(split * LATENT_SPLIT, first / LATENT_KEYS * LATENT_KEYS); from <= end; from += LATENT_KEYS) {
			float x[8];
			load_keys(from);
			scores(x);
			weigh(x, from);
			add_values();
		}
	}

	// begin sets the sum before the first split: a sink has weight 1 and no value.
	__device__ __forceinline__ void begin() {
#pragma unroll
		for (int i = 0; i < 8 * LATENT_PAIRS; i++) all[i / 8][i % 8] = 0;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const bool sink = a.logits.sinks && entry_head(half) >= 0;
			allMost[half] = sink ? a.logits.sink(entry_head(half)) : -INFINITY, allWeight[half] = sink;
		}
	}
	// add adds the split in o to the splits before, as AttendSum::add does.
	__device__ __forceinline__ void add() {
		float mine[2], its[2];
#pragma unroll
		for (int half = 0; half < 2; half++) {
			AttendSum total = {0, allMost[half], allWeight[half]};
			total.factors(most[half], mine[half], its[half]);
			total.add(0, most[half], weight[half]);
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
	__device__ __forceinline__ float *partial(int half, int split) const {
		return a.partial + (((size_t)row * a.heads + entry_head(half)) * a.splits + split) * (a.values + 2);
	}
	__device__ __forceinline__ void store_partial(int split) {
		each(o, [&](float *x, int half, int at) { *(float2 *)(partial(half, split) + at) = {x[0], x[1]}; });
#pragma unroll
		for (int half = 0; half < 2; half++)
			if (warp() == 0 && lane() % 4 == 0 && entry_head(half) >= 0)
				*(float2 *)(partial(half, split) + a.values) = {most[half], weight[half]};
	}
	__device__ __forceinline__ void load_partial(int split) {
		each(o, [&](float *x, int half, int at) {
			const float2 v = __ldcg((const float2 *)(partial(half, split) + at));
			x[0] = v.x, x[1] = v.y;
		});
#pragma unroll
		for (int half = 0; half < 2; half++) {
			if (entry_head(half) < 0) continue;
			const float2 v = __ldcg((const float2 *)(partial(half, split) + a.values));
			most[half] = v.x, weight[half] = v.y;
		}
	}
	__device__ __forceinline__ void write() {
		each(all, [&](float *x, int half, int at) {
			const float by = __frcp_rn(allWeight[half]);
			*(float2 *)(a.out + ((size_t)row * a.heads + entry_head(half)) * a.values + at) = {
				__fmul_rn(x[0], by), __fmul_rn(x[1], by)};
		});
	}
};

// attend_latent: grid [T][groups of LATENT_ENTRIES query heads][blocks that share a row's splits]. The bits do not
// depend on the grid.
extern "C" __global__ void __launch_bounds__(32 * LATENT_WARPS, 2)
	reel_attend_latent(const __grid_constant__ AttendLatentArgs a) {
	extern __shared__ __align__(128) char latent_shared[];
	pdl_begin();
	LatentAttend p(a, *(LatentShared *)latent_shared);
	const int first = p.first / LATENT_SPLIT, splits = p.last / LATENT_SPLIT + 1;
	const int sharing = min((int)gridDim.z, splits - first);
	if ((int)blockIdx.z >= sharing) return;
	p.load_queries();
	p.begin();
	for (int split = first + blockIdx.z; split < splits; split += sharing) {
		p.sum(split);
		if (sharing > 1)
			p.store_partial(split);
		else
			p.add();
	}
	if (sharing > 1) {
		if (!attend_is_last(a.arrived + (size_t)p.row * a.heads + p.head, sharing)) return;
		for (int split = first; split < splits; split++) p.load_partial(split), p.add();
	}
	p.write();
}
