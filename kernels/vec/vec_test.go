package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Dot products are near float64 sums, and a row beside others gives the bits of the row
// alone.
func TestDotProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 2))
	for _, n := range []int{1, 7, 16, 33, 256, 1000} {
		w, x := make([]float32, n), make([]float32, 4*n)
		for _, s := range [][]float32{w, x} {
			for i := range s {
				s[i] = float32(r.NormFloat64())
			}
		}
		var four [4]float32
		DotRows(four[:], w, x, n, 4)
		for k := range four {
			row := x[k*n : (k+1)*n]
			var want, size float64
			for i := range row {
				p := float64(w[i]) * float64(row[i])
				want, size = want+p, size+math.Abs(p)
			}
			if alone := Dot(w, row); alone != four[k] {
				t.Errorf("n=%d: row %d alone is %v, beside others %v", n, k, alone, four[k])
			}
			if math.Abs(float64(four[k])-want) > 1e-6*size+1e-12 {
				t.Errorf("n=%d: %v, in float64 %v", n, four[k], want)
			}
		}
	}
}

// BenchmarkProducts measures four rows of a weight by some of activations, in the lengths of the embedded model's rows
// and of Qwen2.5-0.5B's.
func BenchmarkProducts(b *testing.B) {
	for _, d := range []int{256, 896, 4864} {
		for _, T := range []int{1, 4, 10, 64} {
			b.Run(fmt.Sprintf("d=%d,T=%d", d, T), func(b *testing.B) {
				y, x, rows := make([]float32, 4*T), make([]float32, T*d), make([]float32, 4*d)
				for b.Loop() {
					Products(y, x, rows, d, 4, false, nil)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*4*T*d), "ns/product")
			})
		}
	}
}

// BenchmarkProductsBF16 is BenchmarkProducts for bfloat16.
func BenchmarkProductsBF16(b *testing.B) {
	for _, d := range []int{256, 896, 4864} {
		for _, T := range []int{1, 4, 10, 64} {
			b.Run(fmt.Sprintf("d=%d,T=%d", d, T), func(b *testing.B) {
				y, x, rows := make([]float32, 4*T), make([]uint16, T*d), make([]byte, 8*d)
				for b.Loop() {
					ProductsBF16(y, x, rows, d, 4, false)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*4*T*d), "ns/product")
			})
		}
	}
}
