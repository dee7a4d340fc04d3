#include "textflag.h"
#include "products_avx512_amd64.h"

// Products of bfloat16 with registers of 16 lanes, in the order of bf16.go.

// NOT_A_NUMBER sets Z30 to the NaN that products are.
#define NOT_A_NUMBER \
	MOVL         $0x7fc00000, SI \
	VPBROADCASTD SI, Z30

// RESULT makes each NaN in A the one in Z30.
#define RESULT(A) \
	VCMPPS  $3, A, A, K4 \
	VMOVUPS Z30, K4, A

#define NOTHING

// DOT is VDPBF16PS Z(w), Z(x), Z(sum), which the assembler does not know: EVEX.512.F3.0F38.W0 52 /r.
#define DOT(w, x, sum) \
	BYTE $0x62                                                                         \
	BYTE $(0xf2 ^ (sum & 8) << 4 ^ (sum & 16) ^ (w & 8) << 2 ^ (w & 16) << 2)          \
	BYTE $(0x7e ^ (x & 15) << 3)                                                       \
	BYTE $(0x48 ^ (x & 16) >> 1)                                                       \
	BYTE $0x52                                                                         \
	BYTE $(0xc0 | (sum & 7) << 3 | (w & 7))

#define LOAD1(P, X, _) VMOVUPS P, X

#define LOAD2(P, Q, X, Y, _, _2) \
	VMOVUPS P, X \
	VMOVUPS Q, Y

#define ROW4(P, A, B, C, D, first) \
	VMOVUPS P, Z20          \
	DOT(20, 16, (first))    \
	DOT(20, 17, (first+1))  \
	DOT(20, 18, (first+2))  \
	DOT(20, 19, (first+3))

#define ROW2(P, A, B, first) \
	VMOVUPS P, Z20       \
	DOT(20, 16, (first)) \
	DOT(20, 17, (first+1))

#define ROW1(P, A, first) \
	VMOVUPS P, Z20 \
	DOT(20, 16, (first))

// func productsBF16AVX512(y *float32, x *uint16, rows *byte, bytes, T, n, stride, add int, ahead uintptr, step int)
TEXT ·productsBF16AVX512(SB), NOSPLIT, $0-80
	PRODUCTS(NOT_A_NUMBER, NOTHING, LOAD1, LOAD2, ROW1, ROW2, ROW4, NOTHING, RESULT)

// Without VDPBF16PS: two fused multiply-adds, while denormals are taken and given as 0. That is a setting of the
// processor, which stays switched on only over loops that read memory of Go: a fault in one that reads a mapped file
// would leave it so. Go preempts no assembly, and the system saves and restores the setting around a signal's handler.

// SETTINGS keeps the setting at 0(SP), and that for multiplying, with the bits FTZ and DAZ, at 4(SP).
#define SETTINGS \
	NOT_A_NUMBER \
	MOVL     $0xffff0000, SI \
	VPBROADCASTD SI, Z31 \
	STMXCSR  0(SP) \
	MOVL     0(SP), SI \
	ORL      $0x8040, SI \
	MOVL     SI, 4(SP)

#define MULTIPLYING LDMXCSR 4(SP)

#define FOLDING LDMXCSR 0(SP)

// WIDEN sets ODD and EVEN to the odd and the even ones of the 32 numbers at P.
#define WIDEN(P, ODD, EVEN) \
	VMOVDQU32 P, EVEN \
	VPANDD    Z31, EVEN, ODD \
	VPSLLD    $16, EVEN, EVEN

#define WIDEN2(P, Q, X, Y, EVENX, EVENY) \
	WIDEN(P, X, EVENX) \
	WIDEN(Q, Y, EVENY)

#define FUSED4(P, A, B, C, D, first) \
	WIDEN(P, Z20, Z21) \
	VFMADD231PS Z16, Z20, A \
	VFMADD231PS Z17, Z20, B \
	VFMADD231PS Z18, Z20, C \
	VFMADD231PS Z19, Z20, D \
	VFMADD231PS Z24, Z21, A \
	VFMADD231PS Z25, Z21, B \
	VFMADD231PS Z26, Z21, C \
	VFMADD231PS Z27, Z21, D

#define FUSED2(P, A, B, first) \
	WIDEN(P, Z20, Z21) \
	VFMADD231PS Z16, Z20, A \
	VFMADD231PS Z17, Z20, B \
	VFMADD231PS Z24, Z21, A \
	VFMADD231PS Z25, Z21, B

#define FUSED1(P, A, first) \
	WIDEN(P, Z20, Z21) \
	VFMADD231PS Z16, Z20, A \
	VFMADD231PS Z24, Z21, A

// func productsFusedAVX512(y *float32, x *uint16, rows *byte, bytes, T, n, stride, add int, ahead uintptr, step int)
TEXT ·productsFusedAVX512(SB), NOSPLIT, $8-80
	PRODUCTS(SETTINGS, MULTIPLYING, WIDEN, WIDEN2, FUSED1, FUSED2, FUSED4, FOLDING, RESULT)
