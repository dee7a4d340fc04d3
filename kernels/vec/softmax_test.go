package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// exp is within 1 unit in the last place of float64's, over a random share of the float32, and exact at its ends.
func TestExpIsNearFloat64(t *testing.T) {
	stride := 1000 + rand.Uint32N(1000)
	for bits := math.Float32bits(0); bits <= math.Float32bits(87); bits += stride {
		x := -math.Float32frombits(bits)
		got, want := exp(x), math.Exp(float64(x))
		unit := math.Nextafter32(float32(want), 2) - float32(want)
		if math.Abs(float64(got)-want) > float64(unit) {
			t.Fatalf("exp(%v) is %v, wants %v", x, got, want)
		}
	}
	for x, want := range map[float32]float32{0: 1, -87: float32(math.Exp(-87)), -87.00001: 0, -1e4: 0, -1e38: 0,
		float32(math.Inf(-1)): 0} {
		if got := exp(x); got != want {
			t.Errorf("exp(%v) is %v, wants %v", x, got, want)
		}
	}
	if got := exp(float32(math.NaN())); got == got {
		t.Errorf("exp(NaN) is %v", got)
	}
}

// randomScores returns n scores above and below the range of exp, of which the largest is finite.
func randomScores(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch x[i] = float32(r.NormFloat64()); r.IntN(8) {
		case 0:
			x[i] *= 100
		case 1:
			x[i] = [...]float32{float32(math.Inf(-1)), -1e30, 0, -87}[r.IntN(4)]
		}
	}
	if n > 0 {
		x[r.IntN(n)] = 3
	}
	return x
}

var scoreLengths = []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 100, 1000}

// Weights and their sum are near float64's for any length.
func TestSoftmaxWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 3))
	for _, n := range scoreLengths {
		scale, x, most := float32(r.ExpFloat64()), randomScores(r, n), float32(math.Inf(-1))
		got := append([]float32(nil), x...)
		sum, exact := SoftmaxWeights(got, scale), 0.0
		for i := range x {
			x[i] *= scale
			most = max(most, x[i])
		}
		for i, v := range x {
			want := math.Exp(float64(v - most))
			exact += want
			if math.Abs(float64(got[i])-want) > 1.2e-7*want+2e-38 {
				t.Errorf("n=%d: weight %d is %v, wants %v", n, i, got[i], want)
			}
		}
		if math.Abs(float64(sum)-exact) > 1e-6*exact {
			t.Errorf("n=%d: sum %v, wants %v", n, sum, exact)
		}
	}
}

// A capped score is near float64's, for scores beside the cap and far beyond it.
func TestSoftcap(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 8))
	for range 1000 {
		x, scale, y := float32(r.NormFloat64()*math.Pow(10, r.Float64()*8-4)), r.Float32(), 50*r.Float32()+1e-3
		got := []float32{x, -x}
		Softcap(got, scale, y)
		want := float64(y) * math.Tanh(float64(x)*float64(scale)/float64(y))
		if math.Abs(float64(got[0])-want) > 2e-7*float64(y) || got[0] != -got[1] {
			t.Fatalf("%v and %v, times %v under %v: %v, wants %v", x, -x, scale, y, got, want)
		}
	}
	x := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	Softcap(x, 1, 5)
	if x[0] == x[0] || x[1] != 5 || x[2] != -5 {
		t.Errorf("of NaN and infinities: %v", x)
	}
}

// LogSumExp is near float64's for any length, and NaN with a NaN anywhere.
func TestLogSumExp(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 15))
	for _, n := range append(scoreLengths[1:], sumBlock, sumBlock+1, 5000) {
		x, sum := randomScores(r, n), 0.0
		for _, v := range x {
			sum += math.Exp(float64(v))
		}
		if got, want := LogSumExp(x), math.Log(sum); math.Abs(got-want) > 2e-6*max(1, math.Abs(want)) {
			t.Errorf("n=%d: %v, wants %v", n, got, want)
		}
		x[r.IntN(n)] = float32(math.NaN())
		if got := LogSumExp(x); got == got {
			t.Errorf("n=%d: %v with a NaN", n, got)
		}
	}
}

func BenchmarkSoftmaxWeights(b *testing.B) {
	x := make([]float32, 1024)
	for b.Loop() {
		SoftmaxWeights(x, 1)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/key")
}
