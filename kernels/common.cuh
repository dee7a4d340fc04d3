// What the product kernels share: element types, loads of weights, the tensor-core
// step, and the order in which partial sums are added.
//
// A packed weight is [ceil(rows/16)][cols/16][32 lanes][8 elements]: each 512 bytes
// are one M operand of mma.m16n8k16, and each lane's 16 bytes are its registers.
// Lane l holds rows l/4 and l/4+8 of the tile, and of both the four columns from
// 4*(l%4) on: registers {row, cols 0 1}, {row+8, cols 0 1}, {row, cols 2 3},
// {row+8, cols 2 3}. The activations are laid out alike, so that a lane's four are
// 16 contiguous bytes; the order of columns inside a step of 16 is the same for all.
#pragma once
#include <cstdint>

// dawdle has some warps wait for up to 30 us, in kernels that are built for a test
// (REEL_LATE): what the next kernel reads without having awaited it is then not there.
__device__ __forceinline__ void dawdle() {
#ifdef REEL_LATE
	uint32_t now;
	asm volatile("mov.u32 %0, %clock;" : "=r"(now));
	uint32_t h = (now >> 5 ^ blockIdx.x * 0x9e3779b9u ^ threadIdx.x / 32 * 0x85ebca6bu) * 0xc2b2ae35u >> 16;
	if (h % 4 == 0) __nanosleep(h / 4 % 16 * 2000);
	__syncwarp(__activemask());
#endif
}

// let_next_begin lets the next kernel come onto the GPU. Call it when the first
// weights are under way.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
	dawdle();
}

// await_previous returns when what the kernels before this one wrote is there.
// Before it, a kernel reads nothing but weights, and attention what QKV lets it
// (begin_product, Attend.AfterQKV).
// Every thread that reads more calls it.
__device__ __forceinline__ void await_previous() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
	dawdle();
}

// await_rows is await_previous in the products of few rows. A test takes it away there
// (REEL_NO_WAIT) and must find the missing wait: then sums are wrong, but no addresses
// (a list of rows is behind it too, but holds rows that are there at any time),
// and no counters by which blocks meet.
__device__ __forceinline__ void await_rows() {
#ifndef REEL_NO_WAIT
	await_previous();
#else
	dawdle();
#endif
}

// begin_product lets the next kernel begin and waits for the ones before. Where attention
// comes next it waits first: then what those wrote is there as soon as the next one begins.
// FEW is of the products of few rows.
template <bool ATTENDED, bool FEW = false> __device__ __forceinline__ void begin_product() {
	if (ATTENDED) {
		await_previous();
		let_next_begin();
		return;
	}
	let_next_begin();
	if (FEW)
		await_rows();
	else
		await_previous();
}

// Weights are read once: past L1, and they never change.
__device__ __forceinline__ uint4 load_weights(const uint4 *p) {
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
	return v;
}

// Norm weights never change either, and may be read before await_previous.
__device__ __forceinline__ float4 load_constant(const float *p) { return __ldg(reinterpret_cast<const float4 *>(p)); }

__device__ __forceinline__ float4 load_activation(const float *p) { return *reinterpret_cast<const float4 *>(p); }

