// Products of many rows on Hopper. A block owns 64*M outputs and T tokens; one warp
// has the copy engine bring pieces of weights and of rounded activations into shared
// memory, several stages ahead, and G*M warpgroups multiply them with wgmma: the
// weights from registers, the activations from shared memory. G teams share the
// partial sums (common.cuh). wgmma gives the bits of mma.sync, so that the results are
// those of narrow.cuh; a test compares them.
#pragma once
#include "wide.cuh"

constexpr int ATOM = 8;                             // tokens that wgmma's swizzle takes together
constexpr int PIECE_BYTES = PIECE * STEP * 2;       // of a token
constexpr int ATOM_BYTES = ATOM * PIECE_BYTES;
constexpr int TILE_PIECE = PIECE * 512;             // bytes of a piece of a row tile

// Rounded activations are [pieces][tokens/8][8 tokens][128 bytes], the 16-byte chunks
// of a token exchanged as wgmma's 128-byte swizzle wants them.
struct RoundArgs {
	Activations in;
	char *out;
	float *scales;  // out: [tokens], where in has a norm
	int32_t tokens; // a multiple of 8, not below in.n
	int32_t unused;
};

// What a deep product reads beside its op's arguments.
struct Rounded {
	const char *rows;    // as above
	const float *scales; // [tokens]; or, where parts is not 0, squares [parts][tokens] that make them
	int32_t tokens;      // a multiple of 8
	int32_t parts;
};

// Where a product leaves its rows rounded for the next one, or null.
struct Onward {
	char *rows;        // as Rounded has them
	const float *norm; // [columns], or null: what the next product multiplies them with first
	float *squares;    // [columns/128][tokens], where there is a norm: each row's, over 128 columns
	int32_t tokens, unused;
};

// The place of columns k and k+1 of token t among rounded activations; k a multiple of 4. Those
// of k+2 and k+3 are 16 bytes of a token on, exchanged as they are.
__device__ __forceinline__ void store_rounded(char *rows, int tokens, int t, int k, uint2 v) {
	const int piece = k / (PIECE * STEP), quad = k / 4 % (PIECE * STEP / 4), place = t % ATOM;
	uint32_t *to = reinterpret_cast<uint32_t *>(rows) + ((size_t)piece * (tokens / ATOM) + t / ATOM) * (ATOM_BYTES / 4) + place * (PIECE_BYTES / 4) + quad % 4;
	to[(quad / 4 * 2 ^ place) * 4] = v.x;
	to[((quad / 4 * 2 + 1) ^ place) * 4] = v.y;
}

// A token's place among rounded activations, from some column on, a multiple of 8.
struct RoundedToken {
	char *piece;     // the token's part of that column's piece
	uint32_t stride; // bytes from piece to piece
	uint32_t eighth; // of the piece, in which the column is
	uint32_t place;  // of the token in its atom

	__device__ __forceinline__ RoundedToken(char *rows, int tokens, uint32_t t, uint32_t column)
		: piece(rows + ((size_t)(column / (PIECE * STEP)) * (tokens / ATOM) + t / ATOM) * ATOM_BYTES + t % ATOM * PIECE_BYTES),
		  stride(tokens / ATOM * ATOM_BYTES), eighth(column / 8 % (PIECE * STEP / 8)), place(t % ATOM) {}

