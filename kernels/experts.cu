#include "gemm/activation.cuh"
#include "gemm/experts.cuh"
#include "gemm/experts_ring.cuh"
#include "gemm/experts_tagged.cuh"
#include "ptx/math.cuh"

struct ExpertGateUpArgs {
	const uint4 *gate, *up;          // packed [experts*inner][hidden]
	const float *gateBias, *upBias;  // [experts][inner], or null
	Activations in;                  // X [T][hidden], with norm; rows and n are those of a segment
	float *out;                      // [places][inner]
	ChosenArgs chosen;
	float linear, limit;             // of the activation: -log2(e) times 1, or times 1.702 with a limit; 0: no limit
	int32_t inner;
	float cubic;                     // as in GateUpArgs
};

// ExpertGates is what the two ops of gate and up have in common.
struct ExpertGates {
	using Args = ExpertGateUpArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = true; // the down projection reads the choice before it waits
	struct Prefetched {};
	const Args &o;

	__device__ __forceinline__ void prepare(int, int, int) {}
	static constexpr bool ADDS = false; // spread.cuh
	__device__ __forceinline__ int outputs() const { return o.inner; }
	// result returns an output of an expert's gate and up.
	__device__ __forceinline__ float result(int expert, int at, const float (&y)[2]) const {
		const int bias = expert * o.inner + at;
		const float gate = o.gateBias ? __fadd_rn(y[0], o.gateBias[bias]) : y[0];
		const float up = o.upBias ? __fadd_rn(y[1], o.upBias[bias]) : y[1];
		return gated(gate, up);
	}
	// A comparison with what is not a number is false, so that stays what it is.
	__device__ __forceinline__ float gated(float gate, float up) const {
		if (o.limit > 0) {
			gate = gate > o.limit ? o.limit : gate;
			up = up > o.limit ? o.limit : up < -o.limit ? -o.limit : up;
			up = __fadd_rn(up, 1.f);
		}
		const float inverse = reciprocal_approx(__fadd_rn(1.f, exp2_approx(__fmul_rn(gate, slope(gate, o.linear, o.cubic)))));
		return __fmul_rn(__fmul_rn(gate, inverse), up);
	}
};

// ExpertGateUp: Out[place][r] = act(Gate_e[r]·n, Up_e[r]·n), n = rmsnorm(X[row]); e, place and row are of the
// segment. A unit is 16 rows of Gate and the same rows of Up. Members: gemm/product.cuh.
struct ExpertGateUp : ExpertGates {
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 1;
	const Segment &segment;

	// of returns the op of segment i, which THREADS threads find.
	template <int THREADS> static __device__ __forceinline__ ExpertGateUp of(const Args &o, int i) {
		return {{o}, Segment::find<THREADS>(o.chosen, o.in, false, i)};
	}
	// tile_of returns a row tile as one thread finds it.
	static __device__ __forceinline__ RowTile tile_of(const Args &o, int i, int unit, int r) {
		return {r ? o.up : o.gate, o.chosen.expert[i] * (o.inner / 16) + unit};
	}
	static __device__ __forceinline__ int segments(const Args &o) { return *o.chosen.count; }
	__device__ __forceinline__ const Activations &activations() const { return segment.in; }
	__device__ __forceinline__ int units() const { return o.inner / 16; }
	__device__ __forceinline__ RowTile row_tile(int unit, int r) const {
		return {r ? o.up : o.gate, segment.expert * (o.inner / 16) + unit};
	}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		const int at = unit * 16 + row;
		o.out[(size_t)segment.place[t] * o.inner + at] = result(segment.expert, at, y);
	}
};

// ExpertGateUpOne is the same of a step of one row. The units of all its experts are in one list, so that blocks go on
// from one expert to the next.
struct ExpertGateUpOne : ExpertGates {
	static constexpr int PERSISTENT_GEMV = 2, PERSISTENT_SKINNY = 0;
	static constexpr Gives GIVES = GIVES_PAIRS;
	const Ranks &ranks;
	const int tiles; // of an expert

