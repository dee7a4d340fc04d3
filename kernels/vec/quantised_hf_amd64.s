#include "textflag.h"
#include "quantised_amd64.h"
#include "quantised_avx2_amd64.h"

// The loops of Hugging Face's formats for AVX2. A block begins with its scale, a float32.

// SCALE_AND_ZERO broadcasts the scale and the zero point of a block of G4.
#define SCALE_AND_ZERO \
	VBROADCASTSS (SI), Y7  \
	MOVBLZX      4(SI), AX \
	VMOVD        AX, X14   \
	VPBROADCASTD X14, Y14

// G4_GROUP computes the 32 elements whose codes are at O(SI).
#define G4_GROUP(O, USE) \
	FOURS(O)             \
	VPSUBD Y14, Y8, Y8   \
	VPSUBD Y14, Y9, Y9   \
	VPSUBD Y14, Y10, Y10 \
	VPSUBD Y14, Y11, Y11 \
	FLOATS               \
	SCALE                \
	USE

#define G4_CONSTANTS \
	VPBROADCASTD DWORD_0F, Y15

#define G4_32(USE) \
	SCALE_AND_ZERO \
	G4_GROUP(5, USE)

#define G4_64(USE) \
	G4_32(USE) \
	G4_GROUP(21, USE)

#define G4_128(USE) \
	G4_64(USE)        \
	G4_GROUP(37, USE) \
	G4_GROUP(53, USE)

#define F8_CONSTANTS \
	E4M3_CONSTANTS \
	VBROADCASTSS FLOAT_256, Y15

// F8 computes 32 elements at a time. Multiplying by 256 is exact, so a value is rounded once, by its scale.
#define F8(USE) \
	VBROADCASTSS (SI), Y7      \
	LEAQ         4(SI), R10    \
	MOVQ         $4, R9        \
group:                         \
	E4M3((R10), Y9)            \
	E4M3(16(R10), Y11)         \
	VCVTPH2PS    X9, Y8        \
	VEXTRACTI128 $1, Y9, X9    \
	VCVTPH2PS    X9, Y9        \
	VCVTPH2PS    X11, Y10      \
	VEXTRACTI128 $1, Y11, X11  \
	VCVTPH2PS    X11, Y11      \
	VMULPS       Y15, Y8, Y8   \
	VMULPS       Y15, Y9, Y9   \
	VMULPS       Y15, Y10, Y10 \
	VMULPS       Y15, Y11, Y11 \
	SCALE                      \
	USE                        \
	ADDQ         $32, R10      \
	DECQ         R9            \
	JNZ          group

TEXT ·dotsG4_32AVX2(SB), NOSPLIT, $96-40
	DOTS(G4_32, G4_CONSTANTS, FETCH1, 21)

TEXT ·decodeG4_32AVX2(SB), NOSPLIT, $96-24
	DECODE(G4_32, G4_CONSTANTS, 21)

TEXT ·dotsG4_64AVX2(SB), NOSPLIT, $96-40
	DOTS(G4_64, G4_CONSTANTS, FETCH1, 37)

TEXT ·decodeG4_64AVX2(SB), NOSPLIT, $96-24
	DECODE(G4_64, G4_CONSTANTS, 37)

TEXT ·dotsG4_128AVX2(SB), NOSPLIT, $96-40
	DOTS(G4_128, G4_CONSTANTS, FETCH2, 69)

TEXT ·decodeG4_128AVX2(SB), NOSPLIT, $96-24
	DECODE(G4_128, G4_CONSTANTS, 69)

TEXT ·dotsF8AVX2(SB), NOSPLIT, $96-40
	DOTS(F8, F8_CONSTANTS, FETCH3, 132)

TEXT ·decodeF8AVX2(SB), NOSPLIT, $96-24
	DECODE(F8, F8_CONSTANTS, 132)
