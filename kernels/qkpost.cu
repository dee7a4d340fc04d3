#include "attention/qk_post.cuh"
#include "gemm/operands.cuh"

constexpr int QKPOST_WARPS = 4;

// qkpost_store stores an element of the pool. The numbers are those of DType in format.go.
__device__ __forceinline__ void qkpost_store(const QKPostArgs &a, int64_t at, float v) {
	if (a.kvType == 1)
		static_cast<uint16_t *>(a.pool)[at] = BF16::pack(v, 0);
	else if (a.kvType == 3)
		static_cast<uint16_t *>(a.pool)[at] = F16::pack(v, 0);
	else
		static_cast<float *>(a.pool)[at] = v;
}

// For each head of q, k and v: x += bias; for q and k then x = rope(rmsnorm(x)), for v with valueNorms x = rmsnorm(x).
// q stays in place, k and v go to the row's page. A warp is one head of one row, of at most MOST elements.
template <int MOST> __device__ __forceinline__ void qkpost(const QKPostArgs &a) {
	const int all = a.heads + 2 * a.kvHeads, lane = threadIdx.x % 32, half = a.dim / 2;
	const int i = blockIdx.x * QKPOST_WARPS + threadIdx.x / 32, t = i / all, head = i % all;
	const int kind = head < a.heads ? 0 : head < a.heads + a.kvHeads ? 1 : 2; // q, k, v
	begin_product<true>();                                                    // attention comes next
	if (t >= a.T) return;
	float *q = a.q + ((size_t)t * a.heads + head) * a.dim;
	QKPost<0, MOST> x;
	x.load(a, kind ? a.kv + ((size_t)t * 2 * a.kvHeads + head - a.heads) * a.dim : q, lane);
	const int position = a.position[t];
	const int64_t page = kind ? a.table[(size_t)a.slot[t] * a.pages + position / a.pageTokens] : 0;
	x.look_up(a, kind, head, position, lane);
	x.apply(a, kind, lane);
	const int64_t to =
		(((page * a.layers + a.layer) * 2 * a.kvHeads + head - a.heads) * a.pageTokens + position % a.pageTokens) *
		a.dim;
#pragma unroll
	for (int n = 0; n < x.PAIRS; n++) {
		const int e = lane + 32 * n;
		if (e >= half) break;
		if (kind) {
			qkpost_store(a, to + e, x.low[n]);
			qkpost_store(a, to + half + e, x.high[n]);
		} else {
			q[e] = x.low[n];
			q[half + e] = x.high[n];
		}
	}
}

extern "C" __global__ void __launch_bounds__(32 * QKPOST_WARPS) reel_qkpost(const __grid_constant__ QKPostArgs a) {
	qkpost<128>(a);
}
extern "C" __global__ void __launch_bounds__(32 * QKPOST_WARPS) reel_qkpost_256(const __grid_constant__ QKPostArgs a) {
	qkpost<256>(a);
}
extern "C" __global__ void __launch_bounds__(32 * QKPOST_WARPS) reel_qkpost_512(const __grid_constant__ QKPostArgs a) {
	qkpost<512>(a);
}
