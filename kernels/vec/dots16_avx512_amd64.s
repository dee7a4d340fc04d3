#include "textflag.h"

// Dot products of rows of float16 with registers of 16 lanes. Each product and each sum is rounded, and sums have
// the order of vec.go.

// ADD16 adds the products of 16 elements at O of four rows to their partial sums in Z0 to Z3.
#define ADD16(O)                \
	VMOVUPS               (2*O)(DI), Z16 \
	VCVTPH2PS             O(SI)(CX*1), Z4            \
	VCVTPH2PS             O(R9)(CX*1), Z5            \
	VCVTPH2PS             O(R10)(CX*1), Z6            \
	VCVTPH2PS             O(R11)(CX*1), Z7            \
	VMULPS                Z16, Z4, Z4    \
	VMULPS                Z16, Z5, Z5    \
	VMULPS                Z16, Z6, Z6    \
	VMULPS                Z16, Z7, Z7    \
	VADDPS                Z4, Z0, Z0     \
	VADDPS                Z5, Z1, Z1     \
	VADDPS                Z6, Z2, Z2     \
	VADDPS                Z7, Z3, Z3

// func dotsF16AVX512(out *float32, rows *byte, x *float32, blocks, n int)
//
// The n rows are computed four at a time. They end at SI, R9, R10 and R11, for an index CX that rises to 0. Of fewer than
// four rows the last is taken again, and its product is not stored. What lies 4 KB behind them is fetched meanwhile.
TEXT ·dotsF16AVX512(SB), NOSPLIT, $0-40
	MOVQ           out+0(FP), DX
	MOVQ           rows+8(FP), SI
	MOVQ           blocks+24(FP), R14
	SHLQ           $5, R14             // bytes of a row
	LEAQ           (R14)(R14*2), R13
	MOVQ           n+32(FP), R8
	MOVL           $0x1111, AX
	KMOVW          AX, K1              // the first of each quarter

rows4:
	ADDQ           R14, SI
	LEAQ           (SI)(R14*1), R9
	LEAQ           (SI)(R14*2), R10
	LEAQ           (SI)(R13*1), R11
	MOVL           $15, AX
	CMPQ           R8, $4
	JGE            rowsset
	MOVQ           R10, R11
	MOVL           $7, AX
	CMPQ           R8, $3
	JEQ            rowsset
	MOVQ           R9, R10
	MOVQ           R9, R11
	MOVL           $3, AX
	CMPQ           R8, $2
	JEQ            rowsset
	MOVQ           SI, R9
	MOVQ           SI, R10
	MOVQ           SI, R11
	MOVL           $1, AX

rowsset:
	KMOVW          AX, K2
	LEAQ           4096(R11), BX
	MOVQ           x+16(FP), DI
	MOVQ           R14, CX
	NEGQ           CX
	VPXORD         Z0, Z0, Z0
	VPXORD         Z1, Z1, Z1
	VPXORD         Z2, Z2, Z2
	VPXORD         Z3, Z3, Z3
	CMPQ           CX, $-64
	JGT            last

two:
	PREFETCHT1     (BX)
	PREFETCHT1     64(BX)
	ADD16(0)
	PREFETCHT1     128(BX)
	PREFETCHT1     192(BX)
	ADD16(32)
	ADDQ           $256, BX
	ADDQ           $128, DI
	ADDQ           $64, CX
	CMPQ           CX, $-64
	JLE            two
	TESTQ          CX, CX
	JZ             fold

last:
	ADD16(0)

fold:
	VSHUFF32X4     $0x44, Z1, Z0, Z4
	VSHUFF32X4     $0xee, Z1, Z0, Z5
	VSHUFF32X4     $0x44, Z3, Z2, Z6
	VSHUFF32X4     $0xee, Z3, Z2, Z7
	VADDPS         Z5, Z4, Z4
	VADDPS         Z7, Z6, Z6
	VSHUFF32X4     $0x88, Z6, Z4, Z5
	VSHUFF32X4     $0xdd, Z6, Z4, Z7
	VADDPS         Z7, Z5, Z0
	VPERMILPS      $0x4e, Z0, Z1
	VADDPS         Z1, Z0, Z0
	VMOVSHDUP      Z0, Z1
	VADDPS         Z1, Z0, Z0
	VCOMPRESSPS    Z0, K1, Z0
	VMOVUPS        Z0, K2, (DX)
	ADDQ           $16, DX
	MOVQ           R11, SI
	SUBQ           $4, R8
	JGT            rows4
	VZEROUPPER
	RET
