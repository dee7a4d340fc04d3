// Prefill attention of many rows on Hopper (attend_prefill.cu): a block has 128 entries, 64 for each of two
// warpgroups, which share the keys and values that a third one copies. A warpgroup computes the scores of two blocks of
// keys with one instruction for each 16 elements, as one of 64 keys whose queries are in registers takes as long. Its
// tensor cores add the values of a block, and compute the next two blocks' scores, while it computes weights, and the
// other warpgroup's work beside (Shah et al., "FlashAttention-3", 2024). Each row's operations, and so its bits, are
// those of Prefill.
#pragma once
#include "attention/prefill_block.cuh"
#include "ptx/pdl.cuh"
#include "ptx/warp.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int DIM> struct PrefillLong : Prefill<DIM, true, false, AttendPlain> {
	using Base = Prefill<DIM, true, false, AttendPlain>;
	using Base::a, Base::tile, Base::run, Base::stages, Base::last, Base::position, Base::weight, Base::allMost,
		Base::allWeight, Base::o, Base::q;
	static constexpr int ENTRIES = 128, CONSUMERS = 256, COPIERS = 32 * PREFILL_WARPS, THREADS = CONSUMERS + COPIERS;
	// Two blocks of keys are a stage of keys, a block of values is one of values. LAG blocks are being copied at least.
	static constexpr int KEY_STAGES = 2, VALUE_STAGES = 6, LAG = 2, RUNS = DIM / 64, PAIRS = 2 * Base::VALUE_STEPS;
	static constexpr int BLOCK_BYTES = PREFILL_KEYS * DIM * 2, ROW_BYTES = 128; // of a run of 64 elements
	// Shared memory: stages of keys, bytes [run][128 positions][128], and of values, [run][64 positions][128], the sums of
	// earlier splits, float2 [pair][half][consumer], and barriers.
	static constexpr int VALUES_AT = KEY_STAGES * 2 * BLOCK_BYTES, KEPT = VALUES_AT + VALUE_STAGES * BLOCK_BYTES;
	static constexpr int BARRIERS = KEPT + PAIRS * 2 * CONSUMERS * 8, BYTES = BARRIERS + (KEY_STAGES + VALUE_STAGES) * 16;
	static_assert(BYTES <= 227 * 1024);

	const uint32_t shared;

	__device__ __forceinline__ PrefillLong(const AttendArgs &a, const AttendPlain &plain, const PrefillTile &tile, uint4 *stages)
		: Base(a, plain, tile, stages), shared(shared_address(stages)) {}

	// Ring is a position in a ring of SIZE stages, whose barriers begin with number FIRST, and their phase.
	template <int SIZE, int FIRST> struct Ring {
		int at = 0, phase = 0;
		__device__ __forceinline__ void next() {
			if (++at == SIZE) at = 0, phase ^= 1;
		}
		__device__ __forceinline__ uint32_t full(uint32_t shared) const { return shared + BARRIERS + (FIRST + at) * 16; }
		__device__ __forceinline__ uint32_t empty(uint32_t shared) const { return full(shared) + 8; }
	};
	using KeyRing = Ring<KEY_STAGES, 0>;
	using ValueRing = Ring<VALUE_STAGES, KEY_STAGES>;
	struct Rings {
		KeyRing keys;
		ValueRing values;
	};
	__device__ __forceinline__ void start_barriers() const {
		for (int s = 0; s < KEY_STAGES + VALUE_STAGES; s++) {
			mbarrier_init(shared + BARRIERS + s * 16, s < KEY_STAGES ? 2 * COPIERS : COPIERS); // two blocks of keys
			mbarrier_init(shared + BARRIERS + s * 16 + 8, CONSUMERS / 32 * WARP_ARRIVALS);
		}
		mbarrier_fence_init();
	}
	// The run's blocks of keys and values, in pairs.
	__device__ __forceinline__ int blocks() const { return (run.end + PREFILL_KEYS - 1) / PREFILL_KEYS; }

	// begin goes to the run that begins at `row`.
	__device__ __forceinline__ void begin(int row) { run = prefill_run<false, ENTRIES / 32>(a, row, tile.limit); }

	// produce copies the run's keys and values. The numbers of its first pages are being loaded already. While the last
	// copies are under way it goes to the next run and begins to load those of its pages; it returns false if there is
	// none. `taken` counts the blocks before: the first find the stages free.
	__device__ __forceinline__ bool produce(Rings &to, Rings &announced, int &taken) {
		const int n = (blocks() + 1) / 2 * 2; // the second block of a pair may be past the end: of zeros
#pragma unroll 1
		for (int i = 0; i < n; i++) {
			this->find_rows(i);
			this->load_pages(i + 1);
			if (i % 2 == 0 && taken >= 2 * KEY_STAGES) mbarrier_wait(to.keys.empty(shared), to.keys.phase ^ 1);
			if (taken >= VALUE_STAGES) mbarrier_wait(to.values.empty(shared), to.values.phase ^ 1);
			taken += taken < 2 * KEY_STAGES || taken < VALUE_STAGES;
			copy(0, to.keys.at * 2 * BLOCK_BYTES + i % 2 * PREFILL_KEYS * ROW_BYTES, 2 * PREFILL_KEYS * ROW_BYTES);
			copy(1, VALUES_AT + to.values.at * BLOCK_BYTES, PREFILL_KEYS * ROW_BYTES);
			cp_async_commit();
			if (i % 2) to.keys.next();
			to.values.next();
			if (i >= LAG) cp_async_wait<LAG>(), announce(announced, i - LAG);
		}
		const int row = run.row + run.rows;
		if (row < tile.limit) {
			begin(row);
			this->load_pages(0);
		}
		cp_async_wait<0>();
		for (int i = max(n - LAG, 0); i < n; i++) announce(announced, i);
		return row < tile.limit;
	}
	// copy starts the copies of a block's keys (which 0) or values (1) to a place in shared memory, with so many bytes
	// from run to run.
	__device__ __forceinline__ void copy(int which, int at, int apart) const {
		const int row = Base::copied(0), chunk = Base::thread() % Base::LANES;
		char *const to = reinterpret_cast<char *>(stages) + at + row * ROW_BYTES + (chunk ^ row & 7) * 16;
#pragma unroll
		for (int i = 0; i < Base::ROWS; i++)
#pragma unroll
			for (int j = 0; j < RUNS; j++)
				cp_async_zero_fill(reinterpret_cast<uint4 *>(to + i * Base::APART * ROW_BYTES + j * apart),
					this->source[i] + which * this->plane + j * Base::LANES, this->validBytes[i]);
	}
	// announce says that the copies of block i are complete.
	__device__ __forceinline__ void announce(Rings &r, int i) const {
		fence_async_shared();
		mbarrier_arrive(r.keys.full(shared));
		mbarrier_arrive(r.values.full(shared));
		if (i % 2) r.keys.next();
		r.values.next();
	}

	// mine returns how many blocks of keys this warpgroup's rows see.
	__device__ __forceinline__ int mine() const {
		const int entry = threadIdx.x / 128 * 64, first = entry * tile.inverse >> 16;
		const int end = min((entry + 63) * tile.inverse >> 16, run.rows - 1);
		int most = -1;
		for (int r = first + threadIdx.x % 32; r <= end; r += 32)
			most = max(most, a.position[min(run.row + r, tile.limit - 1)]);
		return (__reduce_max_sync(~0u, most) + PREFILL_KEYS) / PREFILL_KEYS;
	}

	// start_scores starts the scores of the two blocks of a stage.
	__device__ __forceinline__ void start_scores(float (&s)[64], const KeyRing &r) const {
		const uint32_t keys = shared + r.at * 2 * BLOCK_BYTES;
#pragma unroll
		for (int i = 0; i < 64; i++) s[i] = 0;
		wgmma_pin(s);
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < Base::STEPS; k++)
			wgmma_bf16_128<0>(s, q[k][0], q[k][1], q[k][2], q[k][3],
				wgmma_descriptor(keys + k / 4 * 2 * PREFILL_KEYS * ROW_BYTES + k % 4 * 32));
		wgmma_commit();
	}
	__device__ __forceinline__ void start_values(const uint32_t (&p)[8][2], const ValueRing &r) {
		const uint32_t values = shared + VALUES_AT + r.at * BLOCK_BYTES;
		wgmma_pin(o);
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < 4; k++) {
			const uint64_t b = wgmma_descriptor(values + k * 16 * ROW_BYTES, PREFILL_KEYS * ROW_BYTES);
			if constexpr (DIM == 128)
				wgmma_bf16_128<1>(o, p[2 * k][0], p[2 * k][1], p[2 * k + 1][0], p[2 * k + 1][1], b);
			else
				wgmma_bf16_64<1>(o, p[2 * k][0], p[2 * k][1], p[2 * k + 1][0], p[2 * k + 1][1], b);
		}
		wgmma_commit();
	}

	// Weights are a block's, rounded, and the factors of the sums before them.
	struct Weights {
		uint32_t p[8][2];
		float factor[2];
	};
	__device__ __forceinline__ bool live(int n) const { return n * PREFILL_KEYS <= last; }
	// start_weights and end_weights make weights of a block's scores, and nothing if all rows of the warp end before it.
	__device__ __forceinline__ void start_weights(Weights &w, float (&s)[32], int n) {
		w.factor[0] = w.factor[1] = 1;
		if (live(n)) this->exponentials(w.factor, s, n * PREFILL_KEYS);
	}
	__device__ __forceinline__ void end_weights(Weights &w, float (&s)[32], int n) {
		if (live(n))
			this->round_weights(w.p, s, w.factor);
		else
			this->no_weights(w.p);
	}
	// end_values waits for the values that are being added, if any, and frees their stage.
	__device__ __forceinline__ void end_values(ValueRing &r, bool any = true) {
		wgmma_wait<0>();
		wgmma_pin(o);
		mbarrier_arrive_warp_if(any, r.empty(shared));
		if (any) r.next();
	}
	__device__ __forceinline__ void wait_for_values(const ValueRing &r) const { mbarrier_wait(r.full(shared), r.phase); }

	// pair computes blocks n and n+1, whose scores are in s. The values of the block before are being added if `adding`;
	// at the end those of n+1 are, and s has the next pair's scores, if there is one.
	__device__ __forceinline__ void pair(float (&s)[64], int n, bool adding, bool more, Rings &r) {
		float(&low)[32] = reinterpret_cast<float(&)[32]>(s), (&high)[32] = reinterpret_cast<float(&)[32]>(s[32]);
		Weights w;
		start_weights(w, low, n);
		end_values(r.values, adding);
		end_weights(w, low, n);
		this->rescale(w.factor);
		wait_for_values(r.values);
		start_values(w.p, r.values);
		start_weights(w, high, n + 1);
		end_values(r.values);
		end_weights(w, high, n + 1);
		if (more) mbarrier_wait(r.keys.full(shared), r.keys.phase);
		start_scores(s, r.keys); // past the last pair: of anything, and not used
		this->rescale(w.factor);
		wait_for_values(r.values);
		start_values(w.p, r.values);
		wgmma_wait<1>();
		wgmma_pin(s);
		if (!more) return;
		mbarrier_arrive_warp(r.keys.empty(shared));
		r.keys.next();
	}

	// take returns whether this warpgroup computes a part of the run. Runs whose queries fit one warpgroup go to the two in
	// turn, so that one loads and stores while the other multiplies. The second warpgroup has entries from 64 on, so for it
	// such a run begins 64 entries earlier, with rows that it does not compute.
	__device__ __forceinline__ bool take(int &turn) {
		const int rows = PREFILL_ENTRIES / tile.group, warpgroup = threadIdx.x / 128;
		if (PREFILL_ENTRIES % tile.group || run.rows > rows) return true;
		const bool mine = turn == warpgroup;
		turn ^= 1;
		if (warpgroup) run.row -= rows, run.rows += rows;
		return mine;
	}

	// consume computes this warpgroup's part of the run, if it has one.
	__device__ __forceinline__ void consume(Rings &r, bool any) {
		const int all = (blocks() + 1) / 2 * 2;
		int n = 0;
		if (any) compute(r, n);
#pragma unroll 1
		for (; n < all; n++) { // blocks that only the other warpgroup needs
			wait_for_values(r.values);
			mbarrier_arrive_warp(r.values.empty(shared));
			r.values.next();
			if (n % 2 == 0) continue;
			mbarrier_wait(r.keys.full(shared), r.keys.phase);
			mbarrier_arrive_warp(r.keys.empty(shared));
			r.keys.next();
		}
	}
	// compute computes blocks from n on, up to the last that a row of this warpgroup sees. A split is a whole number of
	// pairs, but for the last one.
	__device__ __forceinline__ void compute(Rings &r, int &n) {
		float2 queries[Base::STEPS][4];
		this->template load_queries<true>(queries);
		const int mine = (this->mine() + 1) / 2 * 2; // while the queries come
		this->round_queries(queries);
		allMost[0] = allMost[1] = -INFINITY, allWeight[0] = allWeight[1] = 0;
		this->clear();
#pragma unroll
		for (int i = 0; i < 2 * PAIRS; i++) store_shared(kept(i % 2, i / 2), float2{});
		if (mine == 0) return;
		float s[64];
		mbarrier_wait(r.keys.full(shared), r.keys.phase);
		start_scores(s, r.keys);
		wgmma_wait<0>();
		wgmma_pin(s);
		mbarrier_arrive_warp(r.keys.empty(shared));
		r.keys.next();
#pragma unroll 1
		for (int split = 0; n < mine; split++) {
			const int begin = n, end = min(mine, prefill_first_block(split + 1));
#pragma unroll 1
			for (; n < end; n += 2) pair(s, n, n > begin, n + 2 < mine, r);
			end_values(r.values);
			end_split(split);
		}
	}

	// kept returns the place of a lane's i-th pair of the sums of earlier splits.
	__device__ __forceinline__ uint32_t kept(int half, int i) const {
		return shared + KEPT + ((i * 2 + half) * CONSUMERS + threadIdx.x) * 8;
	}
	// end_split finishes a split for the rows that reach it.
	__device__ __forceinline__ void end_split(int split) {
#pragma unroll
		for (int half = 0; half < 2; half++) {
			weight[half] = __fadd_rn(weight[half], __shfl_xor_sync(~0u, weight[half], 1));
			weight[half] = __fadd_rn(weight[half], __shfl_xor_sync(~0u, weight[half], 2));
			if (position[half] < prefill_first_block(split) * PREFILL_KEYS) continue;
			if (position[half] >= SHORT_BLOCKS * PREFILL_KEYS)
				this->add_before(half, [&](int i) { return load_shared_float2(kept(half, i)); });
			if (position[half] < prefill_first_block(split + 1) * PREFILL_KEYS) {
				this->write(half);
				continue;
			}
#pragma unroll
			for (int i = 0; i < PAIRS; i++)
				store_shared(kept(half, i), float2{o[4 * i + 2 * half], o[4 * i + 2 * half + 1]});
		}
		this->clear();
	}
};

template <int DIM> __device__ __forceinline__ void prefill_long(const AttendArgs &a) {
	using Block = PrefillLong<DIM>;
	extern __shared__ __align__(1024) uint4 prefill_shared[];
	const PrefillTile tile = prefill_tile<DIM>(a);
	const AttendPlain plain;
	Block p(a, plain, tile, prefill_shared);
	if (threadIdx.x == 0) p.start_barriers();
	__syncthreads();
	pdl_wait();
	pdl_launch_dependents(); // after the wait: attention of generated rows may run beside this kernel, and begins then
	typename Block::Rings r;
	if (threadIdx.x < Block::CONSUMERS) {
		increase_registers<232>();
		int turn = 0;
		for (int row = tile.first; row < tile.limit;) {
			p.begin(row);
			row += p.run.rows;
			const bool any = p.take(turn);
			p.consume(r, any);
		}
		return;
	}
	decrease_registers<40>();
	typename Block::Rings announced;
	int taken = 0;
	p.begin(tile.first);
	p.load_pages(0);
	while (p.produce(r, announced, taken)) {}
}
#endif
