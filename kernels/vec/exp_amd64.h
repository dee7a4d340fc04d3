// The exponential of exp in softmax.go, step by step. R8 is the table of its constants.

// EXP replaces the differences in X by their exponentials. It overwrites M, T, N and P: the mask of the differences
// below -87, x·log2 e rounded with n in its low bits, n, and the polynomial.
#define EXP(X, M, T, N, P) \
	VCMPPS  $1, (R8), X, M \
	VMULPS  32(R8), X, T   \
	VADDPS  64(R8), T, T   \
	VSUBPS  64(R8), T, N   \
	VMULPS  96(R8), N, P   \
	VSUBPS  P, X, X        \
	VMULPS  128(R8), N, P  \
	VSUBPS  P, X, X        \
	VMULPS  160(R8), X, P  \
	VADDPS  192(R8), P, P  \
	VMULPS  X, P, P        \
	VADDPS  224(R8), P, P  \
	VMULPS  X, P, P        \
	VADDPS  256(R8), P, P  \
	VMULPS  X, P, P        \
	VADDPS  288(R8), P, P  \
	VMULPS  X, P, P        \
	VADDPS  320(R8), P, P  \
	VMULPS  X, X, N        \
	VMULPS  N, P, P        \
	VADDPS  X, P, P        \
	VADDPS  352(R8), P, P  \
	VPSLLD  $23, T, T      \
	VPADDD  352(R8), T, T  \
	VMULPS  T, P, P        \
	VANDNPS P, M, X

// EXP16_CONSTANTS loads the constants for EXP16.
#define EXP16_CONSTANTS                                 \
	VBROADCASTSS (R8), Z20 /* -87 */                    \
	VBROADCASTSS 32(R8), Z21 /* log2 e */               \
	VBROADCASTSS 64(R8), Z22 /* expRound */             \
	VBROADCASTSS 96(R8), Z23 /* ln 2, the first part */ \
	VBROADCASTSS 128(R8), Z24 /* and the rest */        \
	VBROADCASTSS 160(R8), Z25 /* the terms */           \
	VBROADCASTSS 192(R8), Z26                           \
	VBROADCASTSS 224(R8), Z27                           \
	VBROADCASTSS 256(R8), Z28                           \
	VBROADCASTSS 288(R8), Z29                           \
	VBROADCASTSS 320(R8), Z30                           \
	VBROADCASTSS 352(R8), Z31 /* 1 */

// EXP16 replaces the differences in Z3 by their exponentials. It overwrites Z4 to Z6 and K1.
#define EXP16                                                      \
	VCMPPS   $5, Z20, Z3, K1 /* not below -87; true for NaN */     \
	VMULPS   Z21, Z3, Z4                                           \
	VADDPS   Z22, Z4, Z4 /* x·log2 e rounded, n in its low bits */ \
	VSUBPS   Z22, Z4, Z5 /* n */                                   \
	VMULPS   Z23, Z5, Z6                                           \
	VSUBPS   Z6, Z3, Z3                                            \
	VMULPS   Z24, Z5, Z6                                           \
	VSUBPS   Z6, Z3, Z3 /* r */                                    \
	VMULPS   Z25, Z3, Z6                                           \
	VADDPS   Z26, Z6, Z6                                           \
	VMULPS   Z3, Z6, Z6                                            \
	VADDPS   Z27, Z6, Z6                                           \
	VMULPS   Z3, Z6, Z6                                            \
	VADDPS   Z28, Z6, Z6                                           \
	VMULPS   Z3, Z6, Z6                                            \
	VADDPS   Z29, Z6, Z6                                           \
	VMULPS   Z3, Z6, Z6                                            \
	VADDPS   Z30, Z6, Z6 /* p(r) */                                \
	VMULPS   Z3, Z3, Z5                                            \
	VMULPS   Z5, Z6, Z6                                            \
	VADDPS   Z3, Z6, Z6                                            \
	VADDPS   Z31, Z6, Z6 /* e^r */                                 \
	VPSLLD   $23, Z4, Z4                                           \
	VPADDD   Z31, Z4, Z4 /* 2^n */                                 \
	VMULPS.Z Z4, Z6, K1, Z3
