#include "gemm/route.cuh"

// live_of returns how many of n rows from `first` on exist. Padding comes last.
__device__ __forceinline__ int live_of(const RouteArgs &a, int first, int n) {
	int live = min(n, a.T - first);
	while (live > 0 && a.rows && a.rows[first + live - 1] < 0) live--;
	return live;
}

// route: a block computes the logits of 8·EXPERTS experts for ROWS rows. The last block of these rows chooses.
template <int ROWS, int EXPERTS, int EACH> __device__ __forceinline__ void route(const RouteArgs &a) {
	const int first = blockIdx.y * ROWS, warp = threadIdx.x / 32, expert = (blockIdx.x * ROUTE_WARPS + warp) * EXPERTS;
	const RouteLogits<ROWS, EXPERTS> logits(a, expert);
	pdl_launch_dependents();
	pdl_wait_rows();
	const int live = live_of(a, first, ROWS);
	if (live == 0) {
		if (a.count && threadIdx.x == 0) *a.count = 0;
		return;
	}
	if (expert < a.experts) logits.run(first, live);
	__shared__ bool last;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) last = increment_wrapping(a.arrivals + first, gridDim.x - 1) == gridDim.x - 1;
	__syncthreads();
	if (last && warp < live) route_store(a, first + warp, route_choose<EACH>(a, RowLogits{first + warp}));
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The logits alone of one row, as tagged values. A block takes the row together.
template <class Args> __device__ __forceinline__ void route_tagged(const Args &a) {
	extern __shared__ float4 routeRow[]; // [hidden/4]
	const int expert = blockIdx.x * ROUTE_WARPS + threadIdx.x / 32;
	const RouteLogits<1, 1, 8> logits(a.of, expert);
	logits.prefetch_late();
	const float bias = a.of.bias && expert < a.of.experts ? a.of.bias[expert] : 0;
	const uint32_t base = begin_tagged(a.tags), tag = base + a.tags.taken;
	if (threadIdx.x * 4 < a.of.hidden) await_tagged(a.tags.in + threadIdx.x / 32 * 128, tag); // one sector first
	constexpr int N = 2, THREADS = ROUTE_WARPS * 32;
	for (int first = threadIdx.x, quads = a.of.hidden / 4; first < quads; first += N * THREADS) {
		FourTagged seen[N];
#pragma unroll
		for (int i = 0; i < N; i++)
			if (first + i * THREADS < quads) seen[i] = look_tagged4(a.tags.in + 4 * (first + i * THREADS));
#pragma unroll
		for (int i = 0; i < N; i++)
			if (const int quad = first + i * THREADS; quad < quads) routeRow[quad] = await_tagged(seen[i], a.tags.in + 4 * quad, tag);
	}
	__syncthreads();
	const float *const x[1] = {reinterpret_cast<const float *>(routeRow + logits.lane)};
	if (expert < a.of.experts)
		logits.each(x, [&](int, int, float logit) {
			give_tagged(a.tags, a.tags.out + expert, a.of.bias ? __fadd_rn(logit, bias) : logit, base + a.tags.given);
		});
	end_tagged();
}
extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32, 2) reel_route1_tagged(
	const __grid_constant__ TaggedRouteArgs a) {
	route_tagged(a);
}
extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32, 2) reel_route1_tagged_ranks(
	const __grid_constant__ RankRouteArgs a) {
	route_tagged(a);
}
#endif

// The logits alone, of several rows, for the kernel that chooses (group.cu).
extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32) reel_route4_logits(const __grid_constant__ RouteArgs a) {
	constexpr int ROWS = 4;
	const int first = blockIdx.y * ROWS, expert = blockIdx.x * ROUTE_WARPS + threadIdx.x / 32;
	const RouteLogits<ROWS, 1> logits(a, expert);
	pdl_launch_dependents();
	pdl_wait_rows();
	const int live = live_of(a, first, ROWS);
	if (live > 0 && expert < a.experts) logits.run(first, live);
}

#define REEL_ROUTE(name, ROWS, EXPERTS, EACH, ...)                                                  \
	extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32, ##__VA_ARGS__) name(             \
		const __grid_constant__ RouteArgs a) {                                                      \
		route<ROWS, EXPERTS, EACH>(a);                                                              \
	}
// By the rows of a block and the most experts. With a block on an SM the compiler loads all of a row at once; of many
// rows more blocks are better.
REEL_ROUTE(reel_route1_256, 1, 1, 8, 1)
REEL_ROUTE(reel_route4_256, 4, 1, 8)
REEL_ROUTE(reel_route4_many_256, 4, 4, 8, 2)
REEL_ROUTE(reel_route1_1024, 1, 1, 32, 1)
REEL_ROUTE(reel_route4_1024, 4, 1, 32, 1)
REEL_ROUTE(reel_route4_many_1024, 4, 4, 32, 1)
