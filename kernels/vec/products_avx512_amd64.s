#include "textflag.h"
#include "products_avx512_amd64.h"

// Products of float32 with registers of 16 lanes. Each product and each sum is rounded, and sums have the order of
// vec.go.

#define NOTHING

#define SAME(A)

#define LOAD1(P, X, _) VMOVUPS P, X

#define LOAD2(P, Q, X, Y, _, _2) \
	VMOVUPS P, X \
	VMOVUPS Q, Y

#define ROW4(P, A, B, C, D, first) \
	VMOVUPS P, Z20         \
	VMULPS  Z16, Z20, Z24  \
	VMULPS  Z17, Z20, Z25  \
	VMULPS  Z18, Z20, Z26  \
	VMULPS  Z19, Z20, Z27  \
	VADDPS  Z24, A, A      \
	VADDPS  Z25, B, B      \
	VADDPS  Z26, C, C      \
	VADDPS  Z27, D, D

#define ROW2(P, A, B, first) \
	VMOVUPS P, Z20        \
	VMULPS  Z16, Z20, Z24 \
	VMULPS  Z17, Z20, Z25 \
	VADDPS  Z24, A, A     \
	VADDPS  Z25, B, B

#define ROW1(P, A, first) \
	VMULPS P, Z16, Z24 \
	VADDPS Z24, A, A

// func productsAVX512(y, x, rows *float32, bytes, T, n, stride, add int, ahead uintptr, step int)
TEXT ·productsAVX512(SB), NOSPLIT, $0-80
	PRODUCTS(NOTHING, NOTHING, LOAD1, LOAD2, ROW1, ROW2, ROW4, NOTHING, SAME)
