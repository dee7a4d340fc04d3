// The choice, the gates and the down projection of one row's experts over quantised weights in one kernel on Hopper,
// with the bits of route.cu and experts.cu. All blocks choose. All of them run at the same time, and they meet once
// between gates and down projection. The producer goes on from the ones to the other without a stop, so that memory is
// read while the blocks finish their gates, meet, and round the results.
#pragma once
#include "gemm/experts_ops.cuh"
#include "gemm/tile_ring.cuh"
#include "gemm/route.cuh"

// ExpertsArgs are the arguments of the kernel of one row.
struct ExpertsArgs {
	ExpertGateUpArgs gates;
	ExpertDownArgs down;
	RouteArgs route;       // of a step of one row, whose experts this kernel chooses
	uint32_t *arrivals;    // [2 + row tiles of down]: counters of blocks, 0 between launches
	int32_t stages, stage; // of the ring; bytes of a stage
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int ROW_CONSUMERS = CODES_WARPS * 32;
constexpr int ROW_THREADS = ROW_CONSUMERS + 128; // producers are a warpgroup, which gives registers to the others

// BlockSpan is a block's part of a list: consecutive elements.
struct BlockSpan {
	int at, end;
};
__device__ __forceinline__ BlockSpan block_span(int all) {
	return {(int)((int64_t)all * blockIdx.x / gridDim.x), (int)((int64_t)all * (blockIdx.x + 1) / gridDim.x)};
}

// meet waits until the gates of all blocks are written.
__device__ __forceinline__ void meet(const ExpertsArgs &a) {
	named_barrier_sync<ROW_CONSUMERS>(1);
	if (threadIdx.x == 0) {
		increment_release(a.arrivals);
		wait_for_count(a.arrivals, gridDim.x);
		// The last one to leave resets the counters.
		if (atomicInc(a.arrivals + 1, gridDim.x - 1) == gridDim.x - 1) *a.arrivals = 0;
	}
	named_barrier_sync<ROW_CONSUMERS>(1);
}

// ExpertsOfRow is one thread's part. Gates and down projection are two phases with the same loop: a warp has a partial sum
// of a row tile, and all of a block's warps meet once they have all of theirs.
template <class F> struct ExpertsOfRow {
	static constexpr int WARPS = CODES_WARPS, SUMS = Sums<F>::NEEDED ? Sums<F>::COLUMNS : 0;
	static constexpr int CHOOSER = WARPS - 1;         // the warp that makes scores
	static constexpr int EACH = 8, MOST = EACH * 32;  // experts of a lane; of a layer
	static constexpr int MOST_UNITS = 8, MOST_JOBS = 16; // of a block: pairs of row tiles of gates; row tiles of down
	static_assert(MOST_UNITS * 2 == MOST_JOBS);
	using Ring = TileRing<F>;
	using Place = typename Ring::Place;

	struct Shared {
		float partials[MOST_JOBS * CODE_PARTS][16]; // [row tiles][parts]
		float weighted[MOST_JOBS][16];              // results of jobs
		float squares[TOKEN_TILE][PARTIALS];
		alignas(16) uint32_t key[MOST];
		float score[MOST];
		int before[MOST]; // experts that come before it
		int expert[TOKEN_TILE];
		float weight[TOKEN_TILE];
		typename Ring::Barriers barriers;
	};
	// Biases are of a unit's gate and up, or of a job as `gate`.
	struct Biases {
		float gate, up;
	};
	const ExpertsArgs &a;
	Shared &shared;
	const Ring ring; // then come rounded rows

	__device__ __forceinline__ int used() const { return a.down.used; }
	__device__ __forceinline__ int gate_tiles() const { return a.gates.inner / 16; } // of an expert
	__device__ __forceinline__ int down_tiles() const { return a.down.hidden / 16; }
	// A block's units are consecutive in the list [ranks][row tiles of gates].
	__device__ __forceinline__ BlockSpan units() const { return block_span(used() * gate_tiles()); }
	// Its jobs are consecutive in the list [row tiles of down][ranks], and whole row tiles if there are enough blocks.
	__device__ __forceinline__ BlockSpan jobs() const {
		const int b = blockIdx.x, tiles = down_tiles();
		if (tiles <= (int)gridDim.x) return {min(b, tiles) * used(), min(b + 1, tiles) * used()};
		return block_span(tiles * used());
	}
	// sharers returns how many blocks have jobs of a row tile.
	__device__ __forceinline__ unsigned sharers(int tile) const {
		const int all = down_tiles() * used();
		const auto block = [&](int job) { return (int)((((int64_t)job + 1) * gridDim.x - 1) / all); };
		return block((tile + 1) * used() - 1) - block(tile * used()) + 1;
	}
	static __device__ __forceinline__ const char *tile_of(const uint4 *w, int tile, int bricks) {
		return reinterpret_cast<const char *>(w) + (size_t)tile * bricks * F::BYTES;
	}

	__device__ __forceinline__ void produce() const {
		Place p = {0, 0};
		const int gateBricks = F::bricks(a.gates.in.cols), downBricks = F::bricks(a.down.in.cols);
		const BlockSpan u = units(), j = jobs();
		for (int i = u.at; i < u.end; i++) {
			const int tile = shared.expert[i / gate_tiles()] * gate_tiles() + i % gate_tiles();
			const char *const from[2] = {tile_of(a.gates.gate, tile, gateBricks), tile_of(a.gates.up, tile, gateBricks)};
			ring.fill(p, from, gateBricks);
		}
		for (int i = j.at; i < j.end; i++) {
			const char *const from[1] = {
				tile_of(a.down.w, shared.expert[i % used()] * down_tiles() + i / used(), downBricks)};
			ring.fill(p, from, downBricks);
		}
	}

	__device__ __forceinline__ void consume() const {
		touch_row();
		choose();
		Place p = {0, 0};
		float old = 0; // X at the column that this thread adds to
		// One loop, so that the code that multiplies is read once.
#pragma unroll 1
		for (int phase = 0; phase < 2; phase++) {
			if (phase) meet(a);
			const BlockSpan s = phase ? jobs() : units();
			const int R = phase ? 1 : 2, bricks = F::bricks(phase ? a.down.in.cols : a.gates.in.cols);
			const int parts = Ring::parts(bricks), slices = Ring::slices(bricks), tiles = (s.end - s.at) * R;
			// Threads finish outputs, 16 of each unit or job; biases are loaded meanwhile.
			const int mine = s.at + threadIdx.x / 16;
			const Biases biases = mine < s.end ? biases_of(phase, mine) : Biases{};
			if (phase && column(s) >= 0) old = a.down.x[column(s)];
			const Rows rows = phase ? round_gates() : round_row();
#pragma unroll 1
			for (int i = threadIdx.x / 32; i < tiles * parts; i += WARPS) {
				const int tile = i / parts;
				Place from = p;
				from.move(tile / R * R * slices + tile % R, ring.stages);
				float sum[1][1][4] = {};
				ring.multiply(sum, from, R, i % parts, bricks, rows);
				share(shared.partials[i], sum[0][0], phase ? (s.at + tile) % used() : 0);
			}
			p.move(tiles * slices, ring.stages);
			named_barrier_sync<ROW_CONSUMERS>(1);
			if (mine < s.end) phase ? finish_job(s, mine, parts, biases) : finish_unit(s, mine, parts, biases);
		}
		named_barrier_sync<ROW_CONSUMERS>(1);
		add(jobs(), old);
	}

	// touch_norm and touch_row bring the norm weights and the row to L1, before copies of weights keep memory busy.
	__device__ __forceinline__ void touch_norm() const {
		float v;
		const int k = threadIdx.x * 32;
		if (k < a.gates.in.cols) asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(a.gates.in.norm + k));
	}
	__device__ __forceinline__ void touch_row() const {
		float v;
		const int k = threadIdx.x * 32;
		if (k < a.gates.in.cols) asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(row() + k));
	}
	__device__ __forceinline__ const float *row() const {
		return a.gates.in.x + (size_t)(a.route.rows ? a.route.rows[0] : 0) * a.gates.in.cols;
	}
	__device__ __forceinline__ char *rounded() const { return ring.ring + ring.stages * ring.bytes; }
	// round_row rounds the row. round_gates rounds the results of the gates, one row for each expert.
	__device__ __forceinline__ Rows round_row() const {
		const Activations in = {row(), a.gates.in.norm, nullptr, a.gates.in.cols, 1, 0};
		const SharedRows<true, SUMS, WARPS, 1, 1, 2> rounder = {in, rounded(), shared.squares, 1};
		rounder.template round_rows<1, 2>(0, 0, 1);
		named_barrier_sync<ROW_CONSUMERS>(1);
		return rounder.rows(1);
	}
	__device__ __forceinline__ Rows round_gates() const {
		constexpr int ROWS = F::COLUMNS > QUARTER_COLUMNS ? 8 : 4; // at a time, with 8 loads in flight
		const Activations in = {a.down.in.x, nullptr, nullptr, a.down.in.cols, used(), 0};
		const SharedRows<false, SUMS, WARPS, ROWS, 1, 1> rounder = {in, rounded(), shared.squares, used()};
#pragma unroll 1
		for (int t = 0; t < used(); t += ROWS) rounder.template round_rows<ROWS, 8 / ROWS>(0, t, used());
		named_barrier_sync<ROW_CONSUMERS>(1);
		return rounder.rows(used());
	}
	// share leaves a partial sum of 16 rows for a token.
	static __device__ __forceinline__ void share(float *to, const float (&sum)[4], int token) {
		const int lane = threadIdx.x % 32;
		if (lane % 4 != token / 2) return; // another lane has it
		to[lane / 4] = token % 2 ? sum[1] : sum[0];
		to[lane / 4 + 8] = (token % 2 ? sum[3] : sum[2]) * (1.f / F::Code::LOWER);
	}

	static __device__ __forceinline__ float at_or_0(const float *p, int i) { return p ? p[i] : 0; }
	// biases_of returns those of this thread's output of unit or job i.
	__device__ __forceinline__ Biases biases_of(int phase, int i) const {
		const int row = threadIdx.x % 16;
		if (phase) return {at_or_0(a.down.bias, shared.expert[i % used()] * a.down.hidden + i / used() * 16 + row), 0};
		const int at = shared.expert[i / gate_tiles()] * a.gates.inner + i % gate_tiles() * 16 + row;
		return {at_or_0(a.gates.gateBias, at), at_or_0(a.gates.upBias, at)};
	}
	// total adds the partial sums of row tile `tile` of the block.
	__device__ __forceinline__ float total(int tile, int parts) const {
		return sum_of_first(&shared.partials[tile * parts][threadIdx.x % 16], 16, parts);
	}
	__device__ __forceinline__ void finish_unit(const BlockSpan &s, int unit, int parts, const Biases &b) const {
		const Activations in = {nullptr, nullptr, nullptr, a.gates.in.cols, 1, a.gates.in.eps};
		const float scale = Sums<F>::RESTORE * rms_scale(in, sum_in_order(shared.squares[0], 1));
		const int first = (unit - s.at) * 2, at = unit % gate_tiles() * 16 + threadIdx.x % 16;
		const float gate = __fmul_rn(scale, total(first, parts)), up = __fmul_rn(scale, total(first + 1, parts));
		a.gates.out[(size_t)(unit / gate_tiles()) * a.gates.inner + at] = ExpertGates{a.gates}.gated(
			a.gates.gateBias ? __fadd_rn(gate, b.gate) : gate, a.gates.upBias ? __fadd_rn(up, b.up) : up);
	}
	__device__ __forceinline__ void finish_job(const BlockSpan &s, int job, int parts, const Biases &b) const {
		const float y = __fmul_rn(Sums<F>::RESTORE, total(job - s.at, parts));
		shared.weighted[job - s.at][threadIdx.x % 16] =
			__fmul_rn(shared.weight[job % used()], a.down.bias ? __fadd_rn(y, b.gate) : y);
	}
	// column returns the column of X that this thread adds to, or -1: 16 threads have a row tile of the block's jobs.
	__device__ __forceinline__ int column(const BlockSpan &s) const {
		const int tile = s.at / used() + threadIdx.x / 16;
		return s.at < s.end && tile <= (s.end - 1) / used() ? tile * 16 + int(threadIdx.x % 16) : -1;
	}
	// add adds the results of the block's row tiles to X. Of a tile that other blocks have jobs of, the last block does.
	__device__ __forceinline__ void add(const BlockSpan &s, float old) const {
		const int at = column(s), tile = at / 16, row = threadIdx.x % 16;
		if (at < 0) return;
		const int first = tile * used() - s.at; // the tile's first job
		if (first >= 0 && first + used() <= s.end - s.at) {
			a.down.x[at] = __fadd_rn(old, in_order([&](int k) { return shared.weighted[first + k][row]; }));
			return;
		}
		const unsigned threads = 0xffffu << (threadIdx.x & 16), last = sharers(tile) - 1;
		float *const results = a.down.results + at;
		for (int k = max(0, -first); k < min(used(), s.end - s.at - first); k++)
			results[(size_t)k * a.down.hidden] = shared.weighted[first + k][row];
		__threadfence();
		__syncwarp(threads);
		unsigned before = 0;
		if (row == 0) before = increment_wrapping(a.arrivals + 2 + tile, last);
		if (__shfl_sync(threads, before, threadIdx.x & 16) != last) return;
		__threadfence();
		a.down.x[at] =
			__fadd_rn(old, in_order([&](int k) { return __ldcg(results + (size_t)k * a.down.hidden); }));
	}
	template <class Result> __device__ __forceinline__ float in_order(Result result) const {
		float all = result(0);
		for (int k = 1; k < used(); k++) all = __fadd_rn(all, result(k));
		return all;
	}

	// choose leaves the experts by rank, as route_choose does, and their weights. The producer is told as soon as the
	// experts are known. All warps count of each expert how many come before it.
	__device__ __forceinline__ void choose() const {
		const int experts = a.route.experts, lane = threadIdx.x % 32, i = threadIdx.x;
		const bool chooser = threadIdx.x / 32 == CHOOSER;
		if (i < MOST) shared.before[i] = 0;
		RouteScores<EACH> scores(a.route, 0);
		if (chooser) {
			uint32_t key[EACH];
			if (a.route.byScore) scores.make();
			scores.keys(key);
#pragma unroll
			for (int e = 0; e < EACH; e++) shared.key[scores.expert(e)] = key[e];
		}
		named_barrier_sync<ROW_CONSUMERS>(1);
		const int groups = (experts + 31) / 32, parts = WARPS / groups, part = i / 32 / groups;
		const int fours = (experts + 3) / 4, each = (fours + parts - 1) / parts;
		if (part < parts) count(i / 32 % groups * 32 + lane, part * each * 4, min(fours, (part + 1) * each) * 4);
		named_barrier_sync<ROW_CONSUMERS>(1);
		if (i < experts && shared.before[i] < used()) shared.expert[shared.before[i]] = i;
		named_barrier_sync<ROW_CONSUMERS + 32>(2); // with the producer
		if (!chooser) return;
		if (!a.route.byScore) scores.make();
#pragma unroll
		for (int e = 0; e < EACH; e++) shared.score[scores.expert(e)] = scores.score[e];
		__syncwarp();
		const int id = lane < used() ? shared.expert[lane] : 0;
		const float weight = scores.weight(lane < used() ? shared.score[id] : 0);
		if (lane < used()) shared.weight[lane] = weight;
		if (blockIdx.x == 0) route_store(a.route, 0, {id, weight});
	}
	// count counts those of experts `from` to end-1 that come before an expert: of equal keys the smaller number does.
	__device__ __forceinline__ void count(int expert, int from, int end) const {
		const uint32_t key = shared.key[expert], less = max(key, 1u) - 1;
		int before = 0;
		for (int i = from; i < end; i += 4) {
			const uint4 k = *reinterpret_cast<const uint4 *>(&shared.key[i]);
			before += (k.x > (i < expert ? less : key)) + (k.y > (i + 1 < expert ? less : key)) +
				(k.z > (i + 2 < expert ? less : key)) + (k.w > (i + 3 < expert ? less : key));
		}
		atomicAdd(&shared.before[expert], before);
	}
};

template <class F> __device__ __forceinline__ void experts_of_row(const ExpertsArgs &a) {
	using Block = ExpertsOfRow<F>;
	__shared__ typename Block::Shared shared;
	extern __shared__ uint4 roundedRows[];
	const Block b = {a, shared, {shared.barriers, reinterpret_cast<char *>(roundedRows), a.stages, a.stage}};
	if (threadIdx.x == ROW_CONSUMERS) b.ring.start();
	b.touch_norm();
	__syncthreads();
	pdl_wait();
	if (a.route.rows && a.route.rows[0] < 0) return; // a row of padding
	if (threadIdx.x < ROW_CONSUMERS) {
		increase_registers<112>();
		b.consume();
		return;
	}
	decrease_registers<24>();
	if (threadIdx.x / 32 > CODES_WARPS) return;
	named_barrier_sync<ROW_CONSUMERS + 32>(2); // the choice is there
	if (elect_one()) b.produce();
	pdl_launch_dependents();
}
#endif
