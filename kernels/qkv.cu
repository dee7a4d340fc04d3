#include "gemm/product.cuh"
#include "ptx/cp_async.cuh"

// KV types of the pool; the numbers are those of DType in format.go.
constexpr int KV_BF16 = 1, KV_F16 = 3;

struct QKVArgs {
	const uint4 *q, *k, *v;  // packed [heads*dim][hidden], [kvHeads*dim][hidden] twice
	Activations in;          // X [T][hidden], with norm
	const float *rope;       // [context][dim/2][cos, sin]
	const int32_t *slot;     // [T]
	const int32_t *position; // [T]
	const int32_t *table;    // [slots][pages]
	void *pool;              // [page][layer][key, value][kvHeads][pageTokens][dim]
	float *out;              // [T][heads*dim]
	int32_t heads, kvHeads, dim, pages;
	int32_t layer, layers, pageTokens, kvType;
};

// QKV: n = rmsnorm(X[t]); q = rope(Wq·n) goes to Out, k = rope(Wk·n) and v = Wv·n to the page of
// the row's slot and position. RoPE rotates (x[i], x[i+dim/2]) by the row's position. A unit is 16
// rows of a head from row i on, and their RoPE partners from i+dim/2 on; first all heads of q, then
// of k, then of v. Members: gemm/product.cuh.
struct QKV {
	using Args = QKVArgs;
	static constexpr int R = 2;
	static constexpr bool NORMED = true;
	static constexpr bool HANDS_OVER = false, HANDOVER_NORMED = false;
	static constexpr bool PREPARES_EARLY = false; // preparing early would take registers
	static constexpr bool ATTENTION_NEXT = true;
	static constexpr int PERSISTENT_GEMV = 2, PERSISTENT_SKINNY = 1;
	const Args &o;
	// A token's position, and the pool index of its first key.
	struct TokenInfo {
		int64_t key;
		int32_t position, unused;
	};
	float cosine, sine;
	float *q;   // destination of q, or null
	int64_t at; // pool index of k or v

