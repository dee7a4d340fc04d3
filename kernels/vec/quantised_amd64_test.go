package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// With registers of 8 and of 16 lanes a dot product is that of the decoded row, bit for bit, beside any number of
// others. (Package kernels compares decoded rows with its decoders in Go.) The rows are random bytes: a sum that is a
// NaN equals any NaN.
func TestQuantisedDotsEqualDot(t *testing.T) {
	if !useQuantised() {
		t.Skip("wants a processor with AVX2 and F16C")
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), 8))
	for i, q := range []Quantised{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_XS, MXFP4, F8, G4_32,
		G4_64, G4_128} {
		finite := 0
		for range 100 {
			n, blocks := 1+r.IntN(5), 1+r.IntN(4)
			row := blocks * q.bytes
			x, rows := random(r, blocks*q.elements), make([]byte, n*row)
			for j := range rows {
				if rows[j] = byte(r.Uint32()); q == F8 && blocks < 3 {
					rows[j] &^= 8 // no code is a NaN
				}
			}
			values, want := make([]float32, len(x)), make([]float32, n)
			got, got8 := make([]float32, n), make([]float32, n)
			for j := range want {
				q.Decode(values, rows[j*row:][:row])
				without(func() { want[j] = Dot(values, x) })
			}
			q.Dots(got, rows, x)
			withoutAVX512(func() { q.Dots(got8, rows, x) })
			for j, w := range want {
				if !equalOrNaN(got[j], w) || !equalOrNaN(got8[j], w) {
					t.Fatalf("format %d, row %d of %d, %d blocks: %v and %v, wants %v", i, j, n, blocks, got[j],
						got8[j], w)
				}
				if !math.IsInf(float64(w), 0) && w == w {
					finite++
				}
			}
		}
		if finite < 100 {
			t.Errorf("format %d: only %d finite sums", i, finite)
		}
	}
}

func equalOrNaN(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}
