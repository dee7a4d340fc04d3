package kernels

import "testing"

// Kernels of tagged values are for whole blocks of bfloat16 and of usual formats, and rows that fit in a block's memory.
func TestCanTag(t *testing.T) {
	for _, test := range []struct {
		rows, cols int
		dtype      DType
		normed     bool
		want       bool
	}{{32, 64, BF16, true, true}, {32, 64, F16, true, false}, {32, 64, F32, true, false}, {32, 64, Q8_0, true, true},
		{32, 256, Q4_K, true, true}, {32, 256, Q6_K, false, true}, {32, 128, F8, false, true}, {32, 128, G4_128, true, true},
		{32, 256, IQ4_XS, true, false}, {32, 64, MXFP4, false, false}, {32, 64, Q4_1, true, false}, {32, 64, G4_32, true, false},
		{32, 96, Q8_0, true, false}, {32, 64, Q4_0, true, false}, // whose pass is slower with them
		{32, 64 << 10, Q4_K, true, true}, {32, 72 << 10, Q4_K, true, false},
		{32, 48 << 10, Q8_0, true, true}, {32, 64 << 10, Q8_0, true, false}, // no room for the ring of gates
		{40, 64, BF16, true, true}, {32, 96, BF16, false, false},
		{16, 12032, BF16, true, true}, {16, 12096, BF16, true, false}, {16, 24064, BF16, false, true},
		{16, 24128, BF16, false, false}} {
		w := Weight{DType: test.dtype, Rows: test.rows, Cols: test.cols}
		if got := CanTag(test.normed, w); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
		first := Weight{DType: BF16, Rows: 16, Cols: 64}
		if test.dtype.Quantised() {
			first.DType = Q8_0
		}
		if CanTag(test.normed, first, w) != test.want {
			t.Errorf("%+v is not looked at as the second weight", test)
		}
		if first.DType = BF16 + Q8_0 - first.DType; CanTag(test.normed, first, w) {
			t.Errorf("%+v beside a weight of the other kind", test)
		}
	}
}

// Attention with tagged values has heads of 64 or 128, of 64 with sinks, and keys and values in bfloat16.
func TestCanTagHeads(t *testing.T) {
	for _, test := range []struct {
		dim         int
		kv          DType
		sinks, want bool
	}{{64, BF16, false, true}, {128, BF16, false, true}, {64, BF16, true, true}, {128, BF16, true, false},
		{96, BF16, false, false}, {32, BF16, true, false}, {64, F32, true, false}, {128, F16, false, false}} {
		if got := CanTagHeads(test.dim, test.kv, test.sinks); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
