#include "textflag.h"
#include "quantised_amd64.h"
#include "quantised_avx512_amd64.h"

// The loops of GGUF's formats with registers of 16 lanes.

#define Q8_0_CONSTANTS

#define Q8_0(P) \
	HALF16(0, P, Y7, Z7) \
	VPMOVSXBD 2(P), Z8   \
	VPMOVSXBD 18(P), Z9  \
	VCVTDQ2PS Z8, Z8     \
	VCVTDQ2PS Z9, Z9     \
	VMULPS    Z7, Z8, Z8 \
	VMULPS    Z7, Z9, Z9

#define Q4_0_CONSTANTS COUNTING(-8, Z15)

#define Q4_0(P) \
	HALF16(0, P, Y7, Z7) \
	VMULPS Z15, Z7, Z7   \
	LOOKUP(2(P), Z7)

#define Q4_1_CONSTANTS COUNTING(0, Z15)

#define Q4_1(P) \
	HALF16(0, P, Y7, Z7) \
	HALF16(2, P, Y6, Z6) \
	VMULPS Z15, Z7, Z7   \
	VADDPS Z6, Z7, Z7    \
	LOOKUP(4(P), Z7)

#define Q5_0_CONSTANTS \
	COUNTING(-16, Z15) \
	COUNTING(0, Z14)

#define Q5_0(P) \
	HALF16(0, P, Y7, Z7) \
	VMULPS Z15, Z7, Z6   \
	VMULPS Z14, Z7, Z7   \
	LOOKUP5(P, 2, Z6, Z7)

#define Q5_1_CONSTANTS \
	COUNTING(0, Z15) \
	COUNTING(16, Z14)

#define Q5_1(P) \
	HALF16(0, P, Y7, Z7) \
	HALF16(2, P, Y5, Z5) \
	VMULPS Z15, Z7, Z6   \
	VMULPS Z14, Z7, Z7   \
	VADDPS Z5, Z6, Z6    \
	VADDPS Z5, Z7, Z7    \
	LOOKUP5(P, 4, Z6, Z7)

#define MXFP4_CONSTANTS TABLE(fp4<>+0(SB), Z15)

#define MXFP4(P) \
	SCALE_MXFP4(P, Z7) \
	VMULPS Z15, Z7, Z7 \
	LOOKUP(1(P), Z7)

// In the loops over a block of 256 elements, R9 counts and R10 is the offset of the codes. The rows' scales are at
// 0(BX) and 64(BX).

#define IQ4_XS_CONSTANTS TABLE(iq4<>+0(SB), Z15)

// IQ4_XS_GROUP sets Z8 and Z9 to the 32 values of group R9 of the block at P. Its scale is at O(BX) + 4·R9.
#define IQ4_XS_GROUP(P, O) \
	VMULPS.BCST O(BX)(R9*4), Z15, Z7 \
	LOOKUP(8(P)(R10*1), Z7)

#define IQ4_XS \
	SCALES_IQ4(SI, 0)         \
	SCALES_IQ4(R13, 64)       \
	XORQ    R9, R9            \
	XORQ    R10, R10          \
group:                        \
	VMOVUPS (DI), Z2          \
	VMOVUPS 64(DI), Z3        \
	IQ4_XS_GROUP(SI, 0)       \
	ADD32(Z2, Z3, Z8, Z9, Z0) \
	IQ4_XS_GROUP(R13, 64)     \
	ADD32(Z2, Z3, Z8, Z9, Z1) \
	ADDQ    $128, DI          \
	ADDQ    $16, R10          \
	INCQ    R9                \
	CMPQ    R9, $8            \
	JNE     group

// TABLE_K sets Z to scale·CODES - minimum. They are at O(BX) and O+32(BX), plus 8·R9.
#define TABLE_K(O, CODES, Z) \
	VMULPS.BCST (O)(BX)(R9*8), CODES, Z \
	VSUBPS.BCST (O+32)(BX)(R9*8), Z, Z

// PAIRS computes a block of Q4_K or Q5_K in both rows. PAIR(P, O, H, SUM) adds two groups, number 2·R9 and 2·R9 + 1.
#define PAIRS(PAIR, BEGIN, NEXT) \
	SCALES_K(SI, 0)             \
	SCALES_K(R13, 64)           \
	BEGIN                       \
	XORQ    R9, R9              \
	XORQ    R10, R10            \
pair:                           \
	VMOVUPS (DI), Z2            \
	VMOVUPS 64(DI), Z3          \
	VMOVUPS 128(DI), Z4         \
	VMOVUPS 192(DI), Z5         \
	PAIR(SI, 0, Z16, Z17, Z0)   \
	PAIR(R13, 64, Z18, Z19, Z1) \
	NEXT                        \
	ADDQ    $256, DI            \
	ADDQ    $32, R10            \
	INCQ    R9                  \
	CMPQ    R9, $4              \
	JNE     pair

#define Q4_K_CONSTANTS COUNTING(0, Z15)

#define NOTHING

#define Q4_K_PAIR(P, O, H0, H1, SUM) \
	TABLE_K(O, Z15, Z6)        \
	TABLE_K(O+4, Z15, Z7)      \
	VPMOVZXBD 16(P)(R10*1), Z8 \
	VPMOVZXBD 32(P)(R10*1), Z9 \
	VPSRLD    $4, Z8, Z10      \
	VPSRLD    $4, Z9, Z11      \
	VPERMPS   Z6, Z8, Z8       \
	VPERMPS   Z6, Z9, Z9       \
	VPERMPS   Z7, Z10, Z10     \
	VPERMPS   Z7, Z11, Z11     \
	ADD32(Z2, Z3, Z8, Z9, SUM) \
	ADD32(Z4, Z5, Z10, Z11, SUM)

