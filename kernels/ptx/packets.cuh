// Packets between GPUs of one machine: a word of data and the number of its exchange in 8 bytes, which are written at
// once. Whoever sees the number has the word, so no flag and no fence follows the data, as in NCCL's protocol LL.
#pragma once
#include <cstdint>

#include "ptx/pdl.cuh"
#include "ptx/peers.cuh"

constexpr int PACKETS = 1 << 19;   // of an exchange, at most
constexpr int PROGRESS_WORDS = 16; // of each rank
constexpr int PROGRESS_EVERY = 16; // exchanges: a write to the host's memory is slow

// Packets are the inboxes of all ranks. Two halves take turns: a rank that sends for the second exchange after one has
// what all others sent for the first, and they sent that after they had read what was sent for the one.
struct Packets {
	uint64_t *inbox[MOST_RANKS]; // [2][PACKETS] of each rank
	uint32_t *count;             // [2]: exchanges by packets so far, and blocks of this one that have begun it
	uint32_t *progress;          // [ranks][PROGRESS_WORDS], pinned
	int32_t ranks, rank;
	int32_t ahead, unused; // exchanges that are not counted yet: this kernel takes what the one before has sent

	__device__ __forceinline__ uint32_t number() const { return *reinterpret_cast<volatile uint32_t *>(count) + 1 + ahead; }
	static __device__ __forceinline__ size_t place(uint32_t number, int i) { return number % 2 * PACKETS + i; }

	// send gives all others word i of an exchange.
	__device__ __forceinline__ void send(uint32_t number, int i, float v) const {
		const uint64_t packet = (uint64_t)number << 32 | __float_as_uint(v);
		for (int peer = 0; peer < ranks; peer++)
			if (peer != rank)
				asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(inbox[peer] + place(number, i)), "l"(packet)
							 : "memory");
	}
	// send gives all others words i and i+1; i is even.
	__device__ __forceinline__ void send(uint32_t number, int i, float2 v) const {
		const uint64_t x = (uint64_t)number << 32 | __float_as_uint(v.x), y = (uint64_t)number << 32 | __float_as_uint(v.y);
		for (int peer = 0; peer < ranks; peer++)
			if (peer != rank)
				asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(inbox[peer] + place(number, i)), "l"(x),
					"l"(y)
					: "memory");
	}
	static __device__ __forceinline__ ulonglong2 look(const uint64_t *at) {
		ulonglong2 v;
		asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(at) : "memory");
		return v;
	}
	// receive passes n pairs of words to take(k, pair): pair k, of first, first+step, …, consists of words at(k) and
	// at(k)+1. N of them are looked at together.
	template <int N, class At, class Take>
	__device__ __forceinline__ void receive(uint32_t number, int first, int step, int n, At at, Take take) const {
		for (int k = first; k < n; k += N * step) {
			ulonglong2 v[N];
#pragma unroll
			for (int i = 0; i < N; i++)
				if (k + i * step < n) v[i] = look(inbox[rank] + place(number, at(k + i * step)));
#pragma unroll
			for (int i = 0; i < N; i++) {
				if (k + i * step >= n) continue;
				while ((uint32_t)(v[i].x >> 32) != number || (uint32_t)(v[i].y >> 32) != number)
					v[i] = look(inbox[rank] + place(number, at(k + i * step)));
				take(k + i * step, float2{__uint_as_float((uint32_t)v[i].x), __uint_as_float((uint32_t)v[i].y)});
			}
		}
	}

	// pairs loads N pairs of words of the row x, those at `at`, at+apart, …: columns `own` to after-1 from memory, others
	// from packets of an exchange, in which x begins at word `first`. The row has n columns; missing pairs stay as they are.
	template <int N> __device__ __forceinline__ void pairs(float2 (&v)[N], uint32_t number, const float *x, int own,
		int after, int first, int at, int apart, int n) const {
		ulonglong2 seen[N];
#pragma unroll
		for (int i = 0; i < N; i++) {
			const int column = at + i * apart;
			if (column >= n) continue;
			if (column >= own && column < after)
				v[i] = *reinterpret_cast<const float2 *>(x + column);
			else
				seen[i] = look(inbox[rank] + place(number, first + column));
		}
#pragma unroll
		for (int i = 0; i < N; i++) {
			const int column = at + i * apart;
			if (column >= n || column >= own && column < after) continue;
			while ((uint32_t)(seen[i].x >> 32) != number || (uint32_t)(seen[i].y >> 32) != number)
				seen[i] = look(inbox[rank] + place(number, first + column));
			v[i] = {__uint_as_float((uint32_t)seen[i].x), __uint_as_float((uint32_t)seen[i].y)};
		}
	}

	// begun counts a block that knows the number. One thread calls it.
	__device__ __forceinline__ void begun() const {
		asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count + 1) : "memory");
	}
	// await_begun returns when so many blocks have begun the exchange.
	__device__ __forceinline__ void await_begun(uint32_t blocks) const {
		uint32_t seen;
		do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count + 1) : "memory");
		while (seen != blocks);
	}
	// end ends the exchange, which all blocks have begun. One thread calls it.
	__device__ __forceinline__ void end(uint32_t number) const {
		count[1] = 0, count[0] = number;
		if (number % PROGRESS_EVERY <= ahead)
			*reinterpret_cast<volatile uint32_t *>(progress + rank * PROGRESS_WORDS + 1) = number;
	}
};

