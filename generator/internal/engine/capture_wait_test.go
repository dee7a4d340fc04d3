package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels/device"
)

// captureDelay is how long each capture takes in these tests: far longer than any step.
const captureDelay = 200 * time.Millisecond

// With requests of more shapes than the lattice has, and 200 ms for each capture, steps take as long as with the
// roller off. One of three tries must pass, since other programs may slow a try; an engine that waits for captures fails
// all three.
func TestNoStepWaitsForACapture(t *testing.T) {
	var wrong string
	for range 3 {
		off, _ := outgrown(t, noRoller, nil)
		rolled, captures := outgrown(t, nil, nil)
		t.Logf("P99 %v with the roller off, %v with it on, %d captures; longest %v",
			p99(off), p99(rolled), captures, slices.Max(rolled))
		if captures < 3 {
			t.Fatalf("only %d captures", captures)
		}
		switch limit, n := max(3*p99(off), captureDelay/10), waited(rolled); {
		case p99(rolled) > limit:
			wrong = fmt.Sprintf("P99 step %v, wants at most %v", p99(rolled), limit)
		case n >= captures:
			wrong = fmt.Sprintf("%d steps of %d took as long as a capture", n, len(rolled))
		default:
			return
		}
	}
	t.Error(wrong)
}

// The same with the guard off: the engine captures missing shapes on its own thread, and steps wait.
func TestStepsWaitIfTheEngineCaptures(t *testing.T) {
	captures := 0
	steps, _ := outgrown(t, noRoller, func(b *testEngine) {
		own, _ := b.dev.(*twoStreams).Device.NewStream()
		seen := map[graphs.Key]bool{}
		b.pool = graphs.NewPool(graphs.Options{Identity: b.identity(), Pass: func(s device.Stream, k graphs.Key) error {
			if !seen[k] && len(seen) < 8 {
				seen[k] = true
				captures++
				if err := own.BeginCapture(); err != nil {
					return err
				}
				if err := b.pass(own, k); err != nil {
					return err
				}
				g, err := own.EndCapture()
				if err != nil {
					return err
				}
				_ = g.Destroy()
			}
			return b.pass(s, k)
		}})
		t.Cleanup(func() { _ = own.Destroy() })
	})
	if n := waited(steps); captures == 0 || n < captures/2 {
		t.Errorf("%d captures on the engine's thread, and %d steps waited", captures, n)
	}
}

// outgrown runs requests of many shapes with few graphs. It returns the time of each step of the long requests,
// and the number of graphs that were captured meanwhile.
func outgrown(t *testing.T, wrap func(device.Device) device.Device, change func(*testEngine)) ([]time.Duration, int) {
	t.Helper()
	o := nano()
	o.MaxGraphs, o.GraphMemory, o.MaxBatch, o.Chunk, o.Pages = 2, 2000, 8, 32, 400
	b := built(t, device.HostOptions{CaptureDelay: captureDelay}, o, wrap)
	if change != nil {
		if err := b.pool.Close(); err != nil {
			t.Fatal(err)
		}
		change(b)
	}
	b.run()
	r := rand.New(rand.NewPCG(3, 4))
	var steps []time.Duration
	for begun := time.Now(); time.Since(begun) < 10*time.Second; {
		long := &clock{sink: newSink(), last: time.Now()}
		if _, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 63, IgnoreEOS: true, Sink: long}); err != nil {
			t.Fatal(err)
		}
		var beside []*sink
		for range 1 + r.IntN(6) {
			s, _ := b.submit(Request{Tokens: make([]int32, 1+r.IntN(32)), MaxTokens: 1 + r.IntN(30)})
			beside = append(beside, s)
		}
		for _, s := range append(beside, long.sink) {
			s.must(t)
		}
		steps = append(steps, long.steps...)
		if rolled := b.Stats().Graphs.Rolled; len(steps) > 2000 && (rolled >= 3 || wrap != nil) {
			break
		}
	}
	g := b.pool.Stats()
	if g.Peak > g.Budget && wrap == nil || b.h.Live().Execs > 2 {
		t.Errorf("%d bytes of graphs at most, the budget is %d", g.Peak, g.Budget)
	}
	b.Stop()
	_ = b.wait()
	return steps, int(g.Rolled)
}

// clock is a sink that records the time between tokens.
type clock struct {
	*sink
	last  time.Time
	steps []time.Duration
}

func (c *clock) Token(t Token) {
	now := time.Now()
	c.steps, c.last = append(c.steps, now.Sub(c.last)), now
	c.sink.Token(t)
}

func p99(steps []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(steps))
	return sorted[len(sorted)*99/100]
}

// waited returns the number of steps that took as long as a capture.
func waited(steps []time.Duration) (n int) {
	for _, d := range steps {
		if d >= captureDelay {
			n++
		}
	}
	return n
}
