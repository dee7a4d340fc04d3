// Parts of the loops over rows of quantised blocks with registers of 16 lanes. Two rows are computed at a time,
// because the sums of one wait for each other. A value is found in a table of the values of all codes of a block or
// group, which are computed and rounded as the decoder in Go does; codes of more than five bits are converted.
//
// SI and R13 are the blocks of the two rows, DI the activations. Z0 and Z1 are the rows' 16 partial sums, Z2 to Z5
// activations, Z8 to Z11 values, Z12 to Z22 constants of the format.

DATA counting<>+0(SB)/8, $0x0706050403020100
DATA counting<>+8(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL counting<>(SB), RODATA|NOPTR, $16

// TABLE loads 16 signed bytes at P as float32.
#define TABLE(P, Z) \
	VPMOVSXBD P, Z \
	VCVTDQ2PS Z, Z

// COUNTING sets Z to BEGIN, BEGIN + 1 and so on, as float32. Z8 is overwritten.
#define COUNTING(BEGIN, Z) \
	MOVL         $BEGIN, AX          \
	VPBROADCASTD AX, Z8              \
	VPMOVSXBD    counting<>+0(SB), Z \
	VPADDD       Z8, Z, Z            \
	VCVTDQ2PS    Z, Z

// HALF16 broadcasts the binary16 at O(P). Y is the YMM name of Z.
#define HALF16(O, P, Y, Z) \
	VPBROADCASTW O(P), Y \
	VCVTPH2PS    Y, Z

// FOLD16 sums the lanes of Z, whose YMM and XMM names are Y and X, into lane 0, by halves.
#define FOLD16(X, Y, Z) \
	VEXTRACTF64X4 $1, Z, Y2 \
	VADDPS        Y2, Y, Y  \
	VEXTRACTF128  $1, Y, X2 \
	VADDPS        X2, X, X  \
	VMOVHLPS      X, X, X2  \
	VADDPS        X2, X, X  \
	VMOVSHDUP     X, X2     \
	VADDSS        X2, X, X

// ADD32 adds the products of 32 values and activations to SUM. Their order is that of the elements.
#define ADD32(XA, XB, A, B, SUM) \
	VMULPS XA, A, A    \
	VMULPS XB, B, B    \
	VADDPS A, SUM, SUM \
	VADDPS B, SUM, SUM

// FETCH and its likes fetch the blocks of two later rows, at least 2 KB ahead: the machine's own prefetching begins
// anew with each row. R14 is their distance.
#define FETCH(O) \
	PREFETCHT0 O(SI)(R14*1) \
	PREFETCHT0 O(R13)(R14*1)

#define FETCH1 FETCH(0)

#define FETCH2 \
	FETCH1 \
	FETCH(64)

#define FETCH3 \
	FETCH2 \
	FETCH(128)

#define FETCH4 \
	FETCH3 \
	FETCH(192)

// DOTS computes the rows; BLOCK computes a block of both. The last of an odd number of rows is its own neighbour, whose
// sum is not stored.
#define DOTS(BLOCK, CONSTANTS, FETCH, BYTES) \
	LEAQ    63(SP), BX        \
	ANDQ    $-64, BX          \
	CONSTANTS                 \
	MOVQ    out+0(FP), DX     \
	MOVQ    rows+8(FP), SI    \
	MOVQ    n+32(FP), R8      \
	MOVQ    blocks+24(FP), CX \
	IMUL3Q  $BYTES, CX, R11   \
	XORQ    R14, R14          \
distance:                     \
	LEAQ    (R14)(R11*2), R14 \
	CMPQ    R14, $2048        \
	JLT     distance          \
row:                          \
	MOVQ    x+16(FP), DI      \
	MOVQ    blocks+24(FP), CX \
	LEAQ    (SI)(R11*1), R13  \
	CMPQ    R8, $1            \
	CMOVQEQ SI, R13           \
	VXORPS  Y0, Y0, Y0        \
	VXORPS  Y1, Y1, Y1        \
block:                        \
	FETCH                     \
	BLOCK                     \
	ADDQ    $BYTES, SI        \
	ADDQ    $BYTES, R13       \
	DECQ    CX                \
	JNZ     block             \
	FOLD16(X0, Y0, Z0)        \
	VMOVSS  X0, (DX)          \
	DECQ    R8                \
	JZ      done              \
	FOLD16(X1, Y1, Z1)        \
	VMOVSS  X1, 4(DX)         \
	ADDQ    $8, DX            \
	MOVQ    R13, SI           \
	DECQ    R8                \
	JNZ     row               \
done:                         \
	VZEROUPPER                \
	RET

// BLOCK32 computes a block of 32 elements of both rows. FORMAT(P) sets Z8 and Z9 to the values of the block at P.
#define BLOCK32(FORMAT) \
	VMOVUPS (DI), Z2          \
	VMOVUPS 64(DI), Z3        \
	FORMAT(SI)                \
	ADD32(Z2, Z3, Z8, Z9, Z0) \
	FORMAT(R13)               \
	ADD32(Z2, Z3, Z8, Z9, Z1) \
	ADDQ    $128, DI

// LOOKUP sets Z8 and Z9 to the values of 32 codes of four bits: the low ones of 16 bytes at P, then the high ones.
// VPERMPS uses the low four bits of an index.
#define LOOKUP(P, VALUES) \
	VPMOVZXBD P, Z8          \
	VPSRLD    $4, Z8, Z9     \
	VPERMPS   VALUES, Z8, Z8 \
	VPERMPS   VALUES, Z9, Z9

// LOOKUP5 does the same for codes of five bits. The highest bits are the 32 at H; HIGH has the values of codes with it.
#define LOOKUP5(P, H, VALUES, HIGH) \
	KMOVW     H(P), K1          \
	KMOVW     (H+2)(P), K2      \
	VPMOVZXBD (H+4)(P), Z10     \
	VPSRLD    $4, Z10, Z11      \
	VPERMPS   VALUES, Z10, Z8   \
	VPERMPS   VALUES, Z11, Z9   \
	VPERMPS   HIGH, Z10, K1, Z8 \
	VPERMPS   HIGH, Z11, K2, Z9