	__device__ __forceinline__ QKV(const Args &o) : o(o), cosine(1), sine(0), q(nullptr), at(0) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.heads + 2 * o.kvHeads) * (o.dim / 32); }

	__device__ __forceinline__ RowTile row_tile(int unit, int r) const {
		int each = o.dim / 32, head = unit / each, i = unit % each + r * each;
		const uint4 *w = o.q;
		if (head >= o.heads + o.kvHeads) {
			w = o.v;
			head -= o.heads + o.kvHeads;
		} else if (head >= o.heads) {
			w = o.k;
			head -= o.heads;
		}
		return {w, head * 2 * each + i};
	}

	// Values that an output needs beside its sums: cos and sin for q and k, the page for k and v.
	struct Prefetched {
		float2 rope;
		int32_t position, page;
	};

	__device__ __forceinline__ bool rotated(int unit) const { return unit < (o.heads + o.kvHeads) * (o.dim / 32); }
	__device__ __forceinline__ bool in_kv(int unit) const { return unit >= o.heads * (o.dim / 32); }
	__device__ __forceinline__ const float2 *rope_entry(int unit, int row, int position) const {
		return reinterpret_cast<const float2 *>(o.rope) + (size_t)position * (o.dim / 2) + unit % (o.dim / 32) * 16 +
			row;
	}
	__device__ __forceinline__ const int32_t *page(int t, int position) const {
		return o.table + (size_t)o.slot[t] * o.pages + position / o.pageTokens;
	}

	__device__ __forceinline__ void prepare(int unit, int row, int t) {
		const int position = o.position[t];
		Prefetched s = {{1, 0}, position, 0};
		if (rotated(unit)) s.rope = *rope_entry(unit, row, position);
		if (in_kv(unit)) s.page = *page(t, position);
		use_prefetched(unit, row, t, s);
	}

	// prepare in two parts: copies to shared memory, and use_prefetched when they are complete.
	__device__ __forceinline__ void prefetch(int unit, int row, int t, Prefetched *to) const {
		const int position = o.position[t];
		to->position = position;
		if (rotated(unit))
			cp_async<8>(&to->rope, rope_entry(unit, row, position));
		else
			to->rope = {1, 0};
		if (in_kv(unit)) cp_async<4>(&to->page, page(t, position));
	}

	__device__ __forceinline__ void use_prefetched(int unit, int row, int t, const Prefetched &s) {
		const int each = o.dim / 32, head = unit / each, i = unit % each * 16 + row;
		cosine = s.rope.x;
		sine = s.rope.y;
		q = nullptr;
		if (head < o.heads) {
			q = o.out + ((size_t)t * o.heads + head) * o.dim + i;
			return;
		}
		const int which = head >= o.heads + o.kvHeads, kvHead = head - o.heads - which * o.kvHeads;
		at = (((((int64_t)s.page * o.layers + o.layer) * 2 + which) * o.kvHeads + kvHead) * o.pageTokens +
				 s.position % o.pageTokens) *
				o.dim +
			i;
	}

	__device__ __forceinline__ void store(int64_t to, float v) const {
		if (o.kvType == KV_BF16)
			static_cast<uint16_t *>(o.pool)[to] = BF16::pack(v, 0);
		else if (o.kvType == KV_F16)
			static_cast<uint16_t *>(o.pool)[to] = F16::pack(v, 0);
		else
			static_cast<float *>(o.pool)[to] = v;
	}

	__device__ __forceinline__ void finish(int, int, int, const float (&y)[2]) const {
		float a = __fsub_rn(__fmul_rn(y[0], cosine), __fmul_rn(y[1], sine));
		float b = __fadd_rn(__fmul_rn(y[1], cosine), __fmul_rn(y[0], sine));
		if (q) {
			q[0] = a;
			q[o.dim / 2] = b;
			return;
		}
		store(at, a);
		store(at + o.dim / 2, b);
	}

	__device__ __forceinline__ TokenInfo token_info(int t) const {
		const int position = o.position[t], block = position / o.pageTokens, inPage = position - block * o.pageTokens;
		const int64_t page = o.table[(size_t)o.slot[t] * o.pages + block];
		return {((page * o.layers + o.layer) * 2 * o.kvHeads * o.pageTokens + inPage) * o.dim, position, 0};
	}

	static constexpr int QUADS_AHEAD = 2;
	// Four rows of a head; their RoPE partners are dim/2 further.
	struct UnitRows {
		int inHead;
		bool rotated, query; // whether RoPE applies; whether the rows are of q
		int64_t at;         // index in out of the first token's rows, or in the pool relative to the token's first key

		__device__ __forceinline__ UnitRows(const Args &o, int unit, int row) {
			// An integer division has ten times the instructions.
			const int each = o.dim / 32, head = __fdividef(unit + 0.5f, each);
			const int which = head >= o.heads + o.kvHeads, kvHead = head - o.heads - which * o.kvHeads;
			inHead = (unit - head * each) * 16 + row;
			rotated = !which, query = head < o.heads;
			at = (query ? (int64_t)head : (int64_t)(which * o.kvHeads + kvHead) * o.pageTokens) * o.dim + inHead;
		}
	};
	struct Quad {
		float4 rope[2]; // cos and sin of two rows each

		template <bool = false> __device__ __forceinline__ void look_up(const Args &o, const UnitRows &rows, int, const TokenInfo &token) {
			rope[0] = rope[1] = {1, 0, 1, 0};
			if (!rows.rotated) return;
			const float4 *table =
				reinterpret_cast<const float4 *>(o.rope + ((size_t)token.position * (o.dim / 2) + rows.inHead) * 2);
			rope[0] = table[0];
			rope[1] = table[1];
		}
		static __device__ __forceinline__ void store4(const Args &o, int64_t to, const float4 &v) {
			if (o.kvType == KV_BF16)
				*reinterpret_cast<uint2 *>(static_cast<uint16_t *>(o.pool) + to) = {
					BF16::pack(v.x, v.y), BF16::pack(v.z, v.w)};
			else if (o.kvType == KV_F16)
				*reinterpret_cast<uint2 *>(static_cast<uint16_t *>(o.pool) + to) = {
					F16::pack(v.x, v.y), F16::pack(v.z, v.w)};
			else
				*reinterpret_cast<float4 *>(static_cast<float *>(o.pool) + to) = v;
		}
		static __device__ __forceinline__ float first(float x, float y, float cosine, float sine) {
			return __fsub_rn(__fmul_rn(x, cosine), __fmul_rn(y, sine));
		}
		static __device__ __forceinline__ float second(float x, float y, float cosine, float sine) {
			return __fadd_rn(__fmul_rn(y, cosine), __fmul_rn(x, sine));
		}
		__device__ __forceinline__ float4 finish(const Args &o, const UnitRows &rows, int t, const TokenInfo &token,
			const float4 (&y)[2], bool, bool exists) const {
			const float4 &x = y[0], &z = y[1];
			const float4 a = {first(x.x, z.x, rope[0].x, rope[0].y), first(x.y, z.y, rope[0].z, rope[0].w),
				first(x.z, z.z, rope[1].x, rope[1].y), first(x.w, z.w, rope[1].z, rope[1].w)};
			const float4 b = {second(x.x, z.x, rope[0].x, rope[0].y), second(x.y, z.y, rope[0].z, rope[0].w),
				second(x.z, z.z, rope[1].x, rope[1].y), second(x.w, z.w, rope[1].z, rope[1].w)};
			if (!exists) return a;
			if (rows.query) {
				float *const out = o.out + (int64_t)t * o.heads * o.dim + rows.at;
				*reinterpret_cast<float4 *>(out) = a;
				*reinterpret_cast<float4 *>(out + o.dim / 2) = b;
				return a;
			}
			store4(o, token.key + rows.at, a);
			store4(o, token.key + rows.at + o.dim / 2, b);
			return a;
		}
	};
};

