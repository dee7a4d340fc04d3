// What the loops of quantised formats for AVX2 and for AVX-512 share. BX is memory on the stack, aligned to 64 bytes.
// Y2 to Y10 are overwritten.

DATA quads<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA quads<>+8(SB)/8, $0x0808080808080808
DATA quads<>+16(SB)/8, $0x1010101010101010
DATA quads<>+24(SB)/8, $0x2020202020202020
DATA quads<>+32(SB)/8, $0x3030303030303030
DATA quads<>+40(SB)/8, $0x3f3f3f3f3f3f3f3f
DATA quads<>+48(SB)/8, $0xf0f0f0f0f0f0f0f0
DATA quads<>+56(SB)/8, $0x0101010101010101
DATA quads<>+64(SB)/8, $0x8040201008040201
GLOBL quads<>(SB), RODATA|NOPTR, $72

#define BYTES_0F quads<>+0(SB)
#define BYTES_08 quads<>+8(SB)
#define BYTES_10 quads<>+16(SB)
#define BYTES_20 quads<>+24(SB)
#define BYTES_30 quads<>+32(SB)
#define BYTES_3F quads<>+40(SB)
#define BYTES_F0 quads<>+48(SB)
#define BYTES_01 quads<>+56(SB)
#define BIT_OF_8 quads<>+64(SB)

// Byte i of 32 takes byte i/8 of four.
DATA spread<>+0(SB)/8, $0x0000000000000000
DATA spread<>+8(SB)/8, $0x0101010101010101
DATA spread<>+16(SB)/8, $0x0202020202020202
DATA spread<>+24(SB)/8, $0x0303030303030303
GLOBL spread<>(SB), RODATA|NOPTR, $32

// The values of the codes of MXFP4 (E2M1 times two) and of IQ4_XS, as fp4Values and iq4Values.
DATA fp4<>+0(SB)/8, $0x0c08060403020100
DATA fp4<>+8(SB)/8, $0xf4f8fafcfdfeff00
GLOBL fp4<>(SB), RODATA|NOPTR, $16
DATA iq4<>+0(SB)/8, $0xf6eaddcfbfad9881
DATA iq4<>+8(SB)/8, $0x7159453526190d01
GLOBL iq4<>(SB), RODATA|NOPTR, $16

// Shifts of the 8 scales of IQ4_XS: of their low bits, then of their high ones. The first and the second dword of
// the low ones are those of u2 in SCALES_K.
DATA shifts<>+0(SB)/8, $0x0000000400000000
DATA shifts<>+8(SB)/8, $0x0000000c00000008
DATA shifts<>+16(SB)/8, $0x0000001400000010
DATA shifts<>+24(SB)/8, $0x0000001c00000018
DATA shifts<>+32(SB)/8, $0x0000000200000000
DATA shifts<>+40(SB)/8, $0x0000000600000004
DATA shifts<>+48(SB)/8, $0x0000000a00000008
DATA shifts<>+56(SB)/8, $0x0000000e0000000c
GLOBL shifts<>(SB), RODATA|NOPTR, $64

DATA dwords<>+0(SB)/4, $0x0f
DATA dwords<>+4(SB)/4, $0x30
DATA dwords<>+8(SB)/4, $32
DATA dwords<>+12(SB)/4, $8
DATA dwords<>+16(SB)/4, $0xbf80bf80
DATA dwords<>+20(SB)/4, $0x7f007f00
DATA dwords<>+24(SB)/4, $0x43800000
GLOBL dwords<>(SB), RODATA|NOPTR, $28

#define DWORD_0F dwords<>+0(SB)
#define DWORD_30 dwords<>+4(SB)
#define DWORD_32 dwords<>+8(SB)
#define DWORD_8 dwords<>+12(SB)
#define WORDS_BF80 dwords<>+16(SB)
#define WORDS_7F00 dwords<>+20(SB)
#define FLOAT_256 dwords<>+24(SB)

// HALF broadcasts the binary16 at O(P). X is the XMM name of Y.
#define HALF(O, P, X, Y) \
	VPBROADCASTW O(P), X \
	VCVTPH2PS    X, Y

#define E4M3_CONSTANTS \
	VPBROADCASTD WORDS_BF80, Y13 \
	VPBROADCASTD WORDS_7F00, Y12

// E4M3 turns 16 codes at P into words in Y, which are their values divided by 256 as binary16. A NaN, whose seven low
// bits are all set, becomes 0xffff. Y6 is overwritten.
#define E4M3(P, Y) \
	VPMOVSXBW P, Y        \
	VPSLLW    $7, Y, Y    \
	VPAND     Y13, Y, Y   \
	VPADDW    Y, Y, Y6    \
	VPCMPEQW  Y12, Y6, Y6 \
	VPOR      Y6, Y, Y

// SCALE_MXFP4 broadcasts the scale of the block at P. Its bits are (e-1)<<23, or (e+1)<<21 if it is subnormal.
#define SCALE_MXFP4(P, V) \
	MOVBLZX      (P), AX    \
	LEAL         -1(AX), R9 \
	LEAL         1(AX), R10 \
	SHLL         $23, R9    \
	SHLL         $21, R10   \
	CMPL         AX, $2     \
	CMOVLLT      R10, R9    \
	VMOVD        R9, X7     \
	VPBROADCASTD X7, V