// Z16 and Z17, Z18 and Z19 are the rows' highest bits: bit 2·R9 of each is that of an even group. Z20 has this bit, Z21
// the next one.
#define Q5_K_CONSTANTS \
	COUNTING(0, Z15) \
	COUNTING(16, Z14)

#define Q5_K_BEGIN \
	VPMOVZXBD    16(SI), Z16  \
	VPMOVZXBD    32(SI), Z17  \
	VPMOVZXBD    16(R13), Z18 \
	VPMOVZXBD    32(R13), Z19 \
	MOVL         $1, AX       \
	VPBROADCASTD AX, Z20      \
	VPADDD       Z20, Z20, Z21

#define Q5_K_NEXT \
	VPSLLD $2, Z20, Z20 \
	VPSLLD $2, Z21, Z21

// LOOKUP_K sets Z8 and Z9 to the values of codes in Z10 and Z11, whose highest bits are those of BIT in H0 and H1.
#define LOOKUP_K(O, BIT, H0, H1) \
	TABLE_K(O, Z15, Z6)      \
	TABLE_K(O, Z14, Z7)      \
	VPTESTMD H0, BIT, K1     \
	VPTESTMD H1, BIT, K2     \
	VPERMPS  Z6, Z10, Z8     \
	VPERMPS  Z6, Z11, Z9     \
	VPERMPS  Z7, Z10, K1, Z8 \
	VPERMPS  Z7, Z11, K2, Z9

#define Q5_K_PAIR(P, O, H0, H1, SUM) \
	VPMOVZXBD 48(P)(R10*1), Z10 \
	VPMOVZXBD 64(P)(R10*1), Z11 \
	LOOKUP_K(O, Z20, H0, H1)    \
	ADD32(Z2, Z3, Z8, Z9, SUM)  \
	VPSRLD    $4, Z10, Z10      \
	VPSRLD    $4, Z11, Z11      \
	LOOKUP_K(O+4, Z21, H0, H1)  \
	ADD32(Z4, Z5, Z8, Z9, SUM)

// QUARTER adds 32 elements, whose codes are at O + 32·N(BX) and whose two scales are at S + 8·N(BX) + R12.
#define QUARTER(N, O, S, SUM) \
	VPMOVSXBD   (O+32*N)(BX), Z8             \
	VPMOVSXBD   (O+32*N+16)(BX), Z9          \
	VCVTDQ2PS   Z8, Z8                       \
	VCVTDQ2PS   Z9, Z9                       \
	VMULPS.BCST (S+8*N)(BX)(R12*1), Z8, Z8   \
	VMULPS.BCST (S+8*N+4)(BX)(R12*1), Z9, Z9 \
	ADD32(Z2, Z3, Z8, Z9, SUM)

#define QUARTERS(N) \
	VMOVUPS (128*N)(DI), Z2    \
	VMOVUPS (128*N+64)(DI), Z3 \
	QUARTER(N, 0, 256, Z0)     \
	QUARTER(N, 128, 320, Z1)

// The codes of the rows are at 0(BX) and 128(BX), their scales at 256(BX) and 320(BX).
#define Q6_K \
	SCALES_Q6(SI, 256)  \
	SCALES_Q6(R13, 320) \
	XORQ R10, R10       \
	XORQ R12, R12       \
half:                   \
	CODES_Q6(SI, 0)     \
	CODES_Q6(R13, 128)  \
	QUARTERS(0)         \
	QUARTERS(1)         \
	QUARTERS(2)         \
	QUARTERS(3)         \
	ADDQ $512, DI       \
	ADDQ $64, R10       \
	ADDQ $32, R12       \
	CMPQ R12, $64       \
	JNE  half

TEXT ·dotsQ4_0AVX512(SB), NOSPLIT, $64-40
	DOTS(BLOCK32(Q4_0), Q4_0_CONSTANTS, FETCH1, 18)

TEXT ·dotsQ4_1AVX512(SB), NOSPLIT, $64-40
	DOTS(BLOCK32(Q4_1), Q4_1_CONSTANTS, FETCH1, 20)

TEXT ·dotsQ5_0AVX512(SB), NOSPLIT, $64-40
	DOTS(BLOCK32(Q5_0), Q5_0_CONSTANTS, FETCH1, 22)

TEXT ·dotsQ5_1AVX512(SB), NOSPLIT, $64-40
	DOTS(BLOCK32(Q5_1), Q5_1_CONSTANTS, FETCH1, 24)

TEXT ·dotsQ8_0AVX512(SB), NOSPLIT, $64-40
	DOTS(BLOCK32(Q8_0), Q8_0_CONSTANTS, FETCH1, 34)

TEXT ·dotsQ4_KAVX512(SB), NOSPLIT, $192-40
	DOTS(PAIRS(Q4_K_PAIR, NOTHING, NOTHING), Q4_K_CONSTANTS, FETCH3, 144)

TEXT ·dotsQ5_KAVX512(SB), NOSPLIT, $192-40
	DOTS(PAIRS(Q5_K_PAIR, Q5_K_BEGIN, Q5_K_NEXT), Q5_K_CONSTANTS, FETCH3, 176)

TEXT ·dotsQ6_KAVX512(SB), NOSPLIT, $448-40
	DOTS(Q6_K, Q6_CONSTANTS, FETCH4, 210)

TEXT ·dotsIQ4_XSAVX512(SB), NOSPLIT, $192-40
	DOTS(IQ4_XS, IQ4_XS_CONSTANTS, FETCH3, 136)

TEXT ·dotsMXFP4AVX512(SB), NOSPLIT, $64-40
	DOTS(BLOCK32(MXFP4), MXFP4_CONSTANTS, FETCH1, 17)
