#include "ptx/math.cuh"
#include "ptx/pdl.cuh"
#include "step/record.cuh"

constexpr int VECTOR_THREADS = 256, VECTOR_WARPS = VECTOR_THREADS / 32;

struct VectorArgs {
	const float *x;              // [T][cols]
	const int32_t *index;        // [N]: row in x, or -1
	const float *norm;           // [cols]
	const int32_t *sample;       // [N]: row of the step
	const int32_t *slot;         // [T]
	const int32_t *number;       // [2]: the step number
	const int32_t *params;       // [slots][SAMPLE_PARAMS]
	int32_t *results;            // out: [ringSlots][maxSamples][RESULT_WORDS], pinned
	float *vectors;              // out: [ringSlots][maxSamples][cols], pinned
	int32_t cols, ringSlots, maxSamples;
	float eps;
};

// vector_sum returns the sum of the block's values, in an order that depends on nothing but the thread.
__device__ __forceinline__ float vector_sum(float v, float *shared) {
	for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
	if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
	__syncthreads();
	float sum = 0;
	for (int w = 0; w < VECTOR_WARPS; w++) sum += shared[w];
	return sum;
}

// Leaves the vector of sample blockIdx.x as Vector.Host does. A thread takes four columns at a time, and the step
// number comes last, so a record with the right number is complete, and so is its vector.
extern "C" __global__ void __launch_bounds__(VECTOR_THREADS) reel_vector(const __grid_constant__ VectorArgs a) {
	__shared__ float squares[VECTOR_WARPS], finite[VECTOR_WARPS];
	pdl_begin();
	const int row = a.index[blockIdx.x];
	if (row < 0) return;
	const float4 *x = reinterpret_cast<const float4 *>(a.x + (size_t)row * a.cols);
	const float4 *norm = reinterpret_cast<const float4 *>(a.norm);
	const size_t at = (size_t)((uint32_t)a.number[0] % (uint32_t)a.ringSlots) * a.maxSamples + blockIdx.x;
	float4 *out = reinterpret_cast<float4 *>(a.vectors + at * a.cols);
	float sum = 0, bad = 0;
	for (int i = threadIdx.x; i < a.cols / 4; i += VECTOR_THREADS)
		sum += x[i].x * x[i].x + x[i].y * x[i].y + (x[i].z * x[i].z + x[i].w * x[i].w);
	const float scale = rsqrtf(vector_sum(sum, squares) / a.cols + a.eps);
	for (int i = threadIdx.x; i < a.cols / 4; i += VECTOR_THREADS) {
		const float4 v = {x[i].x * scale * norm[i].x, x[i].y * scale * norm[i].y, x[i].z * scale * norm[i].z,
			x[i].w * scale * norm[i].w};
		out[i] = v;
		bad += v.x * 0 + v.y * 0 + v.z * 0 + v.w * 0;
	}
	__threadfence_system();
	bad = vector_sum(bad, finite); // its barrier also orders the vector before the record
	if (threadIdx.x > 0) return;
	int32_t *record = a.results + at * RESULT_WORDS;
	const int slot = a.slot[a.sample[blockIdx.x]];
	record[2] = slot, record[3] = a.params[slot * SAMPLE_PARAMS], record[4] = 1, record[5] = 0;
	record[6] = __float_as_int(bad), record[7] = 0;
	__threadfence_system();
	asm volatile("st.relaxed.sys.global.v2.s32 [%0], {%1, %2};" ::"l"(record), "r"(a.number[0]), "r"(a.number[1])
		: "memory");
}
