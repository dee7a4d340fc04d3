#include "textflag.h"
#include "fold_avx2_amd64.h"

// The order of summation is that of vec.go: 16 partials in two registers of 8 lanes,
// folded by halves. VMULPS and VADDPS are used instead of VFMADD, because the Go loops
// round the product too.

// FOLD sums the 8 lanes of a register by halves into lane 0. Y and X are its YMM and
// XMM names; TX is an XMM register that it overwrites.
#define FOLD(Y, X, TX) \
	VEXTRACTF128 $1, Y, TX \
	VADDPS       TX, X, X  \
	VMOVHLPS     X, X, TX  \
	VADDPS       TX, X, X  \
	VMOVSHDUP    X, TX     \
	VADDSS       TX, X, X

// func dotAVX2(a, b *float32, n int) float32
TEXT ·dotAVX2(SB), NOSPLIT, $0-28
	MOVQ   a+0(FP), SI
	MOVQ   b+8(FP), DI
	MOVQ   n+16(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

loopf:
	VMOVUPS (SI), Y2
	VMOVUPS 32(SI), Y3
	VMULPS  (DI), Y2, Y2
	VMULPS  32(DI), Y3, Y3
	VADDPS  Y2, Y0, Y0
	VADDPS  Y3, Y1, Y1
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loopf

	VADDPS Y1, Y0, Y0
	FOLD(Y0, X0, X2)
	MOVSS  X0, ret+24(FP)
	VZEROUPPER
	RET

// func addScaledAVX2(dst, src *float32, f float32, n int)
TEXT ·addScaledAVX2(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	VBROADCASTSS f+16(FP), Y0
	MOVQ         n+24(FP), CX

loopa:
	VMULPS  (SI), Y0, Y1
	VADDPS  (DI), Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     loopa

	VZEROUPPER
	RET

// ROW4 multiplies 16 elements of a, in Y8 and Y9, by those of a row at P and adds them to its partials in A and B.
#define ROW4(P, A, B) \
	VMULPS (P), Y8, Y10   \
	VMULPS 32(P), Y9, Y11 \
	VADDPS Y10, A, A      \
	VADDPS Y11, B, B

// func dotRowsAVX2(out, a, rows *float32, n, d, heads, stride int)
//
// Rows are taken 4 at a time, then one by one. 4 rows are folded together, in the same order as one.
TEXT ·dotRowsAVX2(SB), NOSPLIT, $0-56
	MOVQ a+8(FP), R8
	MOVQ d+32(FP), R10
	MOVQ heads+40(FP), AX
	MOVQ out+0(FP), BX
	MOVQ R10, R14
	SHLQ $2, R14           // bytes of a row

head:
	MOVQ BX, DX
	MOVQ rows+16(FP), DI
	MOVQ n+24(FP), R9

rows4:
	CMPQ   R9, $4
	JLT    rows1
	LEAQ   (DI)(R14*1), R11
	LEAQ   (R11)(R14*1), R12
	LEAQ   (R12)(R14*1), R13
	MOVQ   R8, SI
	MOVQ   R10, CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7

loopr4:
	VMOVUPS (SI), Y8
	VMOVUPS 32(SI), Y9
	ROW4(DI, Y0, Y1)
	ROW4(R11, Y2, Y3)
	ROW4(R12, Y4, Y5)
	ROW4(R13, Y6, Y7)
	ADDQ    $64, SI
	ADDQ    $64, DI
	ADDQ    $64, R11
	ADDQ    $64, R12
	ADDQ    $64, R13
	SUBQ    $16, CX
	JNZ     loopr4

	FOLD4
	VMOVUPS      X0, (DX)
	ADDQ         $16, DX
	MOVQ         R13, DI
	SUBQ         $4, R9
	JMP          rows4

rows1:
	TESTQ R9, R9
	JZ    nexthead

row:
	MOVQ   R8, SI
	MOVQ   R10, CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1

loopr:
	VMOVUPS (SI), Y2
	VMOVUPS 32(SI), Y3
	VMULPS  (DI), Y2, Y2
	VMULPS  32(DI), Y3, Y3
	VADDPS  Y2, Y0, Y0
	VADDPS  Y3, Y1, Y1
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loopr

	VADDPS Y1, Y0, Y0
	FOLD(Y0, X0, X2)
	VMOVSS X0, (DX)
	ADDQ   $4, DX
	DECQ   R9
	JNZ    row

nexthead:
	ADDQ R14, R8
	MOVQ stride+48(FP), CX
	LEAQ (BX)(CX*4), BX
	DECQ AX
	JNZ  head

	VZEROUPPER
	RET

// func addScaledRowsAVX2(dst, rows, f *float32, n, d, heads, stride int)
//
// Columns are taken 32 at a time, then 8, and stay in registers over all rows.
TEXT ·addScaledRowsAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ f+16(FP), R8
	MOVQ n+24(FP), R9
	MOVQ heads+40(FP), AX
	MOVQ stride+48(FP), BX
	SHLQ $2, BX
	MOVQ d+32(FP), R10
	SHLQ $2, R10           // bytes of a row

heada:
	MOVQ rows+8(FP), SI
	MOVQ d+32(FP), CX

columns32:
	CMPQ    CX, $32
	JLT     columns8
	VMOVUPS (DI), Y4
	VMOVUPS 32(DI), Y5
	VMOVUPS 64(DI), Y6
	VMOVUPS 96(DI), Y7
	MOVQ    SI, R11
	MOVQ    R8, R12
	MOVQ    R9, R13

rows32:
	VBROADCASTSS (R12), Y8
	VMULPS       (R11), Y8, Y0
	VMULPS       32(R11), Y8, Y1
	VMULPS       64(R11), Y8, Y2
	VMULPS       96(R11), Y8, Y3
	VADDPS       Y4, Y0, Y4
	VADDPS       Y5, Y1, Y5
	VADDPS       Y6, Y2, Y6
	VADDPS       Y7, Y3, Y7
	ADDQ         R10, R11
	ADDQ         $4, R12
	DECQ         R13
	JNZ          rows32

	VMOVUPS Y4, (DI)
	VMOVUPS Y5, 32(DI)
	VMOVUPS Y6, 64(DI)
	VMOVUPS Y7, 96(DI)
	ADDQ    $128, DI
	ADDQ    $128, SI
	SUBQ    $32, CX
	JMP     columns32

columns8:
	CMPQ    CX, $8
	JLT     nextheada
	VMOVUPS (DI), Y4
	MOVQ    SI, R11
	MOVQ    R8, R12
	MOVQ    R9, R13

rows8:
	VBROADCASTSS (R12), Y8
	VMULPS       (R11), Y8, Y0
	VADDPS       Y4, Y0, Y4
	ADDQ         R10, R11
	ADDQ         $4, R12
	DECQ         R13
	JNZ          rows8

	VMOVUPS Y4, (DI)
	ADDQ    $32, DI
	ADDQ    $32, SI
	SUBQ    $8, CX
	JMP     columns8

nextheada:
	ADDQ BX, R8
	DECQ AX
	JNZ  heada

	VZEROUPPER
	RET
