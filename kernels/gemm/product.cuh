// The kernels of a product op: one for each element type and variant.
//
// An op (QKV, Projection, GateUp, Head) is a struct: it names the weights and the activations of the
// product, and stores the results. It computes units: R row tiles of 16 weight rows each. Row i of
// the tiles gives output i of the unit: one result, or the two of a RoPE pair (QKV), which it stores
// dim/2 apart. It has these members:
//
//   Args                    its argument struct, which the launcher in Go mirrors; Op(const Args &)
//   o                       const Args &, its arguments; the stream-K epilogue reads them
//   R                       row tiles per unit: 1, or 2 (gate and up; RoPE pairs)
//   NORMED                  whether the input has norm weights, and sums are scaled by rms_scale
//   ATTENTION_NEXT          whether the next kernel, as attention, may read before it waits (begin_product)
//   PERSISTENT_GEMV         persistent blocks per SM of gemv; 0: one block per unit
//   PERSISTENT_SKINNY       the same for skinny8; launchers must use the same numbers
//   activations()           the input rows
//   units()                 number of units
//   row_tile(unit, r)       row tile r of a unit
//   finish(unit, row, t, y) stores output `row` of a unit for token t; y has the sum of each row tile
//
// Values that finish needs beside the sums are loaded in one of two ways:
//
//   PREPARES_EARLY          true: prepare runs before the sums; false: prefetch and use_prefetched do it
//   prepare(unit, row, t)   loads them to registers; the tiled and wgmma variants always call it
//   Prefetched              the copy in shared memory; an empty struct if PREPARES_EARLY
//   prefetch(unit, row, t, to)        starts the copies by cp.async
//   use_prefetched(unit, row, t, v)   takes the values to registers after the copies are complete
//
// For the epilogues of many and of stream-K an op also has:
//
//   HANDS_OVER              whether the epilogue can round the result as input of the next product; finish then
//                           returns it
//   HANDOVER_NORMED         whether that next product can have norm weights
//   TokenInfo, token_info(t)          values that the op looks up once for each token of a token tile
//   UnitRows(args, unit, row)         addresses that depend on four consecutive rows of a unit alone
//   QUADS_AHEAD             batches of tokens for which Quads are loaded before use
//   Quad                    values for four rows of one token:
//     look_up<DECODE>(args, rows, t, info)   loads them; DECODE: for many
//     finish(args, rows, t, info, y, handsOver, exists)
//                                     stores the results of the four rows (QKV: eight) unless exists is
//                                     false, and returns four, to be handed over; y[r] has the sums of
//                                     row tile r
#pragma once
#include "gemm/codes.cuh"
#include "gemm/codes_many.cuh"
#include "gemm/codes_ring.cuh"
#include "gemm/codes_tagged.cuh"
#include "gemm/gemv.cuh"
#include "gemm/many.cuh"
#include "gemm/mixed.cuh"
#include "gemm/operands.cuh"
#include "gemm/skinny.cuh"
#include "gemm/spread.cuh"
#include "gemm/stream_k.cuh"
#include "gemm/tagged.cuh"
#include "gemm/tiled.cuh"
#include "gemm/wgmma.cuh"
#include "gemm/whole.cuh"

#define REEL_KERNEL(name, threads, blocks, body, ...) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__) { body; }
// A kernel whose only argument is the op's.
#define REEL_OP_KERNEL(name, Op, threads, blocks, body) \
	REEL_KERNEL(name, threads, blocks, body, const __grid_constant__ Op::Args a)

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define REEL_WGMMA(name, Op, D, M, G, T)                                                                \
	REEL_KERNEL(name, (WgmmaGemm<Op, D, M, G, T>::THREADS), 1, (wgmma_gemm<Op, D, M, G, T>(a)), \
	            const __grid_constant__ WgmmaArgs<Op> a)
#define REEL_MANY(name, Op, D, T, ROWS, WEIGHTS)                                                                        \
	REEL_KERNEL(name##_many##T, (Many<Op, D, T, ROWS, WEIGHTS>::THREADS), 1, (many<Op, D, T, ROWS, WEIGHTS>(a)), \
	            const __grid_constant__ ManyArgs<Op> a)
