package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// without runs fn with the assembly turned off.
func without(fn func()) {
	defer func(on bool) { useAVX2 = on }(useAVX2)
	useAVX2 = false
	withoutAVX512(fn)
}

// withoutAVX512 runs fn with the loops for AVX-512 turned off.
func withoutAVX512(fn func()) {
	defer func(on bool) { useAVX512 = on }(useAVX512)
	useAVX512 = false
	fn()
}

// withoutDotBF16 runs fn with the loop for VDPBF16PS turned off.
func withoutDotBF16(fn func()) {
	defer func(on bool) { useDotBF16 = on }(useDotBF16)
	useDotBF16 = false
	fn()
}

// ways run a function with each kind of loop that the processor has.
var ways = map[string]func(func()){"the best": func(fn func()) { fn() }, "AVX-512 without BF16": withoutDotBF16,
	"AVX2": withoutAVX512, "Go": without}

// sameBits reports whether all elements have equal bits, the signs of zeros included.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// random16 returns the bytes of n finite float16.
func random16(r *rand.Rand, n int) []byte {
	b := make([]byte, 2*n)
	for i, f := range random(r, n) {
		binary.LittleEndian.PutUint16(b[2*i:], uint16(math.Float32bits(f)>>16)&^(1<<14))
	}
	return b
}

// The assembly gives the bits of the Go loops, so results are the same on every machine.
func TestAssemblyEqualsGoBitForBit(t *testing.T) {
	if !useAVX2 {
		t.Skip("wants a processor with AVX2")
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for _, n := range []int{1, 8, 15, 16, 17, 31, 48, 64, 100, 256, 704, 1000} {
		a, b := random(r, n), random(r, n)
		f := float32(r.NormFloat64())
		got := Dot(a, b)
		gotSum := append([]float32(nil), a...)
		AddScaled(gotSum, b, f)
		without(func() {
			if want := Dot(a, b); got != want {
				t.Errorf("n=%d: dot product %v, in Go %v", n, got, want)
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

// Several rows and heads at once give the bits of one after another in Go, in assembly and in Go.
func TestRowsEqualOneAfterAnother(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 2))
	for _, d := range []int{1, 7, 8, 16, 24, 32, 40, 48, 64, 80, 128, 256, 272} {
		for _, n := range []int{0, 1, 3, 4, 7, 15, 16, 17} {
			heads, stride := 1+r.IntN(14), n+r.IntN(9)
			a, rows, f := random(r, heads*d), random(r, n*d), random(r, heads*stride)
			wantProducts, wantSum := slices.Clone(f), slices.Clone(a)
			without(func() {
				for h := range heads {
					for i := range n {
						row := rows[i*d:][:d]
						wantProducts[h*stride+i] = Dot(a[h*d:][:d], row)
						AddScaled(wantSum[h*d:][:d], row, f[h*stride+i])
					}
				}
			})
			for name, way := range ways {
				products, sum := slices.Clone(f), slices.Clone(a)
				way(func() {
					DotRows(products, a, rows, d, stride)
					AddScaledRows(sum, rows, f, d, stride)
				})
				if !sameBits(products, wantProducts) {
					t.Errorf("%s, %d heads, %d rows of %d: products %v, want %v", name, heads, n, d, products,
						wantProducts)
				}
				if !sameBits(sum, wantSum) {
					t.Errorf("%s, %d heads, %d rows of %d: sum %v, want %v", name, heads, n, d, sum, wantSum)
				}
			}
		}
	}
}

// A sum of products that are all -0 is 0, with any number of heads: the loops begin with 0.
func TestSumOfNegativeZeros(t *testing.T) {
	const d, n, most = 32, 16, 9
	a, rows := make([]float32, most*d), slices.Repeat([]float32{1}, n*d)
	for i := range a {
		a[i] = float32(math.Copysign(0, -1))
	}
	for name, way := range ways {
		for heads := 1; heads <= most; heads++ {
			products := make([]float32, heads*n)
			way(func() { DotRows(products, a[:heads*d], rows, d, n) })
			if !sameBits(products, make([]float32, heads*n)) {
				t.Errorf("%s, %d heads: %v", name, heads, products)
			}
		}
	}
}

// Products of several rows have the bits of Dot, stored or added, and nothing beside them is written.
func TestProductsEqualDot(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 10))
	for _, d := range []int{1, 15, 16, 33, 48, 256, 896} {
		for n := 1; n <= 9; n++ {
			T, add := 1+r.IntN(11), r.IntN(2) == 1
			stride := n + r.IntN(3)
			x, rows, before := random(r, T*d), random(r, n*d), random(r, T*stride+16)
			want := slices.Clone(before)
			without(func() {
				for i := range T * n {
					v := Dot(x[i/n*d:][:d], rows[i%n*d:][:d])
					if add {
						v += want[i/n*stride+i%n]
					}
					want[i/n*stride+i%n] = v
				}
			})
			for name, way := range ways {
				got := slices.Clone(before)
				way(func() { Products(got, x, rows, d, stride, add, nil) })
				if !sameBits(got, want) {
					t.Errorf("%s, %d by %d rows of %d, added %v: %v, want %v", name, T, n, d, add, got, want)
				}
			}
		}
	}
}

// Dot products of rows of float16 have the bits of one row after another in Go.
func TestDotsOfFloat16EqualGo(t *testing.T) {
	if !useQuantised() {
		t.Skip("wants a processor with AVX2 and F16C")
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), 13))
	for _, d := range []int{16, 32, 48, 64, 80, 112, 256, 896} {
		for n := 1; n <= 9; n++ {
			rows, x, values, want := random16(r, n*d), random(r, d), make([]float32, n*d), make([]float32, n)
			RowF16.Decode(values, rows)
			for i := range n {
				want[i] = Dot(values[i*d:][:d], x)
			}
			for _, name := range []string{"the best", "AVX2"} {
				got := make([]float32, n)
				ways[name](func() {
					if !RowF16.Dots(got, rows, x) {
						t.Fatal("no loop")
					}
				})
				if !sameBits(got, want) {
					t.Errorf("%s, %d rows of %d: %v, want %v", name, n, d, got, want)
				}
			}
		}
	}
	if RowF16.Dots(make([]float32, 1), make([]byte, 34), make([]float32, 17)) {
		t.Error("a loop takes a part of a block")
	}
}
