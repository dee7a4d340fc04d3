package kernels

import "testing"

// The ring of every format has stages enough for the staged results of an output tile, and fits.
func TestCodesRing(t *testing.T) {
	for _, format := range usualFormats {
		for _, tokens := range codesTokenTiles {
			stages, shared := codesRing(format, tokens)
			staged := tokens * (streamKTiles*tileRows + 4) * 4
			if staged > stages*tokens*tokenBlockBytes || shared > 227<<10 || stages*16+32 > 512 {
				t.Errorf("format %d, %d tokens: %d stages in %d bytes", format, tokens, stages, shared)
			}
		}
	}
}

// Quantised weights that stream-K multiplies hand binary16 over to each other, and to and from float16. Others hand
// nothing over, nor do quantised weights row by row.
func TestHandoverOfCodes(t *testing.T) {
	w := func(d DType) Weight { return Weight{DType: d, Layout: Codes} }
	row := func(d DType) Weight { return Weight{DType: d} }
	for _, test := range []struct {
		from, to []Weight
		want     bool
	}{
		{[]Weight{w(Q8_0)}, []Weight{w(Q6_K), w(Q6_K)}, true}, {[]Weight{w(Q6_K)}, []Weight{w(Q4_K), w(Q4_K), w(Q6_K)}, true},
		{[]Weight{w(Q4_K), w(Q4_K)}, []Weight{row(F16)}, true}, {[]Weight{row(F16)}, []Weight{w(Q4_K)}, true},
		{[]Weight{row(BF16)}, []Weight{w(Q8_0)}, false}, {[]Weight{w(Q8_0)}, []Weight{row(BF16)}, false},
		{[]Weight{w(Q8_0)}, []Weight{w(Q4_1)}, false}, {[]Weight{w(Q5_1)}, []Weight{w(Q8_0)}, false},
		{[]Weight{row(Q8_0)}, []Weight{row(Q8_0)}, false}, {[]Weight{w(Q8_0)}, []Weight{w(Q8_0), row(BF16)}, false},
		{[]Weight{row(F16)}, []Weight{row(F16), row(F16)}, true}, {[]Weight{row(F32)}, []Weight{row(BF16)}, true},
		{[]Weight{row(F16)}, []Weight{row(F16), row(BF16)}, false},
	} {
		if got := Prefill.HandsOver(test.from, test.to); got != test.want {
			t.Errorf("%v to %v: %t", test.from, test.to, got)
		}
	}
}
