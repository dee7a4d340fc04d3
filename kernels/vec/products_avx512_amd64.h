// Products of four rows of a weight by four of activations, with registers of 16 lanes, for any type of elements.

// ZERO4 sets four registers to 0.
#define ZERO4(A, B, C, D) \
	VPXORD A, A, A \
	VPXORD B, B, B \
	VPXORD C, C, C \
	VPXORD D, D, D

// AHEAD2 fetches two lines of what is read next.
#define AHEAD2 \
	PREFETCHT1 (AX) \
	ADDQ       R15, AX \
	PREFETCHT1 (AX) \
	ADDQ       R15, AX

// HALVES leaves the partial sums of A, B, C and D, folded by halves twice, in the four quarters of A.
#define HALVES(A, B, C, D)          \
	VSHUFF32X4 $0x44, B, A, Z20     \
	VSHUFF32X4 $0xee, B, A, Z21     \
	VSHUFF32X4 $0x44, D, C, Z22     \
	VSHUFF32X4 $0xee, D, C, Z23     \
	VADDPS     Z21, Z20, Z20        \
	VADDPS     Z23, Z22, Z22        \
	VSHUFF32X4 $0x88, Z22, Z20, Z21 \
	VSHUFF32X4 $0xdd, Z22, Z20, Z23 \
	VADDPS     Z23, Z21, A

// QUARTERS folds the four partial sums in each quarter of A, B, C and D, and leaves the four sums of each quarter side
// by side in A.
#define QUARTERS(A, B, C, D)       \
	VUNPCKLPD B, A, Z20            \
	VUNPCKHPD B, A, Z21            \
	VUNPCKLPD D, C, Z22            \
	VUNPCKHPD D, C, Z23            \
	VADDPS    Z21, Z20, Z20        \
	VADDPS    Z23, Z22, Z22        \
	VSHUFPS   $0x88, Z22, Z20, Z21 \
	VSHUFPS   $0xdd, Z22, Z20, Z23 \
	VADDPS    Z23, Z21, A

// LAST folds the four partial sums in each quarter of A, and leaves the sums in the first four elements.
#define LAST(A)               \
	VPERMILPS   $0x4e, A, Z20 \
	VADDPS      Z20, A, A     \
	VMOVSHDUP   A, Z20        \
	VADDPS      Z20, A, A     \
	VCOMPRESSPS A, K1, A

// PUT4 stores four products of a row of x at DX, and goes on to the next row.
#define PUT4(SUM) \
	VMOVUPS SUM, (DX) \
	ADDQ    R12, DX

// ADD4 is PUT4 for products that are added to what is there.
#define ADD4(SUM) \
	VADDPS (DX), SUM, SUM \
	PUT4(SUM)

// PUT stores the products of a row of x with the rows in K2, or adds those in K3 to what is there.
#define PUT(SUM) \
	VMOVUPS.Z (DX), K3, Z20     \
	VADDPS    Z20, SUM, K3, SUM \
	VMOVUPS   SUM, K2, (DX)     \
	ADDQ      R12, DX

// PRODUCTS is the body of a function of the arguments (y, x, rows, bytes, T, n, stride, add, ahead, step).
//
// Four rows of the weight by four of x have 16 registers of partial sums. Of fewer than four rows of the weight the last
// is taken again and its products are not stored. The rows end at DI, R9, R10 and R11, for an index that rises to 0.
// AX goes ahead by R15 bytes with each line that is fetched.
//
// CONSTANTS comes first. MULTIPLYING comes before, and FOLDING after, a loop over the elements of rows. With 64 bytes of
// each row, LOAD2 loads two rows of x, whose registers are Z16 and Z24, Z17 and Z25, and so on; ROW4, ROW2 and ROW1 add
// the products of a row of the weight and of those of x to partial sums in registers, of which the last argument is the
// first one's number. RESULT completes sums.
#define PRODUCTS(CONSTANTS, MULTIPLYING, LOAD1, LOAD2, ROW1, ROW2, ROW4, FOLDING, RESULT) \
	CONSTANTS                                            \
	MOVQ          bytes+24(FP), R14 /* of a row */       \
	LEAQ          (R14)(R14*2), R13                      \
	MOVQ          stride+48(FP), R12                     \
	SHLQ          $2, R12                                \
	MOVQ          rows+16(FP), DI                        \
	MOVQ          n+40(FP), BX                           \
	MOVL          $0x1111, SI                            \
	KMOVW         SI, K1 /* the first of each quarter */ \
	MOVQ          ahead+64(FP), AX                       \
	MOVQ          step+72(FP), R15                       \
rows4:                                                  \
	ADDQ          R14, DI                                \
	LEAQ          (DI)(R14*1), R9                        \
	LEAQ          (DI)(R14*2), R10                       \
	LEAQ          (DI)(R13*1), R11                       \
	MOVL          $15, SI                                \
	CMPQ          BX, $4                                 \
	JGE           rowsset                                \
	MOVQ          R10, R11                               \
	MOVL          $7, SI                                 \
	CMPQ          BX, $3                                 \
	JEQ           rowsset                                \
	MOVQ          R9, R10                                \
	MOVQ          R9, R11                                \
	MOVL          $3, SI                                 \
	CMPQ          BX, $2                                 \
	JEQ           rowsset                                \
	MOVQ          DI, R9                                 \
	MOVQ          DI, R10                                \
	MOVQ          DI, R11                                \
	MOVL          $1, SI                                 \
rowsset:                                                \
	KMOVW         SI, K2                                 \
	CMPQ          add+56(FP), $0                         \
	JNE           adds                                   \
	XORL          SI, SI                                 \