#define REEL_STREAM_K(name, Op, D, T, STAGES)                                                            \
	REEL_KERNEL(name, (StreamK<Op, D, T, STAGES>::THREADS), 1, (stream_k<Op, D, T, STAGES>(a)), \
	            const __grid_constant__ StreamKArgs<Op> a)
// The kernels of one row that take and give tagged values, on one GPU and on several.
#define REEL_TAGGED(name, Op, U)                                                            \
	REEL_KERNEL(name##_tagged, FEW_ROWS_THREADS, 2, (gemv_tagged<Op, U>(a)), \
	            const __grid_constant__ TaggedArgs<Op> a)                                       \
	REEL_KERNEL(name##_tagged_ranks, FEW_ROWS_THREADS, 2, (gemv_tagged<Op, U, RankTags>(a)), \
	            const __grid_constant__ RankArgs<Op> a)
// The kernel of a mixed pass, for up to G generated rows and T tokens of prompts.
#define REEL_MIXED(name, Op, D, G, T, STAGES)                                                            \
	REEL_KERNEL(name##_mixed##G, (Mixed<Op, D, G, T, STAGES>::THREADS), 1, (mixed<Op, D, G, T, STAGES>(a)), \
	            const __grid_constant__ MixedArgs<Op> a)
// The kernel of whole output tiles, for long prompts.
#define REEL_WHOLE(name, Op, D)                                                              \
	REEL_KERNEL(name##_whole192, (Whole<Op, D, 192, 3>::THREADS), 1, (whole<Op, D, 192, 3>(a)), \
	            const __grid_constant__ StreamKArgs<Op> a)
// The same over quantised weights of format F, with as many stages as fit (codesRing in stream_k_codes.go).
#define REEL_STREAM_K_CODES(name, Op, F, T)                                             \
	REEL_KERNEL(name, (StreamK<Op, F16, T, 5, CodesOf<F>>::THREADS), 1,                 \
	            (stream_k<Op, F16, T, CODES_STAGES<CodesOf<F>, T>, CodesOf<F>>(a)),         \
	            const __grid_constant__ StreamKArgs<Op> a)
