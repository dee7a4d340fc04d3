package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// server is a target that takes 5 ms to a request's first token and 1 ms for each further
// one, and stalls for a while.
type server struct {
	begun       time.Time
	stall, over time.Duration // begin and end of the stall, since begun
	fail        func(n int) error
	mu          sync.Mutex
	asked       []time.Duration
}

func (s *server) Name() string { return "server" }

// wait sleeps for d, and during the stall.
func (s *server) wait(ctx context.Context, d time.Duration) {
	pause(ctx, d)
	if at := time.Since(s.begun); at >= s.stall && at < s.over {
		pause(ctx, s.over-at)
	}
}

func (s *server) Complete(ctx context.Context, w Work, arrived func()) (Ended, error) {
	s.mu.Lock()
	s.asked = append(s.asked, time.Since(s.begun))
	n := len(s.asked)
	s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(n); err != nil {
			return Ended{}, err
		}
	}
	s.wait(ctx, 5*time.Millisecond)
	for i := range w.MaxTokens {
		if i > 0 {
			s.wait(ctx, time.Millisecond)
		}
		if ctx.Err() != nil {
			return Ended{}, ctx.Err()
		}
		arrived()
	}
	return Ended{PromptTokens: len(w.Tokens), Tokens: w.MaxTokens, Reason: "length"}, nil
}

var fixed = Workload{Prompt: Lengths{8, 8}, Output: Lengths{16, 16}}

// throughputOf measures s by simulated time.
func throughputOf(t *testing.T, s *server, o LoadOptions) (report *Throughput) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.begun = time.Now()
		var err error
		if report, err = MeasureThroughput(t.Context(), []Target{s}, limits(512), o); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

func TestClosedLoop(t *testing.T) {
	s := &server{}
	got := throughputOf(t, s, LoadOptions{Concurrency: []int{1, 3},
		Duration: 2 * time.Second, Warmup: time.Second, Drain: time.Second, Workload: fixed})
	for i, n := range []float64{1, 3} { // a request takes 20 ms
		r := got.Rows[i]
		if !near(r.TokensPerS, n*16/0.020, 0.01) || !near(r.RequestsPerS, n/0.020, 0.01) ||
			!near(float64(r.Requests), n*100, 0.02) || !near(float64(r.Warmups), n*50, 0.02) {
			t.Errorf("%g clients: %+v", n, r)
		}
		if !near(r.TTFT.P50, 5, 0.01) || !near(r.ITL.P99, 1, 0.01) || !near(r.TPOT.P50, 1, 0.01) ||
			!near(r.E2E.P50, 20, 0.01) || r.Failed != 0 || r.GoodputPerS != nil {
			t.Errorf("%g clients: %+v", n, r)
		}
		for _, s := range r.Slices {
			if !near(s.TokensPerS, n*16/0.020, 0.05) || !near(s.TTFTP50, 5, 0.01) {
				t.Errorf("%g clients, slice: %+v", n, s)
			}
		}
	}
}

// TestStallShowsInTheOpenLoop: a stall of a second delays every request that was due in
// that second. A closed loop sends one request in it, which hides the stall.
func TestStallShowsInTheOpenLoop(t *testing.T) {
	stall := func() *server { return &server{stall: 3 * time.Second, over: 4 * time.Second} }
	o := LoadOptions{Rates: []float64{100}, Duration: 5 * time.Second, Warmup: time.Second,
		Drain: 5 * time.Second, Workload: fixed, Seed: 1}
	open := throughputOf(t, stall(), o).Rows[0]
	o.Rates, o.Concurrency = nil, []int{1}
	closed := throughputOf(t, stall(), o).Rows[0]
	// A fifth of the requests are due in the stall, and wait 0 to 1 s for its end.
	if !near(open.TTFT.P99, 950, 0.1) || !near(open.TTFT.P90, 500, 0.25) || open.TTFT.Max > 1020 ||
		!near(open.TTFT.P50, 5, 0.05) {
		t.Errorf("the open loop's TTFT: %+v", open.TTFT)
	}
	if closed.TTFT.P99 > 20 {
		t.Errorf("the closed loop's TTFT: %+v", closed.TTFT)
	}
}

// TestOpenLoopIsPoisson: times between arrivals are exponential, so their mean and their
// standard deviation are the inverse of the rate.
func TestOpenLoopIsPoisson(t *testing.T) {
	s := &server{}
	got := throughputOf(t, s, LoadOptions{Rates: []float64{200},
		Duration: 20 * time.Second, Drain: time.Second, Workload: fixed, Seed: 3})
	var gaps []float64
	for i := 1; i < len(s.asked); i++ {
		gaps = append(gaps, (s.asked[i] - s.asked[i-1]).Seconds())
	}
	m, squares := mean(gaps), 0.0
	for _, g := range gaps {
		squares += (g - m) * (g - m)
	}
	deviation := math.Sqrt(squares / float64(len(gaps)))
	if !near(m, 0.005, 0.08) || !near(deviation, 0.005, 0.12) {
		t.Errorf("%d requests, %g s apart ± %g", len(s.asked), m, deviation)
	}
	if r := got.Rows[0]; r.Requests != len(s.asked) || !near(r.RequestsPerS, 200, 0.08) {
		t.Errorf("got %+v", r)
	}
}

