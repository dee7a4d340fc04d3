#include "textflag.h"
#include "exp_amd64.h"

// func scaleMaxAVX2(x *float32, scale float32, n int, most *[16]float32)
TEXT ·scaleMaxAVX2(SB), NOSPLIT, $0-32
	MOVQ         x+0(FP), SI
	VBROADCASTSS scale+8(FP), Y2
	MOVQ         n+16(FP), CX
	MOVQ         most+24(FP), DX
	VMOVUPS      (DX), Y0
	VMOVUPS      32(DX), Y1

loopm:
	VMULPS  (SI), Y2, Y3
	VMULPS  32(SI), Y2, Y4
	VMOVUPS Y3, (SI)
	VMOVUPS Y4, 32(SI)
	VMAXPS  Y3, Y0, Y0
	VMAXPS  Y4, Y1, Y1
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loopm

	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VZEROUPPER
	RET

// func expSumAVX2(x *float32, most float32, n int, sum *[16]float32, table *[12][8]float32)
TEXT ·expSumAVX2(SB), NOSPLIT, $0-40
	MOVQ         x+0(FP), SI
	VBROADCASTSS most+8(FP), Y2
	MOVQ         n+16(FP), CX
	MOVQ         sum+24(FP), DX
	MOVQ         table+32(FP), R8
	VMOVUPS      (DX), Y0
	VMOVUPS      32(DX), Y1

loope:
	VMOVUPS (SI), Y3
	VMOVUPS 32(SI), Y4
	VSUBPS  Y2, Y3, Y3
	VSUBPS  Y2, Y4, Y4
	EXP(Y3, Y5, Y6, Y7, Y8)
	EXP(Y4, Y9, Y10, Y11, Y12)
	VMOVUPS Y3, (SI)
	VMOVUPS Y4, 32(SI)
	VADDPS  Y3, Y0, Y0
	VADDPS  Y4, Y1, Y1
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loope

	VMOVUPS Y0, (DX)
	VMOVUPS Y1, 32(DX)
	VZEROUPPER
	RET