// Spread is where the columns of all ranks go: All[t], or X[t] = (X[t] + Bias) + them. Each rank has part_cols columns
// of `width`; those that several have come from the first of them.
struct Spread {
	Packets packets;
	float *all;        // out: [rows][width], or null if there is x
	float *x;          // in and out: [rows][width], or null
	const float *bias; // [width], or null
	int32_t rows, width, part_cols;
	int32_t taken; // the next kernel takes the packets, and nobody stores them

	__device__ __forceinline__ int begin(int rank) const { return min(rank * part_cols, width); }
	__device__ __forceinline__ int start(int rank) const { return min(rank * part_cols, width - part_cols); }

	// receive_all is receive in the block-th of `blocks` blocks, which do nothing else. The last warp of the first one waits
	// meanwhile until all others of the grid have begun the exchange, and ends it.
	template <int N> __device__ __forceinline__ void receive_all(int block, int blocks, uint32_t grid) const {
		const uint32_t number = packets.number();
		const int threads = blockDim.x - 32, waiting = threadIdx.x == threads;
		__syncthreads(); // all threads know the number
		if (waiting && block > 0) packets.begun();
		if (waiting && block == 0) packets.await_begun(grid - 1);
		if (threadIdx.x < threads) receive<N>(number, block * threads + threadIdx.x, blocks * threads);
		if (block > 0) return;
		__syncthreads();
		if (waiting) packets.end(number);
	}
	// receive stores what others have sent, with `threads` threads of which this is one. Part sizes are even.
	template <int N> __device__ __forceinline__ void receive(uint32_t number, int thread, int threads) const {
		const int own = begin(packets.rank), after = begin(packets.rank + 1), pairs = (width - (after - own)) / 2;
		const auto at = [&](int k) {
			const int row = k / pairs, column = k % pairs * 2;
			return row * width + (column < own ? column : column + (after - own));
		};
		packets.receive<N>(number, thread, threads, rows * pairs, at,
			[&](int k, float2 v) { *reinterpret_cast<float2 *>((x ? x : all) + at(k)) = v; });
	}
};

// exchange_packets gives all ranks value(row, column), the values of two columns of this one's part, in a kernel of its
// own. All blocks must run at the same time.
template <class Value> __device__ __forceinline__ void exchange_packets(const Spread &to, Value value) {
	pdl_begin();
	const uint32_t number = to.packets.number();
	const int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
	const int begin = to.begin(to.packets.rank), pairs = (to.begin(to.packets.rank + 1) - begin) / 2;
	for (int i = first; i < to.rows * pairs; i += step) {
		const int row = i / pairs, column = begin + i % pairs * 2;
		const size_t at = (size_t)row * to.width + column;
		float2 v = value(row, column);
		if (to.x) {
			const float2 old = *reinterpret_cast<const float2 *>(to.x + at);
			const float2 bias = to.bias ? *reinterpret_cast<const float2 *>(to.bias + column) : float2{};
			v.x = __fadd_rn(to.bias ? __fadd_rn(old.x, bias.x) : old.x, v.x);
			v.y = __fadd_rn(to.bias ? __fadd_rn(old.y, bias.y) : old.y, v.y);
		}
		to.packets.send(number, at, v);
		*reinterpret_cast<float2 *>((to.x ? to.x : to.all) + at) = v;
	}
	__syncthreads(); // all threads know the number
	if (blockIdx.x > 0 && threadIdx.x == 0) to.packets.begun();
	to.receive<4>(number, first, step);
	if (blockIdx.x > 0) return;
	if (threadIdx.x == 0) to.packets.await_begun(gridDim.x - 1);
	__syncthreads();
	if (threadIdx.x == 0) to.packets.end(number);
}