	template <int THREADS> static __device__ __forceinline__ ExpertGateUpOne of(const Args &o, int) {
		return {{o}, Ranks::find<THREADS>(o.chosen, o.in), o.inner / 16};
	}
	static __device__ __forceinline__ RowTile tile_of(const Args &o, int, int unit, int r) {
		const int tiles = o.inner / 16;
		return {r ? o.up : o.gate, o.chosen.expert[unit / tiles] * tiles + unit % tiles};
	}
	static __device__ __forceinline__ int segments(const Args &o) { return *o.chosen.count ? 1 : 0; }
	__device__ __forceinline__ const Activations &activations() const { return ranks.in; }
	__device__ __forceinline__ int units() const { return o.chosen.segments * tiles; }
	__device__ __forceinline__ RowTile row_tile(int unit, int r) const {
		return {r ? o.up : o.gate, ranks.expert[unit / tiles] * tiles + unit % tiles};
	}
	__device__ __forceinline__ float value(int unit, int row, int, const float (&y)[2]) const {
		return result(ranks.expert[unit / tiles], unit % tiles * 16 + row, y);
	}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[2]) const {
		o.out[(size_t)(unit / tiles) * o.inner + unit % tiles * 16 + row] = value(unit, row, t, y);
	}
};

struct ExpertDownArgs {
	const uint4 *w;    // packed [experts*hidden][inner]
	const float *bias; // [experts][hidden], or null
	Activations in;    // In [places][inner], without norm; rows and n are those of a segment
	float *results;    // [places][hidden]
	float *x;          // in and out: [hidden]; of a step of one row alone
	ChosenArgs chosen;
	int32_t hidden, used;
	int32_t stores, unused; // stores: x holds nothing before
};

// ExpertDown: Results[place][r] = weight (W_e[r]·In[place] + bias_e[r]). A unit is one row tile.
struct ExpertDown {
	using Args = ExpertDownArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = false;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = false;
	static constexpr int PERSISTENT_GEMV = 0, PERSISTENT_SKINNY = 1;
	const Args &o;
	const Segment &segment;
	struct Prefetched {};

