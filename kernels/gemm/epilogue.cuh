// The epilogue of a stream-K product: results of an output tile go through shared memory to the op,
// which stores them and may round them as input of the next product.
#pragma once
#include "gemm/operands.cuh"
#include "gemm/rounded.cuh"
#include "ptx/memory.cuh"
#include "ptx/warp.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Epilogue passes 128 outputs of some tokens to the op, with THREADS threads.
// AHEAD batches of BATCH tokens per thread are looked up before use. More tokens would overlap more loads, but in
// stream-K the unrolled code runs only once or twice per kernel and is fetched from L2 (notes/stream_k.md, version 18).
template <class Op, class D, int THREADS, int AHEAD = Op::QUADS_AHEAD, int BATCH = 2> struct Epilogue {
	static constexpr int TILES = 8; // of 16 outputs
	static constexpr int UNITS = TILES / Op::R; // of the op
	static constexpr int PITCH = TILES * 16 + 4; // floats per token
	// Tokens that all threads process at once, four rows per thread.
	static constexpr int EACH = THREADS / (4 * UNITS);
	using Quad = typename Op::Quad; // values loaded for four rows of a token
	// Values loaded ahead of use, for a thread's next tokens.
	struct Lookahead {
		Quad quad[AHEAD + 1][BATCH];
	};

	const Op &op;
	const Handover &handover;
	const uint32_t staging, scales;          // shared: float [token][PITCH], and [token of the tile]
	const typename Op::TokenInfo *tokenInfo; // [token of the tile]
	const int firstUnit, endUnit;            // of the output tile, and of the product
	const int tileStart;                     // first token of the token tile
	const int first, n;                      // tokens of the tile to finish: first to first+n-1
	const int thread;

	// staged_address returns the address of a row of the tile's unit `which`. The first row tiles
	// of all units come before the second ones, so that neither stores nor loads of a warp conflict
	// in a bank.
	__device__ __forceinline__ uint32_t staged_address(int which, int r, int token, int row) const {
		return staging + (token * PITCH + (r * UNITS + which) * 16 + row) * 4;
	}

	// stagedSums returns the address of a lane's sums of the first eight tokens.
	__device__ __forceinline__ uint32_t stagedSums() const {
		const int lane = thread % 32, warp = thread >> 5;
		return opaque(staged_address(warp / Op::R, warp % Op::R, (lane & 3) * 2, lane / 4));
	}
	// stage stores a lane's sums of the i-th eight tokens: two rows of two tokens.
	static __device__ __forceinline__ void stage(uint32_t stagedSums, int i, const float4 &v) {
		const uint32_t to = stagedSums + i * TOKEN_GROUP * PITCH * 4;
		store_shared(to, v.x);
		store_shared(to + PITCH * 4, v.y);
		store_shared(to + 32, v.z);
		store_shared(to + PITCH * 4 + 32, v.w);
	}
	// staged loads what stage stored.
	static __device__ __forceinline__ float4 staged(uint32_t stagedSums, int i) {
		const uint32_t at = stagedSums + i * TOKEN_GROUP * PITCH * 4;
		return {load_shared_float(at), load_shared_float(at + PITCH * 4), load_shared_float(at + 32),
			load_shared_float(at + PITCH * 4 + 32)};
	}
	// stage_all does so for all sums of a lane, after those of `skip` tokens.
	template <int N> __device__ __forceinline__ void stage_all(const float (&sum)[N], int skip) const {
		const uint32_t to = stagedSums() + skip * PITCH * 4;
#pragma unroll
		for (int i = 0; i < N / 4; i++) stage(to, i, {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]});
	}

	// A thread's four rows: the unit within the output tile, and the first row.
	__device__ __forceinline__ int which() const { return thread / 4 % UNITS; }
	__device__ __forceinline__ int row() const { return thread % 4 * 4; }
	__device__ __forceinline__ int mine() const { return thread / (4 * UNITS); } // index among EACH tokens
	__device__ __forceinline__ bool valid() const { return firstUnit + which() < endUnit; }
	__device__ __forceinline__ int valid_unit() const { return firstUnit + (valid() ? which() : 0); }

	// look_up loads the values for a batch of tokens from token i on. Past the end it loads those
	// of the last token.
	__device__ __forceinline__ void look_up(const typename Op::UnitRows &rows, int i, Quad (&quad)[BATCH]) const {
#pragma unroll
		for (int b = 0; b < BATCH; b++) {
			const int token = first + min(i + mine() + b * EACH, n - 1);
			quad[b].look_up(op.o, rows, tileStart + token, tokenInfo[token]);
		}
	}
	__device__ __forceinline__ void look_ahead(Lookahead &lookahead) const {
		if (n <= 0) return;
		const typename Op::UnitRows rows(op.o, valid_unit(), row());
#pragma unroll
		for (int i = 0; i < AHEAD; i++) look_up(rows, i * BATCH * EACH, lookahead.quad[i]);
	}

	// finish passes the results of n tokens to the op. Staging begins with the first of them. Each
	// thread has called look_ahead.
	__device__ __forceinline__ void finish(Lookahead &lookahead) const {
		if (!Op::HANDS_OVER || !handover.rows)
			finish_quads<false, false>(lookahead);
		else if (Op::HANDOVER_NORMED && handover.norm)
			finish_quads<Op::HANDS_OVER, Op::HANDOVER_NORMED>(lookahead);
		else
			finish_quads<Op::HANDS_OVER, false>(lookahead);
	}

	// finish_quads passes four rows per thread and BATCH tokens at a time. Threads do not branch,
	// so that the steps of several tokens overlap; for a missing token they compute, but store
	// nothing.
	template <bool HANDS_OVER, bool NORM> __device__ __forceinline__ void finish_quads(Lookahead &lookahead) const {
		const int k = valid_unit() * 16 + row(), mine = this->mine();
		const typename Op::UnitRows rows(op.o, valid_unit(), row());
		const bool valid = this->valid();
		float4 norm;
		if (NORM) norm = load_constant(handover.norm + k);
		// A thread's tokens have places of their own in a group of eight, whose chunks are permuted by token.
		constexpr int PLACES = EACH < TOKEN_GROUP ? TOKEN_GROUP / EACH : 1;
		static_assert(BATCH % PLACES == 0);
		char *roundedTo[PLACES];
#pragma unroll
		for (int i = 0; i < (HANDS_OVER ? PLACES : 0); i++)
			roundedTo[i] = rounded_address(tileStart + first + mine + i * EACH, k);
		uint32_t result = opaque(staged_address(which(), 0, mine, row())), by = opaque(scales + (first + mine) * 4);
#pragma unroll 1
		for (int i = 0; i < n; i += BATCH * EACH, result += BATCH * EACH * PITCH * 4, by += BATCH * EACH * 4) {
			look_up(rows, i + AHEAD * BATCH * EACH, lookahead.quad[AHEAD]);
			float4 v[BATCH][Op::R];
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const float scale = Op::NORMED ? load_shared_float(by + b * EACH * 4) : 1.f;
#pragma unroll
				for (int r = 0; r < Op::R; r++)
					v[b][r] = times(load_shared_float4(result + b * EACH * PITCH * 4 + r * UNITS * 64),
						{scale, scale, scale, scale});
			}
#pragma unroll
			for (int b = 0; b < BATCH; b++) {
				const int token = first + min(i + mine + b * EACH, n - 1);
				v[b][0] = lookahead.quad[0][b].finish(op.o, rows, tileStart + token, tokenInfo[token], v[b], HANDS_OVER,
					valid && i + mine + b * EACH < n);
			}
#pragma unroll
			for (int b = 0; b < (HANDS_OVER ? BATCH : 0); b++) {
				const bool exists = valid && i + mine + b * EACH < n;
				if (NORM) {
					store_squares(tileStart + first + i + mine + b * EACH, k, valid ? v[b][0] : float4{}, exists);
					v[b][0] = times(v[b][0], norm);
				}
				store_rounded_quad(roundedTo[b % PLACES] + b / PLACES * PLACES * EACH * TOKEN_BLOCK_BYTES, row() / 4 % 2,
					v[b][0], exists);
			}
#pragma unroll
			for (int p = 0; p < (HANDS_OVER ? PLACES : 0); p++) roundedTo[p] += BATCH * EACH * TOKEN_BLOCK_BYTES;
#pragma unroll
			for (int a = 0; a < AHEAD; a++)
#pragma unroll
				for (int b = 0; b < BATCH; b++) lookahead.quad[a][b] = lookahead.quad[a + 1][b];
		}
	}

	// store_squares stores the sum of a token's squares over 128 columns from k on, which one warp
	// holds.
	__device__ __forceinline__ void store_squares(int token, int k, const float4 &v, bool exists) const {
		float square = add_squares(0, v);
#pragma unroll
		for (int lane = 1; lane < 32; lane *= 2) square = __fadd_rn(square, __shfl_xor_sync(~0u, square, lane));
		if (exists && threadIdx.x % 32 == 0) handover.squares[(size_t)(k / 128) * handover.tokens + token] = square;
	}

	// store_rounded_quad stores four results of a token as input of the next product. A thread has
	// one word in each of two chunks (store_rounded); it exchanges one with its neighbour and
	// stores two words of one chunk.
	static __device__ __forceinline__ void store_rounded_quad(char *to, bool odd, const float4 &v, bool exists) {
		const uint2 mine = ::pack4<D>(v);
		const uint32_t other = __shfl_xor_sync(~0u, odd ? mine.x : mine.y, 1);
		if (exists) *reinterpret_cast<uint2 *>(to) = odd ? uint2{other, mine.y} : uint2{mine.x, other};
	}
	// rounded_address returns the address of the two words that a thread stores of columns k to k+3
	// and its neighbour's.
	__device__ __forceinline__ char *rounded_address(int token, int k) const {
		const int block = k / K_BLOCK, chunk = k / MMA_K % BLOCK_STEPS * 2 + k / 4 % 2, row = token % TOKEN_GROUP;
		return handover.rows + ((size_t)block * (handover.tokens / TOKEN_GROUP) + token / TOKEN_GROUP) * GROUP_BYTES +
			row * TOKEN_BLOCK_BYTES + (chunk ^ row) * 16 + k % MMA_K / 8 * 8;
	}
};
#endif
