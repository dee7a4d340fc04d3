// The kernels of a product op, one for each element type and range of rows.
#pragma once
#include "gemm/gemv.cuh"
#include "gemm/skinny.cuh"
#include "gemm/stream_k.cuh"
#include "gemm/tiled.cuh"
#include "gemm/wgmma.cuh"

#define REEL_KERNEL(name, threads, blocks, body, ...) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__) { body; }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define REEL_WGMMA(name, Op, D, M, G, T) \
	REEL_KERNEL(name, (WgmmaGemm<Op, D, M, G, T>::THREADS), 1, (wgmma_gemm<Op, D, M, G, T>(a)), const __grid_constant__ WgmmaArgs<Op> a)
#define REEL_STREAM_K(name, Op, D, T, STAGES) \
	REEL_KERNEL(name, (StreamK<Op, D, T, STAGES>::THREADS), 1, (stream_k<Op, D, T, STAGES>(a)), const __grid_constant__ StreamKArgs<Op> a)
#else
#define REEL_WGMMA(name, Op, D, M, G, T)
#define REEL_STREAM_K(name, Op, D, T, STAGES)
#endif

// Of an op that a prompt's tokens go through.
#define REEL_STREAM_KS(name, Op, D)               \
	REEL_STREAM_K(name##_streamk16, Op, D, 16, 12) \
	REEL_STREAM_K(name##_streamk56, Op, D, 56, 8)  \
	REEL_STREAM_K(name##_streamk104, Op, D, 104, 7) \
	REEL_STREAM_K(name##_streamk208, Op, D, 208, 5)

// For how many steps activations of up to 8 rows are in flight: one leaves registers for two
// blocks on a multiprocessor.
template <class Op> constexpr int ROWS_AHEAD = Op::PERSISTENT_SKINNY == 2 ? 1 : 4;

#define REEL_PRODUCT_OF(name, Op, D, U)                                                                                     \
	REEL_KERNEL(name##_gemv, FEW_ROWS_THREADS, 2, (gemv<Op, D, U>(Op{a})), const __grid_constant__ Op::Args a)          \
	REEL_KERNEL(name##_skinny8, FEW_ROWS_THREADS, (Op::PERSISTENT_SKINNY == 2 ? 2 : 1), (skinny<Op, D, 1, 4, ROWS_AHEAD<Op>>(Op{a})), const __grid_constant__ Op::Args a) \
	REEL_KERNEL(name##_skinny16, FEW_ROWS_THREADS, 1, (skinny<Op, D, 2, 4 / Op::R, 4 / Op::R>(Op{a})), const __grid_constant__ Op::Args a) \
	REEL_KERNEL(name##_tiled32, TILED_THREADS, 1, (tiled<Op, D, 4>(Op{a})), const __grid_constant__ Op::Args a)            \
	REEL_KERNEL(name##_tiled64, TILED_THREADS, 1, (tiled<Op, D, 1>(Op{a})), const __grid_constant__ Op::Args a)            \
	REEL_WGMMA(name##_wgmma64, Op, D, 1, 4, 64)                                                                           \
	REEL_WGMMA(name##_wgmma104, Op, D, 2, 1, 104)

#define REEL_PRODUCT(name, Op, U)            \
	REEL_PRODUCT_OF(name##_bf16, Op, BF16, U) \
	REEL_PRODUCT_OF(name##_f16, Op, F16, U)

// The same and a prompt's.
#define REEL_PREFILL_PRODUCT(name, Op, U)  \
	REEL_PRODUCT(name, Op, U)         \
	REEL_STREAM_KS(name##_bf16, Op, BF16) \
	REEL_STREAM_KS(name##_f16, Op, F16)

// Of an op that a prompt's sampled rows go through.
#define REEL_GATHERED(name, Op)                                                                                                                               \
	REEL_KERNEL(name##_bf16_gathered, FEW_ROWS_THREADS, (Op::PERSISTENT_SKINNY == 2 ? 2 : 1), (gathered<Op, BF16, 4, ROWS_AHEAD<Op>>(Op{a})), const __grid_constant__ Op::Args a) \
	REEL_KERNEL(name##_f16_gathered, FEW_ROWS_THREADS, (Op::PERSISTENT_SKINNY == 2 ? 2 : 1), (gathered<Op, F16, 4, ROWS_AHEAD<Op>>(Op{a})), const __grid_constant__ Op::Args a)
