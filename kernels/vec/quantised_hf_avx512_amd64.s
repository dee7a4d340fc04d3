#include "textflag.h"
#include "quantised_amd64.h"
#include "quantised_avx512_amd64.h"

// The loops of Hugging Face's formats with registers of 16 lanes.

#define G4_CONSTANTS COUNTING(0, Z15)

// TABLE_G4 sets Z to the values of the codes of the block at P. Z8 is overwritten.
#define TABLE_G4(P, Z) \
	MOVBLZX      4(P), AX   \
	VPBROADCASTD AX, Z8     \
	VCVTDQ2PS    Z8, Z8     \
	VSUBPS       Z8, Z15, Z \
	VMULPS.BCST  (P), Z, Z

// G4_GROUP computes 32 elements of both rows, whose codes are at O.
#define G4_GROUP(O) \
	VMOVUPS (DI), Z2          \
	VMOVUPS 64(DI), Z3        \
	LOOKUP(O(SI), Z6)         \
	ADD32(Z2, Z3, Z8, Z9, Z0) \
	LOOKUP(O(R13), Z7)        \
	ADD32(Z2, Z3, Z8, Z9, Z1) \
	ADDQ    $128, DI

#define G4_32 \
	TABLE_G4(SI, Z6)  \
	TABLE_G4(R13, Z7) \
	G4_GROUP(5)

#define G4_64 \
	G4_32 \
	G4_GROUP(21)

#define G4_128 \
	G4_64        \
	G4_GROUP(37) \
	G4_GROUP(53)

#define F8_CONSTANTS \
	E4M3_CONSTANTS \
	VBROADCASTSS FLOAT_256, Z15

// F8_GROUP sets Z8 and Z9 to the 32 values whose codes are at 4(P) + R10.
#define F8_GROUP(P) \
	E4M3(4(P)(R10*1), Y8)   \
	E4M3(20(P)(R10*1), Y9)  \
	VCVTPH2PS   Y8, Z8      \
	VCVTPH2PS   Y9, Z9      \
	VMULPS      Z15, Z8, Z8 \
	VMULPS      Z15, Z9, Z9 \
	VMULPS.BCST (P), Z8, Z8 \
	VMULPS.BCST (P), Z9, Z9

#define F8 \
	XORQ    R10, R10          \
group:                        \
	VMOVUPS (DI), Z2          \
	VMOVUPS 64(DI), Z3        \
	F8_GROUP(SI)              \
	ADD32(Z2, Z3, Z8, Z9, Z0) \
	F8_GROUP(R13)             \
	ADD32(Z2, Z3, Z8, Z9, Z1) \
	ADDQ    $128, DI          \
	ADDQ    $32, R10          \
	CMPQ    R10, $128         \
	JNE     group

TEXT ·dotsG4_32AVX512(SB), NOSPLIT, $64-40
	DOTS(G4_32, G4_CONSTANTS, FETCH1, 21)

TEXT ·dotsG4_64AVX512(SB), NOSPLIT, $64-40
	DOTS(G4_64, G4_CONSTANTS, FETCH1, 37)

TEXT ·dotsG4_128AVX512(SB), NOSPLIT, $64-40
	DOTS(G4_128, G4_CONSTANTS, FETCH2, 69)

TEXT ·dotsF8AVX512(SB), NOSPLIT, $64-40
	DOTS(F8, F8_CONSTANTS, FETCH3, 132)