// TestOverloadIsNotHidden: requests that can't be served in time are cut off and counted as
// failed, and their waiting time counts in TTFT.
func TestOverloadIsNotHidden(t *testing.T) {
	s := &server{stall: 0, over: time.Hour}
	r := throughputOf(t, s, LoadOptions{Rates: []float64{50},
		Duration: 2 * time.Second, Drain: 3 * time.Second, Workload: fixed, Seed: 1})
	row := r.Rows[0]
	if row.Failed != row.Requests || row.Requests < 50 || row.TTFT.Min < 2900 || row.TokensPerS != 0 ||
		row.Failures["not finished at the end"] != row.Failed {
		t.Errorf("got %+v", row)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "requests failed") {
		t.Errorf("warned of %q", r.Warnings)
	}
}

func TestFailuresAreCounted(t *testing.T) {
	s := &server{fail: func(n int) error {
		if n%4 == 0 {
			return errors.New("busy")
		}
		return nil
	}}
	r := throughputOf(t, s, LoadOptions{Concurrency: []int{2}, Duration: time.Second, Drain: time.Second,
		Workload: fixed, SLO: SLO{TTFT: time.Second}}).Rows[0]
	if !near(float64(r.Failed), float64(r.Requests)/4, 0.1) || r.Failures["busy"] != r.Failed ||
		!near(*r.GoodputPerS, float64(r.Requests-r.Failed), 1e-9) || r.TTFT.Min < 4.9 {
		t.Errorf("got %+v", r)
	}
}

// TestLoadsAlternate: the targets alternate in going first, and get the same requests.
func TestLoadsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		a := &paced{name: "a", times: every(16, 5*time.Millisecond, time.Millisecond), order: &order}
		b := &paced{name: "b", times: every(16, 9*time.Millisecond, time.Millisecond), order: &order}
		got, err := MeasureThroughput(t.Context(), []Target{a, b}, limits(512), LoadOptions{
			Concurrency: []int{1, 1}, Duration: 20 * time.Millisecond, Drain: time.Second, Workload: fixed})
		if err != nil {
			t.Fatal(err)
		}
		if names := strings.Join(order, ""); names != "abba" {
			t.Errorf("asked in the order %s", names)
		}
		for i, r := range got.Rows {
			if r.Target != []string{"a", "b"}[i%2] || r.Requests != 1 {
				t.Errorf("row %d is %+v", i, r)
			}
		}
	})
}

func TestGoodput(t *testing.T) {
	c := Completion{Ended: Ended{Tokens: 3}, Arrivals: []time.Duration{10, 20, 50}, End: 60}
	for slo, want := range map[SLO]bool{
		{}:         true,
		{TTFT: 10}: true, {TTFT: 9}: false,
		{ITL: 30}: true, {ITL: 29}: false,
		{TPOT: 20}: true, {TPOT: 19}: false,
		{E2E: 60}: true, {E2E: 59}: false,
		{TTFT: 10, ITL: 30, TPOT: 20, E2E: 60}: true,
	} {
		if slo.met(&c) != want {
			t.Errorf("%+v: met is not %v", slo, want)
		}
	}
	c.Err = errors.New("failed")
	if (SLO{}).met(&c) {
		t.Error("a failed request counts as good")
	}
}

func TestThroughputRefuses(t *testing.T) {
	for _, o := range []LoadOptions{
		{Duration: 1, Workload: fixed},
		{Concurrency: []int{0}, Duration: 1, Workload: fixed},
		{Rates: []float64{-1}, Duration: 1, Workload: fixed},
		{Rates: []float64{math.NaN()}, Duration: 1, Workload: fixed},
		{Concurrency: []int{1}, Workload: fixed},
		{Concurrency: []int{1}, Duration: 1, Workload: Workload{Prompt: Lengths{8, 500}, Output: Lengths{8, 13}}},
		{Concurrency: []int{1}, Duration: 1, Workload: Workload{Lines: []Line{{PromptTokens: 510, OutputTokens: 3}}}},
	} {
		if _, err := MeasureThroughput(t.Context(), []Target{&server{}}, limits(512), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestThroughputEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := MeasureThroughput(ctx, []Target{&server{}}, limits(512), LoadOptions{
			Concurrency: []int{4}, Rates: []float64{9}, Duration: time.Hour, Workload: fixed})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestThroughputTable(t *testing.T) {
	r := &Throughput{Head: Head{Provenance: Provenance{Model: "m"}}, Rows: []LoadRow{
		{Target: "reel", Concurrency: 4, GoodputPerS: new(0.0)}, {Target: "x", Rate: 2.5, Failed: 3}}}
	rows := r.Tables()[0].Rows
	if fmt.Sprint(rows[0][0], rows[0][3], rows[1][0], rows[1][3], rows[1][16]) != "reel, 4 clients0.00x, 2.5/s-3" {
		t.Errorf("got %q", rows)
	}
	charts := r.Charts()
	if len(charts) != 2 || len(charts[0].Series) != 4 || charts[0].Series[0].Name != "reel, closed loop, P50" {
		t.Errorf("got %+v", charts)
	}
}
