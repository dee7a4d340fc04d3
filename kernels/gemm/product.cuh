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
#define REEL_DEEP(name, Op, D, M, G, T) \
	REEL_KERNEL(name, (Deep<Op, D, M, G, T>::THREADS), 1, (deep<Op, D, M, G, T>(a)), const __grid_constant__ DeepArgs<Op> a)
#define REEL_PROMPT(name, Op, D, T, STAGES) \
	REEL_KERNEL(name, (Prompt<Op, D, T, STAGES>::THREADS), 1, (prompt<Op, D, T, STAGES>(a)), const __grid_constant__ PromptArgs<Op> a)
#else
#define REEL_DEEP(name, Op, D, M, G, T)
#define REEL_PROMPT(name, Op, D, T, STAGES)
#endif

// Of an op that a prompt's tokens go through.
#define REEL_PROMPTS(name, Op, D)               \
	REEL_PROMPT(name##_prompt16, Op, D, 16, 12) \
	REEL_PROMPT(name##_prompt56, Op, D, 56, 8)  \
	REEL_PROMPT(name##_prompt104, Op, D, 104, 7) \
	REEL_PROMPT(name##_prompt208, Op, D, 208, 5)

// For how many steps activations of up to 8 rows are in flight: one leaves registers for two
// blocks on a multiprocessor.
template <class Op> constexpr int ROWS_AHEAD = Op::IN_TURN_8 == 2 ? 1 : 4;

#define REEL_PRODUCT_OF(name, Op, D, U)                                                                                     \
	REEL_KERNEL(name##_1, NARROW_THREADS, 2, (single<Op, D, U>(Op{a})), const __grid_constant__ Op::Args a)          \
	REEL_KERNEL(name##_8, NARROW_THREADS, (Op::IN_TURN_8 == 2 ? 2 : 1), (narrow<Op, D, 1, 4, ROWS_AHEAD<Op>>(Op{a})), const __grid_constant__ Op::Args a) \
	REEL_KERNEL(name##_16, NARROW_THREADS, 1, (narrow<Op, D, 2, 4 / Op::R, 4 / Op::R>(Op{a})), const __grid_constant__ Op::Args a) \
	REEL_KERNEL(name##_wide32, WIDE_THREADS, 1, (wide<Op, D, 4>(Op{a})), const __grid_constant__ Op::Args a)            \
	REEL_KERNEL(name##_wide64, WIDE_THREADS, 1, (wide<Op, D, 1>(Op{a})), const __grid_constant__ Op::Args a)            \
	REEL_DEEP(name##_deep64, Op, D, 1, 4, 64)                                                                           \
	REEL_DEEP(name##_deep104, Op, D, 2, 1, 104)

#define REEL_PRODUCT(name, Op, U)            \
	REEL_PRODUCT_OF(name##_bf16, Op, BF16, U) \
	REEL_PRODUCT_OF(name##_f16, Op, F16, U)

// The same and a prompt's.
#define REEL_PROMPT_PRODUCT(name, Op, U)  \
	REEL_PRODUCT(name, Op, U)         \
	REEL_PROMPTS(name##_bf16, Op, BF16) \
	REEL_PROMPTS(name##_f16, Op, F16)

// Of an op that a prompt's sampled rows go through.
#define REEL_PICKED(name, Op)                                                                                                                               \
	REEL_KERNEL(name##_bf16_picked, NARROW_THREADS, (Op::IN_TURN_8 == 2 ? 2 : 1), (picked<Op, BF16, 4, ROWS_AHEAD<Op>>(Op{a})), const __grid_constant__ Op::Args a) \
	REEL_KERNEL(name##_f16_picked, NARROW_THREADS, (Op::IN_TURN_8 == 2 ? 2 : 1), (picked<Op, F16, 4, ROWS_AHEAD<Op>>(Op{a})), const __grid_constant__ Op::Args a)
