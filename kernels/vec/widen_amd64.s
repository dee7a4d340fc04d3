#include "textflag.h"

// func widenBF16AVX2(y *float32, row *byte, blocks int)
TEXT ·widenBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ y+0(FP), DI
	MOVQ row+8(FP), SI
	MOVQ blocks+16(FP), CX

loop:
	PREFETCHT0 2048(SI)
	VPMOVZXWD  (SI), Y0
	VPMOVZXWD  16(SI), Y1
	VPSLLD     $16, Y0, Y0
	VPSLLD     $16, Y1, Y1
	VMOVDQU    Y0, (DI)
	VMOVDQU    Y1, 32(DI)
	ADDQ       $32, SI
	ADDQ       $64, DI
	DECQ       CX
	JNZ        loop

	VZEROUPPER
	RET

// func widenF16AVX2(y *float32, row *byte, blocks int)
TEXT ·widenF16AVX2(SB), NOSPLIT, $0-24
	MOVQ y+0(FP), DI
	MOVQ row+8(FP), SI
	MOVQ blocks+16(FP), CX

loop:
	PREFETCHT0 2048(SI)
	VCVTPH2PS  (SI), Y0
	VCVTPH2PS  16(SI), Y1
	VMOVUPS    Y0, (DI)
	VMOVUPS    Y1, 32(DI)
	ADDQ       $32, SI
	ADDQ       $64, DI
	DECQ       CX
	JNZ        loop

	VZEROUPPER
	RET
