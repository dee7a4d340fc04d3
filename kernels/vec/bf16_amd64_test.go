package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// strangeBF16 returns n numbers of all kinds: zeros, denormals, numbers whose products are near the least ones and the
// greatest, and now and then infinities and NaN.
func strangeBF16(r *rand.Rand, n int) []uint16 {
	x := make([]uint16, n)
	for i := range x {
		bits, sign := r.Uint32(), uint16(r.IntN(2)<<15)
		fraction := uint16(bits & 0x7f)
		switch bits >> 7 % 16 {
		case 0:
			x[i] = sign
		case 1:
			x[i] = sign | fraction
		case 2:
			x[i] = sign | 1<<7 | fraction
		case 3, 4, 5, 6:
			x[i] = sign | uint16(60+bits>>11%8)<<7 | fraction
		case 7:
			x[i] = sign | uint16(186+bits>>11%8)<<7 | fraction
		case 8:
			x[i] = uint16(bits >> 11)
			if bits>>27 > 0 {
				x[i] &^= 0x4000
			}
		default:
			x[i] = sign | uint16(120+bits>>11%16)<<7 | fraction
		}
	}
	return x
}

// Products have the bits of the loop in Go, stored or added, whatever the numbers are, and nothing beside them is
// written.
func TestProductsBF16EqualGo(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 20))
	for _, d := range []int{32, 64, 96, 256, 896} {
		for n := 1; n <= 9; n++ {
			for _, numbers := range []func(*rand.Rand, int) []uint16{randomBF16, strangeBF16} {
				T, add := 1+r.IntN(11), r.IntN(2) == 1
				stride := n + r.IntN(3)
				x, rows, before := numbers(r, T*d), numbers(r, n*d), random(r, T*stride+16)
				want := slices.Clone(before)
				without(func() { ProductsBF16(want, x, bytesOf(rows), d, stride, add) })
				for name, way := range ways {
					got := slices.Clone(before)
					way(func() { ProductsBF16(got, x, bytesOf(rows), d, stride, add) })
					if !sameBits(got, want) {
						t.Fatalf("%s, %d by %d rows of %d, added %v: %v, want %v", name, T, n, d, add, got, want)
					}
				}
			}
		}
	}
}

// Each partial sum, of which one row has one alone, has the bits of the loop in Go.
func TestPartialSumsOfBF16EqualGo(t *testing.T) {
	const d, n, T = 96, 16, 4
	r := rand.New(rand.NewPCG(rand.Uint64(), 21))
	kinds := make(map[bool]int)
	for range 2000 {
		x, rows := strangeBF16(r, T*d), strangeBF16(r, n*d)
		for i := range rows {
			if i%d%32/2 != i/d {
				rows[i] = 0
			}
		}
		for i, v := range x { // infinities times zeros would be in all sums
			if v&0x7f80 == 0x7f80 {
				x[i] = v & 0x80ff
			}
		}
		want := make([]float32, n*T)
		without(func() { ProductsBF16(want, x, bytesOf(rows), d, n, false) })
		for name, way := range ways {
			got := make([]float32, n*T)
			way(func() { ProductsBF16(got, x, bytesOf(rows), d, n, false) })
			if !sameBits(got, want) {
				t.Fatalf("%s: %v, want %v, of %#x and %#x", name, got, want, x, rows)
			}
		}
		for _, v := range want {
			kinds[v != 0 && !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)]++
		}
	}
	if kinds[true] < kinds[false] {
		t.Errorf("%d sums are numbers above 0, %d not", kinds[true], kinds[false])
	}
}

// Loops that take denormals as 0 leave the processor as it was.
func TestDenormalsStay(t *testing.T) {
	least := math.Float32frombits(1)
	for name, way := range ways {
		way(func() { ProductsBF16([]float32{0}, make([]uint16, 32), make([]byte, 64), 32, 1, false) })
		if got := least * 3; math.Float32bits(got) != 3 {
			t.Errorf("%s: 3 times the least number is %v", name, got)
		}
	}
}

// Rounding has the bits of the loop in Go.
func TestRoundBF16EqualsGo(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 22))
	x := make([]float32, 1<<16+5)
	for i := range x {
		x[i] = math.Float32frombits(r.Uint32())
		if i%8 == 0 { // ties
			x[i] = math.Float32frombits(r.Uint32()&^0xffff | 0x8000)
		}
	}
	got, want := make([]uint16, len(x)), make([]uint16, len(x))
	RoundBF16(got, x)
	without(func() { RoundBF16(want, x) })
	if !slices.Equal(got, want) {
		t.Error("the numbers differ")
	}
}
