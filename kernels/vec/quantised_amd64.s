#include "textflag.h"
#include "quantised_amd64.h"
#include "quantised_avx2_amd64.h"

// The loops of GGUF's formats for AVX2.

#define NO_CONSTANTS

#define Q8_0(USE) \
	HALF(0, SI, X7, Y7) \
	WIDEN(2, SI)        \
	SCALE               \
	USE

#define Q4_0_CONSTANTS \
	VPBROADCASTD DWORD_0F, Y15 \
	VPBROADCASTD DWORD_8, Y14

#define Q4_0(USE) \
	HALF(0, SI, X7, Y7)  \
	FOURS(2)             \
	VPSUBD Y14, Y8, Y8   \
	VPSUBD Y14, Y9, Y9   \
	VPSUBD Y14, Y10, Y10 \
	VPSUBD Y14, Y11, Y11 \
	FLOATS               \
	SCALE                \
	USE

#define Q4_1_CONSTANTS \
	VPBROADCASTD DWORD_0F, Y15

#define Q4_1(USE) \
	HALF(0, SI, X7, Y7) \
	HALF(2, SI, X6, Y6) \
	FOURS(4)            \
	FLOATS              \
	SCALE               \
	PLUS                \
	USE

#define Q5_CONSTANTS \
	VPBROADCASTQ BYTES_0F, Y15       \
	VMOVDQU      spread<>+0(SB), Y13 \
	VPBROADCASTQ BIT_OF_8, Y12

// A code without its highest bit is less than 16: with 0xf0 it is code - 16.
#define Q5_0_CONSTANTS \
	Q5_CONSTANTS \
	VPBROADCASTQ BYTES_F0, Y14

#define Q5_0(USE) \
	HALF(0, SI, X7, Y7) \
	NIBBLES(6(SI))      \
	FIFTH(2(SI))        \
	VPANDN Y14, Y3, Y3  \
	VPOR   Y3, Y2, Y2   \
	CODES               \
	SCALE               \
	USE

#define Q5_1_CONSTANTS \
	Q5_CONSTANTS \
	VPBROADCASTQ BYTES_10, Y14

#define Q5_1(USE) \
	HALF(0, SI, X7, Y7) \
	HALF(2, SI, X6, Y6) \
	NIBBLES(8(SI))      \
	FIFTH(4(SI))        \
	VPAND Y14, Y3, Y3   \
	VPOR  Y3, Y2, Y2    \
	CODES               \
	SCALE               \
	PLUS                \
	USE

#define MXFP4_CONSTANTS \
	VPBROADCASTQ   BYTES_0F, Y15 \
	VBROADCASTI128 fp4<>+0(SB), Y14

#define MXFP4(USE) \
	SCALE_MXFP4(SI, Y7) \
	NIBBLES(1(SI))      \
	VPSHUFB Y2, Y14, Y2 \
	CODES               \
	SCALE               \
	USE

#define Q4_K_CONSTANTS \
	VPBROADCASTD DWORD_0F, Y15

// GROUP computes 32 elements; their scale and minimum are at 64+O(BX) and 96+O(BX), plus 8·R9.
#define GROUP(O, USE) \
	VBROADCASTSS (64+O)(BX)(R9*8), Y7 \
	VBROADCASTSS (96+O)(BX)(R9*8), Y6 \
	SCALE                             \
	MINUS                             \
	USE

#define Q4_K(USE) \
	SCALES_K(SI, 64)        \
	LEAQ      16(SI), R10   \
	XORQ      R9, R9        \
pair:                       \
	VPMOVZXBD (R10), Y8     \
	VPMOVZXBD 8(R10), Y9    \
	VPMOVZXBD 16(R10), Y10  \
	VPMOVZXBD 24(R10), Y11  \
	VPSRLD    $4, Y8, Y2    \
	VPSRLD    $4, Y9, Y3    \
	VPSRLD    $4, Y10, Y4   \
	VPSRLD    $4, Y11, Y5   \
	VPAND     Y15, Y8, Y8   \
	VPAND     Y15, Y9, Y9   \
	VPAND     Y15, Y10, Y10 \
	VPAND     Y15, Y11, Y11 \
	FLOATS                  \
	GROUP(0, USE)           \
	VCVTDQ2PS Y2, Y8        \
	VCVTDQ2PS Y3, Y9        \
	VCVTDQ2PS Y4, Y10       \
	VCVTDQ2PS Y5, Y11       \
	GROUP(4, USE)           \
	ADDQ      $32, R10      \
	INCQ      R9            \
	CMPQ      R9, $4        \
	JNE       pair

#define Q5_K_CONSTANTS \
	VPBROADCASTQ BYTES_0F, Y15 \
	VPBROADCASTQ BYTES_01, Y14

// NEXT_FIFTH moves the lowest bit of each byte of Y13 to bit 4 of Y, and the next one to the lowest.
#define NEXT_FIFTH(Y) \
	VPAND  Y14, Y13, Y \
	VPSLLW $4, Y, Y    \
	VPSRLW $1, Y13, Y13

#define Q5_K(USE) \
	SCALES_K(SI, 64)    \
	LEAQ    48(SI), R10 \
	XORQ    R9, R9      \
	VMOVDQU 16(SI), Y13 \
