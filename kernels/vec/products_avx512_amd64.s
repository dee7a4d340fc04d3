#include "textflag.h"

// ROW4 adds the products of 16 elements of a weight's row at P and of four rows of x, in Z16 to Z19, to the partial sums
// A to D.
#define ROW4(P, A, B, C, D) \
	VMOVUPS P, Z20          \
	VMULPS  Z16, Z20, Z24   \
	VMULPS  Z17, Z20, Z25   \
	VMULPS  Z18, Z20, Z26   \
	VMULPS  Z19, Z20, Z27   \
	VADDPS  Z24, A, A       \
	VADDPS  Z25, B, B       \
	VADDPS  Z26, C, C       \
	VADDPS  Z27, D, D

// ROW2 is ROW4 for two rows of x.
#define ROW2(P, A, B)     \
	VMOVUPS P, Z20        \
	VMULPS  Z16, Z20, Z24 \
	VMULPS  Z17, Z20, Z25 \
	VADDPS  Z24, A, A     \
	VADDPS  Z25, B, B

// HALVES leaves the partial sums of A, B, C and D, folded by halves twice, in the four quarters of A.
#define HALVES(A, B, C, D)          \
	VSHUFF32X4 $0x44, B, A, Z20     \
	VSHUFF32X4 $0xee, B, A, Z21     \
	VSHUFF32X4 $0x44, D, C, Z22     \
	VSHUFF32X4 $0xee, D, C, Z23     \
	VADDPS     Z21, Z20, Z20        \
	VADDPS     Z23, Z22, Z22        \
	VSHUFF32X4 $0x88, Z22, Z20, Z21 \
	VSHUFF32X4 $0xdd, Z22, Z20, Z23 \
	VADDPS     Z23, Z21, A

// QUARTERS folds the four partial sums in each quarter of A, B, C and D, and leaves the four sums of each quarter side
// by side in A.
#define QUARTERS(A, B, C, D)       \
	VUNPCKLPD B, A, Z20            \
	VUNPCKHPD B, A, Z21            \
	VUNPCKLPD D, C, Z22            \
	VUNPCKHPD D, C, Z23            \
	VADDPS    Z21, Z20, Z20        \
	VADDPS    Z23, Z22, Z22        \
	VSHUFPS   $0x88, Z22, Z20, Z21 \
	VSHUFPS   $0xdd, Z22, Z20, Z23 \
	VADDPS    Z23, Z21, A

// LAST folds the four partial sums in each quarter of A, and leaves the sums in the first four elements.
#define LAST(A)               \
	VPERMILPS   $0x4e, A, Z20 \
	VADDPS      Z20, A, A     \
	VMOVSHDUP   A, Z20        \
	VADDPS      Z20, A, A     \
	VCOMPRESSPS A, K1, A

// ADD4 adds what is at DX, and a stride of R12 bytes apart behind it, to X0, X1, X2 and X3.
#define ADD4                   \
	LEAQ   (DX)(R12*2), AX     \
	VADDPS (DX), X0, X0        \
	VADDPS (DX)(R12*1), X1, X1 \
	VADDPS (AX), X2, X2        \
	VADDPS (AX)(R12*1), X3, X3

// PUT stores the products in SUM with the rows in K2 at AX, or adds those in K3 to what is there.
#define PUT(SUM)                \
	VMOVUPS.Z (AX), K3, Z20     \
	VADDPS    Z20, SUM, K3, SUM \
	VMOVUPS   SUM, K2, (AX)

// FETCH fetches the next R15 lines that will be read.
#define FETCH(line, none)        \
	MOVQ       lines+72(FP), R15 \
	MOVQ       ahead+64(FP), AX  \
	TESTQ      R15, R15          \
	JZ         none              \
line:                            \
	PREFETCHT1 (AX)              \
	ADDQ       $64, AX           \
	DECQ       R15               \
	JNZ        line              \
	MOVQ       AX, ahead+64(FP)  \
none:

// func productsAVX512(y, x, rows *float32, d, T, n, stride, add int, ahead *byte, lines int)
//
// Four rows of the weight by four of x have 16 registers of partial sums. Of fewer than four rows of the weight the last
// is taken again and its products are not stored. The rows end at DI, R9, R10 and R11, for an index that rises to 0.
TEXT ·productsAVX512(SB), NOSPLIT, $0-80
	MOVQ  d+24(FP), R14
	SHLQ  $2, R14           // bytes of a row
	LEAQ  (R14)(R14*2), R13
	MOVQ  stride+48(FP), R12
	SHLQ  $2, R12
	MOVQ  rows+16(FP), DI
	MOVQ  n+40(FP), BX
	MOVL  $0x1111, AX
	KMOVW AX, K1            // the first of each quarter

