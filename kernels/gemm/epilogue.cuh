// The results of a unit of a prompt's product (prompt.cuh): where they are in shared memory,
// and how they go to the op, and rounded to the next product.
#pragma once
#include "gemm/operands.cuh"
#include "gemm/rounded.cuh"
#include "ptx/warp.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// THREADS threads hand over 128 outputs of some tokens.
template <class Op, class D, int THREADS> struct Results {
	static constexpr int TILES = 8, UNITS = TILES / Op::R; // of 16 outputs, and of the op's units
	static constexpr int PITCH = TILES * 16 + 4;           // floats of a token
	static constexpr int EACH = THREADS / (4 * UNITS);     // tokens that all threads have at a time, four rows each
	// How many such a thread has together. More of them wait for memory together, but a
	// kernel runs this once or twice, so that reading its instructions takes longer (NOTES.md).
	static constexpr int BATCH = 2;
	using Quad = typename Op::Quad; // what is looked up for four rows of a token
	// What is looked up before it is needed, of the next tokens of a thread.
	struct Ahead {
		Quad quad[Op::AHEAD + 1][BATCH];
	};

	const Op &op;
	const Onward &next;
	const uint32_t at, scales;        // shared: float [token][PITCH], and [token of the tile]
	const typename Op::Place *places; // [token of the tile]
	const int unit, tile, first, n;   // the block's unit, the tile's first token, and of the tile, the first of n tokens to hand over
	const int me;

	// Where a row is of the block's unit `which`. The units' first row tiles come before their
	// second ones, so that neither a warp's stores nor its loads meet in a bank.
	__device__ __forceinline__ uint32_t place_of(int which, int r, int token, int row) const { return at + (token * PITCH + (r * UNITS + which) * 16 + row) * 4; }

	// Where a lane keeps its sums of the first eight tokens.
	__device__ __forceinline__ uint32_t kept() const {
		const int lane = me % 32, warp = me >> 5;
		return opaque(place_of(warp / Op::R, warp % Op::R, (lane & 3) * 2, lane / 4));
	}
	// Keeps a lane's sums of the i-th eight tokens: of two rows and two tokens.
	static __device__ __forceinline__ void keep(uint32_t kept, int i, const float4 &v) {
		const uint32_t to = kept + i * ATOM * PITCH * 4;
		store_shared(to, v.x);
		store_shared(to + PITCH * 4, v.y);
		store_shared(to + 32, v.z);
		store_shared(to + PITCH * 4 + 32, v.w);
	}
	template <int N> __device__ __forceinline__ void keep_all(const float (&sum)[N]) const {
		const uint32_t to = kept();
#pragma unroll
		for (int i = 0; i < N / 4; i++) keep(to, i, {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]});
	}

	// A thread's four rows: of which of the op's units of the block, and from which row on.
	__device__ __forceinline__ int which() const { return me / 4 % UNITS; }
	__device__ __forceinline__ int row() const { return me % 4 * 4; }
	__device__ __forceinline__ int mine() const { return me / (4 * UNITS); } // which of EACH tokens
	__device__ __forceinline__ bool valid() const { return unit * UNITS + which() < op.units(); }
	__device__ __forceinline__ int unit_there() const { return unit * UNITS + (valid() ? which() : 0); }

	// Looks up what a batch's tokens need, from the i-th token on, or of the last one where they are no more.
	__device__ __forceinline__ void look_up(const typename Op::Spot &spot, int i, Quad (&quad)[BATCH]) const {
#pragma unroll
		for (int b = 0; b < BATCH; b++) {
			const int token = first + min(i + mine() + b * EACH, n - 1);
			quad[b].look_up(op.o, spot, tile + token, places[token]);
		}
	}
	__device__ __forceinline__ void look_ahead(Ahead &ahead) const {
		if (n <= 0) return;
		const typename Op::Spot spot(op.o, unit_there(), row());
#pragma unroll
		for (int i = 0; i < Op::AHEAD; i++) look_up(spot, i * BATCH * EACH, ahead.quad[i]);
	}

	// Hands the op the results of the n tokens; those in shared memory begin with the first of
	// them. The thread has looked ahead for itself.
	__device__ __forceinline__ void finish(Ahead &ahead) const {
		if (!Op::ONWARD || !next.rows)
			finish_quads<false, false>(ahead);
		else if (Op::NORMED_NEXT && next.norm)
			finish_quads<Op::ONWARD, Op::NORMED_NEXT>(ahead);
		else
			finish_quads<Op::ONWARD, false>(ahead);
	}

	// Four rows a thread of BATCH tokens at a time. No thread branches off, so that the steps of
	// several tokens fill each other's gaps; for a token that is not there it does something,
	// and stores nothing.
	template <bool ONWARD, bool NORM> __device__ __forceinline__ void finish_quads(Ahead &ahead) const {
		const int k = unit_there() * 16 + row(), mine = this->mine();
		const typename Op::Spot spot(op.o, unit_there(), row());
		const bool valid = this->valid();
		float4 norm;
		if (NORM) norm = load_constant(next.norm + k);
		char *onward = ONWARD ? onward_at(tile + first + mine, k) : nullptr;
		uint32_t result = opaque(place_of(which(), 0, mine, row())), by = opaque(scales + (first + mine) * 4);
#pragma unroll 1
		for (int i = 0; i < n; i += BATCH * EACH, onward += BATCH * EACH * PIECE_BYTES, result += BATCH * EACH * PITCH * 4, by += BATCH * EACH * 4) {
			look_up(spot, i + Op::AHEAD * BATCH * EACH, ahead.quad[Op::AHEAD]);
			float4 v[BATCH][Op::R];
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const float scale = Op::NORMED ? load_shared_float(by + b * EACH * 4) : 1.f;
#pragma unroll
				for (int r = 0; r < Op::R; r++) v[b][r] = times(load_shared_float4(result + b * EACH * PITCH * 4 + r * UNITS * 64), {scale, scale, scale, scale});
			}
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const int token = first + min(i + mine + b * EACH, n - 1);
				v[b][0] = ahead.quad[0][b].finish(op.o, spot, tile + token, places[token], v[b], ONWARD, valid && i + mine + b * EACH < n);
			}