__device__ __forceinline__ uint32_t shared_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// copy_async begins to copy N bytes to shared memory: 4 and 8 through L1, 16 past it.
template <int N> __device__ __forceinline__ void copy_async(void *to, const void *from) {
	if (N == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(N) : "memory");
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// await_copies returns when this thread's copies are there, but for the last OPEN groups, each of
// which end_copies ended.
template <int OPEN> __device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory"); }

// await_all_copies returns when all of them are there, those too that are in no group.
__device__ __forceinline__ void await_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

struct BF16 {
	// Two values rounded to nearest, low in the lower half.
	static __device__ __forceinline__ uint32_t pack(float low, float high) {
		uint32_t v;
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
		return v;
	}
	static __device__ __forceinline__ float low(uint32_t v) { return __uint_as_float(v << 16); }
	static __device__ __forceinline__ float high(uint32_t v) { return __uint_as_float(v & 0xffff0000); }
	// c[row][token] += Σ a[row][k] b[k][token] of 16 k, in float32.
	static __device__ __forceinline__ void mma(float (&c)[4], const uint4 &a, uint32_t b0, uint32_t b1) {
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			: "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
	}
};

struct F16 {
	// float16 ends at 65504: a larger activation is held there, NaN stays NaN.
	static __device__ __forceinline__ float held(float v) { return v > 65504.f ? 65504.f : v < -65504.f ? -65504.f : v; }
	static __device__ __forceinline__ uint32_t pack(float low, float high) {
		uint32_t v;
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(held(high)), "f"(held(low)));
		return v;
	}
	static __device__ __forceinline__ float low(uint32_t v) {
		float f;
		asm("{ .reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(f) : "r"(v));
		return f;
	}
	static __device__ __forceinline__ float high(uint32_t v) { return low(v >> 16); }
	static __device__ __forceinline__ void mma(float (&c)[4], const uint4 &a, uint32_t b0, uint32_t b1) {
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
			: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			: "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
	}
};

// The order of every sum over the columns of a weight, whatever the number of
// rows. 16 columns are a step, 4 steps a piece, and piece p belongs to partial sum
// p % 16: it adds its pieces' steps in ascending order. Then
//   sum = ((g0 + g1) + g2) + g3,  gq = ((p[4q] + p[4q+1]) + p[4q+2]) + p[4q+3].
constexpr int STEP = 16;         // columns of a step
constexpr int PIECE = 4;         // steps of a piece
constexpr int PARTIALS = 16;
constexpr int GROUPS = 4;        // of partials
constexpr int PER_GROUP = PARTIALS / GROUPS;

// in_order adds p[0], p[stride], … of all partials.
__device__ __forceinline__ float in_order(const float *p, int stride) {
	float sum = 0;
#pragma unroll
	for (int q = 0; q < GROUPS; q++) {
		float group = p[q * PER_GROUP * stride];
#pragma unroll
		for (int i = 1; i < PER_GROUP; i++) group = __fadd_rn(group, p[(q * PER_GROUP + i) * stride]);
		sum = q ? __fadd_rn(sum, group) : group;
	}
	return sum;
}

// Activations are the rows that a product reads: element k of row t is
// x[rows ? rows[t] : t][k], times norm[k] where there is one.
struct Activations {
	const float *x;      // [T][cols]
	const float *norm;   // [cols], or null: then rows are read as they are
	const int32_t *rows; // [n], or null; -1 for a row that is not there
	int32_t cols, n;
	float eps;
	int32_t unused;

	// The row of x behind t, or -1.
	__device__ __forceinline__ int row(int t) const { return t >= n ? -1 : rows ? rows[t] : t; }
};

// rms_scale is 1/sqrt(mean(x²)+eps) of a row whose squares sum to `squares`. It is
// applied to the finished dot product; norm weights are applied to x before it is
// rounded: y = scale * Σ W[r][k] round(x[k]*norm[k]).
__device__ __forceinline__ float rms_scale(const Activations &in, float squares) {
	return __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, (float)in.cols), in.eps)));
}

// add_squares adds a lane's four squares in order.
__device__ __forceinline__ float add_squares(float sum, const float4 &v) {
	return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, sum))));
}

// fold adds the squares of a partial sum, which 16 lanes hold, four columns of a piece
// each: over the piece's steps first, then over the columns of a step.
__device__ __forceinline__ float fold(float s) {
	s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 4));
	s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 8));
	s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
	return __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
}

// rounded is a lane's four activations as the N operand's two registers.
template <class D> __device__ __forceinline__ uint2 rounded(const float4 &v) { return {D::pack(v.x, v.y), D::pack(v.z, v.w)}; }

__device__ __forceinline__ float4 add(const float4 &x, const float4 &y) {
	return {__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y), __fadd_rn(x.z, y.z), __fadd_rn(x.w, y.w)};
}
__device__ __forceinline__ float4 times(const float4 &v, const float4 &g) {
	return {__fmul_rn(v.x, g.x), __fmul_rn(v.y, g.y), __fmul_rn(v.z, g.z), __fmul_rn(v.w, g.w)};
}
