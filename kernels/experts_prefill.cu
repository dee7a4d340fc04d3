// Experts' feed-forward of a prompt's rows on Hopper (gemm/grouped.cuh).
#include "gemm/activation.cuh"
#include "gemm/grouped.cuh"
#include "gemm/product.cuh"
#include "ptx/math.cuh"

struct GroupedGateUpArgs {
	const void *gate, *up;           // packed [experts*inner][hidden]
	const float *gateBias, *upBias;  // [experts][inner], or null
	char *rounded;                   // out: [inner] of slots, rounded; or null
	float *out;                      // out if rounded is null: [places][inner]
	float linear, limit;             // as in ExpertGateUpArgs
	int32_t inner, slots;
	float cubic;
	int32_t unused;
};

// GroupedGateUp is ExpertGateUp of experts.cu for slots.
struct GroupedGateUp {
	using Args = GroupedGateUpArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true, CHOICE_IS_OLDER = false;

	static __device__ __forceinline__ int units(const Args &a) { return a.inner / 16; }
	static __device__ __forceinline__ RowTile row_tile(const Args &a, int expert, int unit, int r) {
		return {r ? a.up : a.gate, expert * (a.inner / 16) + unit};
	}
	static __device__ __forceinline__ float factor(const Args &, int) { return 1; }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	template <class D> struct RowsOf {
		const Args &a;
		const int at; // the first of a lane's two outputs; the other one is 8 further
		float gateBias[2], upBias[2];

		__device__ __forceinline__ RowsOf(const Args &a, int expert, int unit, int row) : a(a), at(unit * 16 + row) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				gateBias[i] = a.gateBias ? a.gateBias[expert * a.inner + at + 8 * i] : 0;
				upBias[i] = a.upBias ? a.upBias[expert * a.inner + at + 8 * i] : 0;
			}
		}
		// store_group stores the results of eight tokens.
		__device__ __forceinline__ void store_group(
			const TokenTile &tokens, int group, const SlotInfo *infos, const float4 &gate, const float4 &up) const {
			const int lane = threadIdx.x % 32, t = group * TOKEN_GROUP + lane % 4 * 2;
			const SlotInfo first = infos[t], second = infos[t + 1]; // past the last token any values
			const float4 y = {gated(gate.x, up.x, first.factor, 0), gated(gate.y, up.y, second.factor, 0),
				gated(gate.z, up.z, first.factor, 1), gated(gate.w, up.w, second.factor, 1)};
			if (a.rounded) return store_rounded_group(tokens, group, {D::pack(y.x, y.y), D::pack(y.z, y.w)});
			if (t < tokens.count) store(first.place, y.x, y.z);
			if (t + 1 < tokens.count) store(second.place, y.y, y.w);
		}
		__device__ __forceinline__ void store(int place, float y, float z) const {
			float *const to = a.out + (size_t)place * a.inner + at;
			to[0] = y, to[8] = z;
		}
		__device__ __forceinline__ float gated(float gate, float up, float scale, int i) const {
			gate = __fmul_rn(gate, scale), up = __fmul_rn(up, scale);
			if (a.gateBias) gate = __fadd_rn(gate, gateBias[i]);
			if (a.upBias) up = __fadd_rn(up, upBias[i]);
			if (a.limit > 0) {
				gate = gate > a.limit ? a.limit : gate;
				up = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
				up = __fadd_rn(up, 1.f);
			}
			const float inverse = reciprocal_approx(__fadd_rn(1.f, exp2_approx(__fmul_rn(gate, slope(gate, a.linear, a.cubic)))));
			return __fmul_rn(__fmul_rn(gate, inverse), up);
		}
		// store_rounded_group stores eight tokens' 16 outputs as input of the down projection. Transposed, a lane has
		// token l/4 and columns 2·(l%4) and 8+2·(l%4), each with the next one.
		__device__ __forceinline__ void store_rounded_group(const TokenTile &tokens, int group, uint2 v) const {
			const int lane = threadIdx.x % 32, token = lane / 4, j = lane % 4, column = at & ~15;
			const int chunk = (column % K_BLOCK / MMA_K * 2 + j % 2) ^ token;
			char *const to = a.rounded +
				((size_t)(column / K_BLOCK) * (a.slots / TOKEN_GROUP) + tokens.first / TOKEN_GROUP + group) * GROUP_BYTES +
				token * TOKEN_BLOCK_BYTES + chunk * 16 + j / 2 * 4;
			*reinterpret_cast<uint32_t *>(to) = transposed(v.x);
			*reinterpret_cast<uint32_t *>(to + 8) = transposed(v.y);
		}
		static __device__ __forceinline__ uint32_t transposed(uint32_t v) {
			uint32_t t;
			asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
			return t;
		}
	};
