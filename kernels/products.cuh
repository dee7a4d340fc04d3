// The kernels of a product op, one for each element type and range of rows.
#pragma once
#include "wide.cuh"

#define REEL_PRODUCT_OF(name, Op, D, type, U)                                                                                            \
	extern "C" __global__ void __launch_bounds__(NARROW_THREADS, 1) name##_##type##_8(const __grid_constant__ Op::Args a) { narrow<Op, D, 1, U>(Op{a}); } \
	extern "C" __global__ void __launch_bounds__(NARROW_THREADS, 1) name##_##type##_16(const __grid_constant__ Op::Args a) { narrow<Op, D, 2, U / Op::R>(Op{a}); } \
	extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 1) name##_##type##_64(const __grid_constant__ Op::Args a) { wide<Op, D, 4>(Op{a}); }     \
	extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 1) name##_##type##_512(const __grid_constant__ Op::Args a) { wide<Op, D, 1>(Op{a}); }

#define REEL_PRODUCT(name, Op, U)            \
	REEL_PRODUCT_OF(name, Op, BF16, bf16, U) \
	REEL_PRODUCT_OF(name, Op, F16, f16, U)
