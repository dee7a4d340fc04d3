// Products of a mixed pass on Hopper: G generated rows, and up to T tokens of prompts after them. A block goes through its
// work slice once, as in stream_k.cuh, and multiplies each K block of weights for both. So weights are read once, and
// each row's bits are those of a pass of its own class: a slice's K blocks come partial sum after partial sum
// (KBlockOrder), so that generated rows need one partial sum at a time, as in many.cuh.
//
// Either each slice has whole partial sums of one output tile, and the blocks of a tile finish a share of its generated
// rows each, as in many.cuh; or a tile has at most two slices, and the block of the second one goes on with what the
// first leaves: the sum of finished groups, the begun group, and the begun partial sum.
#pragma once
#include "gemm/many.cuh"
#include "gemm/stream_k.cuh"

// MixedArgs are the kernel's arguments; mixedArgs of args.go mirrors them. Both plans have the slices of stream-K; that
// of generated rows has their number as tokens.
template <class Op> struct MixedArgs {
	StreamKArgs<Op> prompts;
	ManyArgs<Op> generated; // sums: [slices][total, group, partial sum][G/8][256], or as many.cuh has them for shares
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Op, class D, int G, int T, int STAGES> struct Mixed : StreamK<Op, D, T, STAGES, Elements<D>, G> {
	using Prompts = StreamK<Op, D, T, STAGES, Elements<D>, G>;
	using Generated = Many<Op, D, G, 0, 0>; // has the sums of generated rows, in shared memory of its own
	using Part = typename Generated::Part;
	using typename Prompts::BlockEpilogue;
	using typename Prompts::Cursor;
	static constexpr int BYTES = Prompts::BYTES + Generated::BYTES;
	static_assert(BYTES <= 227 * 1024 && Prompts::PRODUCERS == 64 && Generated::HELPERS == 32, "in Go: mixedKernel");
	static constexpr int FEW = 128; // tokens, up to which as many are multiplied

	const Generated generated;

	__device__ __forceinline__ Mixed(const Op &op, const MixedArgs<Op> &a, char *shared)
		: Prompts(op, a.prompts, shared), generated(op, a.generated, shared + Prompts::BYTES) {}

	// next_part moves to the slice's part of the output tile before, and reports whether there is one: there is one pass.
	__device__ __forceinline__ bool next_part(SlicePosition &w) const {
		if (w.outputTile <= this->plan.starts[generated.slice] >> 16) return false;
		w = this->part_of(0, w.outputTile - 1, this->plan.kBlocks);
		return true;
	}

	// help runs in helper warps. The first one has the generated rows too, and announces partials.
	__device__ __forceinline__ void help() const {
		const bool first = threadIdx.x / 32 == (Prompts::CONSUMERS + Prompts::PRODUCERS) / 32;
		if (Op::NORMED) {
			this->compute_scales(0);
			if (first) prepare_generated();
			mbarrier_arrive_warp(this->scalesReady());
		}
		if (!first) return;
		SlicePosition w = this->begin(0);
		do {
			if (this->shares_results() || !this->finishes_tile(w)) this->announce_partials(w);
		} while (next_part(w));
	}

	// prepare_generated stores the scale and the token info of each generated row.
	__device__ __forceinline__ void prepare_generated() const {
		const RoundedInput &rounded = generated.a.rounded;
		if (rounded.squares) generated.compute_scales();
		for (int t = threadIdx.x % 32; t < G; t += 32) {
			this->tokenInfo[t] = this->op.token_info(t);
			store_shared(this->shared + Prompts::SCALES + t * 4, __ldcg(rounded.scales + t));
		}
	}

	// consume multiplies: each warp has 16 outputs of each output tile. A part may begin with what another block leaves:
	// counters and sums are those of the kernel before until that has ended.
	__device__ __forceinline__ void consume() {
		pdl_wait();
		Cursor c;
		int signals = 0;
		SlicePosition w = this->begin(0);
		do {
			float sum[T / 2];
#pragma unroll
			for (int e = 0; e < T / 2; e++) sum[e] = 0;
			multiply_part(sum, w, c);
			if (this->shares_results() || !this->finishes_tile(w)) {
				this->store_partials(w, sum);
				this->signal_helper(signals);
			}
			if (!this->finishes_tile(w)) continue;
			this->run_epilogue(w, sum, c, signals, [&](const BlockEpilogue &epilogue, int from, int to) {
				stage_generated(epilogue, w.outputTile, from, to);
			});
		} while (next_part(w));
	}

	// stage_generated stages the sums of generated rows for the epilogue: those among token groups from to to-1.
	__device__ __forceinline__ void stage_generated(
		const BlockEpilogue &epilogue, int outputTile, int from, int to) const {
		const uint32_t staged = epilogue.stagedSums();
		if (!this->shares_results()) {
			generated.each_group(
				[&](int g, const uint4 &at) { BlockEpilogue::stage(staged, g, Generated::load_staged(at)); });
			return;
		}
		const int per = generated.planes_per_group();
		float4 *const p = opaque(generated.plane(outputTile * generated.planes_per_tile()));
		for (int g = from; g < min(to, Prompts::GENERATED_GROUPS); g++)
			BlockEpilogue::stage(staged, g - from, Generated::sum_planes(p + g * Prompts::CONSUMERS, per));
	}

	// multiply_part multiplies a part's K blocks: for prompts to `sum`, for generated rows to the sums of many.cuh.
	__device__ __forceinline__ void multiply_part(float (&sum)[T / 2], const SlicePosition &w, Cursor &c) const {
		const int kBlocks = this->plan.kBlocks;
		const KBlockOrder order(kBlocks, w.kBlock);
		const Part part = {w.outputTile, order.partial, KBlockOrder(kBlocks, w.end).partial};
		const bool few = this->token_groups(0) <= FEW / TOKEN_GROUP;
		float item[G / 2], group[G / 2]; // the partial sum, and its group
		bool awaited = false;            // what the block before leaves
		int left = w.end - w.kBlock, at = order.at;
		if (at >= PARTIALS && !this->shares_results()) {
			await_before(awaited);
			load_plane((generated.slice - 1) * 3 + 2, item);
		} else {
			clear(item);
		}
#pragma unroll 1
		for (int partial = part.from;; partial++, at = partial) {
			const int rest = (kBlocks - at + PARTIALS - 1) / PARTIALS, count = min(rest, left);
			if (few)
				multiply_by<FEW>(sum, item, count, c);
			else
				multiply_by<T>(sum, item, count, c);
			left -= count;
			if (count < rest) break; // the next block goes on with this partial sum
			if (this->shares_results())
				generated.share_partial(part, partial, item, group);
			else
				add_partial(part, partial, w.kBlock > 0, item, group, awaited);
			clear(item);
			if (left == 0) break;
		}
		if (!this->finishes_tile(w)) pass_on(part, KBlockOrder(kBlocks, w.end).at >= PARTIALS, item, group);
	}
	static __device__ __forceinline__ void clear(float (&v)[G / 2]) {
#pragma unroll
		for (int e = 0; e < G / 2; e++) v[e] = 0;
	}

	// multiply_by is multiply_elements for N tokens of prompts and the generated rows before them.
	template <int N>
	__device__ __forceinline__ void multiply_by(float (&all)[T / 2], float (&item)[G / 2], int count, Cursor &c) const {
		float (&sum)[N / 2] = reinterpret_cast<float (&)[N / 2]>(all);
		const auto &stages = this->stages;
		const uint32_t mine = threadIdx.x / 32 * TILE_BLOCK_BYTES, lane = threadIdx.x % 32;
		const uint32_t rows = this->shared + Prompts::HEADER_BYTES;
		uint4 v[BLOCK_STEPS];
		wgmma_pin(sum);
		wgmma_pin(item);
#pragma unroll 1
		for (int i = 0;;) {
			stages.wait(c);
#pragma unroll
			for (int j = 0; j < BLOCK_STEPS; j++) {
				v[j] = load_shared(stages.weights(c) + mine + j * 512 + lane * 16);
				wgmma_fence();
				wgmma<D, N>(sum, v[j], descriptor_of<Prompts::ROWS>(rows + G * TOKEN_BLOCK_BYTES, c.at, j));
				wgmma<D, G>(item, v[j], descriptor_of<Prompts::ROWS>(rows, c.at, j));
				wgmma_commit();
				wgmma_wait<3>();
				if (j == 2) stages.release_before(c, i > 0);
			}
			c.next();
			if (++i == count) break;
		}
		wgmma_wait<0>();
		wgmma_pin(sum);
		wgmma_pin(item);
		stages.release_before(c, true);
	}

	// add_partial adds a partial sum to its group, and a finished group to the sums in shared memory. goesOn: the part
	// goes on with another block's output tile.
	__device__ __forceinline__ void add_partial(const Part &part, int partial, bool goesOn, const float (&item)[G / 2],
		float (&group)[G / 2], bool &awaited) const {
		if (partial % PER_GROUP == 0) {
#pragma unroll
			for (int e = 0; e < G / 2; e++) group[e] = item[e];
		} else {
			if (goesOn && partial == part.from) {
				await_before(awaited);
				load_plane((generated.slice - 1) * 3 + 1, group);
			}
#pragma unroll
			for (int e = 0; e < G / 2; e++) group[e] = __fadd_rn(group[e], item[e]);
		}
		if (partial % PER_GROUP != PER_GROUP - 1) return;
		const int q = partial / PER_GROUP;
		if (q == 0) {
			generated.each_group([&](int g, const uint4 &at) { Generated::stage(at, Generated::four(group, g)); });
		} else if (goesOn && q == part.from / PER_GROUP) {
			await_before(awaited);
			const float4 *const before = opaque(generated.plane((generated.slice - 1) * 3));
			generated.each_group([&](int g, const uint4 &at) {
				Generated::stage(at, add(__ldcg(before + g * Prompts::CONSUMERS), Generated::four(group, g)));
			});
		} else {
			generated.each_group([&](int g, const uint4 &at) {
				Generated::stage(at, add(Generated::load_staged(at), Generated::four(group, g)));
			});
		}
	}

	// pass_on stores the state of a begun output tile: the sum of its groups, its begun group, and its begun partial sum.
	__device__ __forceinline__ void pass_on(
		const Part &part, bool begun, const float (&item)[G / 2], const float (&group)[G / 2]) const {
		const int plane = generated.slice * 3;
		if (begun) generated.store_plane(plane + 2, item);
		if (part.end % PER_GROUP) generated.store_plane(plane + 1, group);
		if (part.end >= PER_GROUP) {
			float4 *const p = opaque(generated.plane(plane));
			generated.each_group([&](int g, const uint4 &at) {
				store_evict_last(p + g * Prompts::CONSUMERS, Generated::load_staged(at));
			});
		}
		Generated::arrive(generated.arrival(generated.slice));
	}
	__device__ __forceinline__ void await_before(bool &awaited) const {
		if (!awaited) generated.await_slice();
		awaited = true;
	}
	__device__ __forceinline__ void load_plane(int plane, float (&v)[G / 2]) const {
		const float4 *const p = opaque(generated.plane(plane));
#pragma unroll
		for (int g = 0; g < G / TOKEN_GROUP; g++) {
			const float4 x = __ldcg(p + g * Prompts::CONSUMERS);
			v[4 * g] = x.x, v[4 * g + 1] = x.y, v[4 * g + 2] = x.z, v[4 * g + 3] = x.w;
		}
	}
};

template <class Op, class D, int G, int T, int STAGES>
__device__ __forceinline__ void mixed(const MixedArgs<Op> &a) {
	extern __shared__ __align__(1024) char mixedShared[];
	const Op op(a.prompts.op);
	Mixed<Op, D, G, T, STAGES> b(op, a, mixedShared);
	run_block<Op, T>(b);
}
#endif
