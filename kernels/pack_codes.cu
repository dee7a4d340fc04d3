#include "gemm/formats.cuh"

// Blocks of each format as files have them (quantised.go): code(row, column) and, for a row of a brick,
// scales(to, i, h, blocks, n) of its n blocks, for the place of row i + 8h among the 16.

__device__ __forceinline__ void copy_bytes(uint8_t *to, const uint8_t *from, int n) {
	for (int i = 0; i < n; i++) to[i] = from[i];
}

// nibble returns a code of 32 in 16 bytes.
__device__ __forceinline__ uint32_t nibble(const uint8_t *codes, int column) {
	return codes[column % 16] >> column % 32 / 16 * 4 & 15;
}

// Codes32 are blocks of 32 codes, with AT bytes before the codes; FIVE: the last four of them are high bits.
template <int BYTES, int AT, bool FIVE> struct Codes32 {
	static constexpr int ELEMENTS = 32, BLOCK = BYTES;
	static __device__ __forceinline__ uint32_t code(const uint8_t *row, int column) {
		const uint8_t *block = row + (size_t)(column / 32) * BYTES;
		uint32_t v = nibble(block + AT, column);
		if (FIVE) v |= (block[AT - 4 + column % 32 / 8] >> column % 8 & 1) << 4;
		return v;
	}
};

template <int BYTES, int AT, bool FIVE> struct WithHalves : Codes32<BYTES, AT, FIVE> {
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *blocks, int n) {
		for (int g = 0; g < n; g++) copy_bytes(to + i * 8 + g * 4 + h * 2, blocks + g * BYTES, 2);
	}
};
template <int BYTES, int AT, bool FIVE> struct WithMinimums : Codes32<BYTES, AT, FIVE> {
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *blocks, int n) {
		for (int g = 0; g < n; g++) {
			copy_bytes(to + i * 16 + g * 4 + h * 2, blocks + g * BYTES, 2);
			copy_bytes(to + i * 16 + 8 + g * 4 + h * 2, blocks + g * BYTES + 2, 2);
		}
	}
};

template <class F> struct Source;
template <> struct Source<Q4_0> : WithHalves<18, 2, false> {};
template <> struct Source<Q4_1> : WithMinimums<20, 4, false> {};
template <> struct Source<Q5_0> : WithHalves<22, 6, true> {};
template <> struct Source<Q5_1> : WithMinimums<24, 8, true> {};
template <> struct Source<Q8_0> : WithHalves<34, 2, false> {
	static __device__ __forceinline__ uint32_t code(const uint8_t *row, int column) {
		return row[(size_t)(column / 32) * 34 + 2 + column % 32];
	}
};
template <> struct Source<MXFP4> : Codes32<17, 1, false> {
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *blocks, int n) {
		for (int g = 0; g < n; g++) to[i * 4 + g * 2 + h] = blocks[g * 17];
	}
};

// K blocks have 256 codes; HIGH: of five bits.
template <int BYTES, bool HIGH> struct SourceK {
	static constexpr int ELEMENTS = 256, BLOCK = BYTES;
	static __device__ __forceinline__ uint32_t code(const uint8_t *row, int column) {
		const uint8_t *block = row + (size_t)(column / 256) * BYTES;
		const int c = column % 256;
		uint32_t v = block[(HIGH ? 48 : 16) + c / 64 * 32 + c % 32] >> c / 32 % 2 * 4 & 15;
		if (HIGH) v |= (block[16 + c % 32] >> c / 32 & 1) << 4;
		return v;
	}
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *block, int) {
		const uint8_t *s = block + 4;
		for (int g = 0; g < 8; g++) {
			to[i * 16 + h * 8 + g] = g < 4 ? s[g] & 63 : s[g + 4] & 15 | s[g - 4] >> 6 << 4;
			to[128 + i * 16 + g / 2 * 4 + h * 2 + g % 2] = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
		}
		copy_bytes(to + 256 + i * 8 + h * 4, block, 4);
	}
};
template <> struct Source<Q4_K> : SourceK<144, false> {};
template <> struct Source<Q5_K> : SourceK<176, true> {};