// The kernel over quantised weights of one row with a ring, two blocks on an SM.
#define REEL_CODES_RING8(format, F, name, Op)                                                         \
	REEL_KERNEL(name##_##format##_ring8, (CodesRing<Op, F>::THREADS), 2, (codes_ring<Op, F>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)
// The kernels of one row over quantised weights that take and give tagged values, with a ring or without.
#define REEL_CODES_TAGGED(format, F, name, Op)                                                         \
	REEL_KERNEL(name##_##format##_tagged, CODES_WARPS * 32, 1, (codes_tagged<Op, F, CODES_WARPS>(a)), \
	            const __grid_constant__ CodesArgs<Tagged<Op>> a)
#define REEL_CODES_RING_TAGGED(format, F, name, Op)                                                            \
	REEL_KERNEL(name##_##format##_tagged, (CodesRing<Tagged<Op>, F>::THREADS), 2, (codes_ring_tagged<Op, F>(a)), \
	            const __grid_constant__ CodesArgs<Tagged<Op>> a)
// The kernels of up to 8 rows that the product before hands over.
#define REEL_CODES_TAKEN(format, F, name, Op)                                                                  \
	REEL_KERNEL(name##_##format##_taken8, CODES_WARPS * 32, 1, (codes<Op, F, CODES_WARPS, true>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)
// Those of more rows, which are rounded, up to 16 and 32 at a time.
#define REEL_CODES_MANY_OF(name, Op, F, N)                                                        \
	REEL_KERNEL(name, (CodesMany<Op, F, N, 4>::THREADS), 1, (codes_many<Op, F, N, 4>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)
#define REEL_CODES_MANY(name, Op, F)              \
	REEL_CODES_MANY_OF(name##_ring16, Op, F, 2) \
	REEL_CODES_MANY_OF(name##_ring32, Op, F, 4)
#else
#define REEL_WGMMA(name, Op, D, M, G, T)
#define REEL_MANY(name, Op, D, T, ROWS, WEIGHTS)
#define REEL_STREAM_K(name, Op, D, T, STAGES)
#define REEL_TAGGED(name, Op, U)
#define REEL_WHOLE(name, Op, D)
#define REEL_MIXED(name, Op, D, G, T, STAGES)
#define REEL_STREAM_K_CODES(name, Op, F, T)
#define REEL_CODES_RING8(format, F, name, Op)
#define REEL_CODES_TAGGED(format, F, name, Op)
#define REEL_CODES_RING_TAGGED(format, F, name, Op)
#define REEL_CODES_TAKEN(format, F, name, Op)
// The kernel over quantised weights of 32 rounded rows.
#define REEL_CODES_MANY(name, Op, F)                                                                 \
	REEL_KERNEL(name##_codes32, (CODE_PARTS * 32), 1, (codes_rounded<Op, F, 4, 2>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)
#endif

// The stream-K kernels, by the most tokens of a token tile, with the stages that fit into shared memory.
#define REEL_STREAM_KS(name, Op, D)                 \
	REEL_STREAM_K(name##_streamk16, Op, D, 16, 12)  \
	REEL_STREAM_K(name##_streamk56, Op, D, 56, 8)   \
	REEL_STREAM_K(name##_streamk104, Op, D, 104, 7) \
	REEL_STREAM_K(name##_streamk208, Op, D, 208, 5)

#define REEL_STREAM_K_CODES_OF(f, F, name, Op)                 \
	REEL_STREAM_K_CODES(name##_##f##_streamk16, Op, F, 16)   \
	REEL_STREAM_K_CODES(name##_##f##_streamk56, Op, F, 56)   \
	REEL_STREAM_K_CODES(name##_##f##_streamk104, Op, F, 104) \
	REEL_STREAM_K_CODES(name##_##f##_streamk208, Op, F, 208)
// Of the usual formats.
#define REEL_STREAM_K_FORMATS(name, Op) REEL_USUAL_FORMATS(REEL_STREAM_K_CODES_OF, name, Op)

// Blocks per SM for up to 8 rows, and the steps of activations in flight then: one step leaves
// registers for two blocks.
template <class Op> constexpr int SKINNY_BLOCKS = Op::PERSISTENT_SKINNY == 2 ? 2 : 1;
template <class Op> constexpr int ROWS_AHEAD = Op::PERSISTENT_SKINNY == 2 ? 1 : 4;

// U is the number of steps of weights that gemv has in flight.
#define REEL_PRODUCT_OF(name, Op, D, U)                                                                      \
	REEL_OP_KERNEL(name##_gemv, Op, FEW_ROWS_THREADS, 2, (gemv<Op, D, U>(Op{a})))                            \
	REEL_OP_KERNEL(name##_skinny8, Op, FEW_ROWS_THREADS, SKINNY_BLOCKS<Op>,                                  \
	               (skinny<Op, D, 1, 4, ROWS_AHEAD<Op>>(Op{a})))                                             \
	REEL_OP_KERNEL(name##_skinny16, Op, FEW_ROWS_THREADS, 1, (skinny<Op, D, 2, 4 / Op::R, 4 / Op::R>(Op{a}))) \
	REEL_OP_KERNEL(name##_tiled32, Op, TILED_THREADS, 1, (tiled<Op, D, 4>(Op{a})))                           \
	REEL_OP_KERNEL(name##_tiled64, Op, TILED_THREADS, 1, (tiled<Op, D, 1>(Op{a})))                           \
	REEL_WGMMA(name##_wgmma64, Op, D, 1, 4, 64)                                                              \
	REEL_WGMMA(name##_wgmma104, Op, D, 2, 1, 104)                                                            \
	REEL_MANY(name, Op, D, 16, 12, 12)                                                                       \
	REEL_MANY(name, Op, D, 32, 10, 10)                                                                       \
	REEL_MANY(name, Op, D, 64, 8, 8)                                                                         \
	REEL_MANY(name, Op, D, 128, 5, 5)

#define REEL_PRODUCT(name, Op, U)             \
	REEL_PRODUCT_OF(name##_bf16, Op, BF16, U) \
	REEL_PRODUCT_OF(name##_f16, Op, F16, U)

// The kernels of mixed passes: mixedKernels of mixed.go.
#define REEL_MIXEDS(name, Op, D)         \
	REEL_MIXED(name, Op, D, 16, 224, 4)  \
	REEL_MIXED(name, Op, D, 32, 192, 4)

// The same, and the kernels of the prefill class.
#define REEL_PREFILL_PRODUCT(name, Op, U)  \
	REEL_PRODUCT(name, Op, U)              \
	REEL_STREAM_KS(name##_bf16, Op, BF16)  \
	REEL_STREAM_KS(name##_f16, Op, F16)  \
	REEL_WHOLE(name##_bf16, Op, BF16)    \
	REEL_WHOLE(name##_f16, Op, F16)      \
	REEL_MIXEDS(name##_bf16, Op, BF16)   \
	REEL_MIXEDS(name##_f16, Op, F16)

// The kernels of up to 8 rows whose results go to all ranks (gemm/spread.cuh), in an op that is not persistent in gemv.
// That of one row has twice the weights in flight if no SM has two blocks: deep.
#define REEL_SPREAD_OF(name, Op, D, U)                                                                      \
	REEL_KERNEL(name##_gemv_spread, FEW_ROWS_THREADS, 2, (gemv_spread<Op, D, U>(a)),                        \
	            const __grid_constant__ SpreadArgs<Op> a)                                                  \
	REEL_KERNEL(name##_gemv_deep_spread, FEW_ROWS_THREADS, 1, (gemv_taking<Op, D, 2 * U>(a)),               \
	            const __grid_constant__ SpreadArgs<Op> a)                                                  \
	REEL_KERNEL(name##_skinny8_spread, FEW_ROWS_THREADS, SKINNY_BLOCKS<Op>,                                 \
	            (skinny_spread<Op, D, 4, ROWS_AHEAD<Op>>(a)), const __grid_constant__ SpreadArgs<Op> a)
#define REEL_SPREAD(name, Op, U)             \
	REEL_SPREAD_OF(name##_bf16, Op, BF16, U) \
	REEL_SPREAD_OF(name##_f16, Op, F16, U)

// The kernels over quantised weights, for each format: of up to 8 rows at a time, and of more rounded rows.
constexpr int CODES_WARPS = 16;
#define REEL_CODES_OF(format, F, name, Op)                                                          \
	REEL_KERNEL(name##_##format##_codes8, CODES_WARPS * 32, 1, (codes<Op, F, CODES_WARPS, false>(a)), \
	            const __grid_constant__ CodesArgs<Op> a)                                           \
	REEL_CODES_MANY(name##_##format, Op, F)
#define REEL_CODES(name, Op) REEL_FORMATS(REEL_CODES_OF, name, Op)
#define REEL_CODES_TAKING(name, Op) REEL_FORMATS(REEL_CODES_TAKEN, name, Op)
// The kernels of up to 8 rows with a ring, for formats with bricks of 64 columns.
#define REEL_CODES_RING(name, Op)             \
	REEL_CODES_RING8(q4_0, Q4_0, name, Op)   \
	REEL_CODES_RING8(q4_1, Q4_1, name, Op)   \
	REEL_CODES_RING8(q5_0, Q5_0, name, Op)   \
	REEL_CODES_RING8(q5_1, Q5_1, name, Op)   \
	REEL_CODES_RING8(q8_0, Q8_0, name, Op)   \
	REEL_CODES_RING8(mxfp4, MXFP4, name, Op) \
	REEL_CODES_RING8(g4_32, G4_32, name, Op) \
	REEL_CODES_RING8(g4_64, G4_64, name, Op)
