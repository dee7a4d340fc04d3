#include "textflag.h"

// ROW4 adds the products of 16 elements of a row at P and of four rows of a, in Z16 to Z19, to the partial sums A to D.
#define ROW4(P, A, B, C, D) \
	VMOVUPS P, Z20         \
	VMULPS  Z16, Z20, Z24  \
	VMULPS  Z17, Z20, Z25  \
	VMULPS  Z18, Z20, Z26  \
	VMULPS  Z19, Z20, Z27  \
	VADDPS  Z24, A, A      \
	VADDPS  Z25, B, B      \
	VADDPS  Z26, C, C      \
	VADDPS  Z27, D, D

// LOAD4 loads 16 elements of four rows of a.
#define LOAD4 \
	VMOVUPS (SI), Z16        \
	VMOVUPS (SI)(R14*1), Z17 \
	VMOVUPS (SI)(R14*2), Z18 \
	VMOVUPS (SI)(R13*1), Z19

// HALVE adds elements 8 to 15 of Z to elements 0 to 7.
#define HALVE(Z) \
	VEXTRACTF64X4 $1, Z, Y16 \
	VADDPS        Z16, Z, Z

// FOLD4 folds the partial sums A to D of four products by halves, and leaves the products in A. YB and YD are the YMM
// names of B and D.
#define FOLD4(A, B, YB, C, D, YD) \
	HALVE(A)                          \
	HALVE(B)                          \
	HALVE(C)                          \
	HALVE(D)                          \
	VINSERTF64X4 $1, YB, A, Z16       \
	VINSERTF64X4 $1, YD, C, Z17       \
	VSHUFF32X4   $0x88, Z17, Z16, Z18 \
	VSHUFF32X4   $0xdd, Z17, Z16, Z19 \
	VADDPS       Z19, Z18, Z18        \
	VPERMILPS    $0x4e, Z18, Z19      \
	VADDPS       Z19, Z18, Z18        \
	VMOVSHDUP    Z18, Z19             \
	VADDPS       Z19, Z18, Z18        \
	VCOMPRESSPS  Z18, K1, A

// func dotTilesAVX512(out, a, rows *float32, n, d, heads, stride int)
//
// Four rows of a by four of rows have 16 registers of partial sums. heads is a multiple of 4.
TEXT ·dotTilesAVX512(SB), NOSPLIT, $0-56
	MOVQ  a+8(FP), R8
	MOVQ  d+32(FP), R14
	SHLQ  $2, R14              // bytes of a row
	LEAQ  (R14)(R14*2), R13
	MOVQ  heads+40(FP), R11
	MOVQ  out+0(FP), BX
	MOVQ  stride+48(FP), R12
	SHLQ  $2, R12
	MOVL  $0x1111, AX
	KMOVW AX, K1               // the first of each four elements

heads4:
	MOVQ rows+16(FP), R9
	MOVQ n+24(FP), R10
	MOVQ BX, DX

rows4:
	CMPQ   R10, $4
	JLT    rows1
	MOVQ   R8, SI
	MOVQ   R9, DI
	MOVQ   R14, CX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15

loop4:
	LOAD4
	ROW4((DI), Z0, Z4, Z8, Z12)
	ROW4((DI)(R14*1), Z1, Z5, Z9, Z13)
	ROW4((DI)(R14*2), Z2, Z6, Z10, Z14)
	ROW4((DI)(R13*1), Z3, Z7, Z11, Z15)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JNZ  loop4

	MOVQ    DX, AX
	FOLD4(Z0, Z1, Y1, Z2, Z3, Y3)
	VMOVUPS X0, (AX)
	ADDQ    R12, AX
	FOLD4(Z4, Z5, Y5, Z6, Z7, Y7)
	VMOVUPS X4, (AX)
	ADDQ    R12, AX
	FOLD4(Z8, Z9, Y9, Z10, Z11, Y11)
	VMOVUPS X8, (AX)
	ADDQ    R12, AX
	FOLD4(Z12, Z13, Y13, Z14, Z15, Y15)
	VMOVUPS X12, (AX)
	ADDQ    $16, DX
	LEAQ    (R9)(R14*4), R9
	SUBQ    $4, R10
	JMP     rows4

rows1:
	TESTQ R10, R10
	JZ    nextheads

row:
	MOVQ   R8, SI
	MOVQ   R9, DI
	MOVQ   R14, CX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3

loop1:
	LOAD4
	ROW4((DI), Z0, Z1, Z2, Z3)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JNZ  loop1

	FOLD4(Z0, Z1, Y1, Z2, Z3, Y3)
	MOVQ       DX, AX
	VMOVSS     X0, (AX)
	ADDQ       R12, AX
	VEXTRACTPS $1, X0, (AX)
	ADDQ       R12, AX
	VEXTRACTPS $2, X0, (AX)
	ADDQ       R12, AX
	VEXTRACTPS $3, X0, (AX)
	ADDQ       $4, DX
	ADDQ       R14, R9
	DECQ       R10
	JNZ        row

nextheads:
	LEAQ (R8)(R14*4), R8
	LEAQ (BX)(R12*4), BX
	SUBQ $4, R11
	JNZ  heads4

	VZEROUPPER
	RET