	template <int THREADS> static __device__ __forceinline__ ExpertDown of(const Args &o, int i) {
		return {o, Segment::find<THREADS>(o.chosen, o.in, true, i)};
	}
	static __device__ __forceinline__ RowTile tile_of(const Args &o, int i, int unit, int) {
		return {o.w, o.chosen.expert[i] * (o.hidden / 16) + unit};
	}
	static __device__ __forceinline__ int segments(const Args &o) { return *o.chosen.count; }
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

REEL_EXPERTS(reel_expert_gateup, ExpertGateUp)
REEL_EXPERTS(reel_expert_down, ExpertDown)

REEL_OP_KERNEL(reel_expert_gateup_bf16_one, ExpertGateUpOne, FEW_ROWS_THREADS, 2, (expert_gemv<ExpertGateUpOne, BF16, 4>(a)))
REEL_OP_KERNEL(reel_expert_gateup_f16_one, ExpertGateUpOne, FEW_ROWS_THREADS, 2, (expert_gemv<ExpertGateUpOne, F16, 4>(a)))
#if __CUDA_ARCH__ >= 900
#define REEL_GATES_BLOCKS 2
#else
#define REEL_GATES_BLOCKS 1 // for registers
#endif
#define REEL_EXPERT_GATES_SPREAD(name, D)                                                                               \
	REEL_KERNEL(name##_one_spread, FEW_ROWS_THREADS, REEL_GATES_BLOCKS, (expert_gemv_spread<ExpertGateUpOne, D, 4>(a)), \
	            const __grid_constant__ SpreadArgs<ExpertGateUpOne> a)                                                  \
	REEL_KERNEL(name##_one_deep_spread, FEW_ROWS_THREADS, 1, (expert_gemv_spread<ExpertGateUpOne, D, 8>(a)),            \
	            const __grid_constant__ SpreadArgs<ExpertGateUpOne> a)
REEL_EXPERT_GATES_SPREAD(reel_expert_gateup_bf16, BF16)
REEL_EXPERT_GATES_SPREAD(reel_expert_gateup_f16, F16)
REEL_FORMATS(REEL_EXPERT_CODES, reel_expert_gateup, ExpertGateUpOne, _one)

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define REEL_EXPERT_RING(format, F, name, Op, suffix)                                                \
	REEL_KERNEL(name##_##format##suffix, (ExpertRing<Op, F>::THREADS), 1, (expert_ring<Op, F>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)
REEL_FORMATS(REEL_EXPERT_RING, reel_expert_gateup, ExpertGateUp, _ring)
REEL_FORMATS(REEL_EXPERT_RING, reel_expert_gateup, ExpertGateUpOne, _ring_one)
REEL_FORMATS(REEL_EXPERT_RING, reel_expert_down, ExpertDown, _ring)
#define REEL_EXPERT_RING_SPREAD(format, F, name, Op)                                                           \
	REEL_KERNEL(name##_##format##_ring_one_spread, (ExpertRing<Op, F>::THREADS), 1, (expert_ring_spread<Op, F>(a)), \
	            const __grid_constant__ SpreadCodesArgs<Op> a)
REEL_FORMATS(REEL_EXPERT_RING_SPREAD, reel_expert_gateup, ExpertGateUpOne)
#endif

// The down projection of a step of one row is one kernel: X[r] += Σ_k weight_k (W_e(k)[r]·In[k] + bias), in the order
// of k, with the bits of ExpertDown and reel_expert_sum. A block has 16 rows of W of each expert.

// The choice is older than the gates, which wait for it before they let this kernel start. So it reads the choice and
// starts its loads of weights before it waits for the gates, beside the last of them.

// WaitsForGates is how To, where sums go, takes the choice and the gates' results as earlier kernels stored them;
// gemm/experts_tagged.cuh has another.
struct WaitsForGates {
	static constexpr int TOGETHER = 4; // rows of In that take_pairs takes
	// begin begins the kernel as far as the choice goes, and returns the row's experts. Padding has none.
	static __device__ __forceinline__ const Ranks &begin(const ExpertDownArgs &o) { return Ranks::find<0>(o.chosen, o.in); }
	// finds is begin of threads that have yet to meet, until when they do not know the experts. It reports whether there
	// are any.
	static __device__ __forceinline__ bool finds(const ExpertDownArgs &o) { return *o.chosen.count != 0; }
	static __device__ __forceinline__ void wait() { begin_product<false, true>(); }
	static __device__ __forceinline__ float weight(const ChosenArgs &c, int rank) { return c.weights[rank]; }
	static __device__ __forceinline__ int expert(const ChosenArgs &c, int rank) { return c.expert[rank]; }
	// round rounds n rows of In for codes.
	template <class Rounder> static __device__ __forceinline__ void round(const Rounder &rounder, int n) { rounder.round(0, n); }
};

// AddToX is where the sums of a row's experts go: to the residual stream.
struct AddToX : WaitsForGates {
	float *const x;
	const bool stores;
	float old;

	__device__ __forceinline__ AddToX(const ExpertDownArgs &o) : x(o.x), stores(o.stores), old(0) {}
	__device__ __forceinline__ void before_wait(int at) { old = stores ? 0 : x[at]; }
	__device__ __forceinline__ void after_wait() {}
	__device__ __forceinline__ void finish(int at, float sum) const { x[at] = __fadd_rn(old, sum); }
	__device__ __forceinline__ void skip(int at) const {
		if (stores) x[at] = 0;
	}
	// rows loads pairs of columns of In: those at `at`, at+cols, … below n.
	template <int N>
	__device__ __forceinline__ void rows(float2 (&v)[N], const float *in, int cols, int at, int n) const {
#pragma unroll
		for (int i = 0; i < N; i++)
			if (at + i * cols < n) v[i] = *reinterpret_cast<const float2 *>(in + at + i * cols);
	}
};

// AddOnRanks is the same for the residual streams of all ranks, of which this one adds to a part.
struct AddOnRanks : WaitsForGates {
	const Spread &to;
	const int own, after; // as in SpreadArgs
	float old;
	uint32_t number; // of the exchange

	template <class Args>
	__device__ __forceinline__ AddOnRanks(const Args &a) : to(a.to), own(a.own), after(a.after), old(0), number(0) {}
	// rows is that of AddToX; other ranks' columns may come as packets.
	template <int N>
	__device__ __forceinline__ void rows(float2 (&v)[N], const float *in, int cols, int at, int n) const {
		const int column = at % cols;
		const bool here = after == 0 || column >= own && column < after;
		to.packets.pairs(v, to.packets.number() - 1, in, here ? 0 : n, n, 0, at, cols, n);
	}
	__device__ __forceinline__ int column(int at) const { return to.start(to.packets.rank) + at; }
	__device__ __forceinline__ void before_wait(int at) { old = to.x[column(at)]; }
	__device__ __forceinline__ void after_wait() { number = to.packets.number(); }
	__device__ __forceinline__ void finish(int at, float sum) const { give(column(at), __fadd_rn(old, sum)); }
	__device__ __forceinline__ void skip(int at) const { give(column(at), old); }
	__device__ __forceinline__ void give(int column, float v) const {
		if (column < to.begin(to.packets.rank)) return; // another rank's
		to.x[column] = v;
		to.packets.send(number, column, v);
	}
};

// DownResult is a thread's part of the end of a block: thread 16k + r has the result of expert k for row r of the block's
// tile, and the first 16 add those of all experts. What it needs beside sums is older than the gates. live: the row is
// none of padding, so that its experts have been chosen.
template <class To> struct DownResult {
	const ExpertDownArgs &o;
	const int row, rank, at;
	const bool exists;
	float weight, bias;
	To to;

	__device__ __forceinline__ DownResult(const ExpertDownArgs &o, const To &to, bool live)
		: o(o), row(threadIdx.x % 16), rank(threadIdx.x / 16), at(blockIdx.x * 16 + row), exists(rank < o.used), weight(0),
		  bias(0), to(to) {
		if (!exists) return;
		weight = to.weight(o.chosen, rank);
		if (o.bias && live) bias = o.bias[to.expert(o.chosen, rank) * o.hidden + at];
		if (rank == 0) this->to.before_wait(at);
	}
	__device__ __forceinline__ void after_wait() {
		if (rank == 0) to.after_wait();
	}
	// finish adds the results; y is this thread's sum. weighted is shared, float [used][stride] with 16 columns. THREADS
	// threads call it (sync_threads).
	template <int THREADS> __device__ __forceinline__ void finish(float y, float *weighted, int stride) const {
		if (exists) weighted[rank * stride + row] = __fmul_rn(weight, o.bias ? __fadd_rn(y, bias) : y);
		sync_threads<THREADS>();
		if (rank > 0) return;
		float all = weighted[row];
		for (int k = 1; k < o.used; k++) all = __fadd_rn(all, weighted[k * stride + row]);
		to.finish(at, all);
	}
	// skip waits, and ends the block of a row of padding.
	__device__ __forceinline__ void skip() {
		to.wait();
		after_wait();
		if (rank == 0) to.skip(at);
	}
};

// take_pairs rounds two columns, from `at` on, of up to N rows of In from `first` on; experts_tagged.cuh has another.
template <class D, int N, class To>
__device__ __forceinline__ void take_pairs(
	const To &to, uint32_t *rows, const float *in, int cols, int at, int first, int used) {
	float2 v[N];
	to.rows(v, in, cols, first * cols + at, used * cols);
#pragma unroll
	for (int i = 0; i < N; i++)
		if (first + i < used) rows[((first + i) * cols + at) / 2] = D::pack(v[i].x, v[i].y);
}

// ExpertDownOne is a thread's part of it over weights of 16 bits. The block's warps are the partial sums
// (operands.cuh); a warp goes through its K blocks of all experts without a stop, with the weights of AHEAD in flight.
template <class D> struct ExpertDownOne {
	static constexpr int AHEAD = 4; // K blocks

	// Cursor is a K block of this warp: block `block` of expert `rank`.
	struct Cursor {
		int rank, block;
	};

	const ExpertDownArgs &o;
	const Ranks &ranks;
	const int lane, warp, steps, used;
	uint4 weights[AHEAD][BLOCK_STEPS];
	Cursor ahead;

	// It starts the first loads.
	__device__ __forceinline__ ExpertDownOne(const ExpertDownArgs &o, const Ranks &ranks)
		: o(o), ranks(ranks), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), steps(o.in.cols / MMA_K), used(o.used),
		  ahead(first()) {
#pragma unroll
		for (int i = 0; i < AHEAD; i++) load(weights[i], ahead), advance(ahead);
	}

	__device__ __forceinline__ bool exists(int block) const { return block * BLOCK_STEPS < steps; }
	__device__ __forceinline__ Cursor first() const { return {exists(warp) ? 0 : used, warp}; }
	__device__ __forceinline__ void advance(Cursor &c) const {
		c.block += PARTIALS;
		if (!exists(c.block)) c.rank++, c.block = warp;
	}

	__device__ __forceinline__ void load(uint4 (&to)[BLOCK_STEPS], const Cursor &c) const {
		if (c.rank >= used) return;
		const uint4 *const tile = o.w + ((size_t)ranks.expert[c.rank] * (o.hidden / 16) + blockIdx.x) * steps * 32 + lane;
#pragma unroll
		for (int s = 0; s < BLOCK_STEPS; s++) {
			const int step = c.block * BLOCK_STEPS + s;
			to[s] = step < steps ? load_weights(tile + step * 32) : uint4{0, 0, 0, 0};
		}
	}

	// round copies this warp's columns of all rows of In to shared memory, rounded; a lane has two of a K block. to has them.
	template <class To> __device__ __forceinline__ void round(const To &to, uint32_t *rows) const {
		constexpr int TOGETHER = To::TOGETHER; // rows
		const int cols = o.in.cols;
		for (int at = warp * K_BLOCK + lane * 2; at < cols; at += PARTIALS * K_BLOCK)
			for (int first = 0; first < used; first += TOGETHER)
				take_pairs<D, TOGETHER>(to, rows, o.in.x, cols, at, first, used);
		__syncwarp();
	}

	// run leaves the partial sums of all experts in shared memory: float [used][16 warps][16].
	__device__ __forceinline__ void run(const uint2 *rows, float *partials) {
		float sum[4] = {0, 0, 0, 0};
		Cursor now = first();
		while (now.rank < used) {
#pragma unroll
			for (int i = 0; i < AHEAD; i++) {
				if (now.rank >= used) break;
#pragma unroll
				for (int s = 0; s < BLOCK_STEPS; s++) {
					const int step = now.block * BLOCK_STEPS + s;
					uint2 b = {0, 0};
					if (lane < 4 && step < steps)
						b = rows[(now.rank * steps + step) * 4 + lane];
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
};

template <class D, class To> __device__ __forceinline__ void expert_down_one(const ExpertDownArgs &a, const To &to) {
	extern __shared__ uint2 downShared[]; // rows of In, rounded, then partial sums
	float *const partials = reinterpret_cast<float *>(downShared + a.used * (a.in.cols / 4));
	const Ranks &ranks = to.begin(a);
	DownResult<To> result(a, to, ranks.in.n);
	if (ranks.in.n == 0) return result.skip();
	ExpertDownOne<D> one(a, ranks);
	to.wait();
	result.after_wait();
	one.round(result.to, reinterpret_cast<uint32_t *>(downShared));
	one.run(downShared, partials);
	float *const mine = partials + result.rank * PARTIALS * 16 + result.row;
	result.template finish<0>(result.exists ? sum_in_order(mine, 16) : 0, partials, PARTIALS * 16);
}
// expert_down_one_spread sends the results to all ranks.
template <class D> __device__ __forceinline__ void expert_down_one_spread(const SpreadArgs<ExpertDown> &a) {
	spread(a, [&] { expert_down_one<D>(a.op, AddOnRanks(a)); });
}
#define REEL_EXPERT_DOWN_ONE(format, D)                                                                               \
	REEL_OP_KERNEL(reel_expert_down_##format##_one, ExpertDown, FEW_ROWS_THREADS, 1, (expert_down_one<D>(a, AddToX(a)))) \
	REEL_KERNEL(reel_expert_down_##format##_one_spread, FEW_ROWS_THREADS, 1, (expert_down_one_spread<D>(a)),             \
	            const __grid_constant__ SpreadArgs<ExpertDown> a)
REEL_EXPERT_DOWN_ONE(bf16, BF16)
REEL_EXPERT_DOWN_ONE(f16, F16)

// expert_down_codes_one is the same over quantised weights, of at most 8 experts. A warp has one partial sum
// (codes_multiply.cuh) of every few experts, and only as many partial sums have warps as there are bricks.
template <class F, class To> __device__ __forceinline__ void expert_down_codes_one(const ExpertDownArgs &a, const To &to) {
	constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0, PART = 16, RANK = CODE_PARTS * PART;
	__shared__ float partials[TOKEN_TILE * RANK], squares[TOKEN_TILE][PARTIALS]; // squares: of rows with norms, not here
	extern __shared__ uint4 roundedRows[];
	const Ranks &ranks = to.begin(a);
	if (ranks.in.n == 0) return DownResult<To>(a, to, false).skip();
	const int bricks = F::bricks(a.in.cols), parts = min(CODE_PARTS, bricks), apart = CODES_WARPS / parts;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % parts, first = warp / parts;
	const auto tile = [&](int rank) {
		return rank >= a.used || first >= apart ? nullptr : reinterpret_cast<const char *>(a.w) +
			((size_t)ranks.expert[rank] * (a.hidden / 16) + blockIdx.x) * bricks * F::BYTES;
	};
	typename ExpertStream<ExpertDown, F, 1>::Type stream(a.in.cols, part);
	const char *from = tile(first);
	if (from) stream.begin({from});
	to.wait();
	const Activations in = {a.in.x, nullptr, nullptr, a.in.cols, a.used, 0};
	const SharedRows<false, SUMS, CODES_WARPS, SUMS ? 2 : 4, SUMS ? 1 : 2, SUMS ? 2 : 4> rounder = {
		in, reinterpret_cast<char *>(roundedRows), squares, a.used};
	to.round(rounder, a.used);
	__syncthreads();
	const Rows rows = rounder.rows(a.used);
	for (int rank = first; from; rank += apart) {
		const char *const following = tile(rank + apart);
		float sum[1][1][4];
		stream.run(sum, {from}, {following}, rows);
		if (lane % 4 == rank / 2) { // this lane has the results of row `rank`
			float *const p = partials + rank * RANK + part * PART + lane / 4;
			p[0] = rank % 2 ? sum[0][0][1] : sum[0][0][0];
			p[8] = (rank % 2 ? sum[0][0][3] : sum[0][0][2]) * (1.f / F::Code::LOWER);
		}
		from = following;
	}
	__syncthreads();
	DownResult<To> result(a, to, true); // now: there were no registers before
	result.after_wait();
	const float *const mine = partials + result.rank * RANK + result.row;
	result.template finish<0>(
		result.exists ? __fmul_rn(Sums<F>::RESTORE, sum_of_first(mine, PART, parts)) : 0, partials, RANK);
}
template <class F> __device__ __forceinline__ void expert_down_codes_one_spread(const SpreadArgs<ExpertDown> &a) {
	spread(a, [&] { expert_down_codes_one<F>(a.op, AddOnRanks(a)); });
}
#define REEL_EXPERT_DOWN_CODES(format, F)                                                                          \
	REEL_OP_KERNEL(reel_expert_down_##format##_one, ExpertDown, CODES_WARPS * 32, 1,                               \
	               (expert_down_codes_one<F>(a, AddToX(a))))                                                       \
	REEL_KERNEL(reel_expert_down_##format##_one_spread, CODES_WARPS * 32, 1, (expert_down_codes_one_spread<F>(a)), \
	            const __grid_constant__ SpreadArgs<ExpertDown> a)
REEL_FORMATS(REEL_EXPERT_DOWN_CODES)

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// expert_down_ring_one is the same on Hopper, of up to 8 experts. A producer thread copies the row tile of each expert to
// a ring as soon as the choice is known, before the gates are. Eight warps have a partial sum each, so experts have at
// least eight bricks (expertDownRing in experts_ring.go).
template <class F> struct ExpertDownRing {
	static constexpr int WARPS = 8, CONSUMERS = WARPS * 32, THREADS = CONSUMERS + 32;
	static constexpr int SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	using Ring = TileRing<F>;
	static constexpr int BLOCKS = F::Code::BITS == 6 ? 1 : 2; // on an SM that have registers

	struct Shared {
		float partials[TOKEN_TILE][CODE_PARTS][16], weighted[TOKEN_TILE][16];
		float squares[TOKEN_TILE][PARTIALS]; // of rows with norms, not here
		typename Ring::Barriers barriers;
	};
	const ExpertDownArgs &a;
	Shared &shared;
	const Ring ring; // then come rounded rows
	const int parts;

	__device__ __forceinline__ ExpertDownRing(const CodesArgs<ExpertDown> &args, Shared &shared, char *ring)
		: a(args.op), shared(shared), ring{shared.barriers, ring, args.stages, F::bricks(a.in.cols)},
		  parts(min(CODE_PARTS, this->ring.bricks)) {}

	template <class To> __device__ __forceinline__ void produce(const To &to) const {
		typename Ring::Place p = {0, 0};
		for (int rank = 0; rank < a.used; rank++) {
			const char *const tile = reinterpret_cast<const char *>(a.w) +
				((size_t)to.expert(a.chosen, rank) * (a.hidden / 16) + blockIdx.x) * ring.bricks * F::BYTES;
			const char *const from[1] = {tile};
			ring.fill(p, from);
		}
	}
	template <class To> __device__ __forceinline__ void consume(const To &to) {
		DownResult<To> result(a, to, true);
		to.wait();
		result.after_wait();
		multiply(to);
		float y = 0;
		if (result.exists)
			y = __fmul_rn(Sums<F>::RESTORE, sum_of_first(&shared.partials[result.rank][0][result.row], 16, parts));
		result.template finish<CONSUMERS>(y, shared.weighted[0], 16);
	}
	// multiply leaves the partial sums of all experts in shared memory.
	template <class To> __device__ __forceinline__ void multiply(const To &to) {
		const int lane = threadIdx.x % 32, slices = ring.slices();
		const Activations in = {a.in.x, nullptr, nullptr, a.in.cols, a.used, 0};
		const SharedRows<false, SUMS, WARPS, 4, 2, 4> rounder = {
			in, ring.ring + ring.stages * ring.stage_bytes(), shared.squares, a.used};
		to.round(rounder, a.used);
		named_barrier_sync<CONSUMERS>(1);
		const Rows rows = rounder.rows(a.used);
		typename Ring::Place p = {0, 0};
		for (int job = threadIdx.x / 32, rank = 0; job < a.used * parts; job += WARPS) {
			p.move((job / parts - rank) * slices, ring.stages);
			rank = job / parts;
			float sum[1][1][4] = {};
			ring.multiply(sum, p, 1, job % parts, rows);
			if (lane % 4 != rank / 2) continue; // another lane has the results of row `rank`
			float *const mine = shared.partials[rank][job % parts] + lane / 4;
			mine[0] = rank % 2 ? sum[0][0][1] : sum[0][0][0];
			mine[8] = (rank % 2 ? sum[0][0][3] : sum[0][0][2]) * (1.f / F::Code::LOWER);
		}
		named_barrier_sync<CONSUMERS>(1);
	}
};

template <class F, class To>
__device__ __forceinline__ void expert_down_ring_one(const CodesArgs<ExpertDown> &args, const To &to) {
	using Block = ExpertDownRing<F>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	Block b(args, shared, reinterpret_cast<char *>(roundedRows));
	if (!to.finds(b.a)) return DownResult<To>(b.a, to, false).skip();
	if (threadIdx.x == Block::CONSUMERS) b.ring.start(b.parts);
	__syncthreads();
	if (threadIdx.x < Block::CONSUMERS) return b.consume(to);
	if (elect_one()) b.produce(to);
	to.wait();
}
template <class F> __device__ __forceinline__ void expert_down_ring_one_spread(const SpreadCodesArgs<ExpertDown> &a) {
	spread(a, [&] { expert_down_ring_one<F>(a.op, AddOnRanks(a)); });
}
#define REEL_EXPERT_DOWN_RING(format, F)                                                                      \
	REEL_KERNEL(reel_expert_down_##format##_ring_one, (ExpertDownRing<F>::THREADS), (ExpertDownRing<F>::BLOCKS),  \
	            (expert_down_ring_one<F>(a, AddToX(a.op))), const __grid_constant__ CodesArgs<ExpertDown> a)           \
	REEL_KERNEL(reel_expert_down_##format##_ring_one_spread, (ExpertDownRing<F>::THREADS), (ExpertDownRing<F>::BLOCKS), \
	            (expert_down_ring_one_spread<F>(a)), const __grid_constant__ SpreadCodesArgs<ExpertDown> a)
REEL_FORMATS(REEL_EXPERT_DOWN_RING)
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The experts of one row that pass tagged values on (taggedGates, taggedDowns and taggedDownRings of experts_tagged.go):
// over bfloat16, over usual formats with bricks of more than 64 columns, whose gates have a ring and down projections
// none, and over MXFP4, with rings.
struct ExpertGateUpTagged : ExpertGateUpOne {
	__device__ __forceinline__ ExpertGateUpTagged(const Args &o) : ExpertGateUpOne{{o}, TaggedRanks::memory(), o.inner / 16} {}
	template <int> static __device__ __forceinline__ ExpertGateUpTagged of(const Args &o, int) { return o; }
	static __device__ __forceinline__ RowTile tile_of(const Args &o, int, int unit, int r) {
		return ExpertGateUpTagged(o).row_tile(unit, r);
	}
	static __device__ __forceinline__ int segments(const Args &) { return 1; }
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	// prefetch brings the biases of a unit to L2.
	__device__ __forceinline__ void prefetch(int unit) const {
		if (!o.gateBias) return;
		const int at = ranks.expert[unit / tiles] * o.inner + unit % tiles * 16;
		prefetch_l2(o.gateBias + at), prefetch_l2(o.gateBias + at + 8);
		prefetch_l2(o.upBias + at), prefetch_l2(o.upBias + at + 8);
	}
};
REEL_KERNEL(reel_expert_gateup_bf16_one_tagged, FEW_ROWS_THREADS, 2, (expert_gemv_tagged<ExpertGateUpTagged, BF16, 4>(a)),
            const __grid_constant__ TaggedGatesArgs<ExpertGateUpArgs> a)
using RankGatesArgs = TaggedGatesArgs<ExpertGateUpArgs, RankTags>;
using RankDownArgs = TaggedDownArgs<ExpertDownArgs, RankTags>;
REEL_KERNEL(reel_expert_gateup_bf16_one_tagged_ranks, FEW_ROWS_THREADS, 2,
            (expert_gemv_tagged<ExpertGateUpTagged, BF16, 4>(a)),
            const __grid_constant__ RankGatesArgs a)
template <class T> __device__ __forceinline__ void expert_down_one_tagged(const TaggedDownArgs<ExpertDownArgs, T> &a) {
	expert_down_one<BF16>(a.op, AddTagged<T>(a));
	end_tagged();
}
template <class F> __device__ __forceinline__ void expert_down_codes_one_tagged(const TaggedDownArgs<ExpertDownArgs> &a) {
	expert_down_codes_one<F>(a.op, AddTagged<>(a));
	end_tagged();
}
REEL_KERNEL(reel_expert_down_bf16_one_tagged, FEW_ROWS_THREADS, 1, (expert_down_one_tagged(a)),
            const __grid_constant__ TaggedDownArgs<ExpertDownArgs> a)
REEL_KERNEL(reel_expert_down_bf16_one_tagged_ranks, FEW_ROWS_THREADS, 1, (expert_down_one_tagged(a)),
            const __grid_constant__ RankDownArgs a)
#define REEL_EXPERT_GATES_TAGGED(format, F)                                                                \
	REEL_KERNEL(reel_expert_gateup_##format##_one_tagged, (ExpertRing<ExpertGateUpTagged, F>::THREADS), 1, \
	            (expert_ring_tagged<ExpertGateUpTagged, F>(a)),                                            \
	            const __grid_constant__ TaggedGatesArgs<CodesArgs<ExpertGateUpTagged>> a)
REEL_EXPERT_GATES_TAGGED(q4_k, Q4_K)
REEL_EXPERT_GATES_TAGGED(q5_k, Q5_K)
REEL_EXPERT_GATES_TAGGED(f8, F8)
REEL_EXPERT_GATES_TAGGED(g4_128, G4_128)
REEL_EXPERT_GATES_TAGGED(mxfp4, MXFP4)
#define REEL_EXPERT_DOWN_TAGGED(format, F)                                                                         \
	REEL_KERNEL(reel_expert_down_##format##_one_tagged, CODES_WARPS * 32, 1, (expert_down_codes_one_tagged<F>(a)), \
	            const __grid_constant__ TaggedDownArgs<ExpertDownArgs> a)
REEL_USUAL_FORMATS_OF_MORE(REEL_EXPERT_DOWN_TAGGED)
template <class F>
__device__ __forceinline__ void expert_down_ring_one_tagged(const TaggedDownArgs<CodesArgs<ExpertDown>> &a) {
	expert_down_ring_one<F>(a.op, AddTagged<>(a));
	end_tagged();
}
REEL_KERNEL(reel_expert_down_mxfp4_ring_one_tagged, (ExpertDownRing<MXFP4>::THREADS), (ExpertDownRing<MXFP4>::BLOCKS),
            (expert_down_ring_one_tagged<MXFP4>(a)), const __grid_constant__ TaggedDownArgs<CodesArgs<ExpertDown>> a)
#endif

struct ExpertSumArgs {
	const float *results; // [T][used][cols]
	const int32_t *rows;  // [T], or null; -1: the row is left as it is
	float *x;             // in and out: [T][cols]
	int32_t cols, used;
	int32_t stores, unused; // stores: x holds nothing before
};

// expert_sum returns Σ_k results[t][k] in the order of k, of V columns from `column` on.
template <class T> __device__ __forceinline__ T expert_sum(const ExpertSumArgs &a, int t, int column) {
	const float *const from = a.results + (size_t)t * a.used * a.cols + column;
	T sum = *reinterpret_cast<const T *>(from);
	for (int k = 1; k < a.used; k++) sum = add(sum, *reinterpret_cast<const T *>(from + (size_t)k * a.cols));
	return sum;
}

// X[t] += the sum of a row's experts. A thread adds four columns of row blockIdx.y.
extern "C" __global__ void reel_expert_sum(const __grid_constant__ ExpertSumArgs a) {
	pdl_begin();
	const int t = blockIdx.y, column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
	if (column >= a.cols) return;
	const bool padding = a.rows && a.rows[t] < 0;
	if (padding && !a.stores) return;
	const float4 sum = padding ? float4{} : expert_sum<float4>(a, t, column);
	float4 *const x = reinterpret_cast<float4 *>(a.x + (size_t)t * a.cols + column);
	*x = a.stores ? add(float4{}, sum) : add(*x, sum);
}

struct ExpertSumSpreadArgs {
	ExpertSumArgs sum; // of this rank's columns
	Spread to;
};

// The same for the residual streams of all ranks.
extern "C" __global__ void __launch_bounds__(512) reel_expert_sum_spread(const __grid_constant__ ExpertSumSpreadArgs a) {
	exchange_packets(a.to, [&](int row, int column) {
		if (a.sum.rows && a.sum.rows[row] < 0) return float2{};
		return expert_sum<float2>(a.sum, row, column - a.to.start(a.to.packets.rank));
	});
}