// QKVApart: q, k and v of one row before QK post-processing. Without RoPE no row needs a partner, so a unit is one row
// tile: first those of q, then of k, then of v, and small models have units for more SMs. Out gets q, the pool float32
// [T][key, value][kvHeads][dim]. The results are QKV's with cosine 1 and sine 0. Members: gemm/product.cuh.
struct QKVApart {
	using Args = QKVArgs;
	static constexpr int R = 1;
	static constexpr bool NORMED = true;
	static constexpr bool PREPARES_EARLY = true;
	static constexpr bool ATTENTION_NEXT = true;
	static constexpr int PERSISTENT_GEMV = 2;
	static constexpr Gives GIVES = GIVES_FLOATS;
	const Args &o;
	struct Prefetched {};

	__device__ __forceinline__ QKVApart(const Args &o) : o(o) {}
	__device__ __forceinline__ const Activations &activations() const { return o.in; }
	__device__ __forceinline__ int units() const { return (o.heads + 2 * o.kvHeads) * (o.dim / 16); }
	__device__ __forceinline__ RowTile row_tile(int unit, int) const {
		const int q = o.heads * (o.dim / 16), each = o.kvHeads * (o.dim / 16);
		if (unit < q) return {o.q, unit};
		if (unit < q + each) return {o.k, unit - q};
		return {o.v, unit - q - each};
	}
	__device__ __forceinline__ void prepare(int, int, int) {}
	__device__ __forceinline__ void finish(int unit, int row, int t, const float (&y)[1]) const {
		const int of = unit * 16 + row, q = o.heads * o.dim;
		if (of < q)
			o.out[(size_t)t * q + of] = y[0];
		else
			static_cast<float *>(o.pool)[(size_t)t * 2 * o.kvHeads * o.dim + of - q] = y[0];
	}
};

REEL_PREFILL_PRODUCT(reel_qkv, QKV, 4)
REEL_OP_KERNEL(reel_qkv_apart_bf16_gemv, QKVApart, FEW_ROWS_THREADS, 2, (gemv<QKVApart, BF16, 8>(QKVApart{a})))
REEL_OP_KERNEL(reel_qkv_apart_f16_gemv, QKVApart, FEW_ROWS_THREADS, 2, (gemv<QKVApart, F16, 8>(QKVApart{a})))
REEL_TAGGED(reel_qkv_apart, QKVApart, 8)
REEL_CODES(reel_qkv, QKV)
REEL_CODES_TAKING(reel_qkv, QKV)
REEL_USUAL_FORMATS(REEL_CODES_TAGGED, reel_qkv_apart, QKVApart)
REEL_STREAM_K_FORMATS(reel_qkv, QKV)
