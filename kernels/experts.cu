#include "gemm/experts.cuh"
#include "ptx/math.cuh"

struct ExpertGateUpArgs {
	const uint4 *gate, *up;          // packed [experts*inner][hidden]
	const float *gateBias, *upBias;  // [experts][inner], or null
	Activations in;                  // X [T][hidden], with norm; rows and n are those of a segment
	float *out;                      // [places][inner]
	ChosenArgs chosen;
	float linear, limit;             // of the activation: -log2(e) times 1, or times 1.702 with a limit; 0: no limit
	int32_t inner, unused;
};

// ExpertGateUp: Out[place][r] = act(Gate_e[r]·n, Up_e[r]·n), n = rmsnorm(X[row]); e, place and row are of the
// segment. A unit is 16 rows of Gate and the same rows of Up. Members: gemm/product.cuh.
struct ExpertGateUp {
	using Args = ExpertGateUpArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 0;
	const Args &o;
	const Segment &segment;
	struct Prefetched {};

	__device__ __forceinline__ ExpertGateUp(const Args &o) : o(o), segment(Segment::find(o.chosen, o.in, false)) {}
	__device__ __forceinline__ const Activations &activations() const { return segment.in; }
	__device__ __forceinline__ int units() const { return o.inner / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int r) const {
		return {r ? o.up : o.gate, segment.expert * (o.inner / 16) + unit};
	}
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		const int at = unit * 16 + row, bias = segment.expert * o.inner + at;
		const float gate = o.gateBias ? __fadd_rn(y[0], o.gateBias[bias]) : y[0];
		const float up = o.upBias ? __fadd_rn(y[1], o.upBias[bias]) : y[1];
		o.out[(size_t)segment.place[t] * o.inner + at] = gated(gate, up);
	}
	// A comparison with what is not a number is false, so that stays what it is.
	__device__ __forceinline__ float gated(float gate, float up) const {
		if (o.limit > 0) {
			gate = gate > o.limit ? o.limit : gate;
			up = up > o.limit ? o.limit : up < -o.limit ? -o.limit : up;
			up = __fadd_rn(up, 1.f);
		}
		const float inverse = reciprocal_approx(__fadd_rn(1.f, exp2_approx(__fmul_rn(gate, o.linear))));
		return __fmul_rn(__fmul_rn(gate, inverse), up);
	}
};

struct ExpertDownArgs {
	const uint4 *w;    // packed [experts*hidden][inner]
	const float *bias; // [experts][hidden], or null
	Activations in;    // In [places][inner], without norm; rows and n are those of a segment
	float *results;    // [places][hidden]
	float *x;          // in and out: [hidden]; of expert_down_one alone
	ChosenArgs chosen;
	int32_t hidden, used;
};

// ExpertDown: Results[place][r] = weight (W_e[r]·In[place] + bias_e[r]). A unit is one row tile.
struct ExpertDown {
	using Args = ExpertDownArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = false;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 0;
	const Args &o;
	const Segment &segment;
	struct Prefetched {};

	__device__ __forceinline__ ExpertDown(const Args &o) : o(o), segment(Segment::find(o.chosen, o.in, true)) {}
	__device__ __forceinline__ const Activations &activations() const { return segment.in; }
	__device__ __forceinline__ int units() const { return o.hidden / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int) const {
		return {o.w, segment.expert * (o.hidden / 16) + unit};
	}
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[1]) const {
		const int at = unit * 16 + row, place = segment.place[t];
		const float v = o.bias ? __fadd_rn(y[0], o.bias[segment.expert * o.hidden + at]) : y[0];
		o.results[(size_t)place * o.hidden + at] = __fmul_rn(o.chosen.weights[place], v);
	}
};

template <> constexpr bool FEW_REGISTERS<ExpertGateUp> = true;

REEL_EXPERTS(reel_expert_gateup, ExpertGateUp, 4)
REEL_EXPERTS(reel_expert_down, ExpertDown, 4)

