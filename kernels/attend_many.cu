#include "attention/many.cuh"

// Decode attention of many rows, for heads of up to 32*CHUNKS elements and more than 32*(CHUNKS-1), and with a softcap
// or sinks.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTEND_MANY_KERNEL(SIZE, CHUNKS)                              \
	extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), 2) \
		reel_attend_##SIZE##_many(const __grid_constant__ AttendArgs a) { attend_many<CHUNKS>(a); }
ATTEND_MANY_KERNEL(32, 1)
ATTEND_MANY_KERNEL(64, 2)
ATTEND_MANY_KERNEL(96, 3)
ATTEND_MANY_KERNEL(128, 4)

#define ATTEND_MANY_LOGITS_KERNEL(SIZE, CHUNKS)                                                  \
	extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), 2) reel_attend_##SIZE##_many_logits( \
		const __grid_constant__ AttendLogitsArgs<AttendArgs> a) { attend_many<CHUNKS>(a.of, a.logits); }
ATTEND_MANY_LOGITS_KERNEL(64, 2)
ATTEND_MANY_LOGITS_KERNEL(128, 4)
#endif
