package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The assembly gives the weights and the sum of the Go loops, bit for bit.
func TestSoftmaxAssemblyEqualsGo(t *testing.T) {
	if !useAVX2 {
		t.Skip("wants a processor with AVX2")
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), 4))
	for _, n := range scoreLengths {
		for range 20 {
			scale, x := float32(r.ExpFloat64()), randomScores(r, n)
			want, sum, logSum := slices.Clone(x), float32(0), 0.0
			without(func() { sum, logSum = SoftmaxWeights(want, scale), LogSumExp(x) })
			for name, way := range ways {
				way(func() {
					got := slices.Clone(x)
					if s := SoftmaxWeights(got, scale); s != sum || !sameBits(want, got) {
						t.Fatalf("n=%d, %s: sum %v of %v, in Go %v of %v", n, name, s, got, sum, want)
					}
					if got := LogSumExp(x); got != logSum {
						t.Fatalf("n=%d, %s: logarithm %v, in Go %v", n, name, got, logSum)
					}
				})
			}
		}
	}
}

// A NaN anywhere makes the sum NaN, in assembly and in Go.
func TestSoftmaxWeightsOfNaN(t *testing.T) {
	for at := range 40 {
		for _, way := range ways {
			way(func() {
				x := make([]float32, 40)
				x[at] = float32(math.NaN())
				if sum := SoftmaxWeights(x, 1); sum == sum {
					t.Errorf("sum %v with a NaN at %d", sum, at)
				}
			})
		}
	}
}
