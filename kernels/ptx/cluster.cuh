// Clusters: blocks that run at the same time and reach each other's shared memory, from compute capability 9.0 on.
#pragma once

#if __CUDA_ARCH__ >= 900
// cluster_arrive and cluster_wait are cluster_sync in two halves, which each thread calls in turn.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

// cluster_sync waits for all threads of the cluster's blocks, and for what they wrote.
__device__ __forceinline__ void cluster_sync() {
	asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}

// cluster_rank returns the number of this block in its cluster, and cluster_number that of the cluster, along X. They
// are read where they are called, and hold no register.
__device__ __forceinline__ int cluster_rank() {
	int rank;
	asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
	return rank;
}
__device__ __forceinline__ int cluster_number() {
	int number;
	asm volatile("mov.u32 %0, %clusterid.x;" : "=r"(number));
	return number;
}

// cluster_peer returns the place of p, which points into this block's shared memory, in that of block `rank` of the
// cluster. The other block must have begun, and must not end while the place is used.
template <class T> __device__ __forceinline__ T *cluster_peer(T *p, int rank) {
	T *there;
	asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
	return there;
}
#endif
