#include "attention/many.cuh"

// Decode attention of many rows, for heads of up to 32*CHUNKS elements and more than 32*(CHUNKS-1), with deferred RoPE,
// and with a softcap or sinks.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTEND_MANY_KERNEL(NAME, CHUNKS, ARGS)                                     \
	extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), 2)              \
		NAME(const __grid_constant__ ARGS a) { attend_many<CHUNKS>(a); }
#define ATTEND_MANY_KERNELS(SIZE, CHUNKS)                                          \
	ATTEND_MANY_KERNEL(reel_attend_##SIZE##_many, CHUNKS, AttendArgs)              \
	ATTEND_MANY_KERNEL(reel_attend_##SIZE##_many_deferred, CHUNKS, AttendDeferredArgs)
ATTEND_MANY_KERNELS(32, 1)
ATTEND_MANY_KERNELS(64, 2)
ATTEND_MANY_KERNELS(96, 3)
ATTEND_MANY_KERNELS(128, 4)

#define ATTEND_MANY_LOGITS_KERNEL(NAME, CHUNKS, ARGS)                              \
	extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), 2)              \
		NAME(const __grid_constant__ AttendLogitsArgs<ARGS> a) { attend_many<CHUNKS>(a.of, a.logits); }
#define ATTEND_MANY_LOGITS_KERNELS(SIZE, CHUNKS)                                   \
	ATTEND_MANY_LOGITS_KERNEL(reel_attend_##SIZE##_many_logits, CHUNKS, AttendArgs) \
	ATTEND_MANY_LOGITS_KERNEL(reel_attend_##SIZE##_many_logits_deferred, CHUNKS, AttendDeferredArgs)
ATTEND_MANY_LOGITS_KERNELS(64, 2)
ATTEND_MANY_LOGITS_KERNELS(128, 4)
#endif