pair:                   \
	VMOVDQU (R10), Y2   \
	VPAND   Y15, Y2, Y3 \
	VPSRLW  $4, Y2, Y2  \
	VPAND   Y15, Y2, Y2 \
	NEXT_FIFTH(Y4)      \
	NEXT_FIFTH(Y5)      \
	VPOR    Y4, Y3, Y3  \
	VPOR    Y5, Y2, Y2  \
	VMOVDQU Y3, (BX)    \
	VMOVDQU Y2, 32(BX)  \
	WIDEN(0, BX)        \
	GROUP(0, USE)       \
	WIDEN(32, BX)       \
	GROUP(4, USE)       \
	ADDQ    $32, R10    \
	INCQ    R9          \
	CMPQ    R9, $4      \
	JNE     pair

// QUARTER computes the 32 elements whose codes are at 32·N(BX).
#define QUARTER(N, USE) \
	VBROADCASTSS (128+8*N)(BX)(R12*1), Y7 \
	VBROADCASTSS (132+8*N)(BX)(R12*1), Y6 \
	WIDEN(32*N, BX)                       \
	VMULPS Y7, Y8, Y8                     \
	VMULPS Y7, Y9, Y9                     \
	VMULPS Y6, Y10, Y10                   \
	VMULPS Y6, Y11, Y11                   \
	USE

#define Q6_K(USE) \
	SCALES_Q6(SI, 128) \
	XORQ R10, R10      \
	XORQ R12, R12      \
half:                  \
	CODES_Q6(SI, 0)    \
	QUARTER(0, USE)    \
	QUARTER(1, USE)    \
	QUARTER(2, USE)    \
	QUARTER(3, USE)    \
	ADDQ $64, R10      \
	ADDQ $32, R12      \
	CMPQ R12, $64      \
	JNE  half

#define IQ4_XS_CONSTANTS \
	VPBROADCASTQ   BYTES_0F, Y15 \
	VBROADCASTI128 iq4<>+0(SB), Y14

#define IQ4_XS(USE) \
	SCALES_IQ4(SI, 64)            \
	LEAQ         8(SI), R10       \
	XORQ         R9, R9           \
group:                            \
	VBROADCASTSS 64(BX)(R9*4), Y7 \
	NIBBLES((R10))                \
	VPSHUFB      Y2, Y14, Y2      \
	CODES                         \
	SCALE                         \
	USE                           \
	ADDQ         $16, R10         \
	INCQ         R9               \
	CMPQ         R9, $8           \
	JNE          group

TEXT ·dotsQ4_0AVX2(SB), NOSPLIT, $96-40
	DOTS(Q4_0, Q4_0_CONSTANTS, FETCH1, 18)

TEXT ·decodeQ4_0AVX2(SB), NOSPLIT, $96-24
	DECODE(Q4_0, Q4_0_CONSTANTS, 18)

TEXT ·dotsQ4_1AVX2(SB), NOSPLIT, $96-40
	DOTS(Q4_1, Q4_1_CONSTANTS, FETCH1, 20)

TEXT ·decodeQ4_1AVX2(SB), NOSPLIT, $96-24
	DECODE(Q4_1, Q4_1_CONSTANTS, 20)

TEXT ·dotsQ5_0AVX2(SB), NOSPLIT, $96-40
	DOTS(Q5_0, Q5_0_CONSTANTS, FETCH1, 22)

TEXT ·decodeQ5_0AVX2(SB), NOSPLIT, $96-24
	DECODE(Q5_0, Q5_0_CONSTANTS, 22)

TEXT ·dotsQ5_1AVX2(SB), NOSPLIT, $96-40
	DOTS(Q5_1, Q5_1_CONSTANTS, FETCH1, 24)

TEXT ·decodeQ5_1AVX2(SB), NOSPLIT, $96-24
	DECODE(Q5_1, Q5_1_CONSTANTS, 24)

TEXT ·dotsQ8_0AVX2(SB), NOSPLIT, $96-40
	DOTS(Q8_0, NO_CONSTANTS, FETCH1, 34)

TEXT ·decodeQ8_0AVX2(SB), NOSPLIT, $96-24
	DECODE(Q8_0, NO_CONSTANTS, 34)

TEXT ·dotsQ4_KAVX2(SB), NOSPLIT, $192-40
	DOTS(Q4_K, Q4_K_CONSTANTS, FETCH3, 144)

TEXT ·decodeQ4_KAVX2(SB), NOSPLIT, $192-24
	DECODE(Q4_K, Q4_K_CONSTANTS, 144)

TEXT ·dotsQ5_KAVX2(SB), NOSPLIT, $192-40
	DOTS(Q5_K, Q5_K_CONSTANTS, FETCH3, 176)

TEXT ·decodeQ5_KAVX2(SB), NOSPLIT, $192-24
	DECODE(Q5_K, Q5_K_CONSTANTS, 176)

TEXT ·dotsQ6_KAVX2(SB), NOSPLIT, $256-40
	DOTS(Q6_K, Q6_CONSTANTS, FETCH4, 210)

TEXT ·decodeQ6_KAVX2(SB), NOSPLIT, $256-24
	DECODE(Q6_K, Q6_CONSTANTS, 210)

TEXT ·dotsIQ4_XSAVX2(SB), NOSPLIT, $192-40
	DOTS(IQ4_XS, IQ4_XS_CONSTANTS, FETCH3, 136)

TEXT ·decodeIQ4_XSAVX2(SB), NOSPLIT, $192-24
	DECODE(IQ4_XS, IQ4_XS_CONSTANTS, 136)

TEXT ·dotsMXFP4AVX2(SB), NOSPLIT, $96-40
	DOTS(MXFP4, MXFP4_CONSTANTS, FETCH1, 17)

TEXT ·decodeMXFP4AVX2(SB), NOSPLIT, $96-24
	DECODE(MXFP4, MXFP4_CONSTANTS, 17)
