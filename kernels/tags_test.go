package kernels

import "testing"

// Kernels of tagged values are for whole blocks of bfloat16, and rows that fit in a block's memory.
func TestCanTag(t *testing.T) {
	for _, test := range []struct {
		rows, cols int
		dtype      DType
		normed     bool
		want       bool
	}{{32, 64, BF16, true, true}, {32, 64, F16, true, false}, {32, 64, F32, true, false}, {32, 64, Q8_0, true, false},
		{40, 64, BF16, true, true}, {32, 96, BF16, false, false},
		{16, 12032, BF16, true, true}, {16, 12096, BF16, true, false}, {16, 24064, BF16, false, true},
		{16, 24128, BF16, false, false}} {
		w := Weight{DType: test.dtype, Rows: test.rows, Cols: test.cols}
		if got := CanTag(test.normed, w); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
		if CanTag(test.normed, Weight{DType: BF16, Rows: 16, Cols: 64}, w) != test.want {
			t.Errorf("%+v is not looked at as the second weight", test)
		}
	}
}
