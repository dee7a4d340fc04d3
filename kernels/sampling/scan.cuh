// The first look at a row: its most probable token, and what log-probabilities need.
#pragma once
#include "ptx/cp_async.cuh"
#include "sampling/threads.cuh"

// sample_scan_eight adds eight logits of a column to its scan, those of ids from, from + SAMPLE_THREADS, … below
// vocab.
__device__ __forceinline__ void sample_scan_eight(SampleScan &scan, const Sampler &d, const float (&l)[8], int from) {
	float high = scan.most;
#pragma unroll
	for (int i = 0; i < 8; i++) high = fmaxf(high, l[i]);
	const float base = high == -INFINITY ? 0 : high; // all weights are then 0
	const float scale = exp2_approx((scan.most - base) * LOG2E);
	scan.most = high;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		const float e = exp2_approx((l[i] - base) * LOG2E);
		scan.sum = i == 0 ? __fmaf_rn(scan.sum, scale, e) : __fadd_rn(scan.sum, e); // one rounding in all kernels
		int id = from + i * SAMPLE_THREADS;
		float f = id < d.vocab ? d.penalized_logit(id, l[i]) : -INFINITY;
		if (f > scan.top) scan.top = f, scan.at = id;
	}
}

// sample_scan_column scans the thread's column.
__device__ __forceinline__ void sample_scan_column(SampleShared &, SampleScan &scan, const Sampler &d) {
	for (int from = threadIdx.x; from < d.vocab; from += 8 * SAMPLE_THREADS) {
		float l[8];
#pragma unroll
		for (int i = 0; i < 8; i++)
			l[i] = from + i * SAMPLE_THREADS < d.vocab ? d.raw(from + i * SAMPLE_THREADS) : -INFINITY;
		sample_scan_eight(scan, d, l, from);
	}
}

#if __CUDA_ARCH__ >= 900
// sample_copy begins to copy a stage of the 32 columns of this warp to the ring: four rows of it in 16 bytes of each
// lane, then the other four. Logits begin at a multiple of 16 bytes, and there are a multiple of four.
__device__ __forceinline__ void sample_copy(SampleCluster &s, const Sampler &d, int stage) {
	const int column = threadIdx.x / 32 * 32 + threadIdx.x % 8 * 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int row = threadIdx.x % 32 / 8 + 4 * i;
		const int id = (stage * 8 + row) * SAMPLE_THREADS + cluster_rank() * s.COLUMNS + column;
		if (id < d.vocab) cp_async<16>(&s.ring[stage % s.STAGES][row][column], d.logits + id);
	}
	cp_async_commit();
}

// sample_scan_column of a cluster scans the block's columns, one for each of its first threads, from the ring, whose
// first stages are on their way, and gives all blocks the scans of all.
__device__ __forceinline__ void sample_scan_column(SampleCluster &s, SampleScan &scan, const Sampler &d) {
	const int column = cluster_rank() * s.COLUMNS + threadIdx.x;
	const bool scans = threadIdx.x < s.COLUMNS;
	scan.at = column;
	for (int stage = 0; scans && stage * 8 * SAMPLE_THREADS < d.vocab; stage++) {
		const int from = stage * 8 * SAMPLE_THREADS + column;
		float l[8];
		cp_async_wait<SampleCluster::STAGES - 1>();
		__syncwarp();
#pragma unroll
		for (int i = 0; i < 8; i++)
			l[i] = from + i * SAMPLE_THREADS < d.vocab ? s.ring[stage % s.STAGES][i][threadIdx.x] : -INFINITY;
		__syncwarp(); // all lanes have read the place of the stage that comes next
		sample_copy(s, d, stage + s.STAGES);
		sample_scan_eight(scan, d, l, from);
	}
	cluster_wait(); // all blocks have begun
	for (int r = 0; scans && r < s.BLOCKS; r++) *cluster_peer(&s.scan[column], r) = scan;
	cluster_sync();
	scan = s.scan[threadIdx.x];
}
#endif

// sample_scan returns the key of the most probable token after the penalty, and computes what
// log-probabilities need: the largest logit of the model and ln Σ exp of all.
template <class S> __device__ static uint64_t sample_scan(S &s, const Sampler &d) {
	SampleScan scan = {-INFINITY, (int)threadIdx.x, -INFINITY, 0};
	sample_scan_column(s, scan, d);
	const float most = scan.most;
	float sum = scan.sum;
	uint64_t best = scan.at < d.vocab ? sample_key(scan.top, scan.at) : ALL;
	best = sample_first(s, best);
	float high = most;
	for (int i = 16; i; i /= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
	if (threadIdx.x % 32 == 0) s.warpMost[threadIdx.x / 32] = high;
	__syncthreads();
	high = s.warpMost[threadIdx.x % 32];
	for (int i = 16; i; i /= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
	sum = most == -INFINITY ? 0 : sum * exp2_approx((most - high) * LOG2E);
	for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
	if (threadIdx.x % 32 == 0) s.warpSum[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = s.warpSum[threadIdx.x % 32];
	for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
	if (threadIdx.x == 0) s.rawMost = high, s.logSum = logf(sum);
	__syncthreads();
	return best;
}
