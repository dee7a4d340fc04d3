package vec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Scaled and rotated rows have the same bits in assembly and in Go.
func TestRowsAssemblyEqualsGo(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 14))
	for _, n := range []int{2, 14, 16, 32, 40, 80, 128, 896} {
		x, g, f := random(r, n), random(r, n), float32(r.NormFloat64())
		wantScaled, wantRotated := make([]float32, n), slices.Clone(x)
		without(func() {
			Scale(wantScaled, x, g, f)
			Rotate(wantRotated, g)
		})
		for i := range n / 2 {
			a, b, cos, sin := x[i], x[i+n/2], g[2*i], g[2*i+1]
			if want := float32(a*cos) - float32(b*sin); wantRotated[i] != want {
				t.Fatalf("n=%d: element %d is %v, wants %v", n, i, wantRotated[i], want)
			}
			if want := float32(b*cos) + float32(a*sin); wantRotated[i+n/2] != want {
				t.Fatalf("n=%d: element %d is %v, wants %v", n, i+n/2, wantRotated[i+n/2], want)
			}
		}
		scaled, rotated := make([]float32, n), slices.Clone(x)
		Scale(scaled, x, g, f)
		Rotate(rotated, g)
		if !sameBits(scaled, wantScaled) || !sameBits(rotated, wantRotated) {
			t.Errorf("n=%d: %v and %v, in Go %v and %v", n, scaled, rotated, wantScaled, wantRotated)
		}
	}
}
