#include "attention/prefill_block.cuh"
#include "attention/prefill_long.cuh"
#include "ptx/pdl.cuh"

// prefill: grid [KV heads × groups of PREFILL_ENTRIES query heads × halves of values][tiles of a.window rows, the
// last first][splits at once]. If rows of a joined tile have several splits, each of its blocks computes
// all runs of the joined tile, for some of the splits.
template <int DIM, bool EXACT, bool WINDOWED = false, class Logits = AttendPlain>
__device__ __forceinline__ void prefill(const AttendArgs &a, const Logits &logits = {}) {
	extern __shared__ __align__(1024) uint4 prefill_shared[];
	PrefillTile tile = prefill_tile<DIM>(a);
	const PrefillTile joined = prefill_joined(a, tile);
	// Forces the divisions to happen before the wait.
	asm volatile("" : "+r"(tile.inverse) : "r"(joined.first), "r"(joined.part));
	pdl_launch_dependents();
	if (!a.afterQKV) pdl_wait();
	const int lane = threadIdx.x % 32, end = joined.limit - 1;
	const int low = load_l2_ordered(a.position + min(joined.first + lane, end)),
			  high = load_l2_ordered(a.position + min(joined.first + lane + 32, end));
	Prefill<DIM, EXACT, WINDOWED, Logits> p(a, logits, tile, prefill_shared);
	p.run = prefill_run<WINDOWED>(a, tile.first, tile.limit);
	const int splits = prefill_split(__reduce_max_sync(~0u, max(low, high)) / PREFILL_KEYS) + 1;
	if (splits > 1 && joined.parts > 1) {
		const int inverse = tile.inverse;
		tile = joined, tile.inverse = inverse;
		p.run = prefill_run<WINDOWED>(a, tile.first, tile.limit);
	}
	const int sharing = min(tile.parts, splits);
	if (tile.part >= sharing) return;
	const bool whole = splits == 1 || tile.parts == 1;
	while (true) {
		p.attend(whole);
		const int row = p.run.row + p.run.rows;
		if (row >= tile.limit) break;
		p.run = prefill_run<WINDOWED>(a, row, tile.limit);
	}
	if (whole) return;
	tile = prefill_joined(a, prefill_tile<DIM>(a));
	unsigned *const arrived = a.arrived + tile.first / a.window * gridDim.x + blockIdx.x;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	const bool share = a.shareMerge;
#else
	constexpr bool share = false; // built for GPUs whose SMs may have room for one block only
#endif
	if (share)
		attend_wait_for_all(arrived, sharing);
	else if (!attend_is_last(arrived, sharing))
		return;
	prefill_merge<DIM, WINDOWED>(a, logits, tile, p.dim(a), share ? tile.part : 0, share ? sharing : 1);
	if (share) attend_leave(arrived, sharing);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PREFILL_LONG_KERNEL(DIM)                                                  \
	extern "C" __global__ void __launch_bounds__(PrefillLong<DIM>::THREADS, 1)    \
		reel_attend_prefill_##DIM##_long(const __grid_constant__ AttendArgs a) { prefill_long<DIM>(a); }
PREFILL_LONG_KERNEL(64)
PREFILL_LONG_KERNEL(128)
#endif

// The kernels by head size, with BLOCKS blocks per SM; `any` is for all other sizes up to 128.
#define PREFILL_KERNEL(NAME, DIM, EXACT, BLOCKS)                                  \
	extern "C" __global__ void __launch_bounds__(32 * PREFILL_WARPS, BLOCKS)      \
		reel_attend_prefill_##NAME(const __grid_constant__ AttendArgs a) { prefill<DIM, EXACT>(a); }
PREFILL_KERNEL(64, 64, true, 3)
PREFILL_KERNEL(96, 96, true, 2)
PREFILL_KERNEL(128, 128, true, 2)
PREFILL_KERNEL(any, 128, false, 2)
PREFILL_KERNEL(256, 256, true, 2)

// The same with a window of a.visible positions. `wide` is for all sizes beyond, where rows may see all positions too.
#define PREFILL_WINDOW_KERNEL(NAME, DIM, EXACT)                                   \
	extern "C" __global__ void __launch_bounds__(32 * PREFILL_WARPS, 2)           \
		reel_attend_prefill_##NAME##_window(const __grid_constant__ AttendArgs a) { prefill<DIM, EXACT, true>(a); }
PREFILL_WINDOW_KERNEL(64, 64, true)
PREFILL_WINDOW_KERNEL(96, 96, true)
PREFILL_WINDOW_KERNEL(128, 128, true)
PREFILL_WINDOW_KERNEL(any, 128, false)
PREFILL_WINDOW_KERNEL(256, 256, true)
PREFILL_WINDOW_KERNEL(wide, 256, false)

// The same with a softcap or sinks, for rows that see all positions too.
#define PREFILL_LOGITS_KERNEL(NAME, DIM, EXACT)                                        \
	extern "C" __global__ void __launch_bounds__(32 * PREFILL_WARPS, 2)                \
		reel_attend_prefill_##NAME##_logits(const __grid_constant__ AttendLogitsArgs<AttendArgs> a) { \
		prefill<DIM, EXACT, true>(a.of, a.logits);                                     \
	}
PREFILL_LOGITS_KERNEL(64, 64, true)
PREFILL_LOGITS_KERNEL(128, 128, true)
PREFILL_LOGITS_KERNEL(any, 128, false)
PREFILL_LOGITS_KERNEL(256, 256, true)
PREFILL_LOGITS_KERNEL(wide, 256, false)
