package cudatest

import (
	"math"
	"testing"
)

// notNumber returns the first of values that is NaN or infinite, and whether there is one.
func notNumber(values []float32) (float32, bool) {
	for _, v := range values {
		if v-v != 0 {
			return v, true
		}
	}
	return 0, false
}

func TestNotNumber(t *testing.T) {
	for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, found := notNumber([]float32{1, float32(odd)}); !found {
			t.Errorf("%v is taken for a number", odd)
		}
	}
	if v, found := notNumber([]float32{0, -1, math.MaxFloat32, math.SmallestNonzeroFloat32}); found {
		t.Errorf("%v is none", v)
	}
}