template <> struct Source<Q6_K> {
	static constexpr int ELEMENTS = 256, BLOCK = 210;
	static __device__ __forceinline__ uint32_t code(const uint8_t *row, int column) {
		const uint8_t *block = row + (size_t)(column / 256) * BLOCK;
		const int n = column % 256 / 128, k = column % 128 / 32, j = column % 32;
		return block[64 * n + k % 2 * 32 + j] >> k / 2 * 4 & 15 | (block[128 + 32 * n + j] >> 2 * k & 3) << 4;
	}
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *block, int) {
		copy_bytes(to + i * 32 + h * 16, block + 192, 16);
		copy_bytes(to + 256 + i * 4 + h * 2, block + 208, 2);
	}
};

template <> struct Source<IQ4_XS> {
	static constexpr int ELEMENTS = 256, BLOCK = 136;
	static __device__ __forceinline__ uint32_t code(const uint8_t *row, int column) {
		return nibble(row + (size_t)(column / 256) * BLOCK + 8 + column % 256 / 32 * 16, column);
	}
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *block, int) {
		for (int g = 0; g < 8; g++)
			to[i * 16 + h * 8 + g] = (block[4 + g / 2] >> g % 2 * 4 & 15 | (block[2 + g / 4] >> g % 4 * 2 & 3) << 4) - 32;
		copy_bytes(to + 128 + i * 4 + h * 2, block, 2);
	}
};

template <> struct Source<F8> {
	static constexpr int ELEMENTS = 128, BLOCK = 132;
	static __device__ __forceinline__ uint32_t code(const uint8_t *row, int column) {
		return row[(size_t)(column / 128) * BLOCK + 4 + column % 128];
	}
	// A block with NaN among its codes has NaN as scale.
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *block, int) {
		bool nan = false;
		for (int k = 4; k < BLOCK; k++) nan |= (block[k] & 127) == 127;
		const uint8_t none[] = {0xff, 0xff, 0xff, 0x7f};
		for (int k = 0; k < 4; k++) to[i * 8 + h * 4 + k] = nan ? none[k] : block[k];
	}
};

template <int N> struct SourceG4 {
	static constexpr int ELEMENTS = N, BLOCK = 5 + N / 2, GROUPS = N == 32 ? 2 : 1;
	static __device__ __forceinline__ uint32_t code(const uint8_t *row, int column) {
		return nibble(row + (size_t)(column / N) * BLOCK + 5 + column % N / 32 * 16, column);
	}
	static __device__ __forceinline__ void scales(uint8_t *to, int i, int h, const uint8_t *blocks, int n) {
		for (int g = 0; g < n; g++) {
			const int at = g * 16 + i * 2 + h;
			copy_bytes(to + 4 * at, blocks + g * BLOCK, 4);
			to[GROUPS * 64 + at] = blocks[g * BLOCK + 4];
		}
	}
};
template <> struct Source<G4_32> : SourceG4<32> {};
template <> struct Source<G4_64> : SourceG4<64> {};
template <> struct Source<G4_128> : SourceG4<128> {};

struct PackCodesArgs {
	const uint8_t *src; // blocks of [rows][cols]
	char *dst;          // out: bricks; codes and scales past the last row and column are zero
	int32_t rows, cols;
};

