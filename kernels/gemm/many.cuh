// many: products of 9 and more generated rows on Hopper, near the speed of reading weights. An output tile has 128
// outputs; work items are its 16 partial sums (operands.cuh), one output tile after another. They are cut into slices
// of whole items, one for each persistent block, so that all blocks finish together and each weight is read once. One
// thread copies weights, one copies rounded activations, through a ring of K blocks; two warpgroups multiply with
// wgmma, weights from registers and activations from shared memory. Each output's sum is that of skinny.cuh, bit for
// bit: a block that has only some of the partial sums of an output tile passes on what it has, in an order that
// follows from the slices.
//
// Either a slice lies within an output tile, and all blocks of the tile store what they have and finish a share of its
// tokens each (plan.perTile); or the block of the tile's last partial sum finishes it, with the state of the sum that
// the block before leaves: the groups so far, and the begun group.
#pragma once
#include "gemm/ahead.cuh"
#include "gemm/operands.cuh"
#include "gemm/places.cuh"
#include "gemm/rounded.cuh"
#include "gemm/stage_ring.cuh"
#include "gemm/work_slices.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/pdl.cuh"
#include "ptx/warp.cuh"

// ManyArgs are the kernel's arguments; manyArgs of args.go mirrors them. In the plan, starts count partial sums and not
// K blocks, and tokenTiles is gridDim.x.
template <class Op> struct ManyArgs {
	typename Op::Args op;
	RoundedInput rounded;
	Handover handover;
	float4 *sums;       // [token tiles][planes][T/8][256]: sums for other blocks; if PLACED, places (places.cuh)
	uint32_t *arrivals; // [token tiles][slices + 1][arrived, left]: counters, 0 between launches; the last ones of scales
	SlicePlan plan;
	Ahead ahead;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Many has ROWS_AHEAD K blocks of activations and WEIGHTS_AHEAD of weights in shared memory.
template <class Op, class D, int T, int ROWS_AHEAD, int WEIGHTS_AHEAD> struct Many {
	static constexpr int CONSUMERS = 256, HELPERS = T > 64 ? 64 : 32, THREADS = CONSUMERS + 64 + HELPERS;
	static constexpr int TILES = 8, UNITS = TILES / Op::R, OUTPUTS = TILES * 16, GROUPS_OF_TOKENS = T / TOKEN_GROUP;
	static constexpr int ROWS = T * TOKEN_BLOCK_BYTES, WEIGHTS = TILES * TILE_BLOCK_BYTES; // bytes in a stage
	using TokenInfo = typename Op::TokenInfo;
	using Quad = typename Op::Quad;
	// Shared memory: barriers, scales [T], token info [T], stages of activations, stages of weights, and an output
	// tile's sums, float [T][128].
	static constexpr int SCALES = 512, TOKEN_INFO = SCALES + T * 4, SUMS = T * OUTPUTS * 4;
	static constexpr int ROWS_AT = (TOKEN_INFO + 16 * T + 1023) / 1024 * 1024, WEIGHTS_AT = ROWS_AT + ROWS_AHEAD * ROWS;
	static constexpr int SUMS_AT = WEIGHTS_AT + WEIGHTS_AHEAD * WEIGHTS, BYTES = SUMS_AT + SUMS;
	static_assert((ROWS_AHEAD + WEIGHTS_AHEAD) * 16 + 8 <= SCALES && BYTES <= 227 * 1024 && sizeof(TokenInfo) <= 16,
		"in Go: manyShared");
	// Whether sums for other blocks go without counters. In mixed.cuh, which has the rings, they do not.
	static constexpr bool PLACED = T <= PLACED_ROWS && ROWS_AHEAD > 0;
	static constexpr int EACH = CONSUMERS / (4 * UNITS); // tokens that all threads finish at once, four rows per thread
	static constexpr int BATCH = 2;                      // of these, whose loads are in flight together

	using RowsRing = Ring<ROWS_AHEAD>;
	using WeightsRing = Ring<WEIGHTS_AHEAD, ROWS_AHEAD>;
	using RowsCursor = typename RowsRing::Cursor;
	using WeightsCursor = typename WeightsRing::Cursor;

	const Op &op;
	const ManyArgs<Op> &a;
	const Activations &in;
	const uint32_t shared;
	TokenInfo *const tokenInfo;
	const SlicePlan &plan;
	const int slice, first, n, steps; // first token of the block, and how many
	const RowsRing rowsRing;
	const WeightsRing weightsRing;

	__device__ __forceinline__ Many(const Op &op, const ManyArgs<Op> &a, char *shared)
		: op(op), a(a), in(op.activations()), shared(shared_address(shared)),
		  tokenInfo(reinterpret_cast<TokenInfo *>(shared + TOKEN_INFO)), plan(a.plan), slice(blockIdx.y),
		  first(blockIdx.x * plan.tokens), n(min(plan.tokens, in.n - first)), steps(in.cols / MMA_K),
		  rowsRing{this->shared}, weightsRing{this->shared} {}

	__device__ __forceinline__ uint32_t rows(const RowsCursor &c) const { return shared + ROWS_AT + c.at * ROWS; }
	__device__ __forceinline__ uint32_t weights(const WeightsCursor &c) const {
		return shared + WEIGHTS_AT + c.at * WEIGHTS;
	}
	__device__ __forceinline__ uint32_t scalesReady() const { return shared + (ROWS_AHEAD + WEIGHTS_AHEAD) * 16; }
	__device__ __forceinline__ int token_groups() const { return (n + TOKEN_GROUP - 1) / TOKEN_GROUP; }

	__device__ __forceinline__ void start_barriers() const {
		if (elect_one()) {
#pragma unroll
			for (int i = 0; i < ROWS_AHEAD + WEIGHTS_AHEAD; i++) {
				mbarrier_init(shared + i * 16, i < ROWS_AHEAD ? 1 : WARP_ARRIVALS);
				mbarrier_init(shared + i * 16 + 8, CONSUMERS / 32 * WARP_ARRIVALS);
			}
			mbarrier_init(scalesReady(), HELPERS / 32 * WARP_ARRIVALS);
		}
		mbarrier_fence_init();
	}

	// Part is what a slice has of an output tile: partial sums from to end-1.
	struct Part {
		int tile, from, end;
	};
	__device__ __forceinline__ Part begin() const {
		const uint32_t high = plan.starts[slice + 1], end = high & 0xffff;
		return end ? part_of(high >> 16, end) : part_of((high >> 16) - 1, PARTIALS);
	}
	__device__ __forceinline__ Part part_of(int tile, int end) const {
		const uint32_t low = plan.starts[slice];
		return {tile, tile == low >> 16 ? (int)(low & 0xffff) : 0, end};
	}
	// advance moves to the output tile before: what other blocks wait for comes first.
	__device__ __forceinline__ bool advance(Part &w) const {
		if (w.tile <= plan.starts[slice] >> 16) return false;
		w = part_of(w.tile - 1, PARTIALS);
		return true;
	}

	__device__ __forceinline__ void produce_activations() const {
		if (threadIdx.x != CONSUMERS) return;
		RowsCursor c;
		int taken = 0;
		const int bytes = token_groups() * GROUP_BYTES;
		const size_t stride = (size_t)(a.rounded.tokens / TOKEN_GROUP) * GROUP_BYTES;
		const char *const from = a.rounded.rows + (size_t)(first / TOKEN_GROUP) * GROUP_BYTES;
		Part w = begin();
		do {
#pragma unroll 1
			for (int partial = w.from; partial < w.end; partial++)
#pragma unroll 1
				for (int b = partial; b < plan.kBlocks; b += PARTIALS, c.next()) {
					rowsRing.take(c, taken);
					mbarrier_expect(rowsRing.full(c), bytes);
					bulk_copy(EVICT_LAST, rows(c), from + b * stride, bytes, rowsRing.full(c));
				}
		} while (advance(w));
	}

	// produce_weights copies weights, with zeros for missing steps. They may be copied before pdl_wait.
	__device__ __forceinline__ void produce_weights() const {
		const int lane = threadIdx.x % 32;
		WeightsCursor c;
		int taken = 0;
		Part w = begin();
		do {
			// Past the last unit any weights serve: results are not stored.
			const int unit = plan.firstUnit + w.tile * UNITS + lane % TILES / Op::R;
			const char *from[TILES];
			tile_addresses(from, fragments(op, min(unit, plan.endUnit - 1), lane % Op::R));
#pragma unroll 1
			for (int partial = w.from; partial < w.end; partial++)
#pragma unroll 1
				for (int b = partial; b < plan.kBlocks; b += PARTIALS, c.next()) {
					weightsRing.take(c, taken);
					const int bytes = min(BLOCK_STEPS, steps - b * BLOCK_STEPS) * 512;
					const uint32_t to = weights(c);
					if (bytes < TILE_BLOCK_BYTES) zero_missing<WEIGHTS>(to, bytes, lane);
					copy_elements(to, from, b, bytes, weightsRing.full(c));
				}
		} while (advance(w));
	}

	// help looks up what the epilogue needs of each token.
	__device__ __forceinline__ void help() const {
		if (Op::NORMED && a.rounded.squares) compute_scales();
		for (int t = threadIdx.x - CONSUMERS - 64; t < n; t += HELPERS) {
			tokenInfo[t] = op.token_info(first + t);
			if (Op::NORMED) store_shared(shared + SCALES + t * 4, __ldcg(a.rounded.scales + first + t));
		}
		mbarrier_arrive_warp(scalesReady());
	}
	// compute_scales computes the scales of rows that the product before has rounded, one warp a row, with the bits of
	// round.cu. All blocks of the token tile share the work and wait for one another.
	__device__ __forceinline__ void compute_scales() const {
		constexpr int WARPS = HELPERS / 32;
		for (int t = slice * WARPS + threadIdx.x / 32 - CONSUMERS / 32 - 2; t < n; t += plan.slices * WARPS) {
			const float scale = scale_of(first + t);
			if (threadIdx.x % 32 == 0) const_cast<float *>(a.rounded.scales)[first + t] = scale;
			arrive(scale_counter());
		}
		await(scale_counter(), n);
		leave_counter(scale_counter(), plan.slices * WARPS);
	}
	// The counters of scales come after those of slices.
	__device__ __forceinline__ uint32_t *scale_counter() const {
		return a.arrivals + (gridDim.x * plan.slices + blockIdx.x) * 2;
	}
	// scale_of adds a row's squares: half a warp has a partial sum, a lane four columns of each K block.
	__device__ __forceinline__ float scale_of(int t) const {
		const int half = threadIdx.x / 16 % 2, quad = threadIdx.x % 16;
		const float *const x = in.x + (size_t)t * in.cols + quad * 4;
		float squares[PARTIALS / 2] = {};
#pragma unroll 1
		for (int b = 0; b < plan.kBlocks; b += PARTIALS) {
			float4 v[PARTIALS / 2];
#pragma unroll
			for (int i = 0; i < PARTIALS / 2; i++) {
				const int k = (b + 2 * i + half) * K_BLOCK;
				v[i] = k + quad * 4 < in.cols ? load_activation(x + k) : float4{0, 0, 0, 0};
			}
#pragma unroll
			for (int i = 0; i < PARTIALS / 2; i++) squares[i] = add_squares(squares[i], v[i]);
		}
		float sum = 0;
#pragma unroll
		for (int q = 0; q < GROUPS; q++) {
			float group = 0;
#pragma unroll
			for (int i = 2 * q; i < 2 * q + 2; i++) {
				const float mine = fold_squares(squares[i]), other = __shfl_xor_sync(~0u, mine, 16);
				group = i == 2 * q ? mine : __fadd_rn(group, mine);
				group = __fadd_rn(group, other);
			}
			sum = q ? __fadd_rn(sum, group) : group;
		}
		return rms_scale(in, sum); // of lane 0, in whose order its half comes first
	}

	// consume multiplies: each warp has 16 outputs of each output tile.
	__device__ __forceinline__ void consume() const {
		RowsCursor rowsAt;
		WeightsCursor weightsAt;
		float sum[T / 2], group[T / 2];
		bool waited = false;
		Part w = begin();
		do {
#pragma unroll 1
			for (int partial = w.from; partial < w.end; partial++) {
#pragma unroll
				for (int e = 0; e < T / 2; e++) sum[e] = 0;
				multiply(sum, partial, rowsAt, weightsAt);
				if (plan.perTile)
					share_partial(w, partial, sum, group);
				else
					add_partial(w, partial, sum, group);
			}
			if (plan.perTile)
				finish_share(w, waited);
			else if (w.end < PARTIALS)
				pass_on(w, group);
			else
				finish_tile({w.tile, 0, n}, waited);
		} while (advance(w));
	}

	// multiply is multiply_elements over two rings.
	__device__ __forceinline__ void multiply(
		float (&sum)[T / 2], int partial, RowsCursor &rowsAt, WeightsCursor &weightsAt) const {
		const uint32_t mine = threadIdx.x / 32 * TILE_BLOCK_BYTES + threadIdx.x % 32 * 16;
		uint4 v[BLOCK_STEPS];
		if (partial >= plan.kBlocks) return;
		wgmma_pin(sum);
#pragma unroll 1
		for (int b = partial; b < plan.kBlocks; b += PARTIALS) {
			weightsRing.wait(weightsAt), rowsRing.wait(rowsAt);
#pragma unroll
			for (int j = 0; j < BLOCK_STEPS; j++) {
				v[j] = load_shared(weights(weightsAt) + mine + j * 512);
				wgmma_fence();
				wgmma<D, T>(sum, v[j], descriptor_of<ROWS>(shared + ROWS_AT, rowsAt.at, j));
				wgmma_commit();
				wgmma_wait<3>();
				if (j == 2) release_before(rowsAt, weightsAt, b > partial);
			}
			weightsAt.next(), rowsAt.next();
		}
		wgmma_wait<0>();
		wgmma_pin(sum);
		release_before(rowsAt, weightsAt, true);
	}
	__device__ __forceinline__ void release_before(
		const RowsCursor &rowsAt, const WeightsCursor &weightsAt, bool any) const {
		weightsRing.release_before(weightsAt, any), rowsRing.release_before(rowsAt, any);
	}

	// staged returns the address of an output of a token of the sums in shared memory. The first row tiles of all units
	// come before the second ones; rows are permuted by token so that neither stores nor loads conflict in a bank.
	__device__ __forceinline__ uint32_t staged(int token, int row) const {
		return shared + SUMS_AT + (token * OUTPUTS + (row ^ (token / 2 % 4 * 8))) * 4;
	}
	// each_group calls fn(group of eight tokens, addresses of this thread's four sums of it).
	template <class F> __device__ __forceinline__ void each_group(F fn) const {
		const int thread = opaque((int)threadIdx.x), lane = thread % 32, warp = thread >> 5;
		const int row = (warp % Op::R * UNITS + warp / Op::R) * 16 + lane / 4;
		// A token's permutation follows from the lane alone, and a row's second address from its first.
		const uint32_t at = staged((lane & 3) * 2, row), other = staged((lane & 3) * 2, row + 8);
#pragma unroll
		for (int g = 0; g < GROUPS_OF_TOKENS; g++) {
			const uint32_t by = g * TOKEN_GROUP * OUTPUTS * 4;
			fn(g, uint4{at + by, at + by + OUTPUTS * 4, other + by, other + by + OUTPUTS * 4});
		}
	}
	static __device__ __forceinline__ void stage(const uint4 &at, const float4 &v) {
		store_shared(at.x, v.x), store_shared(at.y, v.y), store_shared(at.z, v.z), store_shared(at.w, v.w);
	}
	static __device__ __forceinline__ float4 load_staged(const uint4 &at) {
		return {load_shared_float(at.x), load_shared_float(at.y), load_shared_float(at.z), load_shared_float(at.w)};
	}
	static __device__ __forceinline__ float4 four(const float (&v)[T / 2], int g) {
		return {v[4 * g], v[4 * g + 1], v[4 * g + 2], v[4 * g + 3]};
	}

	// add_partial adds the sum of a partial sum to its group, and a finished group to the sums in shared memory.
	__device__ __forceinline__ void add_partial(
		const Part &w, int partial, const float (&sum)[T / 2], float (&group)[T / 2]) const {
		if (partial % PER_GROUP == 0) {
#pragma unroll
			for (int e = 0; e < T / 2; e++) group[e] = sum[e];
		} else {
			if (partial == w.from) take_group(w, group);
#pragma unroll
			for (int e = 0; e < T / 2; e++) group[e] = __fadd_rn(group[e], sum[e]);
		}
		if (partial % PER_GROUP != PER_GROUP - 1) return;
		const int q = partial / PER_GROUP;
		if (q == 0) {
			each_group([&](int g, const uint4 &at) { stage(at, four(group, g)); });
		} else if (q == w.from / PER_GROUP) {
			if (w.from % PER_GROUP == 0) await_slice();
			const auto before = from_plane((slice - 1) * 2);
			const int all = token_groups();
			each_group([&](int g, const uint4 &at) {
				if (g < all) stage(at, add(before(g), four(group, g)));
			});
		} else {
			each_group([&](int g, const uint4 &at) { stage(at, add(load_staged(at), four(group, g))); });
		}
	}

	__device__ __forceinline__ float4 *plane(int i) const {
		const int planes = plan.perTile ? plan.slices / plan.perTile * planes_per_tile() : plan.slices * 2;
		return a.sums + ((size_t)blockIdx.x * planes + i) * GROUPS_OF_TOKENS * CONSUMERS + opaque((int)threadIdx.x);
	}
	__device__ __forceinline__ uint32_t *arrival(int s) const {
		return a.arrivals + (blockIdx.x * plan.slices + s) * 2;
	}
	// from_plane returns a function that returns what another block has left of a group of tokens.
	__device__ __forceinline__ auto from_plane(int i) const {
		if constexpr (PLACED) {
			struct Taken {
				float4 v[GROUPS_OF_TOKENS];
				__device__ __forceinline__ const float4 &operator()(int g) const { return v[g]; }
			} taken;
			float4 *const p = opaque(plane(i));
			const int last = token_groups() - 1;
			take_sums(taken.v, [&](int g) { return p + min(g, last) * CONSUMERS; });
			return taken;
		} else {
			const float4 *const p = opaque(plane(i));
			return [p](int g) { return __ldcg(p + g * CONSUMERS); };
		}
	}
	__device__ __forceinline__ void store_plane(int i, const float (&v)[T / 2]) const {
		float4 *const p = opaque(plane(i));
		const int all = token_groups();
#pragma unroll
		for (int g = 0; g < GROUPS_OF_TOKENS; g++)
			if (g < all) leave<PLACED>(p + g * CONSUMERS, four(v, g));
	}
	// arrive counts a warp at a counter after all that it wrote.
	static __device__ __forceinline__ void arrive(uint32_t *counter) {
		__syncwarp();
		if (threadIdx.x % 32 == 0) increment_release(counter);
	}
	// await waits until `count` warps have arrived.
	static __device__ __forceinline__ void await(uint32_t *counter, int count) {
		if (threadIdx.x % 32 == 0) wait_for_count(counter, count);
		__syncwarp();
	}
	// leave_counter comes after it. The last of `count` warps that leave resets the counters.
	static __device__ __forceinline__ void leave_counter(uint32_t *counter, int count) {
		if (threadIdx.x % 32 == 0 && atomicInc(counter + 1, count - 1) == count - 1) *counter = 0;
	}

	// pass_on stores the state of a begun output tile: the sum of its groups, and its begun group.
	__device__ __forceinline__ void pass_on(const Part &w, const float (&group)[T / 2]) const {
		if (w.end % PER_GROUP) store_plane(slice * 2 + 1, group);
		if (w.end >= PER_GROUP) {
			float4 *const p = opaque(plane(slice * 2));
			const int all = token_groups();
			each_group([&](int g, const uint4 &at) {
				if (g < all) leave<PLACED>(p + g * CONSUMERS, load_staged(at));
			});
		}
		if (!PLACED) arrive(arrival(slice));
	}
	// await_slice waits for what the slice before leaves of an output tile.
	__device__ __forceinline__ void await_slice() const {
		if (PLACED) return; // from_plane waits
		await(arrival(slice - 1), CONSUMERS / 32);
		leave_counter(arrival(slice - 1), CONSUMERS / 32);
	}
	// take_group waits for it, and loads the begun group.
	__device__ __forceinline__ void take_group(const Part &w, float (&v)[T / 2]) const {
		await_slice();
		const auto begun = from_plane((slice - 1) * 2 + 1);
		const int all = token_groups();
#pragma unroll
		for (int g = 0; g < GROUPS_OF_TOKENS; g++)
			if (g < all) {
				const float4 x = begun(g);
				v[4 * g] = x.x, v[4 * g + 1] = x.y, v[4 * g + 2] = x.z, v[4 * g + 3] = x.w;
			}
	}

	// With shares, each group of an output tile is the sum of its planes, in order: one, or three if eight blocks have
	// an output tile: two partial sums, then one, and one.
	__device__ __forceinline__ int planes_per_group() const { return plan.perTile > GROUPS ? 3 : 1; }
	__device__ __forceinline__ int planes_per_tile() const { return GROUPS * planes_per_group(); }

	__device__ __forceinline__ void share_partial(
		const Part &w, int partial, const float (&sum)[T / 2], float (&group)[T / 2]) const {
		const bool alone = w.from % PER_GROUP; // what comes before it in the group is another block's
		if (alone || partial % PER_GROUP == 0) {
#pragma unroll
			for (int e = 0; e < T / 2; e++) group[e] = sum[e];
		} else {
#pragma unroll
			for (int e = 0; e < T / 2; e++) group[e] = __fadd_rn(group[e], sum[e]);
		}
		if (alone || partial % PER_GROUP == PER_GROUP - 1 || partial == w.end - 1)
			store_plane(w.tile * planes_per_tile() + partial / PER_GROUP * planes_per_group() +
				(alone ? partial % PER_GROUP - 1 : 0), group);
	}

	// sum_places adds the sums of an output tile for a group of tokens: those of PER places for each group of partial sums.
	template <int PER> static __device__ __forceinline__ float4 sum_places(float4 *at) {
		float4 v[GROUPS * PER], total;
		take_sums(v, [&](int i) { return at + i * GROUPS_OF_TOKENS * CONSUMERS; });
#pragma unroll
		for (int q = 0; q < GROUPS; q++) {
			float4 sum = v[q * PER];
#pragma unroll
			for (int i = 1; i < PER; i++) sum = add(sum, v[q * PER + i]);
			total = q ? add(total, sum) : sum;
		}
		return total;
	}
	// sum_planes does so for `per` planes for each.
	static __device__ __forceinline__ float4 sum_planes(float4 *at, int per) {
		if constexpr (PLACED) {
			return per == 1 ? sum_places<1>(at) : sum_places<3>(at);
		} else {
			float4 total;
#pragma unroll
			for (int q = 0; q < GROUPS; q++) {
				float4 sum = __ldcg(at);
				at += GROUPS_OF_TOKENS * CONSUMERS;
				for (int i = 1; i < per; i++, at += GROUPS_OF_TOKENS * CONSUMERS) sum = add(sum, __ldcg(at));
				total = q ? add(total, sum) : sum;
			}
			return total;
		}
	}
	// finish_share finishes this block's share of the tokens.
	__device__ __forceinline__ void finish_share(const Part &w, bool &waited) const {
		uint32_t *const counter = arrival(w.tile * plan.perTile);
		if (!PLACED) arrive(counter);
		const int which = slice - w.tile * plan.perTile, all = token_groups();
		const int from = __umulhi(all * which, plan.inverse), to = __umulhi(all * (which + 1), plan.inverse);
		const Share share = {w.tile, from * TOKEN_GROUP, min(n, to * TOKEN_GROUP)};
		Quad quad[BATCH];
		if (from < to) begin_finish(share, waited, quad);
		if (!PLACED) await(counter, CONSUMERS / 32 * plan.perTile);
		const int thread = opaque((int)threadIdx.x), lane = thread % 32, warp = thread >> 5, per = planes_per_group();
		const int row = (warp % Op::R * UNITS + warp / Op::R) * 16 + lane / 4;
		float4 *const p = opaque(plane(w.tile * planes_per_tile()));
#pragma unroll(PLACED ? 1 : 2)
		for (int g = from; g < to; g++) {
			const float4 total = sum_planes(p + g * CONSUMERS, per);
			const int token = g * TOKEN_GROUP + (lane & 3) * 2;
			store_shared(staged(token, row), total.x);
			store_shared(staged(token + 1, row), total.y);
			store_shared(staged(token, row + 8), total.z);
			store_shared(staged(token + 1, row + 8), total.w);
		}
		if (!PLACED) leave_counter(counter, CONSUMERS / 32 * plan.perTile);
		if (from < to) finish(share, quad);
	}

	static __device__ __forceinline__ void sync_consumers() { named_barrier_sync<CONSUMERS>(1); }

	// Share is what a block finishes of an output tile: tokens from to end-1.
	struct Share {
		int tile, from, end;
	};
	__device__ __forceinline__ void finish_tile(const Share &share, bool &waited) const {
		Quad quad[BATCH];
		begin_finish(share, waited, quad);
		finish(share, quad);
	}
	// A thread's four rows of an output tile, and its first token.
	struct Mine {
		int which, row, token, unit;
		bool valid;
	};
	__device__ __forceinline__ Mine mine_of(const Share &share) const {
		const int thread = opaque((int)threadIdx.x), which = thread / 4 % UNITS;
		const int unit = plan.firstUnit + share.tile * UNITS + which;
		return {which, thread % 4 * 4, share.from + thread / (4 * UNITS), unit, unit < plan.endUnit};
	}
	__device__ __forceinline__ typename Op::UnitRows rows_of(const Mine &mine) const {
		return typename Op::UnitRows(op.o, mine.valid ? mine.unit : plan.firstUnit, mine.row);
	}
	// look_up loads what a thread's tokens from i on need beside their sums; past the end, what the last one needs.
	__device__ __forceinline__ void look_up(
		const Share &share, const typename Op::UnitRows &rows, int i, Quad (&quad)[BATCH]) const {
#pragma unroll
		for (int b = 0; b < BATCH; b++) {
			const int t = min(i + b * EACH, share.end - 1);
			quad[b].template look_up<true>(op.o, rows, first + t, tokenInfo[t]);
		}
	}
	// begin_finish does so for a thread's first tokens.
	__device__ __forceinline__ void begin_finish(const Share &share, bool &waited, Quad (&quad)[BATCH]) const {
		if (!waited) mbarrier_wait(scalesReady(), 0);
		waited = true;
		const Mine mine = mine_of(share);
		look_up(share, rows_of(mine), mine.token, quad);
	}

	// finish passes a share's sums to the op, four rows of a token per thread, after begin_finish.
	__device__ __forceinline__ void finish(const Share &share, Quad (&quad)[BATCH]) const {
		const Mine mine = mine_of(share);
		const typename Op::UnitRows rows = rows_of(mine);
		const int k = mine.unit * 16 + mine.row;
		const bool handsOver = Op::HANDS_OVER && a.handover.rows;
		float4 norm = {1, 1, 1, 1};
		if (handsOver && a.handover.norm && mine.valid) norm = load_constant(a.handover.norm + k);
		sync_consumers();
#pragma unroll 1
		for (int i = mine.token; i - mine.token < share.end - share.from; i += BATCH * EACH) {
			if (i > mine.token) look_up(share, rows, i, quad);
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const int t = min(i + b * EACH, share.end - 1);
				const bool exists = mine.valid && i + b * EACH < share.end;
				const float scale = Op::NORMED ? load_shared_float(shared + SCALES + t * 4) : 1.f;
				float4 y[Op::R];
#pragma unroll
				for (int r = 0; r < Op::R; r++)
					y[r] = times(load_shared_float4(staged(t, r * UNITS * 16 + mine.which * 16 + mine.row)),
						{scale, scale, scale, scale});
				const float4 v = quad[b].finish(op.o, rows, first + t, tokenInfo[t], y, handsOver, exists);
				if (handsOver && exists)
					store_rounded(a.handover.rows, a.handover.tokens, first + t, k,
						pack4<D>(a.handover.norm ? times(v, norm) : v));
			}
		}
		sync_consumers(); // all have read the sums
	}
};