// SCALES_K stores the 8 scales of the block of Q4_K or Q5_K at P, times d, at O(BX), and the 8 minima, times dmin, at
// O+32(BX). With the 12 bytes as dwords u0, u1, u2: scales 0 to 3 are the low 6 bits in u0, minima 0 to 3 those in u1;
// scales and minima 4 to 7 are the low and the high 4 bits in u2, below the high 2 bits in u0 and u1.
#define SCALES_K(P, O) \
	VMOVDQU      4(P), X2               \
	VPBROADCASTQ BYTES_3F, X3           \
	VPAND        X3, X2, X3             \
	VPSRLD       $2, X2, X4             \
	VPBROADCASTQ BYTES_30, X5           \
	VPAND        X5, X4, X4             \
	VPSHUFD      $0xaa, X2, X5          \
	VPSRLVD      shifts<>+0(SB), X5, X5 \
	VPBROADCASTQ BYTES_0F, X8           \
	VPAND        X8, X5, X5             \
	VPOR         X5, X4, X4             \
	VPUNPCKLDQ   X4, X3, X3             \
	VPMOVZXBD    X3, Y4                 \
	VPSRLDQ      $8, X3, X3             \
	VPMOVZXBD    X3, Y5                 \
	VCVTDQ2PS    Y4, Y4                 \
	VCVTDQ2PS    Y5, Y5                 \
	HALF(0, P, X7, Y7)                  \
	HALF(2, P, X6, Y6)                  \
	VMULPS       Y7, Y4, Y4             \
	VMULPS       Y6, Y5, Y5             \
	VMOVDQU      Y4, (O)(BX)            \
	VMOVDQU      Y5, (O+32)(BX)

// SCALES_IQ4 stores the 8 scales of the block of IQ4_XS at P, less 32, times d, at O(BX). Scale i has its low four bits
// in bits 4·i of the dword at 4(P), and two high bits in bits 2·i of the word at 2(P).
#define SCALES_IQ4(P, O) \
	VPBROADCASTD 4(P), Y2                \
	VPBROADCASTW 2(P), Y3                \
	VPSRLVD      shifts<>+0(SB), Y2, Y2  \
	VPSRLVD      shifts<>+32(SB), Y3, Y3 \
	VPBROADCASTD DWORD_0F, Y4            \
	VPBROADCASTD DWORD_30, Y5            \
	VPSLLD       $4, Y3, Y3              \
	VPAND        Y4, Y2, Y2              \
	VPAND        Y5, Y3, Y3              \
	VPOR         Y3, Y2, Y2              \
	VPBROADCASTD DWORD_32, Y4            \
	VPSUBD       Y4, Y2, Y2              \
	VCVTDQ2PS    Y2, Y2                  \
	HALF(0, P, X7, Y7)                   \
	VMULPS       Y7, Y2, Y2              \
	VMOVDQU      Y2, (O)(BX)

// SCALES_Q6 stores the 16 scales of the block of Q6_K at P, times d, at O(BX).
#define SCALES_Q6(P, O) \
	HALF(208, P, X7, Y7)  \
	VPMOVSXBD 192(P), Y2  \
	VPMOVSXBD 200(P), Y3  \
	VCVTDQ2PS Y2, Y2      \
	VCVTDQ2PS Y3, Y3      \
	VMULPS    Y7, Y2, Y2  \
	VMULPS    Y7, Y3, Y3  \
	VMOVDQU   Y2, (O)(BX) \
	VMOVDQU   Y3, (O+32)(BX)

#define Q6_CONSTANTS \
	VPBROADCASTQ BYTES_0F, Y15 \
	VPBROADCASTQ BYTES_30, Y14 \
	VPBROADCASTQ BYTES_20, Y13

// SIXTH stores 32 codes, less 32, at O(BX): the low four bits of each byte of LOW, and bits 4 and 5 of HIGH, which it
// overwrites.
#define SIXTH(O, LOW, HIGH) \
	VPAND   Y14, HIGH, HIGH \
	VPAND   Y15, LOW, Y7    \
	VPOR    Y7, HIGH, HIGH  \
	VPSUBB  Y13, HIGH, HIGH \
	VMOVDQU HIGH, (O)(BX)

// CODES_Q6 stores the 128 codes of half a block of Q6_K, less 32, at O(BX). Their low bits are at P + R10, the high
// ones at 128 + P + R12.
#define CODES_Q6(P, O) \
	VMOVDQU (P)(R10*1), Y4    \
	VMOVDQU 32(P)(R10*1), Y5  \
	VMOVDQU 128(P)(R12*1), Y6 \
	VPSLLW  $4, Y6, Y8        \
	VPSLLW  $2, Y6, Y9        \
	VPSRLW  $2, Y6, Y10       \
	SIXTH(O, Y4, Y8)          \
	SIXTH(O+32, Y5, Y9)       \
	VPSRLW  $4, Y4, Y4        \
	VPSRLW  $4, Y5, Y5        \
	SIXTH(O+64, Y4, Y6)       \
	SIXTH(O+96, Y5, Y10)
