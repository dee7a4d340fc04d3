package format

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The tokens of a mask are those that both allow, of every number of words.
func TestIntersect(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := 1; n < 70; n++ {
		a, b, got, want := make([]uint32, n), make([]uint32, n), make([]uint32, n), make([]uint32, n)
		for round := range 4 {
			if i := r.IntN(n); round > 0 {
				a[i], b[i] = r.Uint32(), r.Uint32()
			}
			allowed := false
			for i := range a {
				got[i], want[i] = r.Uint32(), a[i]&b[i]
				allowed = allowed || want[i] != 0
			}
			if any := intersect(got, a, b); any != allowed || !slices.Equal(got, want) {
				t.Fatalf("%x and %x: %x, %t", a, b, got, any)
			}
		}
	}
}
