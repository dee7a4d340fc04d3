package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// without runs fn with the assembly turned off.
func without(fn func()) {
	defer func(on bool) { useAVX2 = on }(useAVX2)
	useAVX2 = false
	fn()
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func randomBF16(r *rand.Rand, n int) []uint16 {
	w := make([]uint16, n)
	for i, f := range random(r, n) {
		w[i] = uint16(math.Float32bits(f) >> 16)
	}
	return w
}

// The assembly gives the bits of the Go loops, so results are the same on every machine.
func TestAssemblyEqualsGoBitForBit(t *testing.T) {
	if !useAVX2 {
		t.Skip("wants a processor with AVX2")
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for _, n := range []int{1, 8, 15, 16, 17, 31, 48, 64, 100, 256, 704, 1000} {
		w, a, b, four := randomBF16(r, n), random(r, n), random(r, n), random(r, 4*n+5)
		f := float32(r.NormFloat64())
		got := [3]float32{DotBF16(w, a), Dot(a, b), 0}
		gotFour := DotBF16x4(w, four, n+1)
		gotSum := append([]float32(nil), a...)
		AddScaled(gotSum, b, f)
		without(func() {
			want := [3]float32{DotBF16(w, a), Dot(a, b), 0}
			if got != want {
				t.Errorf("n=%d: dot products %v, in Go %v", n, got, want)
			}
			if want := DotBF16x4(w, four, n+1); gotFour != want {
				t.Errorf("n=%d: four dot products %v, in Go %v", n, gotFour, want)
			}
			want1 := append([]float32(nil), a...)
			AddScaled(want1, b, f)
			for i := range want1 {
				if want1[i] != gotSum[i] {
					t.Fatalf("n=%d: scaled sum differs at %d", n, i)
				}
			}
		})
	}
}

// Several rows and heads at once give the bits of one after another, in assembly and in Go.
func TestRowsEqualOneAfterAnother(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 2))
	for _, d := range []int{1, 7, 8, 16, 24, 32, 40, 48, 64, 80, 128} {
		for _, n := range []int{0, 1, 3, 4, 7, 16} {
			heads, stride := 1+r.IntN(4), n+r.IntN(9)
			a, rows, f := random(r, heads*d), random(r, n*d), random(r, heads*stride)
			for _, way := range []func(func()){func(fn func()) { fn() }, without} {
				way(func() {
					products, sum := slices.Clone(f), slices.Clone(a)
					wantProducts, wantSum := slices.Clone(f), slices.Clone(a)
					DotRows(products, a, rows, d, stride)
					AddScaledRows(sum, rows, f, d, stride)
					for h := range heads {
						for i := range n {
							row := rows[i*d:][:d]
							wantProducts[h*stride+i] = Dot(a[h*d:][:d], row)
							AddScaled(wantSum[h*d:][:d], row, f[h*stride+i])
						}
					}
					if !slices.Equal(products, wantProducts) {
						t.Errorf("%d rows of %d: products %v, want %v", n, d, products, wantProducts)
					}
					if !slices.Equal(sum, wantSum) {
						t.Errorf("%d rows of %d: sum %v, want %v", n, d, sum, wantSum)
					}
				})
			}
		}
	}
}
