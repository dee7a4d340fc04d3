#include "textflag.h"
#include "fold_avx2_amd64.h"

// Products of bfloat16 with AVX2 and fused multiply-adds, in the order of bf16.go.

// WIDEN sets ODD and EVEN to the odd and the even ones of the 16 numbers at P. Y15 masks the odd ones.
#define WIDEN(P, ODD, EVEN) \
	VMOVDQU P, EVEN        \
	VPAND   Y15, EVEN, ODD \
	VPSLLD  $16, EVEN, EVEN

// ROW adds the products of 32 elements of a row at P and of x, in Y8 to Y11, to its partials in A and B.
#define ROW(P, A, B) \
	WIDEN((P)(CX*1), Y12, Y13)   \
	VFMADD231PS Y8, Y12, A       \
	VFMADD231PS Y9, Y13, A       \
	WIDEN(32(P)(CX*1), Y12, Y13) \
	VFMADD231PS Y10, Y12, B      \
	VFMADD231PS Y11, Y13, B

// func productsFusedAVX2(y *float32, x *uint16, rows *byte, bytes, T, n, stride, add int)
//
// Four rows of the weight, of which fewer are taken as in productsBF16AVX512, by one of x. Denormals are 0 between a
// setting of the processor and the next, as in productsFusedAVX512. Columns of the last rows have masks.
TEXT ·productsFusedAVX2(SB), NOSPLIT, $8-64
	STMXCSR 0(SP)
	MOVL    0(SP), AX
	ORL     $0x8040, AX      // FTZ and DAZ
	MOVL    AX, 4(SP)
	VPCMPEQD Y15, Y15, Y15
	VPSLLD  $16, Y15, Y15
	MOVQ    bytes+24(FP), R14
	MOVQ    stride+48(FP), R12
	SHLQ    $2, R12
	MOVQ    rows+16(FP), DI
	MOVQ    n+40(FP), BX

rows4:
	ADDQ R14, DI
	LEAQ (DI)(R14*1), R9
	LEAQ (DI)(R14*2), R10
	LEAQ (R9)(R14*2), R11
	CMPQ BX, $4
	JGE  rowsset
	MOVQ R10, R11
	CMPQ BX, $3
	JEQ  rowsset
	MOVQ R9, R10
	MOVQ R9, R11
	CMPQ BX, $2
	JEQ  rowsset
	MOVQ DI, R9
	MOVQ DI, R10
	MOVQ DI, R11

rowsset:
	MOVQ x+8(FP), SI
	MOVQ T+32(FP), R8
	MOVQ y+0(FP), DX

row:
	LDMXCSR 4(SP)
	MOVQ   R14, CX
	NEGQ   CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7

loop:
	WIDEN((SI), Y8, Y9)
	WIDEN(32(SI), Y10, Y11)
	ROW(DI, Y0, Y1)
	ROW(R9, Y2, Y3)
	ROW(R10, Y4, Y5)
	ROW(R11, Y6, Y7)
	ADDQ $64, SI
	ADDQ $64, CX
	JNZ  loop

	LDMXCSR 0(SP)
	FOLD4

	// NaN is 0x7fc00000: 9 bits of 1, moved.
	VCMPPS    $3, X0, X0, X1
	VPCMPEQD  X2, X2, X2
	VPSLLD    $23, X2, X2
	VPSRLD    $1, X2, X2
	VBLENDVPS X1, X2, X0, X0

	CMPQ    BX, $4
	JLT     few
	CMPQ    add+56(FP), $0
	JEQ     put
	VADDPS  (DX), X0, X0
put:
	VMOVUPS X0, (DX)
	JMP     next

few:
	MOVQ DX, AX
	MOVQ BX, CX
one:
	CMPQ      add+56(FP), $0
	JEQ       put1
	VMOVSS    (AX), X1
	VADDSS    X1, X0, X1
	VMOVSS    X1, (AX)
	JMP       put2
put1:
	VMOVSS    X0, (AX)
put2:
	VPSRLDQ   $4, X0, X0
	ADDQ      $4, AX
	DECQ      CX
	JNZ       one

next:
	ADDQ R12, DX
	DECQ R8
	JNZ  row

	MOVQ R11, DI
	ADDQ $16, y+0(FP)
	SUBQ $4, BX
	JGT  rows4

	VZEROUPPER
	RET

// func roundBF16AVX2(y *uint16, x *float32, n int)
TEXT ·roundBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ     y+0(FP), DI
	MOVQ     x+8(FP), SI
	MOVQ     n+16(FP), CX
	VPCMPEQD Y15, Y15, Y15
	VPSRLD   $31, Y15, Y14 // 1
	VPSRLD   $17, Y15, Y13 // 0x7fff
	VPSLLD   $16, Y13, Y12 // 0x7fff0000: a NaN

#define ROUND(Y, T, N) \
	VPSRLD    $16, Y, T  \
	VPAND     Y14, T, T  \
	VPADDD    Y13, T, T  \
	VCMPPS    $3, Y, Y, N \
	VPADDD    Y, T, T    \
	VBLENDVPS N, Y12, T, T \
	VPSRLD    $16, T, Y

loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   32(SI), Y1
	ROUND(Y0, Y2, Y4)
	ROUND(Y1, Y3, Y5)
	VPACKUSDW Y1, Y0, Y0
	VPERMQ    $0xd8, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JNZ       loop

	VZEROUPPER
	RET
