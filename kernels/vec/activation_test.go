package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// activations are the coefficients of SiLU, of gpt-oss's sigmoid and of GELU with tanh.
var activations = map[string][2]float32{"SiLU": {1, 0}, "gpt-oss": {1.702, 0}, "GELU": {1.5957692, 0.071354814}}

// act is Gate's function in float64.
func act(a float32, c [2]float32) float64 {
	x := float64(a)
	return x / (1 + math.Exp(-(float64(c[0])*x + float64(c[1])*x*x*x)))
}

// SiLU is within 4 units in the last place of float64's, over a random share of the float32, and -0 below -87.
func TestSiLUIsNearFloat64(t *testing.T) {
	stride := 1000 + rand.Uint32N(1000)
	for bits := uint32(0); bits < math.Float32bits(1e30); bits += stride {
		size := math.Float32frombits(bits)
		x := []float32{size, -size}
		Gate(x, []float32{1, 1}, 1, 0)
		for i, a := range []float32{size, -size} {
			want := act(a, [2]float32{1, 0})
			unit := math.Abs(float64(math.Nextafter32(float32(want), 2e30) - float32(want)))
			if small := a < -87 && x[i] == 0; !small && math.Abs(float64(x[i])-want) > 4*unit {
				t.Fatalf("silu(%v) is %v, wants %v", a, x[i], want)
			}
		}
	}
}

// The others are near float64's, relative to a, and multiplied by up.
func TestGateIsNearFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 11))
	for name, c := range activations {
		for range 2000 {
			a, up := float32(r.NormFloat64()*4), float32(r.NormFloat64())
			x := []float32{a}
			Gate(x, []float32{up}, c[0], c[1])
			if want := act(a, c) * float64(up); math.Abs(float64(x[0])-want) > 1e-6*math.Abs(float64(a*up)) {
				t.Fatalf("%s: %v times %v is %v, wants %v", name, a, up, x[0], want)
			}
		}
	}
}

// What is no number, or infinite, stays so; the largest numbers do not become NaN on the way.
func TestGateAtTheEnds(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, c := range activations {
		x := []float32{inf, nan, 3e38, -3e38, -1000, 1000}
		Gate(x, []float32{1, 1, 1, 1, 1, 1}, c[0], c[1])
		if x[0] != inf || x[1] == x[1] || x[2] != 3e38 || x[3] != 0 || x[4] != 0 || x[5] != 1000 {
			t.Errorf("%s: %v", name, x)
		}
	}
}

func BenchmarkGate(b *testing.B) {
	x, up := make([]float32, 4864), make([]float32, 4864)
	for b.Loop() {
		Gate(x, up, 1, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/element")
}