adds:                                                   \
	KMOVW         SI, K3                                 \
	MOVQ          x+8(FP), SI                            \
	MOVQ          T+32(FP), R8                           \
	MOVQ          y+0(FP), DX                            \
tile4:                                                  \
	CMPQ          R8, $4                                 \
	JLT           tile2                                  \
	MULTIPLYING                                          \
	MOVQ          R14, CX                                \
	NEGQ          CX                                     \
	ZERO4(Z0, Z1, Z2, Z3)                                \
	ZERO4(Z4, Z5, Z6, Z7)                                \
	ZERO4(Z8, Z9, Z10, Z11)                              \
	ZERO4(Z12, Z13, Z14, Z15)                            \
loop4:                                                  \
	LOAD2((SI), (SI)(R14*1), Z16, Z17, Z24, Z25)         \
	LOAD2((SI)(R14*2), (SI)(R13*1), Z18, Z19, Z26, Z27)  \
	ROW4((DI)(CX*1), Z0, Z1, Z2, Z3, 0)                  \
	ROW4((R9)(CX*1), Z4, Z5, Z6, Z7, 4)                  \
	ROW4((R10)(CX*1), Z8, Z9, Z10, Z11, 8)               \
	ROW4((R11)(CX*1), Z12, Z13, Z14, Z15, 12)            \
	AHEAD2                                               \
	ADDQ          $64, SI                                \
	ADDQ          $64, CX                                \
	JNZ           loop4                                  \
	FOLDING                                              \
	HALVES(Z0, Z1, Z2, Z3)                               \
	HALVES(Z4, Z5, Z6, Z7)                               \
	HALVES(Z8, Z9, Z10, Z11)                             \
	HALVES(Z12, Z13, Z14, Z15)                           \
	QUARTERS(Z0, Z4, Z8, Z12)                            \
	RESULT(Z0)                                           \
	VEXTRACTF32X4 $1, Z0, X1                             \
	VEXTRACTF32X4 $2, Z0, X2                             \
	VEXTRACTF32X4 $3, Z0, X3                             \
	ADDQ          R13, SI                                \
	SUBQ          $4, R8                                 \
	CMPQ          BX, $4                                 \
	JLT           part4                                  \
	CMPQ          add+56(FP), $0                         \
	JNE           add4                                   \
	PUT4(X0)                                             \
	PUT4(X1)                                             \
	PUT4(X2)                                             \
	PUT4(X3)                                             \
	JMP           tile4                                  \
add4:                                                   \
	ADD4(X0)                                             \
	ADD4(X1)                                             \
	ADD4(X2)                                             \
	ADD4(X3)                                             \
	JMP           tile4                                  \
part4:                                                  \
	PUT(Z0)                                              \
	PUT(Z1)                                              \
	PUT(Z2)                                              \
	PUT(Z3)                                              \
	JMP           tile4                                  \
tile2:                                                  \
	CMPQ          R8, $2                                 \
	JLT           tile1                                  \
	MULTIPLYING                                          \
	MOVQ          R14, CX                                \
	NEGQ          CX                                     \
	ZERO4(Z0, Z1, Z4, Z5)                                \
	ZERO4(Z8, Z9, Z12, Z13)                              \
loop2:                                                  \
	LOAD2((SI), (SI)(R14*1), Z16, Z17, Z24, Z25)         \
	ROW2((DI)(CX*1), Z0, Z1, 0)                          \
	ROW2((R9)(CX*1), Z4, Z5, 4)                          \
	ROW2((R10)(CX*1), Z8, Z9, 8)                         \
	ROW2((R11)(CX*1), Z12, Z13, 12)                      \
	AHEAD2                                               \
	ADDQ          $64, SI                                \
	ADDQ          $64, CX                                \
	JNZ           loop2                                  \
	FOLDING                                              \
	HALVES(Z0, Z4, Z8, Z12)                              \
	HALVES(Z1, Z5, Z9, Z13)                              \
	LAST(Z0)                                             \
	LAST(Z1)                                             \
	RESULT(Z0)                                           \
	RESULT(Z1)                                           \
	PUT(Z0)                                              \
	PUT(Z1)                                              \
	ADDQ          R14, SI                                \
	SUBQ          $2, R8                                 \
	JMP           tile2                                  \
tile1:                                                  \
	TESTQ         R8, R8                                 \
	JZ            next                                   \
	MULTIPLYING                                          \
	MOVQ          R14, CX                                \
	NEGQ          CX                                     \
	ZERO4(Z0, Z4, Z8, Z12)                               \
loop1:                                                  \
	LOAD1((SI), Z16, Z24)                                \
	ROW1((DI)(CX*1), Z0, 0)                              \
	ROW1((R9)(CX*1), Z4, 4)                              \
	ROW1((R10)(CX*1), Z8, 8)                             \
	ROW1((R11)(CX*1), Z12, 12)                           \
	AHEAD2                                               \
	AHEAD2                                               \
	ADDQ          $64, SI                                \
	ADDQ          $64, CX                                \
	JNZ           loop1                                  \
	FOLDING                                              \
	HALVES(Z0, Z4, Z8, Z12)                              \
	LAST(Z0)                                             \
	RESULT(Z0)                                           \
	PUT(Z0)                                              \
next:                                                   \
	MOVQ          R11, DI                                \
	ADDQ          $16, y+0(FP)                           \
	SUBQ          $4, BX                                 \
	JGT           rows4                                  \
	VZEROUPPER                                           \
	RET
