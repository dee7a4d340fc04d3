package kernels

import (
	"testing"

	"reel.internal/reel/kernels/internal/tune"
)

// What is handed over fits into the workspace and, as many rows at once as both kernels assume, into a block's shared
// memory with any format.
func TestHandedCodesFit(t *testing.T) {
	defer func(least int) { tune.LeastHanded = least }(tune.LeastHanded)
	tune.LeastHanded = 0
	for cols := codesChunk; cols <= 1<<17; cols += codesChunk {
		for n := 2; n <= codesTokens; n++ {
			if !canHandCodesOver(n, cols) {
				if cols <= 14336 {
					t.Errorf("%d rows of %d columns are not handed over", n, cols)
				}
				continue
			}
			at := handedCodes(0, n, cols)
			if end := int64(at.sums) + int64(cols/16*codesTokens*4); end > RoundedBytes(n, cols) {
				t.Errorf("%d rows of %d columns end at %d of %d bytes", n, cols, end, RoundedBytes(n, cols))
			}
			if at.scales < at.rows+uint64(2*n*cols) || at.sums < at.scales+4*codesTokens || at.sums%16 != 0 {
				t.Errorf("%d rows of %d columns lie at %+v", n, cols, at)
			}
			once := min(n, handedAtOnce(cols))
			for _, d := range []DType{Q4_0, Q4_K, Q6_K, F8} {
				row, sums := codesRowBytes(d, cols)
				if once*row+sums+codesStatic > blockShared || n > 2*once {
					t.Errorf("%d rows of %d columns at once, %d in all, of format %d", once, cols, n, d)
				}
			}
		}
	}
}

// Rows are handed over if that is faster than rounding them in each block, and if kernels can.
func TestWhichCodesAreHandedOver(t *testing.T) {
	for _, test := range []struct {
		n, cols int
		want    bool
	}{
		{8, 4096, true}, {6, 4096, true}, {5, 4096, false}, {3, 11008, true}, {2, 11008, false}, {1, 28672, false},
		{8, 14336, true}, {9, 11008, false}, {8, 11000, false}, {8, 28672, false}, {4, 28672, true},
	} {
		if got := canHandCodesOver(test.n, test.cols); got != test.want {
			t.Errorf("%d rows of %d columns: %t", test.n, test.cols, got)
		}
	}
}