// expert_down_one is the whole down projection of a step of one row: X[r] += Σ_k weight_k (W_e(k)[r]·In[k] + bias),
// in the order of k, with the bits of ExpertDown and reel_expert_sum. A block has 16 rows of W of each expert. Its
// warps are the partial sums (operands.cuh); a warp goes through its K blocks of all experts without a stop, with the
// weights of the next eight steps in flight.
template <class D> struct ExpertDownOne {
	static constexpr int AHEAD = 2; // K blocks

	// Cursor is a K block of this warp: block `block` of expert `rank`.
	struct Cursor {
		int rank, block;
	};

	const ExpertDownArgs &o;
	const int lane, warp, steps, used;
	const int32_t *const expert; // shared [used]
	uint4 weights[AHEAD][BLOCK_STEPS];

	__device__ __forceinline__ ExpertDownOne(const ExpertDownArgs &o, const int32_t *expert)
		: o(o), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), steps(o.in.cols / MMA_K), used(o.used),
			expert(expert) {}

	__device__ __forceinline__ bool exists(int block) const { return block * BLOCK_STEPS < steps; }
	__device__ __forceinline__ Cursor first() const { return {exists(warp) ? 0 : used, warp}; }
	__device__ __forceinline__ void advance(Cursor &c) const {
		c.block += PARTIALS;
		if (!exists(c.block)) c.rank++, c.block = warp;
	}

	__device__ __forceinline__ void load(uint4 (&to)[BLOCK_STEPS], const Cursor &c) const {
		if (c.rank >= used) return;
		const uint4 *const tile = o.w + ((size_t)expert[c.rank] * (o.hidden / 16) + blockIdx.x) * steps * 32 + lane;
#pragma unroll
		for (int s = 0; s < BLOCK_STEPS; s++) {
			const int step = c.block * BLOCK_STEPS + s;
			to[s] = step < steps ? load_weights(tile + step * 32) : uint4{0, 0, 0, 0};
		}
	}

	// round copies this warp's columns of all rows of In to shared memory, rounded: a quad takes 8 of 16 bytes.
	__device__ __forceinline__ void round(float4 *rows) const {
		for (Cursor c = first(); c.rank < used; advance(c)) {
			const int quad = c.block * BLOCK_STEPS * 4 + lane;
			if (lane >= BLOCK_STEPS * 4 || quad >= steps * 4) continue;
			const float4 v = load_activation(o.in.x + (size_t)c.rank * o.in.cols + quad * 4);
			*reinterpret_cast<uint2 *>(rows + c.rank * steps * 4 + quad) = pack4<D>(v);
		}
		__syncwarp();
	}

	// run leaves the partial sums of all experts in shared memory: float [used][16 warps][16].
	__device__ __forceinline__ void run(const float4 *rows, float *partials) {
		float sum[4] = {0, 0, 0, 0};
		Cursor ahead = first(), now = ahead;
#pragma unroll
		for (int i = 0; i < AHEAD; i++) load(weights[i], ahead), advance(ahead);
		while (now.rank < used) {
#pragma unroll
			for (int i = 0; i < AHEAD; i++) {
				if (now.rank >= used) break;
#pragma unroll
				for (int s = 0; s < BLOCK_STEPS; s++) {
					const int step = now.block * BLOCK_STEPS + s;
					uint2 b = {0, 0};
					if (lane < 4 && step < steps)
						b = *reinterpret_cast<const uint2 *>(rows + (now.rank * steps + step) * 4 + lane);
					if (step < steps) D::mma(sum, weights[i][s], b.x, b.y);
				}
				load(weights[i], ahead), advance(ahead);
				const int rank = now.rank;
				advance(now);
				if (now.rank == rank) continue;
				store(partials, rank, sum);
				sum[0] = sum[1] = sum[2] = sum[3] = 0;
			}
		}
		if (!exists(warp))
			for (int k = 0; k < used; k++) store(partials, k, sum);
		__syncthreads();
	}
	__device__ __forceinline__ void store(float *partials, int rank, const float (&sum)[4]) const {
		if (lane % 4) return;
		float *const p = partials + (rank * PARTIALS + warp) * 16 + lane / 4;
		p[0] = sum[0];
		p[8] = sum[2];
	}

	__device__ __forceinline__ void finish(const float *partials) const {
		const int row = blockIdx.x * 16 + threadIdx.x;
		float all = 0;
		for (int k = 0; k < used; k++) {
			const float y = sum_in_order(partials + k * PARTIALS * 16 + threadIdx.x, 16);
			const float v = __fmul_rn(o.chosen.weights[k],
				o.bias ? __fadd_rn(y, o.bias[expert[k] * o.hidden + row]) : y);
			all = k ? __fadd_rn(all, v) : v;
		}
		o.x[row] = __fadd_rn(o.x[row], all);
	}
};

template <class D> __device__ __forceinline__ void expert_down_one(const ExpertDownArgs &a) {
	extern __shared__ float4 downShared[]; // rows of In, then partial sums
	float *const partials = reinterpret_cast<float *>(downShared + a.used * (a.in.cols / 4));
	begin_product<false, true>();
	if (*a.chosen.count == 0) return; // a row of padding
	__shared__ int32_t expert[32];
	if (threadIdx.x < a.used) expert[threadIdx.x] = a.chosen.expert[threadIdx.x];
	__syncthreads();
	ExpertDownOne<D> one(a, expert);
	one.round(downShared);
	one.run(downShared, partials);
	if (threadIdx.x < 16) one.finish(partials);
}
REEL_OP_KERNEL(reel_expert_down_bf16_one, ExpertDown, FEW_ROWS_THREADS, 1, (expert_down_one<BF16>(a)))
REEL_OP_KERNEL(reel_expert_down_f16_one, ExpertDown, FEW_ROWS_THREADS, 1, (expert_down_one<F16>(a)))

struct ExpertSumArgs {
	const float *results; // [T][used][cols]
	const int32_t *rows;  // [T], or null; -1: the row is left as it is
	float *x;             // in and out: [T][cols]
	int32_t cols, used;
};

// X[t] += Σ_k results[t][k], in the order of k. A thread adds four columns of row blockIdx.y.
extern "C" __global__ void reel_expert_sum(const __grid_constant__ ExpertSumArgs a) {
	pdl_begin();
	const int t = blockIdx.y, column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
	if (a.rows && a.rows[t] < 0 || column >= a.cols) return;
	const float *from = a.results + (size_t)t * a.used * a.cols + column;
	float4 sum = load_activation(from);
	for (int k = 1; k < a.used; k++) sum = add(sum, load_activation(from + (size_t)k * a.cols));
	float4 *const x = reinterpret_cast<float4 *>(a.x + (size_t)t * a.cols + column);
	*x = add(*x, sum);
}
