package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The assembly gives the bits of the Go loop, also at the ends of what float32 holds.
func TestGateAssemblyEqualsGo(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 12))
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)),
		float32(math.NaN()), 87, -87, 87.5, -87.5, 1e-40, -1e-40, 3e38, -3e38}
	for _, n := range []int{1, 15, 16, 17, 48, 100, 1000} {
		for name, c := range activations {
			x, up := random(r, n), random(r, n)
			for i := range x {
				if x[i] *= 40; r.IntN(4) == 0 {
					x[i] = special[r.IntN(len(special))]
				}
			}
			want := slices.Clone(x)
			without(func() { Gate(want, up, c[0], c[1]) })
			for kind, way := range ways {
				got := slices.Clone(x)
				way(func() { Gate(got, up, c[0], c[1]) })
				if !sameBits(got, want) {
					t.Errorf("%s, %s, n=%d: %v, in Go %v", kind, name, n, got, want)
				}
			}
		}
	}
}