#pragma unroll
			for (int b = 0; b < (ONWARD ? BATCH : 0); b++) {
				const bool there = valid && i + mine + b * EACH < n;
				if (NORM) {
					hand_squares(tile + first + i + mine + b * EACH, k, valid ? v[b][0] : float4{}, there);
					v[b][0] = times(v[b][0], norm);
				}
				hand_on(onward + b * EACH * PIECE_BYTES, row() / 4 % 2, v[b][0], there);
			}
#pragma unroll
			for (int a = 0; a < Op::AHEAD; a++)
#pragma unroll
				for (int b = 0; b < BATCH; b++) ahead.quad[a][b] = ahead.quad[a + 1][b];
		}
	}

	// Leaves a token's squares over 128 columns, from k on, which the threads of a warp have.
	__device__ __forceinline__ void hand_squares(int token, int k, const float4 &v, bool there) const {
		float square = add_squares(0, v);
#pragma unroll
		for (int lane = 1; lane < 32; lane *= 2) square = __fadd_rn(square, __shfl_xor_sync(~0u, square, lane));
		if (there && threadIdx.x % 32 == 0) next.squares[(size_t)(k / 128) * next.tokens + token] = square;
	}

	// Leaves four of a token's results for the next product, at a thread's place of them. A thread
	// has words of two chunks (store_rounded); it takes its neighbour's of one of them.
	static __device__ __forceinline__ void hand_on(char *to, bool odd, const float4 &v, bool there) {
		const uint2 mine = ::rounded<D>(v);
		const uint32_t other = __shfl_xor_sync(~0u, odd ? mine.x : mine.y, 1);
		if (there) *reinterpret_cast<uint2 *>(to) = odd ? uint2{other, mine.y} : uint2{mine.x, other};
	}
	// Where a thread's two words of columns k to k+3 of a token go, and its neighbour's.
	__device__ __forceinline__ char *onward_at(int token, int k) const {
		const int piece = k / (PIECE * STEP), chunk = k / STEP % PIECE * 2 + k / 4 % 2, place = token % ATOM;
		return next.rows + ((size_t)piece * (next.tokens / ATOM) + token / ATOM) * ATOM_BYTES + place * PIECE_BYTES + (chunk ^ place) * 16 + k % STEP / 8 * 8;
	}
};
#endif
