#include "gemm/experts_row.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define REEL_EXPERTS_OF_ROW(format, F)                                                     \
	REEL_KERNEL(reel_experts_row_##format, ROW_THREADS, 1, (experts_of_row<F>(a)), \
	            const __grid_constant__ ExpertsArgs a)
REEL_FORMATS(REEL_EXPERTS_OF_ROW)
#endif
