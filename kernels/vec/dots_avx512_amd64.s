#include "textflag.h"

// Dot products with registers of 16 lanes. Each product and each sum is rounded, and sums have the order of vec.go.

// LEAF4 sets A, B, C and D to the i-th partial sums of four heads with each of 16 rows: element i of both, then i+16 and
// so on. Element j of the 16 rows is at R8 + 64·j; the heads are at DI, R11, R12 and R13; R10 is the bytes of a head.
#define LEAF4(label, i, A, B, C, D) \
	VMOVUPS     (i*64)(R8), Z24 \
	VMULPS.BCST (i*4)(DI), Z24, A \
	VMULPS.BCST (i*4)(R11), Z24, B \
	VMULPS.BCST (i*4)(R12), Z24, C \
	VMULPS.BCST (i*4)(R13), Z24, D \
	MOVQ        $64, DX \
	LEAQ        1024(R8), R9 \
label: \
	VMOVUPS     (i*64)(R9), Z24 \
	VMULPS.BCST (i*4)(DI)(DX*1), Z24, Z25 \
	VMULPS.BCST (i*4)(R11)(DX*1), Z24, Z26 \
	VMULPS.BCST (i*4)(R12)(DX*1), Z24, Z27 \
	VMULPS.BCST (i*4)(R13)(DX*1), Z24, Z28 \
	VADDPS      Z25, A, A \
	VADDPS      Z26, B, B \
	VADDPS      Z27, C, C \
	VADDPS      Z28, D, D \
	ADDQ        $64, DX \
	ADDQ        $1024, R9 \
	CMPQ        DX, R10 \
	JLT         label

// LEAF1 is LEAF4 for the head at DI alone.
#define LEAF1(label, i, A) \
	VMOVUPS     (i*64)(R8), Z24 \
	VMULPS.BCST (i*4)(DI), Z24, A \
	MOVQ        $64, DX \
	LEAQ        1024(R8), R9 \
label: \
	VMOVUPS     (i*64)(R9), Z24 \
	VMULPS.BCST (i*4)(DI)(DX*1), Z24, Z25 \
	VADDPS      Z25, A, A \
	ADDQ        $64, DX \
	ADDQ        $1024, R9 \
	CMPQ        DX, R10 \
	JLT         label

// FOLD4 adds the partial sums of four heads at E to H to those at A to D, half of them to the other half.
#define FOLD4(A, B, C, D, E, F, G, H) \
	VADDPS E, A, A \
	VADDPS F, B, B \
	VADDPS G, C, C \
	VADDPS H, D, D

// ZIP puts the elements of A and B in turn, those of the low half of each 128 bits into L, the others into H.
#define ZIP(A, B, L, H) \
	VUNPCKLPS B, A, L \
	VUNPCKHPS B, A, H

// ZIP2 is ZIP for pairs of elements.
#define ZIP2(A, B, L, H) \
	VUNPCKLPD B, A, L \
	VUNPCKHPD B, A, H

// COLUMNS4 stores columns k, k+4, k+8 and k+12 of 16 rows at R9. Each 128 bits of A have column k, k+4, k+8 or k+12 of
// rows 0 to 3, B those of rows 4 to 7, C of rows 8 to 11, D of rows 12 to 15.
#define COLUMNS4(k, A, B, C, D) \
	VSHUFF32X4 $0x88, B, A, Z16 \
	VSHUFF32X4 $0x88, D, C, Z17 \
	VSHUFF32X4 $0xdd, B, A, Z18 \
	VSHUFF32X4 $0xdd, D, C, Z19 \
	VSHUFF32X4 $0x88, Z17, Z16, A \
	VSHUFF32X4 $0x88, Z19, Z18, B \
	VSHUFF32X4 $0xdd, Z17, Z16, C \
	VSHUFF32X4 $0xdd, Z19, Z18, D \
	VMOVUPS A, (k*64)(R9) \
	VMOVUPS B, (k*64+256)(R9) \
	VMOVUPS C, (k*64+512)(R9) \
	VMOVUPS D, (k*64+768)(R9)

// func dotRows16AVX512(out, a, rows *float32, d, heads, stride int)
//
// The 16 rows are put into columns on the stack first, so that a register holds one element of each row, and no sum has
// to be folded across its lanes. A sum of the loops in vec.go begins at 0, and so is never -0; here 0 is added last.
TEXT ·dotRows16AVX512(SB), 0, $16448-48
	LEAQ 63(SP), R8
	ANDQ $~63, R8
	MOVQ rows+16(FP), SI
	MOVQ d+24(FP), R10
	SHLQ $2, R10           // bytes of a row
	LEAQ (R10)(R10*2), R11
	LEAQ (R10)(R10*4), R12
	LEAQ (R11)(R10*4), R13 // of 7 rows
	MOVQ R10, CX
	MOVQ R8, R9

