// Tagged values between kernels of one pass: a word of data and a tag in 8 bytes, which are written at once. Whoever sees
// the tag has the word, so the reader need not wait until the writer's kernel has ended. notes/few_rows.md says why
// nothing locks up and why no value is taken from an earlier layer or pass; notes/ranks.md says so of several GPUs.
#pragma once
#include "ptx/pdl.cuh"
#include "ptx/peers.cuh"

// Where several GPUs share a pass a place is a PeerWord, which all of them write.
struct PeerWord {
	uint64_t word;
};

// TagsOf are where an op of a pass takes and gives tagged values. Word is uint64_t or PeerWord.
template <class Word> struct TagsOf {
	uint32_t *pass;       // [1]: what the pass adds to its tags; the op that begins the pass raises it by TAGS_OF_PASS
	const Word *in;       // float32, or pairs of bfloat16 if the op has no norm, times its `scale`
	Word *out;            // the same for the next op; a projection has the residual stream here, and adds to it in place
	int32_t taken, given; // tags of in and out within the pass; what the op that begins it gives has 0
	float scale;          // of pairs in out, multiplied before they are rounded: a power of two
	int32_t unused;

	__device__ __forceinline__ uint32_t base() const { return *static_cast<const volatile uint32_t *>(pass); }
};
using Tags = TagsOf<uint64_t>;

// RankTags are those of one of several GPUs. out is where its part of the results begins, on each of them.
struct RankTags : TagsOf<PeerWord> {
	int64_t away[MOST_RANKS - 1]; // bytes from out to that of each other GPU
	int32_t peers;                // other GPUs that get the results, or 0
	int32_t apart;                // row tiles from this GPU's part of an expert's results to that of the next expert's
	int32_t last, unused;         // whether no other GPU has later columns
};
constexpr uint32_t TAGS_OF_PASS = 1024; // tagsOfPass of tags.go

// looked_at_first returns the block that a reader of every step-th of n blocks of in, from `first` on, waits for before it
// looks at all of its own: of several GPUs one of another GPU, whose values come later than this one's.
__device__ __forceinline__ int looked_at_first(const Tags &, int first, int, int) { return first; }
__device__ __forceinline__ int looked_at_first(const RankTags &t, int first, int step, int n) {
	return t.last ? first : first + (n - 1 - first) / step * step;
}

// begin_tagged begins a kernel that takes tagged values, and returns what the pass adds to its tags. The first one of a
// pass waits, so that the number of the pass and all that came before the pass can be seen by those after it too. It is
// the op that takes 0; first: this kernel is the first one of its op.
template <class T> __device__ __forceinline__ uint32_t begin_tagged(const T &t, bool first = true) {
	if (first && t.taken == 0) pdl_wait();
	pdl_launch_dependents();
	return t.base();
}

// end_tagged ends it. The end of a kernel means the end of all before it, as everywhere, because a block waits, when
// nothing depends on that block any more. An H100 ends kernels in their order without it too, but nothing promises that
// (notes/few_rows.md).
__device__ __forceinline__ void end_tagged() {
	if (blockIdx.x + blockIdx.y + blockIdx.z == 0) pdl_wait();
}

__device__ __forceinline__ void put_tagged(uint64_t *at, uint32_t v, uint32_t tag) {
	asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"((uint64_t)tag << 32 | v) : "memory");
}
__device__ __forceinline__ void put_tagged(uint64_t *at, float v, uint32_t tag) {
	put_tagged(at, __float_as_uint(v), tag);
}
// The same to a place that other GPUs read: sys is the scope of all of them.
__device__ __forceinline__ void put_tagged(PeerWord *at, uint32_t v, uint32_t tag) {
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"((uint64_t)tag << 32 | v) : "memory");
}
__device__ __forceinline__ void put_tagged(PeerWord *at, float v, uint32_t tag) {
	put_tagged(at, __float_as_uint(v), tag);
}

// give_tagged gives a value to a place of out, and to the same place of all GPUs, the far ones first.
template <class V> __device__ __forceinline__ void give_tagged(const Tags &, uint64_t *at, V v, uint32_t tag) {
	put_tagged(at, v, tag);
}
template <class V> __device__ __forceinline__ void give_tagged(const RankTags &t, PeerWord *at, V v, uint32_t tag) {
	for (int i = 0; i < t.peers; i++)
		put_tagged(reinterpret_cast<PeerWord *>(reinterpret_cast<char *>(at) + t.away[i]), v, tag);
	put_tagged(at, v, tag);
}

__device__ __forceinline__ uint64_t look_tagged(const uint64_t *at) {
	uint64_t v;
	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}
__device__ __forceinline__ uint64_t look_tagged(const PeerWord *at) {
	uint64_t v;
	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
	return v;
}
// The same of two neighbours; `at` is even.
__device__ __forceinline__ ulonglong2 look_tagged2(const uint64_t *at) {
	ulonglong2 v;
	asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(at) : "memory");
	return v;
}
__device__ __forceinline__ ulonglong2 look_tagged2(const PeerWord *at) {
	ulonglong2 v;
	asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(at) : "memory");
	return v;
}
// FourTagged are four neighbours, as a lane has seen them.
struct FourTagged {
	ulonglong2 low, high;
};
template <class Word> __device__ __forceinline__ FourTagged look_tagged4(const Word *at) {
	return {look_tagged2(at), look_tagged2(at + 2)};
}
// stale reports whether a value is another layer's or pass's. A test removes this check (-DREEL_NO_TAGS) and must detect
// the missing wait.
__device__ __forceinline__ bool stale(uint64_t v, uint32_t tag) {
#ifdef REEL_NO_TAGS
	return false;
#else
	return (uint32_t)(v >> 32) != tag;
#endif
}
__device__ __forceinline__ uint32_t tagged_word(uint64_t v) { return (uint32_t)v; }
__device__ __forceinline__ float tagged_float(uint64_t v) { return __uint_as_float((uint32_t)v); }

// await_tagged returns the word when it has the tag. v was there before.
template <class Word> __device__ __forceinline__ uint32_t await_tagged(uint64_t v, const Word *at, uint32_t tag) {
	while (stale(v, tag)) v = look_tagged(at);
	return tagged_word(v);
}
template <class Word> __device__ __forceinline__ uint32_t await_tagged(const Word *at, uint32_t tag) {
	return await_tagged(look_tagged(at), at, tag);
}
// The same of two pairs and of four float32.
template <class Word> __device__ __forceinline__ uint2 await_tagged(ulonglong2 v, const Word *at, uint32_t tag) {
	while (stale(v.x, tag) || stale(v.y, tag)) v = look_tagged2(at);
	return {tagged_word(v.x), tagged_word(v.y)};
}
template <class Word> __device__ __forceinline__ float4 await_tagged(FourTagged v, const Word *at, uint32_t tag) {
	while (stale(v.low.x, tag) || stale(v.low.y, tag) || stale(v.high.x, tag) || stale(v.high.y, tag))
		v = look_tagged4(at);
	return {tagged_float(v.low.x), tagged_float(v.low.y), tagged_float(v.high.x), tagged_float(v.high.y)};
}
