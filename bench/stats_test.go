package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// near reports whether got is within a relative error of share of want.
func near(got, want, share float64) bool { return math.Abs(got-want) <= share*math.Abs(want) }

// upTo returns n, n-1, …, 1 milliseconds.
func upTo(n int) []time.Duration {
	var samples []time.Duration
	for i := n; i > 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	return samples
}

// TestSummarize: the histogram is exact to 0.1%.
func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		samples []time.Duration
		want    Summary
	}{
		{nil, Summary{}},
		{upTo(1), Summary{1, 1, 1, 1, 1, 1, 1}},
		{upTo(2), Summary{1, 1, 2, 2, 2, 1.5, 2}},
		{upTo(5), Summary{1, 3, 5, 5, 5, 3, 5}},
		{upTo(100), Summary{1, 50, 90, 99, 100, 50.5, 100}},
		{upTo(101), Summary{1, 51, 91, 100, 101, 51, 101}},
		{upTo(200), Summary{1, 100, 180, 198, 200, 100.5, 200}},
		{[]time.Duration{1500*time.Microsecond + 400}, Summary{1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1}},
		{[]time.Duration{-1, 2 * maxDuration}, Summary{0, 0, 3.6e6, 3.6e6, 3.6e6, 1.8e6, 2}},
	} {
		got := Summarize(c.samples)
		for _, v := range [][2]float64{
			{got.Min, c.want.Min}, {got.P50, c.want.P50}, {got.P90, c.want.P90},
			{got.P99, c.want.P99}, {got.Max, c.want.Max}, {got.Mean, c.want.Mean},
		} {
			if !near(v[0], v[1], 1e-3) || got.Samples != c.want.Samples {
				t.Errorf("%d samples: %+v, want %+v", len(c.samples), got, c.want)
				break
			}
		}
	}
}

func TestSummarizeLeavesSamplesInOrder(t *testing.T) {
	samples := upTo(3)
	Summarize(samples)
	if samples[0] != 3*time.Millisecond {
		t.Errorf("sorted in place: %v", samples)
	}
}

// TestPercentilesOfKnownDistributions compares percentiles of samples with those of their
// distributions. The tolerance is five standard errors of a quantile,
// sqrt(p(1-p)/n)/density.
func TestPercentilesOfKnownDistributions(t *testing.T) {
	const n = 50_000
	for name, d := range map[string]struct {
		draw    func(*rand.Rand) float64
		at      func(p float64) float64 // the quantile
		density func(x float64) float64
		mean    float64
	}{
		"uniform 10 to 20 ms": {func(r *rand.Rand) float64 { return 10 + 10*r.Float64() },
			func(p float64) float64 { return 10 + 10*p }, func(float64) float64 { return 0.1 }, 15},
		"exponential, mean 5 ms": {func(r *rand.Rand) float64 { return 5 * r.ExpFloat64() },
			func(p float64) float64 { return -5 * math.Log(1-p) },
			func(x float64) float64 { return math.Exp(-x/5) / 5 }, 5},
		"Pareto, 1 ms, shape 3": {func(r *rand.Rand) float64 { return math.Pow(1-r.Float64(), -1.0/3) },
			func(p float64) float64 { return math.Pow(1-p, -1.0/3) },
			func(x float64) float64 { return 3 * math.Pow(x, -4) }, 1.5},
	} {
		random, r := rand.New(rand.NewPCG(1, 2)), NewRecorder()
		for range n {
			r.Add(time.Duration(d.draw(random) * float64(time.Millisecond)))
		}
		got := r.Summary()
		for p, value := range map[float64]float64{0.5: got.P50, 0.9: got.P90, 0.99: got.P99} {
			want := d.at(p)
			if tolerance := 5*math.Sqrt(p*(1-p)/n)/d.density(want) + want/1000; math.Abs(value-want) > tolerance {
				t.Errorf("%s: P%g is %g, want %g ± %g", name, 100*p, value, want, tolerance)
			}
		}
		if !near(got.Mean, d.mean, 0.02) || got.Samples != n {
			t.Errorf("%s: %+v, want a mean of %g", name, got, d.mean)
		}
	}
}

func TestMedianAndMean(t *testing.T) {
	for _, c := range []struct {
		values       []float64
		median, mean float64
	}{{nil, 0, 0}, {[]float64{4}, 4, 4}, {[]float64{9, 1, 2}, 2, 4}, {[]float64{8, 1, 3, 4}, 3.5, 4}} {
		values := slices.Clone(c.values)
		if m, a := median(values), mean(values); m != c.median || a != c.mean || !slices.Equal(values, c.values) {
			t.Errorf("%v: median %g, mean %g", c.values, m, a)
		}
	}
}