	// Puts columns 8i+k and the next, counted from there; k even and below 8.
	__device__ __forceinline__ void put(uint32_t i, uint32_t k, uint32_t v) const {
		const uint32_t at = eighth + i, chunk = at % 8 / 2 * 2 + k / 2 % 2, word = at % 2 * 2 + k / 4;
		*reinterpret_cast<uint32_t *>(piece + (size_t)(at / 8) * stride + (chunk ^ place) * 16 + word * 4) = v;
	}
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives for a warp, all of which is done. Racecheck does not follow a lane that does so
// for the others: in the kernels that are made for it every lane arrives.
#ifdef REEL_EVERY_LANE
constexpr int WARP_ARRIVALS = 32;
__device__ __forceinline__ void warp_arrive(uint32_t barrier) { barrier_arrive(barrier); }
#else
constexpr int WARP_ARRIVALS = 1;
__device__ __forceinline__ void warp_arrive(uint32_t barrier) {
	__syncwarp();
	if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
#endif
// The same where it is to, without a branch.
__device__ __forceinline__ void warp_arrive_if(bool any, uint32_t barrier) {
	const int arrives = any && threadIdx.x % (32 / WARP_ARRIVALS) == 0;
	__syncwarp();
	asm volatile("{ .reg .pred arrives; setp.ne.b32 arrives, %1, 0; @arrives mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(barrier), "r"(arrives) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int phase) {
	asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(barrier), "r"(phase) : "memory");
}
// bring has the copy engine bring bytes, a multiple of 16; barrier hears of them.
__device__ __forceinline__ void bring(uint32_t to, const void *from, int bytes, uint32_t barrier) {
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ uint4 load_shared(uint32_t from) {
	uint4 v;
	asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
	return v;
}

__device__ __forceinline__ float4 load_four(uint32_t from) {
	const uint4 v = load_shared(from);
	return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}
__device__ __forceinline__ float load_one(uint32_t from) {
	float v;
	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
	return v;
}

// wgmma's description of a swizzled tile: rows of 128 bytes, 1,024 between atoms.
__device__ __forceinline__ uint64_t tile_of(uint32_t address) {
	return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(ATOM_BYTES >> 4) << 32 | (uint64_t)1 << 62;
}

#include "wgmma.cuh"

// The compiler leaves sums where they are.
template <int N> __device__ __forceinline__ void hold(float (&sum)[N]) {
#pragma unroll
	for (int e = 0; e < N; e++) asm volatile("" : "+f"(sum[e])::"memory");
}

template <class Op, class D, int M, int G, int T> struct Deep {
	static constexpr int CONSUMERS = 128 * M * G, THREADS = CONSUMERS + 32;
	static constexpr int TILES = 4 * M, PARTS = PARTIALS / G, N = T / 8, TOKENS = T;
	static constexpr int WEIGHTS = TILES * TILE_PIECE, ROWS = T * PIECE_BYTES; // bytes of a team in a stage
	static constexpr int STAGE = G * (WEIGHTS + ROWS);
	static constexpr int REGION = T * COLUMN;           // floats of a warp's results
	static constexpr int RESULTS = G * TILES * REGION * 4;
	// With one team results grow while stages are in use; else they take their place.
	static constexpr int BARRIERS = 1024, STAGES = (227 * 1024 - BARRIERS - (G == 1 ? RESULTS : 0)) / STAGE;
	static constexpr int AT = BARRIERS + (G == 1 ? STAGES * STAGE : 0);
	static constexpr int BYTES = BARRIERS + STAGES * STAGE + (G == 1 ? RESULTS : 0);
	static_assert(G == 1 || G == GROUPS && RESULTS <= STAGES * STAGE);
	static_assert(STAGES >= 3 && ROWS % 1024 == 0);

	const Op &op;
	const Activations &in;
	const Rounded &rounded;
	char *const shared;
	const int first, steps, rounds;

	__device__ __forceinline__ Deep(const Op &op, const Rounded &rounded, char *shared)
		: op(op), in(op.activations()), rounded(rounded), shared(shared), first(blockIdx.x * T), steps(in.cols / STEP),
		  rounds((steps + PIECE * PARTIALS - 1) / (PIECE * PARTIALS)) {}

	__device__ __forceinline__ uint32_t full(int s) const { return shared_address(shared) + s * 16; }
	__device__ __forceinline__ uint32_t empty(int s) const { return full(s) + 8; }
	__device__ __forceinline__ uint32_t weights(int s, int team) const { return shared_address(shared) + BARRIERS + s * STAGE + team * (WEIGHTS + ROWS); }
	__device__ __forceinline__ uint32_t rows(int s, int team) const { return weights(s, team) + WEIGHTS; }

	// Where a thread is in the run of stages: which goes through a team's partial sums,
	// and through the pieces of each. Divisions would cost more than a stage takes.
	struct Cursor {
		int part = 0, round = 0, stage = 0, phase = 0;
		__device__ __forceinline__ void next(int rounds) {
			if (++round == rounds) round = 0, part++;
			if (++stage == STAGES) stage = 0, phase ^= 1;
		}
	};
	static __device__ __forceinline__ int piece(const Cursor &c, int team) { return team * PARTS + c.part + c.round * PARTIALS; }

	// Steps of a piece, 0 for one past the last.
	__device__ __forceinline__ int steps_in(int piece) const { return min(max(steps - piece * PIECE, 0), PIECE); }
	__device__ __forceinline__ int row_bytes() const { return min(T, rounded.tokens - first) * PIECE_BYTES; }

	__device__ __forceinline__ void start_barriers() {
		if (threadIdx.x == 0) {
			for (int s = 0; s < STAGES; s++) {
				barrier_init(full(s), 1);
				barrier_init(empty(s), CONSUMERS / 32 * WARP_ARRIVALS);
			}
			asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
		}
		__syncthreads();
	}

	// One warp keeps the stages full. A lane has one part of each stage to bring: a row
	// tile's weights, or a team's rows. Weights come before the kernel before has ended.
	struct Part {
		bool there, rows;
		int team, bytes, stride; // bytes of a whole piece, and from piece to piece
		uint32_t to;             // in a stage
		const char *from;        // piece 0
	};

	__device__ __forceinline__ Part part_of(int lane) const {
		const int team = lane / (TILES + 1), tile = lane % (TILES + 1), unit = blockIdx.y * (TILES / Op::R) + tile / Op::R;
		static_assert(G * (TILES + 1) <= 32, "a lane for each part");
		if (tile == TILES)
			return {team < G, true, team, row_bytes(), rounded.tokens / ATOM * ATOM_BYTES, static_cast<uint32_t>(team * (WEIGHTS + ROWS) + WEIGHTS),
				rounded.rows + (size_t)(first / ATOM) * ATOM_BYTES};
		const bool there = team < G && unit < op.units();
		return {there, false, team, TILE_PIECE, TILE_PIECE, static_cast<uint32_t>(team * (WEIGHTS + ROWS) + tile * TILE_PIECE),
			there ? reinterpret_cast<const char *>(op.tile(unit, tile % Op::R)) : nullptr};
	}

	// The bytes of a part in the stage at c.
	__device__ __forceinline__ int bytes_of(const Part &part, const Cursor &c) const {
		const int n = part.there ? steps_in(piece(c, part.team)) : 0;
		return part.rows ? (n ? part.bytes : 0) : n * (TILE_PIECE / PIECE);
	}

	__device__ __forceinline__ void bring_part(const Part &part, const Cursor &c) {
		if (const int bytes = bytes_of(part, c))
			bring(weights(c.stage, 0) + part.to, part.from + (size_t)piece(c, part.team) * part.stride, bytes, full(c.stage));
	}

	// Lets a stage's barrier know what will come.
	__device__ __forceinline__ void expect(const Part &part, const Cursor &c) {
		const int total = __reduce_add_sync(~0u, bytes_of(part, c));
		if ((threadIdx.x & 31) == 0) barrier_expect(full(c.stage), total);
		__syncwarp();
	}

	__device__ __forceinline__ void produce() {
		const Part part = part_of(threadIdx.x & 31);
		Cursor c, rows;
		for (int i = 0; i < STAGES && c.part < PARTS; i++, c.next(rounds)) {
			expect(part, c);
			if (!part.rows) bring_part(part, c);
		}
		begin_product<Op::ATTENDED>();
		for (int i = 0; i < STAGES && rows.part < PARTS; i++, rows.next(rounds))
			if (part.rows) bring_part(part, rows);
		for (; c.part < PARTS; c.next(rounds)) {
			barrier_wait(empty(c.stage), c.phase ^ 1);
			expect(part, c);
			bring_part(part, c);
		}
	}

	// A warpgroup's sums: its team's partial sums of 64 outputs, its warps 16 each.
	__device__ __forceinline__ void consume() {
		// wgmma wants the compiler to know that a warp goes one way.
		const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31, team = warp / TILES, tile = warp % TILES;
		float sum[N * 4], group[N * 4];
#pragma unroll
		for (int e = 0; e < N * 4; e++) sum[e] = 0;
		Cursor c;
		for (int part = 0; part < PARTS; part++) {
			for (int round = 0; round < rounds; round++, c.next(rounds)) {
				const int valid = steps_in(piece(c, team));
				barrier_wait(full(c.stage), c.phase);
				if (valid > 0) multiply(sum, weights(c.stage, team) + tile * TILE_PIECE + lane * 16, rows(c.stage, team), valid);
				warp_arrive(empty(c.stage));
			}
			const bool begins = part % PER_GROUP == 0, ends = part % PER_GROUP == PER_GROUP - 1;
#pragma unroll
			for (int e = 0; e < N * 4; e++) {
				group[e] = begins ? sum[e] : __fadd_rn(group[e], sum[e]);
				sum[e] = 0;
			}
			if (G == 1 && ends) keep(warp, lane, group, part >= PER_GROUP);
		}
		wait_for_consumers();
		if (G > 1) keep(warp, lane, group, false);
		wait_for_consumers();
	}

	// Puts sums of this warp into its region, or adds them to what is there.
	__device__ __forceinline__ void keep(int warp, int lane, const float (&group)[N * 4], bool add) {
#pragma unroll
		for (int e = 0; e < N * 4; e++) {
			float *p = region(warp) + (e / 4 * 8 + (lane & 3) * 2 + (e & 1)) * COLUMN + lane / 4 + (e >> 1 & 1) * 8;
			*p = add ? __fadd_rn(*p, group[e]) : group[e];
		}
	}

	__device__ __forceinline__ void multiply(float (&sum)[N * 4], uint32_t from, uint32_t rows, int valid) {
		uint4 a[PIECE];
#pragma unroll
		for (int j = 0; j < PIECE; j++)
			a[j] = load_shared(from + j * 512);
		if (valid < PIECE) { // a step that is not there: its activations are 0, and so must be its weights
#pragma unroll
			for (int j = 0; j < PIECE; j++)
				if (j >= valid) a[j] = {0, 0, 0, 0};
		}
		hold(sum);
		asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
		for (int j = 0; j < PIECE; j++) wgmma<D, T>(sum, a[j], tile_of(rows + j * STEP * 2));
		asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
		asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
		hold(sum);
	}

	__device__ __forceinline__ void wait_for_consumers() { asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory"); }
	__device__ __forceinline__ float *region(int warp) const { return reinterpret_cast<float *>(shared + AT) + warp * REGION; }
	__device__ __forceinline__ float result(int tile, int token, int row) const {
		const float *p = region(tile) + token * COLUMN + row;
		float s = p[0];
#pragma unroll
		for (int q = 1; q < G; q++) s = __fadd_rn(s, p[q * TILES * REGION]);
		return s;
	}
	__device__ __forceinline__ float scale(int token) const { return Op::NORMED ? rounded.scales[first + token] : 1.f; }
};

template <class Op> struct DeepArgs {
	typename Op::Args op;
	Rounded rounded;
};

template <class Op, class D, int M, int G, int T> __device__ __forceinline__ void deep(const DeepArgs<Op> &a) {
	using Block = Deep<Op, D, M, G, T>;
	extern __shared__ __align__(1024) char deepShared[];
	const Op op(a.op);
	Block b(op, a.rounded, deepShared);
	b.start_barriers();
	if (threadIdx.x >= Block::CONSUMERS) {
		b.produce();
		return;
	}
	await_previous();
	b.consume();
	finish_all<Op, Block, Block::CONSUMERS>(op, b);
}
#endif
