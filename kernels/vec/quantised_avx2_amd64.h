// Parts of the loops over rows of quantised blocks for AVX2. A macro for each format turns a block into values, 32 at a
// time, as the decoder in Go computes and rounds them; USE is DOT or STORE. So a dot product has the bits of Dot over
// the decoded row.
//
// SI is the block, DI the activations or the values to write. Y8 to Y11 are 32 values, Y7 their scale, Y6 their minimum
// or the scale of the last 16. Y0 and Y1 hold the 16 partial sums of a row. Y12 to Y15 are constants of the format.

// FLOATS turns 32 codes into float32.
#define FLOATS \
	VCVTDQ2PS Y8, Y8   \
	VCVTDQ2PS Y9, Y9   \
	VCVTDQ2PS Y10, Y10 \
	VCVTDQ2PS Y11, Y11

// WIDEN loads 32 signed codes at O(P) as float32.
#define WIDEN(O, P) \
	VPMOVSXBD (O)(P), Y8     \
	VPMOVSXBD (O+8)(P), Y9   \
	VPMOVSXBD (O+16)(P), Y10 \
	VPMOVSXBD (O+24)(P), Y11 \
	FLOATS

#define SCALE \
	VMULPS Y7, Y8, Y8   \
	VMULPS Y7, Y9, Y9   \
	VMULPS Y7, Y10, Y10 \
	VMULPS Y7, Y11, Y11

#define PLUS \
	VADDPS Y6, Y8, Y8   \
	VADDPS Y6, Y9, Y9   \
	VADDPS Y6, Y10, Y10 \
	VADDPS Y6, Y11, Y11

#define MINUS \
	VSUBPS Y6, Y8, Y8   \
	VSUBPS Y6, Y9, Y9   \
	VSUBPS Y6, Y10, Y10 \
	VSUBPS Y6, Y11, Y11

#define DOT \
	VMULPS (DI), Y8, Y8     \
	VMULPS 32(DI), Y9, Y9   \
	VMULPS 64(DI), Y10, Y10 \
	VMULPS 96(DI), Y11, Y11 \
	VADDPS Y8, Y0, Y0       \
	VADDPS Y9, Y1, Y1       \
	VADDPS Y10, Y0, Y0      \
	VADDPS Y11, Y1, Y1      \
	ADDQ   $128, DI

#define STORE \
	VMOVUPS Y8, (DI)    \
	VMOVUPS Y9, 32(DI)  \
	VMOVUPS Y10, 64(DI) \
	VMOVUPS Y11, 96(DI) \
	ADDQ    $128, DI

// FOURS loads 16 bytes at O(SI): their low four bits are codes 0 to 15, the high ones 16 to 31. Y15 is 15 in each
// dword.
#define FOURS(O) \
	VPMOVZXBD (O)(SI), Y8   \
	VPMOVZXBD (O+8)(SI), Y9 \
	VPSRLD    $4, Y8, Y10   \
	VPSRLD    $4, Y9, Y11   \
	VPAND     Y15, Y8, Y8   \
	VPAND     Y15, Y9, Y9

// NIBBLES does the same for 16 bytes at P, with codes as the bytes of Y2, and Y15 as 15 in each byte.
#define NIBBLES(P) \
	VMOVDQU     P, X2          \
	VPSRLW      $4, X2, X3     \
	VINSERTI128 $1, X3, Y2, Y2 \
	VPAND       Y15, Y2, Y2

// FIFTH sets the bytes of Y3 to 0xff where their bit of the 32 at P is set.
#define FIFTH(P) \
	VPBROADCASTD P, Y3       \
	VPSHUFB      Y13, Y3, Y3 \
	VPAND        Y12, Y3, Y3 \
	VPCMPEQB     Y12, Y3, Y3

#define CODES \
	VMOVDQU Y2, (BX) \
	WIDEN(0, BX)

// FETCH1 and its likes fetch the lines of a block 2 KB ahead: rows follow each other in memory.
#define FETCH1 PREFETCHT0 2048(SI)

#define FETCH2 \
	FETCH1 \
	PREFETCHT0 2112(SI)

#define FETCH3 \
	FETCH2 \
	PREFETCHT0 2176(SI)

#define FETCH4 \
	FETCH3 \
	PREFETCHT0 2240(SI)

// The rows. FORMAT(USE) computes one block.

#define DOTS(FORMAT, CONSTANTS, FETCH, BYTES) \
	LEAQ   63(SP), BX        \
	ANDQ   $-64, BX          \
	CONSTANTS                \
	MOVQ   out+0(FP), DX     \
	MOVQ   rows+8(FP), SI    \
	MOVQ   n+32(FP), R8      \
row:                         \
	MOVQ   x+16(FP), DI      \
	MOVQ   blocks+24(FP), CX \
	VXORPS Y0, Y0, Y0        \
	VXORPS Y1, Y1, Y1        \
block:                       \
	FETCH                    \
	FORMAT(DOT)              \
	ADDQ   $BYTES, SI        \
	DECQ   CX                \
	JNZ    block             \
	VADDPS Y1, Y0, Y0        \
	VEXTRACTF128 $1, Y0, X2  \
	VADDPS       X2, X0, X0  \
	VMOVHLPS     X0, X0, X2  \
	VADDPS       X2, X0, X0  \
	VMOVSHDUP    X0, X2      \
	VADDSS       X2, X0, X0  \
	VMOVSS X0, (DX)          \
	ADDQ   $4, DX            \
	DECQ   R8                \
	JNZ    row               \
	VZEROUPPER               \
	RET

#define DECODE(FORMAT, CONSTANTS, BYTES) \
	LEAQ 63(SP), BX        \
	ANDQ $-64, BX          \
	CONSTANTS              \
	MOVQ y+0(FP), DI       \
	MOVQ row+8(FP), SI     \
	MOVQ blocks+16(FP), CX \
block:                     \
	FORMAT(STORE)          \
	ADDQ $BYTES, SI        \
	DECQ CX                \
	JNZ  block             \
	VZEROUPPER             \
	RET
