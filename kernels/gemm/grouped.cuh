// The grouped GEMM for Hopper: products of a prompt's rows with the experts that they chose. experts_prefill.cu sorts the
// places of a step, the pairs of a row and one of its experts, by expert: each place has a slot, the slots of an expert
// follow each other from a multiple of 8 on, and a token tile is up to T of them. Rows are rounded and in the order of
// slots (rounded.cuh).
//
// A work item is an output tile of 128 outputs of an expert and one of its token tiles. Persistent blocks take items in
// turn, as many as there are on the device, while the grid depends on the shape alone. One warp copies activations and
// one or two copy weights through a ring that goes on from item to item; two warpgroups multiply with wgmma, one row tile
// per warp, weights from registers; a helper warp loads what the results need of each token.
//
// The order of a sum is ascending over all columns, in one accumulator. It depends on nothing else, so a row's result is
// the same in any batch and any chunk.
#pragma once
#include "gemm/codes_stage.cuh"
#include "gemm/operands.cuh"
#include "gemm/rounded.cuh"
#include "gemm/stage_ring.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"
#include "ptx/warp.cuh"

// TokenTile is slots of one expert.
struct __align__(16) TokenTile {
	int32_t expert, first, count, unused; // first: a multiple of 8
};

// PlacesArgs are where experts_prefill.cu leaves its work. Its parts follow each other in one buffer.
struct PlacesArgs {
	const int32_t *count;   // [1]: token tiles in use
	const TokenTile *tiles; // [count]
	const int32_t *place;   // [slots]: the place of a slot; undefined for slots that no token tile has
	const int32_t *slot;    // [places]
	int32_t slots, unused;  // a multiple of 8
};

