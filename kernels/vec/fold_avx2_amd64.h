// FOLD4 folds the 16 partial sums of four rows, in Y0 and Y1, Y2 and Y3, Y4 and Y5, Y6 and Y7, by halves, and leaves the
// four sums in X0.
#define FOLD4 \
	VADDPS Y1, Y0, Y0 \
	VADDPS Y3, Y2, Y2 \
	VADDPS Y5, Y4, Y4 \
	VADDPS Y7, Y6, Y6 \
	/* p[i] += p[i+4]: rows 0 and 1 in the halves of Y0, rows 2 and 3 in those of Y4 */ \
	VINSERTF128 $1, X2, Y0, Y1 \
	VPERM2F128  $0x31, Y2, Y0, Y3 \
	VINSERTF128 $1, X6, Y4, Y5 \
	VPERM2F128  $0x31, Y6, Y4, Y7 \
	VADDPS      Y3, Y1, Y0 \
	VADDPS      Y7, Y5, Y4 \
	/* p[i] += p[i+2]: in pairs, rows 0 and 2 in the low half of Y0, rows 1 and 3 in the high half */ \
	VUNPCKLPD Y4, Y0, Y1 \
	VUNPCKHPD Y4, Y0, Y2 \
	VADDPS    Y2, Y1, Y0 \
	/* p[0] += p[1] */ \
	VMOVSHDUP    Y0, Y1 \
	VADDPS       Y1, Y0, Y0 \
	VEXTRACTF128 $1, Y0, X1 \
	VSHUFPS      $0x88, X1, X0, X0 /* rows 0, 2, 1, 3 */ \
	VSHUFPS      $0xd8, X0, X0, X0
