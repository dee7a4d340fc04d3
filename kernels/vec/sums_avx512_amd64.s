#include "textflag.h"
#include "exp_amd64.h"

// Sums and exponentials with registers of 16 lanes. Each product and each sum is rounded, and sums have the order of
// vec.go and softmax.go.

// func addScaledRowsAVX512(dst, rows, f *float32, n, d, heads, stride int)
//
// Columns are taken 32 at a time, then 16, of four heads, then of one, and stay in registers over all rows.
TEXT ·addScaledRowsAVX512(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ f+16(FP), R8
	MOVQ heads+40(FP), AX
	MOVQ stride+48(FP), BX
	SHLQ $2, BX
	MOVQ d+32(FP), R10
	SHLQ $2, R10           // bytes of a row

heads4:
	CMPQ AX, $4
	JLT  heads1
	LEAQ (DI)(R10*1), R11
	LEAQ (DI)(R10*2), R12
	LEAQ (R11)(R10*2), R13
	MOVQ rows+8(FP), SI
	XORQ CX, CX            // byte of the column

columns32of4:
	LEAQ    128(CX), DX
	CMPQ    DX, R10
	JGT     columns16of4
	VMOVUPS (DI)(CX*1), Z0
	VMOVUPS 64(DI)(CX*1), Z1
	VMOVUPS (R11)(CX*1), Z2
	VMOVUPS 64(R11)(CX*1), Z3
	VMOVUPS (R12)(CX*1), Z4
	VMOVUPS 64(R12)(CX*1), Z5
	VMOVUPS (R13)(CX*1), Z6
	VMOVUPS 64(R13)(CX*1), Z7
	LEAQ    (SI)(CX*1), R9
	MOVQ    R8, DX
	MOVQ    n+24(FP), R14

rows32of4:
	VMOVUPS      (R9), Z8
	VMOVUPS      64(R9), Z9
	LEAQ         (DX)(BX*2), R15
	VBROADCASTSS (DX), Z10
	VBROADCASTSS (DX)(BX*1), Z11
	VBROADCASTSS (R15), Z12
	VBROADCASTSS (R15)(BX*1), Z13
	VMULPS       Z8, Z10, Z14
	VMULPS       Z9, Z10, Z15
	VMULPS       Z8, Z11, Z16
	VMULPS       Z9, Z11, Z17
	VMULPS       Z8, Z12, Z18
	VMULPS       Z9, Z12, Z19
	VMULPS       Z8, Z13, Z20
	VMULPS       Z9, Z13, Z21
	VADDPS       Z14, Z0, Z0
	VADDPS       Z15, Z1, Z1
	VADDPS       Z16, Z2, Z2
	VADDPS       Z17, Z3, Z3
	VADDPS       Z18, Z4, Z4
	VADDPS       Z19, Z5, Z5
	VADDPS       Z20, Z6, Z6
	VADDPS       Z21, Z7, Z7
	ADDQ         R10, R9
	ADDQ         $4, DX
	DECQ         R14
	JNZ          rows32of4

	VMOVUPS Z0, (DI)(CX*1)
	VMOVUPS Z1, 64(DI)(CX*1)
	VMOVUPS Z2, (R11)(CX*1)
	VMOVUPS Z3, 64(R11)(CX*1)
	VMOVUPS Z4, (R12)(CX*1)
	VMOVUPS Z5, 64(R12)(CX*1)
	VMOVUPS Z6, (R13)(CX*1)
	VMOVUPS Z7, 64(R13)(CX*1)
	ADDQ    $128, CX
	JMP     columns32of4

columns16of4:
	CMPQ    CX, R10
	JGE     nextheads4
	VMOVUPS (DI)(CX*1), Z0
	VMOVUPS (R11)(CX*1), Z2
	VMOVUPS (R12)(CX*1), Z4
	VMOVUPS (R13)(CX*1), Z6
	LEAQ    (SI)(CX*1), R9
	MOVQ    R8, DX
	MOVQ    n+24(FP), R14

rows16of4:
	VMOVUPS     (R9), Z8
	LEAQ        (DX)(BX*2), R15
	VMULPS.BCST (DX), Z8, Z14
	VMULPS.BCST (DX)(BX*1), Z8, Z16
	VMULPS.BCST (R15), Z8, Z18
	VMULPS.BCST (R15)(BX*1), Z8, Z20
	VADDPS      Z14, Z0, Z0
	VADDPS      Z16, Z2, Z2
	VADDPS      Z18, Z4, Z4
	VADDPS      Z20, Z6, Z6
	ADDQ        R10, R9
	ADDQ        $4, DX
	DECQ        R14
	JNZ         rows16of4

	VMOVUPS Z0, (DI)(CX*1)
	VMOVUPS Z2, (R11)(CX*1)
	VMOVUPS Z4, (R12)(CX*1)
	VMOVUPS Z6, (R13)(CX*1)

nextheads4:
	LEAQ (R13)(R10*1), DI
	LEAQ (R8)(BX*4), R8
	SUBQ $4, AX
	JMP  heads4

heads1:
	TESTQ AX, AX
	JZ    done
	MOVQ  rows+8(FP), SI
	XORQ  CX, CX

columns32:
	LEAQ    128(CX), DX
	CMPQ    DX, R10
	JGT     columns16
	VMOVUPS (DI)(CX*1), Z0
	VMOVUPS 64(DI)(CX*1), Z1
	LEAQ    (SI)(CX*1), R9
	MOVQ    R8, DX
	MOVQ    n+24(FP), R14

rows32:
	VBROADCASTSS (DX), Z10
	VMULPS       (R9), Z10, Z14
	VMULPS       64(R9), Z10, Z15
	VADDPS       Z14, Z0, Z0
	VADDPS       Z15, Z1, Z1
	ADDQ         R10, R9
	ADDQ         $4, DX
	DECQ         R14
	JNZ          rows32

	VMOVUPS Z0, (DI)(CX*1)
	VMOVUPS Z1, 64(DI)(CX*1)
	ADDQ    $128, CX
	JMP     columns32

columns16:
	CMPQ    CX, R10
	JGE     nexthead
	VMOVUPS (DI)(CX*1), Z0
	LEAQ    (SI)(CX*1), R9
	MOVQ    R8, DX
	MOVQ    n+24(FP), R14

rows16:
	VBROADCASTSS (DX), Z10
	VMULPS       (R9), Z10, Z14
	VADDPS       Z14, Z0, Z0
	ADDQ         R10, R9
	ADDQ         $4, DX
	DECQ         R14
	JNZ          rows16

	VMOVUPS Z0, (DI)(CX*1)

nexthead:
	ADDQ R10, DI
	ADDQ BX, R8
	DECQ AX
	JMP  heads1

done:
	VZEROUPPER
	RET

// func scaleMaxAVX512(x *float32, scale float32, n int, most *[16]float32)
TEXT ·scaleMaxAVX512(SB), NOSPLIT, $0-32
	MOVQ         x+0(FP), SI
	VBROADCASTSS scale+8(FP), Z2
	MOVQ         n+16(FP), CX
	MOVQ         most+24(FP), DX
	VMOVUPS      (DX), Z0

loopm:
	VMULPS  (SI), Z2, Z3
	VMOVUPS Z3, (SI)
	VMAXPS  Z3, Z0, Z0
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loopm

	VMOVUPS Z0, (DX)
	VZEROUPPER
	RET

// func expSumAVX512(x *float32, most float32, n int, sum *[16]float32, table *[12][8]float32)
//
// The steps are those of exp in softmax.go.
TEXT ·expSumAVX512(SB), NOSPLIT, $0-40
	MOVQ         x+0(FP), SI
	VBROADCASTSS most+8(FP), Z2
	MOVQ         n+16(FP), CX
	MOVQ         sum+24(FP), DX
	MOVQ         table+32(FP), R8
	VMOVUPS      (DX), Z0
	EXP16_CONSTANTS

loope:
	VMOVUPS  (SI), Z3
	VSUBPS   Z2, Z3, Z3
	EXP16
	VMOVUPS  Z3, (SI)
	VADDPS   Z3, Z0, Z0
	ADDQ     $64, SI
	SUBQ     $16, CX
	JNZ      loope

	VMOVUPS Z0, (DX)
	VZEROUPPER
	RET
