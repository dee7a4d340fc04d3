#include "gemm/group.cuh"
#include "gemm/route.cuh"

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
	if (t < a.route.T && !(a.route.rows && a.route.rows[t] < 0)) route_store(a.route, t, route_choose<EACH>(a.route, t));
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
