#include "gemm/route.cuh"

// GroupArgs: of Chosen in kernels/route.go.
struct GroupArgs {
	const int32_t *ids;  // [T][used]
	const int32_t *rows; // [T], or null; -1: no row
	int32_t *count;      // out: [1]
	int32_t *expert;     // out: [segments]
	int32_t *place, *row; // out: [segments][each]
	int32_t T, used, segments, each;
};

constexpr int GROUP_THREADS = 1024;

// group sorts the places of a step into segments of an expert and up to `each` places, as gemm/experts.cuh says. It
// is one block; a thread has one expert, of at most 1024. The order of the places within an expert changes no result.
__device__ __forceinline__ void group(const GroupArgs &a) {
	__shared__ int counts[GROUP_THREADS], begins[GROUP_THREADS], warps[32];
	const int id = threadIdx.x, lane = id % 32, warp = id / 32, places = a.T * a.used;
	counts[id] = 0;
	__syncthreads();
	for (int p = id; p < places; p += GROUP_THREADS) {
		const int t = p / a.used;
		if (!a.rows || a.rows[t] >= 0) atomicAdd(&counts[a.ids[p]], 1);
	}
	__syncthreads();
	const int mine = (counts[id] + a.each - 1) / a.each;
	int sum = mine; // of this expert's segments and those before
#pragma unroll
	for (int apart = 1; apart < 32; apart *= 2) {
		const int before = __shfl_up_sync(~0u, sum, apart);
		if (lane >= apart) sum += before;
	}
	if (lane == 31) warps[warp] = sum;
	__syncthreads();
	int before = 0;
	for (int w = 0; w < warp; w++) before += warps[w];
	sum += before;
	begins[id] = (sum - mine) * a.each;
	if (id == GROUP_THREADS - 1) *a.count = min(sum, a.segments);
	for (int s = sum - mine; s < min(sum, a.segments); s++) {
		a.expert[s] = id;
		if (s == sum - 1) // the last one may have fewer places
			for (int i = (counts[id] - 1) % a.each + 1; i < a.each; i++)
				a.place[s * a.each + i] = a.row[s * a.each + i] = -1;
	}
	__syncthreads();
	counts[id] = 0;
	__syncthreads();
	for (int p = id; p < places; p += GROUP_THREADS) {
		const int t = p / a.used, row = a.rows ? a.rows[t] : t;
		if (row < 0) continue;
		const int e = a.ids[p], at = begins[e] + atomicAdd(&counts[e], 1);
		if (at >= a.segments * a.each) continue;
		a.place[at] = p;
		a.row[at] = row;
	}
}

extern "C" __global__ void __launch_bounds__(GROUP_THREADS) reel_group(const __grid_constant__ GroupArgs a) {
	pdl_launch_dependents();
	pdl_wait_rows();
	group(a);
}

// ChooseArgs are the arguments of the kernel that chooses the experts of up to 32 rows, a warp a row, and sorts their places.
struct ChooseArgs {
	RouteArgs route;
	GroupArgs group;
};

template <int EACH> __device__ __forceinline__ void choose_and_group(const ChooseArgs &a) {
	pdl_launch_dependents();
	pdl_wait_rows();
	const int t = threadIdx.x / 32;
	if (t < a.route.T && !(a.route.rows && a.route.rows[t] < 0)) route_store(a.route, t, route_choose<EACH>(a.route, RowLogits{t}));
	__syncthreads();
	group(a.group);
}
#define REEL_CHOOSE(EACH, experts) \
	extern "C" __global__ void __launch_bounds__(GROUP_THREADS) reel_choose_##experts(const __grid_constant__ ChooseArgs a) { \
		choose_and_group<EACH>(a); \
	}
// By the most experts.
REEL_CHOOSE(1, 32)
REEL_CHOOSE(4, 128)
REEL_CHOOSE(8, 256)