rows4:
	ADDQ R14, DI
	LEAQ (DI)(R14*1), R9
	LEAQ (DI)(R14*2), R10
	LEAQ (DI)(R13*1), R11
	MOVL $15, AX
	CMPQ BX, $4
	JGE  rowsset
	MOVQ R10, R11
	MOVL $7, AX
	CMPQ BX, $3
	JEQ  rowsset
	MOVQ R9, R10
	MOVQ R9, R11
	MOVL $3, AX
	CMPQ BX, $2
	JEQ  rowsset
	MOVQ DI, R9
	MOVQ DI, R10
	MOVQ DI, R11
	MOVL $1, AX

rowsset:
	KMOVW AX, K2
	CMPQ  add+56(FP), $0
	JNE   adds
	XORL  AX, AX

adds:
	KMOVW AX, K3
	MOVQ  x+8(FP), SI
	MOVQ  T+32(FP), R8
	MOVQ  y+0(FP), DX

tile4:
	CMPQ   R8, $4
	JLT    tile2
	MOVQ   R14, CX
	NEGQ   CX
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
	VMOVUPS (SI), Z16
	VMOVUPS (SI)(R14*1), Z17
	VMOVUPS (SI)(R14*2), Z18
	VMOVUPS (SI)(R13*1), Z19
	ROW4((DI)(CX*1), Z0, Z1, Z2, Z3)
	ROW4((R9)(CX*1), Z4, Z5, Z6, Z7)
	ROW4((R10)(CX*1), Z8, Z9, Z10, Z11)
	ROW4((R11)(CX*1), Z12, Z13, Z14, Z15)
	ADDQ    $64, SI
	ADDQ    $64, CX
	JNZ     loop4

	FETCH(line4, put4)
	HALVES(Z0, Z1, Z2, Z3)
	HALVES(Z4, Z5, Z6, Z7)
	HALVES(Z8, Z9, Z10, Z11)
	HALVES(Z12, Z13, Z14, Z15)
	QUARTERS(Z0, Z4, Z8, Z12)
	VEXTRACTF32X4 $1, Z0, X1
	VEXTRACTF32X4 $2, Z0, X2
	VEXTRACTF32X4 $3, Z0, X3
	ADDQ          R13, SI
	SUBQ          $4, R8
	CMPQ          BX, $4
	JLT           part4
	CMPQ          add+56(FP), $0
	JEQ           whole4
	ADD4

whole4:
	LEAQ    (DX)(R12*2), AX
	VMOVUPS X0, (DX)
	VMOVUPS X1, (DX)(R12*1)
	VMOVUPS X2, (AX)
	VMOVUPS X3, (AX)(R12*1)
	LEAQ    (AX)(R12*2), DX
	JMP     tile4

part4:
	MOVQ DX, AX
	PUT(Z0)
	ADDQ R12, AX
	PUT(Z1)
	ADDQ R12, AX
	PUT(Z2)
	ADDQ R12, AX
	PUT(Z3)
	LEAQ (AX)(R12*1), DX
	JMP  tile4

tile2:
	CMPQ   R8, $2
	JLT    tile1
	MOVQ   R14, CX
	NEGQ   CX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13

loop2:
	VMOVUPS (SI), Z16
	VMOVUPS (SI)(R14*1), Z17
	ROW2((DI)(CX*1), Z0, Z1)
	ROW2((R9)(CX*1), Z4, Z5)
	ROW2((R10)(CX*1), Z8, Z9)
	ROW2((R11)(CX*1), Z12, Z13)
	ADDQ    $64, SI
	ADDQ    $64, CX
	JNZ     loop2

	FETCH(line2, put2)
	HALVES(Z0, Z4, Z8, Z12)
	HALVES(Z1, Z5, Z9, Z13)
	LAST(Z0)
	LAST(Z1)
	MOVQ DX, AX
	PUT(Z0)
	ADDQ R12, AX
	PUT(Z1)
	LEAQ (AX)(R12*1), DX
	ADDQ R14, SI
	SUBQ $2, R8
	JMP  tile2

tile1:
	TESTQ  R8, R8
	JZ     next
	MOVQ   R14, CX
	NEGQ   CX
	VPXORD Z0, Z0, Z0
	VPXORD Z4, Z4, Z4
	VPXORD Z8, Z8, Z8
	VPXORD Z12, Z12, Z12

loop1:
	VMOVUPS (SI), Z16
	VMULPS  (DI)(CX*1), Z16, Z24
	VMULPS  (R9)(CX*1), Z16, Z25
	VMULPS  (R10)(CX*1), Z16, Z26
	VMULPS  (R11)(CX*1), Z16, Z27
	VADDPS  Z24, Z0, Z0
	VADDPS  Z25, Z4, Z4
	VADDPS  Z26, Z8, Z8
	VADDPS  Z27, Z12, Z12
	ADDQ    $64, SI
	ADDQ    $64, CX
	JNZ     loop1

	FETCH(line1, put1)
	HALVES(Z0, Z4, Z8, Z12)
	LAST(Z0)
	MOVQ DX, AX
	PUT(Z0)

next:
	MOVQ R11, DI
	ADDQ $16, y+0(FP)
	SUBQ $4, BX
	JGT  rows4

	VZEROUPPER
	RET