template <class Op, class D, int T, int ROWS_AHEAD, int WEIGHTS_AHEAD>
__device__ __forceinline__ void many(const ManyArgs<Op> &a) {
	using Block = Many<Op, D, T, ROWS_AHEAD, WEIGHTS_AHEAD>;
	extern __shared__ __align__(1024) char manyShared[];
	const Op op(a.op);
	const Block b(op, a, manyShared);
	const int warp = threadIdx.x / 32 - Block::CONSUMERS / 32;
	if (warp == 0) b.start_barriers();
	__syncthreads();
	if (warp < 0) {
		if (T > 64) increase_registers<216>();
		if (!Op::ATTENTION_NEXT) pdl_launch_dependents();
		// A slice of fewer than 16 K blocks may have none, and so wait for no activations: but counters and sums for
		// other blocks are those of the kernel before.
		pdl_wait();
		b.consume();
		return;
	}
	if (T > 64) decrease_registers<72>();
	if (warp == 1) {
		if (!Op::ATTENTION_NEXT) pdl_launch_dependents();
		b.produce_weights();
		bring_ahead(a.ahead, blockIdx.y * gridDim.x + blockIdx.x);
		return;
	}
	begin_product<Op::ATTENTION_NEXT>();
	if (warp == 0) {
		fence_async_global();
		b.produce_activations();
	} else
		b.help();
}
#endif
