#include "ptx/tagged.cuh"

// Blocks of kernels that take tagged values poll them, which keeps an SM's load unit busy for other blocks there.

constexpr int POLL_THREADS = 512;

struct PollArgs {
	const uint64_t *at; // [4 POLL_THREADS]
	uint64_t nanoseconds;
	int32_t *overdue; // 1 if a block has given up
};

// Poll looks at four words for each thread until one is not 0. It gives up after so many nanoseconds, so that no test
// hangs.
extern "C" __global__ void __launch_bounds__(POLL_THREADS) reel_poll(const __grid_constant__ PollArgs a) {
	uint64_t begin, now, seen = 0;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do {
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const FourTagged v = look_tagged4(a.at + 4 * threadIdx.x);
			seen |= v.low.x | v.low.y | v.high.x | v.high.y;
		}
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (!seen && now - begin < a.nanoseconds);
	if (!seen) *a.overdue = 1;
}
