// Prefill attention (attend_prefill.cu): copies of keys and values to shared memory, a block ahead of their use.
#pragma once
#include "attention/prefill.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"

// PrefillCopies copies a run's keys and values while the block before is computed.
template <int DIM, bool EXACT> struct PrefillCopies {
	static constexpr int VALUES = PrefillValues<DIM>::VALUES; // elements of a value
	static constexpr int CHUNKS = DIM / 8;                    // 16-byte chunks of a key
	static constexpr int KEYS = PREFILL_KEYS * CHUNKS;        // chunks: keys of a block
	static constexpr int STAGE = KEYS + PREFILL_KEYS * VALUES / 8;
	// LANES threads copy a row, EACH chunks of a key per thread, VALUE_EACH of a value; a thread copies ROWS rows.
	static constexpr int LANES = DIM % 64 == 0 ? 8 : 4, EACH = CHUNKS / LANES, VALUE_EACH = VALUES / 8 / LANES;
	static constexpr int APART = 32 * PREFILL_WARPS / LANES, ROWS = PREFILL_KEYS / APART;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	static constexpr bool WGMMA = DIM % 64 == 0; // one instruction covers the whole tile
#else
	static constexpr bool WGMMA = false;
#endif

	const AttendArgs &a;
	const PrefillTile &tile;
	uint4 *const stages;  // [2 stages][keys, values]
	const uint32_t plane; // chunks: keys or values of one layer of a page
	PrefillRun run;
	int page[ROWS];            // of the rows that the thread copies next
	const uint4 *source[ROWS]; // addresses of their keys
	int validBytes[ROWS];      // bytes of each chunk to copy; the rest is zero

	__device__ __forceinline__ PrefillCopies(const AttendArgs &a, const PrefillTile &tile, uint4 *stages)
		: a(a), tile(tile), stages(stages), plane((a.kvHeads << a.pageShift) * (dim(a) / 8)) {}

	static __device__ __forceinline__ int dim(const AttendArgs &a) { return EXACT ? DIM : a.dim; }

	// Order of chunks in shared memory: runs of RUN chunks of all rows, so that the same chunk of
	// eight rows lies in different banks. RUN 8 is the layout that wgmma reads.
	static constexpr int RUN = DIM % 64 == 0 ? 8 : CHUNKS;
	static __device__ __forceinline__ int swizzle(int row) { return RUN == 8 ? row & 7 : row >> 1 & 3; }
	static __device__ __forceinline__ int run_offset(int run) { return run * PREFILL_KEYS * RUN; }

	// thread is the thread's number among those that copy.
	static __device__ __forceinline__ int thread() { return threadIdx.x % (32 * PREFILL_WARPS); }

	// load_pages starts loading the page numbers for block n.
	__device__ __forceinline__ void load_pages(int n) {
		const int32_t *table = a.blockTable + (size_t)run.slot * a.pages;
#pragma unroll
		for (int i = 0; i < ROWS; i++)
			page[i] = __ldcg(table + ((uint32_t)min(n * PREFILL_KEYS + copied(i), run.end - 1) >> a.pageShift));
	}

	// copied returns the position in a block of the i-th row that a thread copies.
	static __device__ __forceinline__ int copied(int i) { return thread() / LANES + APART * i; }

	// find_rows computes the addresses of block n from its page numbers.
	__device__ __forceinline__ void find_rows(int n) {
		const uint32_t stride = plane * 2 * a.layers, chunks = dim(a) / 8;
		const uint4 *keys = (const uint4 *)a.pool + (size_t)plane * (2 * a.layer) +
			(tile.kvHead << a.pageShift) * chunks + thread() % LANES;
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			const int p = n * PREFILL_KEYS + copied(i);
			validBytes[i] = p < run.end ? 16 : 0; // memory past the last position may hold NaN, and 0·NaN is NaN
			source[i] = keys + (size_t)(uint32_t)page[i] * stride + (p & (1 << a.pageShift) - 1) * chunks;
		}
	}

	// find_rows_again does so once more, which takes fewer registers than to keep the addresses.
	__device__ __forceinline__ void find_rows_again(int n) {
#pragma unroll
		for (int i = 0; i < ROWS; i++) asm volatile("" : "+r"(page[i]));
		find_rows(n);
	}

	// copy_block starts copying keys (which 0) or values (1) from the addresses that find_rows
	// computed.
	__device__ __forceinline__ void copy_block(int stage, int which) const {
		const int row = thread() / LANES, chunk = thread() % LANES;
		const int base = VALUES < DIM && which ? tile.base : 0;
		uint4 *to = stages + stage * STAGE + which * KEYS + row * RUN + (chunk ^ swizzle(row));
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < (which ? VALUE_EACH : EACH); j++) {
				const bool in = EXACT || 8 * (chunk + j * LANES) + base < a.dim;
				uint4 *const chunk_to = to + i * APART * RUN + (RUN == 8 ? run_offset(j) : j * LANES);
				const uint4 *const from = source[i] + which * plane + (in ? j * LANES + base / 8 : 0);
				cp_async_zero_fill(chunk_to, from, in ? validBytes[i] : 0);
			}
	}

	// copy_ahead starts copying keys or values of the block that find_rows found, if there is one. It always ends a
	// group, so that wait_for_block can count groups.
	__device__ __forceinline__ void copy_ahead(bool is, int stage, int which) const {
		if (is) copy_block(stage, which);
		cp_async_commit();
	}

	// wait_for_block returns when all threads' copies of a block's keys or values are complete.
	static __device__ __forceinline__ void wait_for_block() {
		cp_async_wait<1>();
		__syncwarp();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
		if (WGMMA) fence_async_shared();
#endif
		__syncthreads();
	}
};
