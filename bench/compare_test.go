package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// latencyResult returns a result with one row whose runs have a mean TTFT of at.
func latencyResult(random *rand.Rand, at, spread float64, runs int) *Latency {
	l := &Latency{Head: Head{Kind: "latency"}}
	row := LatencyRow{Target: "reel", PromptTokens: 10}
	for range runs {
		v := at + spread*random.NormFloat64()
		row.Runs = append(row.Runs, Run{TTFT: v, ITLP50: v / 10, TokensPerS: 1e4 / v})
	}
	l.Rows = []LatencyRow{row}
	return l
}

func compare(t *testing.T, a, b Result) *Comparison {
	t.Helper()
	c, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNoiseIsNoVerdict: for results that differ only by noise, about one comparison in a
// hundred reports a difference.
func TestNoiseIsNoVerdict(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	const trials = 1000
	for _, runs := range []int{5, 10} {
		wrong := 0
		for range trials {
			c := compare(t, latencyResult(random, 20, 2, runs), latencyResult(random, 20, 2, runs))
			if c.Differences[0].Verdict != Same {
				wrong++
			}
		}
		if share := float64(wrong) / trials; share > 2*significance {
			t.Errorf("%d runs: a verdict on noise in %g of the comparisons", runs, share)
		}
	}
}

// TestDifferencesBeyondTheNoise: a longer time is worse, and a higher rate is better.
func TestDifferencesBeyondTheNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	slow, fast := latencyResult(random, 22, 0.3, 10), latencyResult(random, 20, 0.3, 10)
	for _, c := range []struct {
		a, b    Result
		verdict string
	}{{slow, fast, Better}, {fast, slow, Worse}, {slow, slow, Same}} {
		for _, d := range compare(t, c.a, c.b).Differences {
			if d.Verdict != c.verdict || (c.verdict == Same) != (d.Ratio == 1) {
				t.Errorf("%+v, want %s", d, c.verdict)
			}
		}
	}
	d := compare(t, slow, fast).Differences
	if len(d) != 3 || d[0].Name != "latency/reel/prompt=10/ttft" || !near(d[0].Ratio, 20.0/22, 0.02) ||
		!near(d[2].Ratio, 22.0/20, 0.02) {
		t.Errorf("got %+v", d)
	}
}

func TestTooFewRunsGiveNoVerdict(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	for _, d := range compare(t, latencyResult(random, 10, 0.1, 3), latencyResult(random, 99, 0.1, 10)).Differences {
		if d.Verdict != TooFew {
			t.Errorf("%+v", d)
		}
	}
}

func TestOtherDifferencesAreReported(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 4))
	a, b := latencyResult(random, 10, 1, 5), latencyResult(random, 10, 1, 5)
	a.Provenance.GPU, b.Provenance.GPU, b.Provenance.Model = "NVIDIA H200", "NVIDIA A100", "m"
	b.Rows = append(b.Rows, LatencyRow{Target: "reel", PromptTokens: 99})
	text := fmt.Sprint(compare(t, a, b).Tables()[0].Notes)
	for _, want := range []string{"not the same machine", "not the same model",
		"only in B: latency/reel/prompt=99/ttft"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if _, err := Compare(a, &Startup{Head: Head{Kind: "startup"}}); !errors.Is(err, ErrOptions) {
		t.Errorf("nothing in common: %v", err)
	}
}

func TestBenchstat(t *testing.T) {
	l := latencyResult(rand.New(rand.NewPCG(1, 5)), 10, 0, 2)
	l.Provenance = Provenance{CPU: "c p u", Commit: "abc"}
	var b strings.Builder
	if err := Benchstat(&b, l); err != nil {
		t.Fatal(err)
	}
	want := "pkg: reel/bench\ncpu: c p u\ncommit: abc\n" +
		strings.Repeat("BenchmarkLatency/reel/prompt=10/ttft 1 10 ms\n", 2) +
		strings.Repeat("BenchmarkLatency/reel/prompt=10/itl-p50 1 1 ms\n", 2) +
		strings.Repeat("BenchmarkLatency/reel/prompt=10/rate 1 1000 tok/s\n", 2)
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}