columns:
	VMOVUPS (SI), Z0
	VMOVUPS (SI)(R10*1), Z1
	VMOVUPS (SI)(R10*2), Z2
	VMOVUPS (SI)(R11*1), Z3
	VMOVUPS (SI)(R10*4), Z4
	VMOVUPS (SI)(R12*1), Z5
	VMOVUPS (SI)(R11*2), Z6
	VMOVUPS (SI)(R13*1), Z7
	LEAQ    (SI)(R10*8), DI
	VMOVUPS (DI), Z8
	VMOVUPS (DI)(R10*1), Z9
	VMOVUPS (DI)(R10*2), Z10
	VMOVUPS (DI)(R11*1), Z11
	VMOVUPS (DI)(R10*4), Z12
	VMOVUPS (DI)(R12*1), Z13
	VMOVUPS (DI)(R11*2), Z14
	VMOVUPS (DI)(R13*1), Z15

	ZIP(Z0, Z1, Z16, Z17)
	ZIP(Z2, Z3, Z18, Z19)
	ZIP(Z4, Z5, Z20, Z21)
	ZIP(Z6, Z7, Z22, Z23)
	ZIP(Z8, Z9, Z24, Z25)
	ZIP(Z10, Z11, Z26, Z27)
	ZIP(Z12, Z13, Z28, Z29)
	ZIP(Z14, Z15, Z30, Z31)
	ZIP2(Z16, Z18, Z0, Z1)
	ZIP2(Z17, Z19, Z2, Z3)
	ZIP2(Z20, Z22, Z4, Z5)
	ZIP2(Z21, Z23, Z6, Z7)
	ZIP2(Z24, Z26, Z8, Z9)
	ZIP2(Z25, Z27, Z10, Z11)
	ZIP2(Z28, Z30, Z12, Z13)
	ZIP2(Z29, Z31, Z14, Z15)
	COLUMNS4(0, Z0, Z4, Z8, Z12)
	COLUMNS4(1, Z1, Z5, Z9, Z13)
	COLUMNS4(2, Z2, Z6, Z10, Z14)
	COLUMNS4(3, Z3, Z7, Z11, Z15)
	ADDQ    $64, SI
	ADDQ    $1024, R9
	SUBQ    $64, CX
	JNZ     columns

	MOVQ   a+8(FP), DI
	MOVQ   out+0(FP), BX
	MOVQ   heads+32(FP), CX
	MOVQ   stride+40(FP), AX
	SHLQ   $2, AX
	VXORPS X29, X29, X29

heads4:
	CMPQ CX, $4
	JLT  heads1
	LEAQ (DI)(R10*1), R11
	LEAQ (DI)(R10*2), R12
	LEAQ (R11)(R10*2), R13

	LEAF4(four0, 0, Z0, Z1, Z2, Z3)
	LEAF4(four8, 8, Z4, Z5, Z6, Z7)
	FOLD4(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	LEAF4(four4, 4, Z4, Z5, Z6, Z7)
	LEAF4(four12, 12, Z8, Z9, Z10, Z11)
	FOLD4(Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11)
	FOLD4(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	LEAF4(four2, 2, Z4, Z5, Z6, Z7)
	LEAF4(four10, 10, Z8, Z9, Z10, Z11)
	FOLD4(Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11)
	LEAF4(four6, 6, Z8, Z9, Z10, Z11)
	LEAF4(four14, 14, Z12, Z13, Z14, Z15)
	FOLD4(Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	FOLD4(Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11)
	FOLD4(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	LEAF4(four1, 1, Z4, Z5, Z6, Z7)
	LEAF4(four9, 9, Z8, Z9, Z10, Z11)
	FOLD4(Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11)
	LEAF4(four5, 5, Z8, Z9, Z10, Z11)
	LEAF4(four13, 13, Z12, Z13, Z14, Z15)
	FOLD4(Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	FOLD4(Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11)
	LEAF4(four3, 3, Z8, Z9, Z10, Z11)
	LEAF4(four11, 11, Z12, Z13, Z14, Z15)
	FOLD4(Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	LEAF4(four7, 7, Z12, Z13, Z14, Z15)
	LEAF4(four15, 15, Z16, Z17, Z18, Z19)
	FOLD4(Z12, Z13, Z14, Z15, Z16, Z17, Z18, Z19)
	FOLD4(Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15)
	FOLD4(Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11)
	FOLD4(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)
	FOLD4(Z0, Z1, Z2, Z3, Z29, Z29, Z29, Z29)
	LEAQ    (BX)(AX*2), R9
	VMOVUPS Z0, (BX)
	VMOVUPS Z1, (BX)(AX*1)
	VMOVUPS Z2, (R9)
	VMOVUPS Z3, (R9)(AX*1)
	LEAQ    (R9)(AX*2), BX
	LEAQ    (R13)(R10*1), DI
	SUBQ    $4, CX
	JMP     heads4

heads1:
	TESTQ CX, CX
	JZ    done

	LEAF1(one0, 0, Z0)
	LEAF1(one8, 8, Z1)
	VADDPS Z1, Z0, Z0
	LEAF1(one4, 4, Z1)
	LEAF1(one12, 12, Z2)
	VADDPS Z2, Z1, Z1
	VADDPS Z1, Z0, Z0
	LEAF1(one2, 2, Z1)
	LEAF1(one10, 10, Z2)
	VADDPS Z2, Z1, Z1
	LEAF1(one6, 6, Z2)
	LEAF1(one14, 14, Z3)
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z1, Z1
	VADDPS Z1, Z0, Z0
	LEAF1(one1, 1, Z1)
	LEAF1(one9, 9, Z2)
	VADDPS Z2, Z1, Z1
	LEAF1(one5, 5, Z2)
	LEAF1(one13, 13, Z3)
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z1, Z1
	LEAF1(one3, 3, Z2)
	LEAF1(one11, 11, Z3)
	VADDPS Z3, Z2, Z2
	LEAF1(one7, 7, Z3)
	LEAF1(one15, 15, Z4)
	VADDPS Z4, Z3, Z3
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z1, Z1
	VADDPS Z1, Z0, Z0
	VADDPS  Z29, Z0, Z0
	VMOVUPS Z0, (BX)
	ADDQ    AX, BX
	ADDQ    R10, DI
	DECQ    CX
	JMP     heads1

done:
	VZEROUPPER
	RET
