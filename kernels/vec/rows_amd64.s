#include "textflag.h"

// func scaleAVX2(y, x, gains *float32, f float32, n int)
TEXT ·scaleAVX2(SB), NOSPLIT, $0-40
	MOVQ         y+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         gains+16(FP), DX
	VBROADCASTSS f+24(FP), Y0
	MOVQ         n+32(FP), CX

scale:
	VMULPS  (SI), Y0, Y1
	VMULPS  (DX), Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     scale

	VZEROUPPER
	RET

// func rotateAVX2(a, b, rotation *float32, n int)
TEXT ·rotateAVX2(SB), NOSPLIT, $0-32
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DI
	MOVQ rotation+16(FP), DX
	MOVQ n+24(FP), CX

rotate:
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y1
	VSHUFPS $0x88, Y1, Y0, Y2
	VSHUFPS $0xdd, Y1, Y0, Y3
	VPERMPD $0xd8, Y2, Y2     // cosines
	VPERMPD $0xd8, Y3, Y3     // sines
	VMOVUPS (SI), Y4
	VMOVUPS (DI), Y5
	VMULPS  Y2, Y4, Y6
	VMULPS  Y3, Y5, Y7
	VSUBPS  Y7, Y6, Y6
	VMULPS  Y2, Y5, Y7
	VMULPS  Y3, Y4, Y8
	VADDPS  Y8, Y7, Y7
	VMOVUPS Y6, (SI)
	VMOVUPS Y7, (DI)
	ADDQ    $64, DX
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     rotate

	VZEROUPPER
	RET