#endif
};

struct GroupedDownArgs {
	const void *w;        // packed [experts*hidden][inner]
	const float *bias;    // [experts][hidden], or null
	const float *weights; // [places]
	float *results;       // out: [places][hidden]
	int32_t hidden, unused;
};

// GroupedDown is ExpertDown of experts.cu for slots.
struct GroupedDown {
	using Args = GroupedDownArgs;
	static constexpr int R = 1;
	// The gates wait for the choice before they let this kernel start, so it loads weights before it waits for them.
	static constexpr bool NORMED = false, CHOICE_IS_OLDER = true;

	static __device__ __forceinline__ int units(const Args &a) { return a.hidden / 16; }
	static __device__ __forceinline__ RowTile row_tile(const Args &a, int expert, int unit, int) {
		return {a.w, expert * (a.hidden / 16) + unit};
	}
	static __device__ __forceinline__ float factor(const Args &a, int place) { return __ldcg(a.weights + place); }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	template <class D> struct RowsOf {
		const Args &a;
		const int at;
		float bias[2];

		__device__ __forceinline__ RowsOf(const Args &a, int expert, int unit, int row) : a(a), at(unit * 16 + row) {
#pragma unroll
			for (int i = 0; i < 2; i++) bias[i] = a.bias ? a.bias[expert * a.hidden + at + 8 * i] : 0;
		}
		__device__ __forceinline__ void store(const SlotInfo &info, float y, float z) const {
			float *const to = a.results + (size_t)info.place * a.hidden + at;
			to[0] = __fmul_rn(info.factor, a.bias ? __fadd_rn(y, bias[0]) : y);
			to[8] = __fmul_rn(info.factor, a.bias ? __fadd_rn(z, bias[1]) : z);
		}
	};
#endif
};

// GroupPlacesArgs: of Chosen in kernels/route.go.
struct GroupPlacesArgs {
	const int32_t *ids; // [places]
	int32_t *count;     // out: [1]
	TokenTile *tiles;   // out
	int32_t *place;     // out: [slots]
	int32_t *slot;      // out: [places]
	int32_t places, most; // most: slots of a token tile
};

constexpr int PLACES_THREADS = 1024;

// places_before returns the sum of v of the threads before this one; `all` is that of all. scratch: [32] of shared memory.
__device__ __forceinline__ int places_before(int v, int *scratch, int &all) {
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int sum = v;
#pragma unroll
	for (int apart = 1; apart < 32; apart *= 2) {
		const int before = __shfl_up_sync(~0u, sum, apart);
		if (lane >= apart) sum += before;
	}
	if (lane == 31) scratch[warp] = sum;
	__syncthreads();
	int before = 0;
	all = 0;
	for (int w = 0; w < PLACES_THREADS / 32; w++) {
		if (w < warp) before += scratch[w];
		all += scratch[w];
	}
	__syncthreads();
	return before + sum - v;
}

// group_places gives each place of a step a slot, as gemm/grouped.cuh says. It is one block; a thread has one expert, of
// at most 1024. The order of the places within an expert changes no result.
extern "C" __global__ void __launch_bounds__(PLACES_THREADS) reel_group_places(const __grid_constant__ GroupPlacesArgs a) {
	__shared__ int counts[PLACES_THREADS], begins[PLACES_THREADS], scratch[32];
	const int id = threadIdx.x;
	counts[id] = 0;
	__syncthreads();
	pdl_launch_dependents();
	pdl_wait();
	for (int p = id; p < a.places; p += PLACES_THREADS) atomicAdd(&counts[a.ids[p]], 1);
	__syncthreads();
	const int n = counts[id], tiles = (n + a.most - 1) / a.most;
	// Token tiles of equal size: blocks would wait for the longest one.
	const int each = tiles ? ((n + tiles - 1) / tiles + 7) / 8 * 8 : 8;
	int slots, all;
	const int begin = places_before((n + 7) / 8 * 8, scratch, slots), first = places_before((n + each - 1) / each, scratch, all);
	if (id == 0) *a.count = all;
	for (int i = 0; i * each < n; i++) a.tiles[first + i] = {id, begin + i * each, min(each, n - i * each), 0};
	begins[id] = begin;
	counts[id] = 0;
	__syncthreads();
	for (int p = id; p < a.places; p += PLACES_THREADS) {
		const int e = a.ids[p], at = begins[e] + atomicAdd(&counts[e], 1);
		a.place[at] = p;
		a.slot[p] = at;
	}
}

