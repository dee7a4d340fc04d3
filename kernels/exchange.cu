#include <cstdint>

#include "ptx/packets.cuh"
#include "ptx/pdl.cuh"
#include "ptx/peers.cuh"

constexpr int EXCHANGE_THREADS = 512;
constexpr int EXCHANGE_RANKS = MOST_RANKS;
constexpr int EXCHANGE_BLOCKS = 64; // at most

struct ExchangeArgs {
	const float *part;               // [rows][part_cols]
	float *x;                        // in and out: [rows][width], or null
	const float *bias;               // [width], or null
	float *all[EXCHANGE_RANKS];      // out: [rows][width] of each rank
	uint32_t *flags[EXCHANGE_RANKS]; // [ranks][EXCHANGE_BLOCKS] of each rank
	uint32_t *epochs;                // [EXCHANGE_BLOCKS]
	uint32_t *progress;              // [ranks][PROGRESS_WORDS], pinned
	int32_t rows, width, part_cols, ranks, rank;
	int32_t stride; // floats between two rows of part
};

// The columns that a rank gives to all, in units of V, and where its part begins.
template <int V> struct ExchangeColumns {
	int begin, count, start;

	__device__ __forceinline__ ExchangeColumns(const ExchangeArgs &a, int rank)
		: begin(min(rank * a.part_cols, a.width)), count((min((rank + 1) * a.part_cols, a.width) - begin) / V),
		  start(min(rank * a.part_cols, a.width - a.part_cols)) {}
};

__device__ __forceinline__ float plus(float x, float y) { return __fadd_rn(x, y); }
__device__ __forceinline__ float4 plus(const float4 &x, const float4 &y) {
	return {__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y), __fadd_rn(x.z, y.z), __fadd_rn(x.w, y.w)};
}

// exchange_flags tells all ranks that a block has written its part of an exchange, and returns when the same block of
// each of them has written its part here.
__device__ __forceinline__ void exchange_flags(uint32_t *const (&flags)[EXCHANGE_RANKS], uint32_t *epochs,
	uint32_t *progress, int ranks, int rank, uint32_t epoch) {
	__syncthreads();
	if (const int peer = threadIdx.x; peer < ranks && peer != rank) {
		raise_flag(flags[peer] + rank * EXCHANGE_BLOCKS + blockIdx.x, epoch);
		await_flag(flags[rank] + peer * EXCHANGE_BLOCKS + blockIdx.x, epoch);
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		epochs[blockIdx.x] = epoch;
		if (blockIdx.x == 0 && epoch % PROGRESS_EVERY == 0)
			*reinterpret_cast<volatile uint32_t *>(progress + rank * PROGRESS_WORDS) = epoch;
	}
}

// exchange: All[t] of every rank is the columns that each has in Part[t]; then X[t] = (X[t] + bias) + All[t]. A block
// writes its elements of the part into the memory of all ranks, raises its flag there, and waits for the same block of
// the others, which has written the same elements of theirs. T is V floats.
template <typename T, int V> __device__ __forceinline__ void exchange_columns(const ExchangeArgs &a) {
	pdl_begin();
	const uint32_t epoch = a.epochs[blockIdx.x] + 1;
	const int first = blockIdx.x * EXCHANGE_THREADS + threadIdx.x, step = gridDim.x * EXCHANGE_THREADS;
	const ExchangeColumns<V> own(a, a.rank);
	for (int i = first; i < a.rows * own.count; i += step) {
		const int row = i / own.count, column = own.begin + i % own.count * V;
		const T v = *reinterpret_cast<const T *>(a.part + (size_t)row * a.stride + column - own.start);
		for (int peer = 0; peer < a.ranks; peer++)
			*reinterpret_cast<T *>(a.all[peer] + (size_t)row * a.width + column) = v;
	}
	exchange_flags(a.flags, a.epochs, a.progress, a.ranks, a.rank, epoch);
	if (!a.x) return;
	for (int rank = 0; rank < a.ranks; rank++) {
		const ExchangeColumns<V> of(a, rank);
		for (int i = first; i < a.rows * of.count; i += step) {
			const int column = of.begin + i % of.count * V;
			const size_t at = (size_t)(i / of.count) * a.width + column;
			T *const x = reinterpret_cast<T *>(a.x + at);
			T old = *x;
			if (a.bias) old = plus(old, *reinterpret_cast<const T *>(a.bias + column));
			*x = plus(old, __ldcv(reinterpret_cast<const T *>(a.all[a.rank] + at)));
		}
	}
}

extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS) reel_exchange(const __grid_constant__ ExchangeArgs a) {
	exchange_columns<float4, 4>(a);
}

// The same for columns that are no multiple of 4.
extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS) reel_exchange1(const __grid_constant__ ExchangeArgs a) {
	exchange_columns<float, 1>(a);
}

struct ExchangePacketsArgs {
	const float *part; // [rows][part_cols]
	Spread to;
	int32_t stride, unused; // floats between two rows of part
};

// The same for few elements, in packets: nothing waits for a fence.
extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS) reel_exchange_packets(
	const __grid_constant__ ExchangePacketsArgs a) {
	exchange_packets(a.to, [&](int row, int column) {
		return *reinterpret_cast<const float2 *>(a.part + (size_t)row * a.stride + column - a.to.start(a.to.packets.rank));
	});
}

// RoundedParts is where each rank's part of rounded rows lies (gemm/rounded.cuh): that of rank r are the bytes from
// r*rows on, and its sums of squares those from squares_at + r*squares on. All are multiples of 16 bytes.
struct RoundedParts {
	int32_t rows, squares, squares_at, unused;

	__device__ __forceinline__ size_t place(int rank, int byte) const {
		return byte < rows ? (size_t)rank * rows + byte : (size_t)squares_at + (size_t)rank * squares + byte - rows;
	}
};

struct ExchangeRoundedArgs {
	char *rounded[EXCHANGE_RANKS];   // in and out: of each rank
	uint32_t *flags[EXCHANGE_RANKS]; // as in ExchangeArgs
	uint32_t *epochs, *progress;
	RoundedParts parts;
	int32_t ranks, rank;
};

// exchange of rounded rows: every rank gets the parts of all, at the places where each has its own.
extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS) reel_exchange_rounded(
	const __grid_constant__ ExchangeRoundedArgs a) {
	pdl_begin();
	const uint32_t epoch = a.epochs[blockIdx.x] + 1;
	const int chunks = (a.parts.rows + a.parts.squares) / 16;
#pragma unroll 4
	for (int i = blockIdx.x * EXCHANGE_THREADS + threadIdx.x; i < chunks; i += gridDim.x * EXCHANGE_THREADS) {
		const size_t at = a.parts.place(a.rank, i * 16);
		const uint4 v = *reinterpret_cast<const uint4 *>(a.rounded[a.rank] + at);
		for (int peer = 0; peer < a.ranks; peer++)
			if (peer != a.rank) *reinterpret_cast<uint4 *>(a.rounded[peer] + at) = v;
	}
	exchange_flags(a.flags, a.epochs, a.progress, a.ranks, a.rank, epoch);
}

struct RoundedPacketsArgs {
	char *rounded; // in and out
	Packets packets;
	RoundedParts parts;
	int32_t first, pairs; // of a part's pairs of words, those to exchange
};

// The same in packets.
extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS) reel_exchange_rounded_packets(
	const __grid_constant__ RoundedPacketsArgs a) {
	pdl_begin();
	const uint32_t number = a.packets.number();
	const int first = blockIdx.x * EXCHANGE_THREADS + threadIdx.x, step = gridDim.x * EXCHANGE_THREADS;
	const auto pair = [&](int rank, int i) {
		return reinterpret_cast<float2 *>(a.rounded + a.parts.place(rank, (a.first + i) * 8));
	};
	for (int i = first; i < a.pairs; i += step)
		a.packets.send(number, (a.packets.rank * a.pairs + i) * 2, *pair(a.packets.rank, i));
	__syncthreads(); // all threads know the number
	if (blockIdx.x > 0 && threadIdx.x == 0) a.packets.begun();
	const auto other = [&](int k) { return k < a.packets.rank * a.pairs ? k : k + a.pairs; }; // without this rank's
	a.packets.receive<4>(number, first, step, (a.packets.ranks - 1) * a.pairs, [&](int k) { return other(k) * 2; },
		[&](int k, float2 v) { *pair(other(k) / a.pairs, other(k) % a.pairs) = v; });
	if (blockIdx.x > 0) return;
	if (threadIdx.x == 0) a.packets.await_begun(gridDim.x - 1);
	__syncthreads();
	if (threadIdx.x == 0) a.packets.end(number);
}
