// CUDA 13 gave five functions of cuda.h new parameters. gorgonia.org/cu calls them as CUDA 12
// declares them, and libcuda still has those versions. This header declares them for every
// version of CUDA. It comes first in the include path.
#pragma once
#include_next <cuda.h>

#if CUDA_VERSION >= 13000

#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges

#ifdef __cplusplus
extern "C" {
#endif

CUresult CUDAAPI cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