// RoundPlacesArgs are the arguments of round_places.
struct RoundPlacesArgs {
	Activations in;      // rows of X
	char *out;           // rounded rows of slots
	float *scales;       // out: [slots], if in has a norm
	const int32_t *slot; // [rows][used]
	int32_t slots, used;
};

// round_places is round_row of round.cu with a copy of the row for each of its places. Columns are whole K blocks.
template <class D> __device__ __forceinline__ void round_places(const RoundPlacesArgs &a) {
	__shared__ float partials[PARTIALS];
	__shared__ int slots[32];
	__shared__ float scale;
	const int t = blockIdx.x, partial = threadIdx.x / 16, quad = threadIdx.x % 16;
	pdl_begin();
	if (threadIdx.x < a.used) slots[threadIdx.x] = a.slot[t * a.used + threadIdx.x];
	__syncthreads();
	float squares = 0;
	for (int k = partial * K_BLOCK + quad * 4; k < a.in.cols; k += PARTIALS * K_BLOCK) {
		float4 v = load_activation(a.in.x + (size_t)t * a.in.cols + k);
		if (a.in.norm) {
			squares = add_squares(squares, v);
			v = times(v, load_constant(a.in.norm + k));
		}
		const uint2 r = pack4<D>(v);
		for (int u = 0; u < a.used; u++) store_rounded(a.out, a.slots, slots[u], k, r);
	}
	if (!a.in.norm) return;
	squares = fold_squares(squares);
	if (quad == 0) partials[partial] = squares;
	__syncthreads();
	if (threadIdx.x == 0) scale = rms_scale(a.in, sum_in_order(partials, 1));
	__syncthreads();
	if (threadIdx.x < a.used) a.scales[slots[threadIdx.x]] = scale;
}

extern "C" __global__ void __launch_bounds__(256) reel_round_places_bf16(const __grid_constant__ RoundPlacesArgs a) {
	round_places<BF16>(a);
}
extern "C" __global__ void __launch_bounds__(256) reel_round_places_f16(const __grid_constant__ RoundPlacesArgs a) {
	round_places<F16>(a);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define REEL_GROUPED(name, Op, D, T, BLOCKS, W)                                                    \
	REEL_KERNEL(name, (Grouped<Op, D, T, BLOCKS, W>::THREADS), BLOCKS, (grouped<Op, D, T, BLOCKS, W>(a)), \
	            const __grid_constant__ GroupedArgs<Op> a)
#else
#define REEL_GROUPED(name, Op, D, T, BLOCKS, W)
#endif

// The kernels of few and of many places of an expert (experts_grouped.go). Two blocks on an SM unpack codes faster.
#define REEL_GROUPED_OF(name, Op, D, W)               \
	REEL_GROUPED(name##_grouped56, Op, D, 56, 2, W)   \
	REEL_GROUPED(name##_grouped208, Op, D, 208, 1, W)
#define REEL_GROUPED_ELEMENTS(format, D)                                               \
	REEL_GROUPED_OF(reel_expert_gateup_##format, GroupedGateUp, D, Elements<D>)        \
	REEL_GROUPED_OF(reel_expert_down_##format, GroupedDown, D, Elements<D>)
#define REEL_GROUPED_CODES(format, F)                                                  \
	REEL_GROUPED_OF(reel_expert_gateup_##format, GroupedGateUp, F16, GroupedCodes<F>)  \
	REEL_GROUPED_OF(reel_expert_down_##format, GroupedDown, F16, GroupedCodes<F>)

REEL_GROUPED_ELEMENTS(bf16, BF16)
REEL_GROUPED_ELEMENTS(f16, F16)
// groupedFormats of experts_grouped.go.
REEL_GROUPED_CODES(q4_0, Q4_0)
REEL_GROUPED_CODES(q8_0, Q8_0)
REEL_GROUPED_CODES(q4_k, Q4_K)
REEL_GROUPED_CODES(q5_k, Q5_K)
REEL_GROUPED_CODES(q6_k, Q6_K)
REEL_GROUPED_CODES(f8, F8)
REEL_GROUPED_CODES(g4_128, G4_128)
REEL_GROUPED_CODES(mxfp4, MXFP4)