// GroupedArgs are the kernel's arguments; groupedArgs of args.go mirrors them.
template <class Op> struct GroupedArgs {
	typename Op::Args op;
	const char *rows;    // rounded activations of slots
	const float *scales; // [slots], of an op with norms
	PlacesArgs places;
	int32_t kBlocks, outputTiles; // of an expert
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// MXFP4 as weights of binary16: E2M1 has the exponent and fraction of a binary16 that is 2^14 times too small.
template <> struct StageScales<Exponents> {
	uint32_t v; // bytes [2 groups][2 rows]

	__device__ __forceinline__ void load(bool, uint32_t p, int lane, int) {
		FromShared::load(true, v, reinterpret_cast<const uint32_t *>(from_shared(p)) + lane / 4);
	}
	__device__ __forceinline__ Two scale(int g) const { return {power(2 * g), power(2 * g + 1)}; }
	__device__ __forceinline__ uint32_t power(int i) const { return float_twice(__uint_as_float(byte_of(v, i) << 23)); }
};
template <class S> struct Integer<E2M1, S> {
	static __device__ __forceinline__ uint32_t of(const Quarter<4> &q, const S &, int step, int r) {
		const uint32_t w = q.word(step);
		return mul_f16x2(E2M1::sign(w, r) | E2M1::rest(w, r, 9), 0x74007400);
	}
};
// GroupedCodes is format F as weights.
template <class F> struct GroupedCodes : CodesOf<F> {
	using Brick = F;
};

// SlotInfo is what the results need of a token: its place, and a factor.
struct SlotInfo {
	int32_t place;
	float factor;
};

// Grouped computes a product of experts with activations of type D; W says how weights come (codes_stage.cuh), T is the
// most slots of a token tile, and BLOCKS how many blocks an SM has.
template <class Op, class D, int T, int BLOCKS, class W> struct Grouped {
	// With few tokens a K block of quantised weights takes so little time that two warps copy weights.
	static constexpr int WEIGHT_WARPS = W::QUANTISED ? 2 : 1;
	static constexpr int CONSUMERS = 256, THREADS = CONSUMERS + 128;
	static constexpr int TILES = 8, UNITS = TILES / Op::R, TOKEN_GROUPS = T / TOKEN_GROUP;
	static constexpr int ROWS = T * TOKEN_BLOCK_BYTES, WEIGHTS = TILES * W::TILE_BYTES; // bytes of a stage
	// Shared memory: barriers, SlotInfo [2][T], sums that pairs of warps exchange, then stages of activations and of
	// weights.
	static constexpr int MOST_STAGES = 24, INFO = 512, EXCHANGE = (INFO + 2 * T * 8 + 1023) / 1024 * 1024;
	static constexpr int EXCHANGE_BYTES = Op::R == 2 ? TILES * 1024 : 0, HEADER_BYTES = EXCHANGE + EXCHANGE_BYTES;
	static constexpr int ROOM = (227 * 1024 / BLOCKS - (BLOCKS - 1) * 1024 - HEADER_BYTES) / (ROWS + WEIGHTS);
	static constexpr int STAGES = ROOM < MOST_STAGES ? ROOM : MOST_STAGES;
	static constexpr int BYTES = HEADER_BYTES + STAGES * (ROWS + WEIGHTS);
	static_assert(STAGES >= 3 && WEIGHTS % 16 == 0);
	using Stages = StageRing<STAGES, HEADER_BYTES, ROWS, WEIGHTS>;
	using Cursor = typename Stages::Cursor;

	// Item is a work item.
	struct Item {
		TokenTile tokens;
		int outputTile;
		__device__ __forceinline__ int groups() const { return (tokens.count + TOKEN_GROUP - 1) / TOKEN_GROUP; }
	};

	const GroupedArgs<Op> &a;
	const uint32_t shared;
	char *const generic;
	const Stages stages;

	__device__ __forceinline__ Grouped(const GroupedArgs<Op> &a, char *shared)
		: a(a), shared(shared_address(shared)), generic(shared), stages{{this->shared}} {}

	__device__ __forceinline__ uint32_t infoReady(int which) const { return stages.full(MOST_STAGES) + which * 16; }
	__device__ __forceinline__ uint32_t infoRead(int which) const { return infoReady(which) + 8; }
	__device__ __forceinline__ SlotInfo *info(int which) const {
		return reinterpret_cast<SlotInfo *>(generic + INFO) + which * T;
	}

	__device__ __forceinline__ void start_barriers() const {
		if (elect_one()) {
#pragma unroll 1
			for (int i = 0; i < STAGES; i++) {
				mbarrier_init(stages.full(i), (1 + WEIGHT_WARPS) * WARP_ARRIVALS);
				mbarrier_init(stages.empty(i), CONSUMERS / 32 * WARP_ARRIVALS);
			}
#pragma unroll 1
			for (int i = 0; i < 2; i++) {
				mbarrier_init(infoReady(i), WARP_ARRIVALS);
				mbarrier_init(infoRead(i), CONSUMERS / 32 * WARP_ARRIVALS);
			}
		}
		mbarrier_fence_init();
	}

	__device__ __forceinline__ int items() const { return load_l2_ordered(a.places.count) * a.outputTiles; }
	__device__ __forceinline__ Item item(int i) const {
		uint4 v;
		load_l2(v, reinterpret_cast<const uint4 *>(a.places.tiles + i / a.outputTiles));
		return {{(int)v.x, (int)v.y, (int)v.z, 0}, i % a.outputTiles};
	}
	// each calls f for this block's items. The next item is read ahead.
	template <class F> __device__ __forceinline__ void each(F f) const {
		const int n = items();
		int i = blockIdx.x;
		if (i >= n) return;
		Item now = item(i);
#pragma unroll 1
		while (true) {
			const int following = i + gridDim.x;
			const Item next = item(following < n ? following : i);
			f(now);
			if (following >= n) return;
			now = next, i = following;
		}
	}

	__device__ __forceinline__ void produce_activations() const {
		Cursor c;
		int taken = 0;
		each([&](const Item &w) {
			const int bytes = w.groups() * GROUP_BYTES;
			const char *from = a.rows + (size_t)(w.tokens.first / TOKEN_GROUP) * GROUP_BYTES;
			const size_t step = (size_t)(a.places.slots / TOKEN_GROUP) * GROUP_BYTES;
#pragma unroll 1
			for (int p = 0; p < a.kBlocks; p++, c.next(), from += step) {
				stages.take(c, taken);
				if (elect_one()) { // the compiler knows that it is one lane; for others it would generate loops
					mbarrier_expect(stages.full(c.at), bytes);
					bulk_copy(EVICT_LAST, stages.rows(c), from, bytes, stages.full(c.at));
				} else if (WARP_ARRIVALS > 1) {
					mbarrier_arrive(stages.full(c.at));
				}
			}
		});
	}

	// produce_weights copies the row tiles of weight warp `which`, up to STAGES K blocks ahead.
	__device__ __forceinline__ void produce_weights(int which) const {
		constexpr int MINE = TILES / WEIGHT_WARPS;
		Cursor c;
		int taken = 0;
		each([&](const Item &w) {
			// Past the last unit any weights serve: results are not stored.
			const int lane = threadIdx.x % MINE, tile = which * MINE + lane,
					  unit = min(w.outputTile * UNITS + tile / Op::R, Op::units(a.op) - 1);
			const char *from[MINE];
			tile_addresses(from, tile_of(Op::row_tile(a.op, w.tokens.expert, unit, tile % Op::R)));
#pragma unroll 1
			for (int p = 0; p < a.kBlocks; p++, c.next()) {
				stages.take(c, taken);
				const uint32_t to = stages.weights(c) + which * MINE * W::TILE_BYTES;
				if constexpr (W::QUANTISED)
					copy_codes<W>(stages, c, which * MINE, from, p, 0);
				else
					copy_elements(to, from, p, TILE_BLOCK_BYTES, stages.full(c));
			}
		});
	}
	// tile_bytes returns the bytes of a row tile.
	__device__ __forceinline__ uint32_t tile_bytes() const {
		if constexpr (W::QUANTISED)
			return W::Brick::bricks(a.kBlocks * K_BLOCK) * W::Brick::BYTES;
		else
			return a.kBlocks * TILE_BLOCK_BYTES;
	}
	__device__ __forceinline__ const char *tile_of(const RowTile &t) const {
		return static_cast<const char *>(t.weight) + (size_t)t.index * tile_bytes();
	}

	// help loads the SlotInfo of each item's tokens.
	__device__ __forceinline__ void help() const {
		int n = 0;
		each([&](const Item &w) {
			const int which = n & 1;
			if (n >= 2) mbarrier_wait(infoRead(which), (n >> 1) - 1 & 1);
			for (int t = threadIdx.x % 32; t < w.tokens.count; t += 32) {
				const int slot = w.tokens.first + t, place = load_l2_ordered(a.places.place + slot);
				info(which)[t] = {place, Op::NORMED ? a.scales[slot] : Op::factor(a.op, place)};
			}
			mbarrier_arrive_warp(infoReady(which));
			n++;
		});
	}

	__device__ __forceinline__ void consume() const {
		Cursor c;
		int n = 0;
		each([&](const Item &w) {
			float sum[T / 2];
#pragma unroll
			for (int e = 0; e < T / 2; e++) sum[e] = 0;
			multiply(sum, w.groups(), c);
			mbarrier_wait(infoReady(n & 1), n >> 1 & 1);
			const int warp = threadIdx.x / 32;
			const int unit = w.outputTile * UNITS + warp / Op::R;
			if constexpr (Op::R == 2)
				finish_pair(w, unit, sum, info(n & 1));
			else
				finish(w, unit, sum, info(n & 1));
			mbarrier_arrive_warp(infoRead(n & 1));
			n++;
		});
	}

	// multiply multiplies an item's K blocks for the smallest supported number of tokens.
	__device__ __forceinline__ void multiply(float (&sum)[T / 2], int groups, Cursor &c) const {
		if constexpr (T > 16) {
			if (groups <= 2) return multiply_by<16>(sum, c);
		}
		if constexpr (T > 56) {
			if (groups <= 7) return multiply_by<56>(sum, c);
		}
		if constexpr (T > 104) {
			if (groups <= 13) return multiply_by<104>(sum, c);
		}
		multiply_by<T>(sum, c);
	}
	template <int N> __device__ __forceinline__ void multiply_by(float (&sum)[T / 2], Cursor &c) const {
		if constexpr (W::QUANTISED)
			multiply_codes<D, N, (T > 104 || BLOCKS > 1 ? 2 : BLOCK_STEPS), W>(sum, stages, c, 0, a.kBlocks);
		else
			multiply_elements<D, N>(sum, stages, c, 0, a.kBlocks);
	}

	// finish passes a warp's sums to an op of one row tile: of each eight tokens a lane has rows l/4 and l/4+8 for two.
	__device__ __forceinline__ void finish(
		const Item &w, int unit, const float (&sum)[T / 2], const SlotInfo *infos) const {
		if (unit >= Op::units(a.op)) return;
		const int lane = threadIdx.x % 32;
		const typename Op::template RowsOf<D> rows(a.op, w.tokens.expert, unit, lane / 4);
#pragma unroll
		for (int g = 0; g < TOKEN_GROUPS; g++) {
			const int t = g * TOKEN_GROUP + lane % 4 * 2;
			if (t < w.tokens.count) rows.store(infos[t], sum[4 * g], sum[4 * g + 2]);
			if (t + 1 < w.tokens.count) rows.store(infos[t + 1], sum[4 * g + 1], sum[4 * g + 3]);
		}
	}

	// finish_pair passes the sums of two warps, of the two row tiles of a unit, to the op. They exchange half of their
	// sums: the first warp finishes even groups of eight tokens, the second one odd groups.
	__device__ __forceinline__ void finish_pair(
		const Item &w, int unit, const float (&sum)[T / 2], const SlotInfo *infos) const {
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, second = warp & 1, all = w.groups();
		const uint32_t sums = shared + EXCHANGE + lane * 16, mine = sums + warp * 1024, other = sums + (warp ^ 1) * 1024;
		const typename Op::template RowsOf<D> rows(a.op, w.tokens.expert, min(unit, Op::units(a.op) - 1), lane / 4);
		const bool exists = unit < Op::units(a.op);
#pragma unroll
		for (int g = 0; g < TOKEN_GROUPS; g += 4) {
			if (g >= all) break;
			float4 kept[2];
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const float4 even = group_of(sum, g + 2 * i), odd = group_of(sum, g + 2 * i + 1);
				kept[i] = either(second, odd, even);
				store_shared4(mine + i * 512, either(second, even, odd));
			}
			pair_sync(warp / 2);
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const int group = g + 2 * i + second;
				const float4 received = load_shared_float4(other + i * 512);
				if (group < all && exists)
					rows.store_group(w.tokens, group, infos, either(second, received, kept[i]), either(second, kept[i], received));
			}
			pair_sync(warp / 2);
		}
	}
	static __device__ __forceinline__ float4 group_of(const float (&sum)[T / 2], int g) {
		return g < TOKEN_GROUPS ? float4{sum[4 * g], sum[4 * g + 1], sum[4 * g + 2], sum[4 * g + 3]} : float4{};
	}
	static __device__ __forceinline__ float4 either(bool first, const float4 &v, const float4 &w) {
		return {first ? v.x : w.x, first ? v.y : w.y, first ? v.z : w.z, first ? v.w : w.w};
	}
	static __device__ __forceinline__ void store_shared4(uint32_t to, const float4 &v) {
		asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
	}
	static __device__ __forceinline__ void pair_sync(int pair) { named_barrier_sync<64>(1 + pair); }
};

template <class Op, class D, int T, int BLOCKS, class W>
__device__ __forceinline__ void grouped(const GroupedArgs<Op> &a) {
	using Block = Grouped<Op, D, T, BLOCKS, W>;
	extern __shared__ __align__(1024) char groupedShared[];
	const Block b(a, groupedShared);
	const int warp = threadIdx.x / 32 - Block::CONSUMERS / 32;
	if (warp == 0) b.start_barriers();
	__syncthreads();
	if (!Op::CHOICE_IS_OLDER) pdl_wait();
	pdl_launch_dependents();
	if (warp < 0) {
		if (T > 104) increase_registers<216>();
		if (BLOCKS > 1) increase_registers<88>();
		b.consume();
		return;
	}
	if (T > 104) decrease_registers<72>();
	if (BLOCKS > 1) decrease_registers<56>();
	if (warp == 0) {
		if (Op::CHOICE_IS_OLDER) pdl_wait();
		b.produce_activations();
	} else if (warp <= Block::WEIGHT_WARPS) {
		b.produce_weights(warp - 1);
	} else if (warp == 3) {
		b.help();
	}
}
#endif
