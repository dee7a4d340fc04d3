package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// Done.graphs counts how a request's steps were launched. Each kind of launch is forced here.
func TestDoneCountsEachKindOfStep(t *testing.T) {
	five := Request{Tokens: make([]int32, 5), MaxTokens: 4} // one prefill step of 5, three decode steps of 1
	for name, c := range map[string]struct {
		precapture []int
		graphs     int
		want       protocol.Graphs
	}{
		"all precaptured":         {[]int{5}, 10, protocol.Graphs{Precaptured: 4}},
		"prefill padded":          {[]int{8}, 10, protocol.Graphs{Precaptured: 3, Padded: 1}},
		"prefill eager":           {[]int{4}, 10, protocol.Graphs{Precaptured: 3, Eager: 1}},
		"decode padded":           {[]int{5}, 2, protocol.Graphs{Precaptured: 1, Padded: 3}}, // prefill 5 and decode 4
		"no graphs":               {[]int{5}, 0, protocol.Graphs{Eager: 4}},
		"no room but for prefill": {[]int{5}, 1, protocol.Graphs{Precaptured: 1, Eager: 3}},
	} {
		o := nano()
		o.Precapture, o.MaxGraphs, o.GraphMemory = c.precapture, c.graphs, int64(1000*c.graphs)
		b := built(t, device.HostOptions{}, o, noRoller)
		b.run()
		if got := b.complete(five).finish.Graphs; got != c.want {
			t.Errorf("%s: %+v, wants %+v", name, got, c.want)
		}
		s := b.Stats()
		g := s.Graphs
		if s.Steps.Graphs != c.want || int(g.Exact) != c.want.Precaptured || int(g.Padded) != c.want.Padded ||
			int(g.Eager) != c.want.Eager {
			t.Errorf("%s: status says %+v, %+v", name, s.Steps.Graphs, s.Graphs)
		}
		b.Stop()
		_ = b.wait() // the roller could not start, so there is an error
		b.returned()
	}
}

// A graph that the roller captured counts as rolled.
func TestDoneCountsRolledSteps(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	seven := Request{Tokens: make([]int32, 7), MaxTokens: 1, Cache: CacheOff}
	for deadline := time.Now().Add(patience); ; {
		g := b.complete(seven).finish.Graphs
		if g == (protocol.Graphs{Rolled: 1}) {
			break
		}
		if g != (protocol.Graphs{Eager: 1}) || time.Now().After(deadline) {
			t.Fatalf("a prompt without a graph of the start: %+v", g)
		}
	}
	if s := b.Stats(); s.Graphs.Rolled == 0 || s.Steps.Graphs.Rolled != 1 {
		t.Errorf("status says %+v, %+v", s.Steps.Graphs, s.Graphs)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// Without a roller a shape without a graph never gets one, and the engine ends.
func TestNoRollerCapturesNothing(t *testing.T) {
	o := nano()
	o.NoRoller, o.Precapture = true, []int{4}
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	for range 20 {
		g := b.complete(Request{Tokens: make([]int32, 7), MaxTokens: 1, Cache: CacheOff}).finish.Graphs
		if g != (protocol.Graphs{Eager: 1}) {
			t.Fatalf("a prompt without a graph of the start: %+v", g)
		}
	}
	if s := b.Stats().Graphs; s.Rolled != 0 || s.Roller != "off" || s.CaptureRequests != 1 || s.CaptureS <= 0 {
		t.Errorf("status says %+v", s)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// Stats reports the time and the device memory that the graphs of the start took.
func TestStatsReportTheStartsCaptures(t *testing.T) {
	const delay = 2 * time.Millisecond
	b := built(t, device.HostOptions{CaptureDelay: delay}, nano(), nil)
	g := b.Stats().Graphs
	if g.Precaptured != 4 || g.CaptureS < 0.008 || g.CaptureMedianMS < 2 || g.CaptureMedianMS > 500*g.CaptureS ||
		g.GraphBytes != 1000 {
		t.Errorf("%+v, wants 4 graphs of 1,000 bytes and at least %v each", g, delay)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// noRoller returns a device that fails to make a third stream, which is the roller's.
func noRoller(d device.Device) device.Device { return &twoStreams{Device: d} }

type twoStreams struct {
	device.Device
	made int
}

func (d *twoStreams) NewStream() (device.Stream, error) {
	if d.made++; d.made > 2 {
		return nil, device.ErrOutOfMemory
	}
	return d.Device.NewStream()
}

// Sixteen requests share eight pages: all complete, none wrong. Each takes one to eight pages, so most wait for
// pages although slots are free.
func TestEightPagesSixteenClients(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a := ask(t, r, 16, 30, 30)
	o := nano()
	o.Pages, o.PageTokens, o.MaxBatch = 8, 8, 16
	b := built(t, device.HostOptions{}, o, nil)
	running := 0                    // at once, at most
	b.h.Trace(func(c device.Call) { // a step records its event on the engine's thread
		if c.Kind == device.CallRecord {
			running = max(running, b.sched.Running())
		}
	})
	b.run()
	a.atOnce(t, b)
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()
	if running < 2 || running == len(a.requests) {
		t.Errorf("%d ran at once: either pages were not shared, or there were enough", running)
	}
}
