package vec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// Numbers are rounded to the nearest bfloat16, ties to even, and what is behind them becomes 0.
func TestRoundBF16(t *testing.T) {
	inf := float32(math.Inf(1))
	cases := []struct {
		bits uint32
		want uint16
	}{
		{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81},
		{0xbf818000, 0xbf82}, {0x7f7f8000, 0x7f80}, {0x7f7f7fff, 0x7f7f}, {math.Float32bits(inf), 0x7f80},
		{math.Float32bits(-inf), 0xff80}, {0x80000000, 0x8000}, {0x7f800001, 0x7fff}, {0xffffffff, 0x7fff},
	}
	for n := range 40 {
		x, y := make([]float32, n+len(cases)), make([]uint16, n+len(cases)+5)
		for i := range y {
			y[i] = 0x4242
		}
		for i, c := range cases {
			x[n+i] = math.Float32frombits(c.bits)
		}
		RoundBF16(y, x)
		for i := range y {
			var want uint16
			if at := i - n; at >= 0 && at < len(cases) {
				want = cases[at].want
			}
			if y[i] != want {
				t.Fatalf("element %d of %d is %#x, wants %#x", i, n, y[i], want)
			}
		}
	}
}

// Products are near sums in float64.
func TestProductsBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 3))
	for _, d := range []int{32, 64, 256, 896} {
		const n, T = 5, 7
		x, rows, y := randomBF16(r, T*d), randomBF16(r, n*d), make([]float32, T*n)
		ProductsBF16(y, x, bytesOf(rows), d, n, false)
		for k, got := range y {
			var want, size float64
			for i := range d {
				p := float64(BF16(x[k/n*d+i])) * float64(BF16(rows[k%n*d+i]))
				want, size = want+p, size+math.Abs(p)
			}
			if math.Abs(float64(got)-want) > 1e-6*size {
				t.Errorf("d=%d: %v, in float64 %v", d, got, want)
			}
		}
	}
}

// bytesOf returns numbers as they are in a row of a weight.
func bytesOf(numbers []uint16) []byte {
	b := make([]byte, 2*len(numbers))
	for i, v := range numbers {
		binary.LittleEndian.PutUint16(b[2*i:], v)
	}
	return b
}

// randomBF16 returns n normal numbers.
func randomBF16(r *rand.Rand, n int) []uint16 {
	x := make([]uint16, n)
	for i := range x {
		x[i] = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
	}
	return x
}

// The order is one sum after another: of odd elements before even ones, fused, and without denormals.
func TestOrderOfBF16(t *testing.T) {
	const one, half, tiny, least = 0x3f80, 0x3f00, 0x0040, 0x0080 // tiny is a denormal, least the least number above
	const big = 0x7f00                                            // 2^127
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name string
		w, x [4]uint16 // elements 0, 1, 32 and 33
		want float32
	}{
		{"a product", [4]uint16{one}, [4]uint16{half}, 0.5},
		{"1s are lost behind 2^24, the odd one", [4]uint16{one, 0x4b80, one}, [4]uint16{one, one, one}, 1 << 24},
		{"1 comes before 2^24", [4]uint16{one, one, 0x4b80}, [4]uint16{one, one, one}, 1<<24 + 2},
		{"no rounding between product and sum", [4]uint16{0xbf80, big}, [4]uint16{one, 0x4080}, inf},
		{"a product above all numbers", [4]uint16{big, 0xff00}, [4]uint16{0x4000, one}, 0x1p127},
		{"a denormal factor", [4]uint16{tiny}, [4]uint16{big}, 0},
		{"a denormal sum", [4]uint16{least}, [4]uint16{half}, 0},
		{"a denormal sum of two", [4]uint16{0x0081, 0x8080}, [4]uint16{one, one}, 0},
		{"below the least number by half a bit", [4]uint16{0x8080, least}, [4]uint16{0x3300, one}, 0x1p-126},
		{"below the least number by a bit", [4]uint16{0x8080, least}, [4]uint16{0x3380, one}, 0},
		{"infinity", [4]uint16{0x7f80}, [4]uint16{one}, inf},
	} {
		x, rows, y := make([]uint16, 64), make([]uint16, 64), []float32{0}
		for i, at := range []int{0, 1, 32, 33} {
			rows[at], x[at] = c.w[i], c.x[i]
		}
		if ProductsBF16(y, x, bytesOf(rows), 64, 1, false); y[0] != c.want {
			t.Errorf("%s: %v, want %v", c.name, y[0], c.want)
		}
	}
	for _, factors := range [][2]uint16{{0x7f80, 0}, {0x7f80, tiny}, {0x7fc1, one}, {0xffff, one}} {
		x, rows, y := make([]uint16, 32), make([]uint16, 32), []float32{0}
		rows[3], x[3] = factors[0], factors[1]
		if ProductsBF16(y, x, bytesOf(rows), 32, 1, false); math.Float32bits(y[0]) != 0x7fc00000 {
			t.Errorf("%#x: %#x", factors, math.Float32bits(y[0]))
		}
	}
}
