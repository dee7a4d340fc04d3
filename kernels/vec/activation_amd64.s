#include "textflag.h"
#include "exp_amd64.h"

// The steps are those of gateGo in activation.go.

DATA size<>+0(SB)/4, $0x7fffffff // without a sign
GLOBL size<>(SB), RODATA|NOPTR, $4

DATA most<>+0(SB)/4, $0x42af0000 // 87.5, gateMost
GLOBL most<>(SB), RODATA|NOPTR, $4

// func gateAVX2(x, up *float32, linear, cubic float32, n int, table *[12][8]float32)
TEXT ·gateAVX2(SB), NOSPLIT, $0-40
	MOVQ         x+0(FP), SI
	MOVQ         up+8(FP), DI
	VBROADCASTSS linear+16(FP), Y15
	VBROADCASTSS cubic+20(FP), Y14
	MOVQ         n+24(FP), CX
	MOVQ         table+32(FP), R8
	VBROADCASTSS size<>+0(SB), Y13
	VBROADCASTSS most<>+0(SB), Y12
	VXORPS       Y11, Y11, Y11

loop:
	VMOVUPS   (SI), Y0
	VANDPS    Y13, Y0, Y1
	VMINPS    Y12, Y1, Y1
	VMULPS    Y1, Y1, Y2
	VMULPS    Y2, Y14, Y2
	VADDPS    Y15, Y2, Y2
	VMULPS    Y2, Y1, Y1
	VSUBPS    Y1, Y11, Y1
	EXP(Y1, Y3, Y4, Y5, Y6)
	VMOVUPS   352(R8), Y2
	VCMPPS    $1, Y11, Y0, Y3
	VBLENDVPS Y3, Y1, Y2, Y3
	VMULPS    Y3, Y0, Y0
	VADDPS    Y2, Y1, Y1
	VDIVPS    Y1, Y0, Y0
	VMULPS    (DI), Y0, Y0
	VMOVUPS   Y0, (SI)
	ADDQ      $32, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JNZ       loop

	VZEROUPPER
	RET

// func gateAVX512(x, up *float32, linear, cubic float32, n int, table *[12][8]float32)
TEXT ·gateAVX512(SB), NOSPLIT, $0-40
	MOVQ         x+0(FP), SI
	MOVQ         up+8(FP), DI
	VBROADCASTSS linear+16(FP), Z15
	VBROADCASTSS cubic+20(FP), Z14
	MOVQ         n+24(FP), CX
	MOVQ         table+32(FP), R8
	VBROADCASTSS size<>+0(SB), Z13
	VBROADCASTSS most<>+0(SB), Z12
	VPXORD       Z11, Z11, Z11
	EXP16_CONSTANTS

loop16:
	VMOVUPS   (SI), Z0
	VPANDD    Z13, Z0, Z3
	VMINPS    Z12, Z3, Z3
	VMULPS    Z3, Z3, Z2
	VMULPS    Z2, Z14, Z2
	VADDPS    Z15, Z2, Z2
	VMULPS    Z2, Z3, Z3
	VSUBPS    Z3, Z11, Z3
	EXP16
	VCMPPS    $1, Z11, Z0, K2
	VBLENDMPS Z3, Z31, K2, Z2
	VMULPS    Z2, Z0, Z0
	VADDPS    Z31, Z3, Z3
	VDIVPS    Z3, Z0, Z0
	VMULPS    (DI), Z0, Z0
	VMOVUPS   Z0, (SI)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNZ       loop16

	VZEROUPPER
	RET
