#include "textflag.h"

// Dot products of rows of float16 with AVX2, in the order of vec.go.

// FOLD8 sums the 16 partial sums in LOW and HIGH, whose XMM name is X, by halves into lane 0.
#define FOLD8(LOW, HIGH, X)     \
	VADDPS       HIGH, LOW, LOW \
	VEXTRACTF128 $1, LOW, X9    \
	VADDPS       X9, X, X       \
	VMOVHLPS     X, X, X9       \
	VADDPS       X9, X, X       \
	VMOVSHDUP    X, X9          \
	VADDSS       X9, X, X

// func dotsF16AVX2(out *float32, rows *byte, x *float32, blocks, n int)
//
// The n rows are computed two at a time, and fetches 2 KB ahead of each: the machine's own prefetching begins anew with
// each page. The last of an odd number of rows is its own neighbour, whose sum is not stored.
TEXT ·dotsF16AVX2(SB), NOSPLIT, $0-40
	MOVQ            out+0(FP), DX
	MOVQ            rows+8(FP), SI
	MOVQ            blocks+24(FP), R14
	SHLQ            $5, R14
	MOVQ            n+32(FP), R8

row:
	LEAQ            (SI)(R14*1), R9
	CMPQ            R8, $1
	CMOVQEQ         SI, R9
	MOVQ            x+16(FP), DI
	MOVQ            R14, CX
	VXORPS          Y0, Y0, Y0
	VXORPS          Y1, Y1, Y1
	VXORPS          Y2, Y2, Y2
	VXORPS          Y3, Y3, Y3

block:
	PREFETCHT0      2048(SI)
	PREFETCHT0      2048(R9)
	VMOVUPS         (DI), Y8
	VMOVUPS         32(DI), Y9
	VCVTPH2PS       (SI), Y4
	VCVTPH2PS       16(SI), Y5
	VCVTPH2PS       (R9), Y6
	VCVTPH2PS       16(R9), Y7
	VMULPS          Y8, Y4, Y4
	VMULPS          Y9, Y5, Y5
	VMULPS          Y8, Y6, Y6
	VMULPS          Y9, Y7, Y7
	VADDPS          Y4, Y0, Y0
	VADDPS          Y5, Y1, Y1
	VADDPS          Y6, Y2, Y2
	VADDPS          Y7, Y3, Y3
	ADDQ            $32, SI
	ADDQ            $32, R9
	ADDQ            $64, DI
	SUBQ            $32, CX
	JNZ             block
	FOLD8(Y0,       Y1, X0)
	VMOVSS          X0, (DX)
	DECQ            R8
	JZ              done
	FOLD8(Y2,       Y3, X2)
	VMOVSS          X2, 4(DX)
	ADDQ            $8, DX
	MOVQ            R9, SI
	DECQ            R8
	JNZ             row

done:
	VZEROUPPER
	RET