// put_code adds a code to a lane's registers, where codes.go has it: column e of four, row half h.
template <class F> __device__ __forceinline__ void put_code(uint32_t (&low)[8], uint32_t (&high)[2], int step, int e,
	int h, uint32_t code) {
	constexpr int BITS = F::Code::BITS;
	const int r = e / 2 * 2 + h, half = e % 2;
	if (BITS == 8) {
		low[step * 2 + e / 2] |= code << half * 16 + h * 8;
		return;
	}
	if (BITS == 6) {
		const int at = half * 16;
		if (r < 2) low[step] |= code << at + r * 6;
		if (r == 2) high[step / 2] |= code << at + step % 2 * 6;
		if (r == 3) {
			low[step] |= (code & 15) << at + 12;
			high[step / 2] |= code >> 4 << at + 12 + step % 2 * 2;
		}
		return;
	}
	if constexpr (F::Code::ORDER == SIGNS_APART) {
		low[step] |= (code >> 3 << E2M1::sign_at(r) | (code & 7) << E2M1::rest_at(r)) << half * 16;
		return;
	}
	low[step] |= (code & 15) << (F::Code::ORDER == FOR_LOOKUPS ? e / 2 * 4 + half * 2 + h : r + 4 * half) * 4;
	if (BITS == 5) high[0] |= code >> 4 << half * 16 + step * 4 + r;
}

// pack_quarter packs a lane's codes of a quarter, from column `first` on. Rows past the last are null.
template <class F> __device__ __forceinline__ void pack_quarter(
	char *to, int lane, const uint8_t *const (&row)[2], int first, int cols) {
	constexpr int BITS = F::Code::BITS;
	uint32_t low[8] = {}, high[2] = {};
#pragma unroll
	for (int step = 0; step < QUARTER_STEPS; step++)
#pragma unroll
		for (int e = 0; e < 4; e++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const int column = first + step * MMA_K + lane % 4 * 4 + e;
				if (row[h] && column < cols) put_code<F>(low, high, step, e, h, Source<F>::code(row[h], column));
			}
	uint4 *const plane = reinterpret_cast<uint4 *>(to);
	plane[lane] = {low[0], low[1], low[2], low[3]};
	if (BITS == 8) plane[32 + lane] = {low[4], low[5], low[6], low[7]};
	if (BITS == 5) reinterpret_cast<uint32_t *>(to + 512)[lane] = high[0];
	if (BITS == 6) reinterpret_cast<uint2 *>(to + 512)[lane] = {high[0], high[1]};
}

// pack_codes: a warp packs brick by brick.
template <class F> __device__ __forceinline__ void pack_codes(const PackCodesArgs &a) {
	using S = Source<F>;
	const int lane = threadIdx.x % 32, bricks = F::bricks(a.cols);
	const size_t pitch = (size_t)(a.cols / S::ELEMENTS) * S::BLOCK;
	const int64_t all = (int64_t)((a.rows + 15) / 16) * bricks, warps = (int64_t)gridDim.x * (blockDim.x / 32);
	for (int64_t b = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; b < all; b += warps) {
		const int64_t tile = b / bricks * 16;
		const int first = b % bricks * F::COLUMNS;
		char *const to = a.dst + b * F::BYTES;
		const uint8_t *row[2];
		for (int h = 0; h < 2; h++) {
			const int64_t r = tile + lane / 4 + h * 8;
			row[h] = r < a.rows ? a.src + r * pitch : nullptr;
		}
		for (int q = 0; q < F::QUARTERS; q++)
			pack_quarter<F>(to + F::CODES_AT + q * F::Codes::BYTES, lane, row, first + q * QUARTER_COLUMNS, a.cols);
		uint8_t *const scales = reinterpret_cast<uint8_t *>(to + F::SCALES_AT);
		for (int i = lane; i < F::Scales::BYTES / 4; i += 32) reinterpret_cast<uint32_t *>(scales)[i] = 0;
		__syncwarp();
		if (lane >= 16 || tile + lane >= a.rows) continue;
		S::scales(scales, lane % 8, lane / 8, a.src + (tile + lane) * pitch + (size_t)(first / S::ELEMENTS) * S::BLOCK,
			(min(F::COLUMNS, a.cols - first)) / S::ELEMENTS);
	}
}

#define REEL_PACK_CODES(format, F) \
	extern "C" __global__ void reel_pack_##format(const __grid_constant__ PackCodesArgs a) { pack_codes<F>(a); }
REEL_FORMATS(REEL_PACK_CODES)
