package engine

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// schedules is the number of random schedules that the same requests run in. REEL_LONG makes it 1,000.
func schedules() int {
	if os.Getenv("REEL_LONG") != "" {
		return 1000
	}
	return 150
}

// A request gives the same tokens and log-probabilities, bit for bit, with any batch, bucket, padding, eager
// fallback, timing of the roller, neighbours and moves of its pages.
func TestAnyScheduleGivesTheSameTokens(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	ask(t, r, 24, 14, 14).anySchedule(t, r, schedules())
}

// The same holds for quantised weights.
func TestAnyScheduleGivesTheSameTokensQuantised(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	askModel(t, quantisedConfig(), r, 24, 14, 14).anySchedule(t, r, schedules()/3)
}

// anySchedule runs the requests in n random schedules.
func (a *asked) anySchedule(t *testing.T, r *rand.Rand, n int) {
	t.Helper()
	var kinds struct{ precaptured, rolled, padded, eager, moved, mixed int }
	for range n {
		b, moved := a.schedule(t, r)
		g := b.Stats().Steps.Graphs
		kinds.precaptured, kinds.rolled = kinds.precaptured+g.Precaptured, kinds.rolled+g.Rolled
		kinds.padded, kinds.eager = kinds.padded+g.Padded, kinds.eager+g.Eager
		kinds.moved += moved
		kinds.mixed += int(b.Stats().Steps.Mixed)
		if t.Failed() {
			t.Fatalf("with %+v", b.opts)
		}
	}
	if kinds.precaptured == 0 || kinds.rolled == 0 || kinds.padded == 0 || kinds.eager == 0 || kinds.moved == 0 ||
		kinds.mixed < n/2 {
		t.Errorf("some kind of step never ran, or few steps were mixed: %+v", kinds)
	}
}

// schedule runs some of the requests in an engine with random options, and returns how many pages were moved.
func (a *asked) schedule(t *testing.T, r *rand.Rand) (b *testEngine, moved int) {
	o, host := randomBounds(r)
	b, err := tryBuildModel(t, a.config, host, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.h.Trace(func(c device.Call) {
		if _, ok := c.Op.(kernels.CopyPage); ok {
			moved++ // runs on the engine's thread only
		}
	})
	b.run()
	type running struct {
		*sink
		index     int
		cancelled bool
	}
	var all []running
	for range 2 + r.IntN(8) {
		i := r.IntN(len(a.requests))
		q := a.requests[i]
		q.User, q.Connection = User{UID: uint32(r.IntN(4))}, uint64(r.IntN(3))
		s, h := b.submit(q)
		all = append(all, running{s, i, r.IntN(8) == 0})
		if r.IntN(2) == 0 {
			select {
			case <-s.first:
			case <-s.ended:
			}
		}
		for range r.IntN(3) {
			b.Relocate(h-Handle(r.IntN(int(h))), r.IntN(3))
		}
		if all[len(all)-1].cancelled {
			b.Cancel(h)
		}
	}
	for _, q := range all {
		a.check(t, q.index, q.must(t), !q.cancelled)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()
	return b, moved
}

// randomBounds returns random options, with which every request of a schedule can complete.
func randomBounds(r *rand.Rand) (Options, device.HostOptions) {
	o := Options{Context: 64, MaxBatch: 1 + r.IntN(6), MaxQueue: 64, Chunk: 1 + r.IntN(16), PageTokens: 1 + r.IntN(9)}
	o.Reserve, o.ReservePages = r.IntN(3), r.IntN(4)
	o.Pages = (64+o.PageTokens-1)/o.PageTokens + o.Reserve*o.ReservePages + r.IntN(30)
	if r.IntN(2) == 0 {
		o.Chunk *= 1 + r.IntN(4) // measured times size chunks of more than 16 rows
		o.Gap, o.lead = time.Duration(1+r.IntN(3000))*time.Microsecond, time.Duration(1+r.IntN(100))*time.Microsecond
	}
	o.Precapture = []int{}
	o.LongChunk = r.IntN(5) * o.Chunk // of a prompt that is alone
	for n := 1; n <= o.Chunk; n += 1 + r.IntN(4) {
		o.Precapture = append(o.Precapture, n)
	}
	if r.IntN(3) > 0 {
		o.MixedRows = mixedRows(o, 1+r.IntN(4))
	}
	o.MaxGraphs = r.IntN(3) * r.IntN(7)
	o.GraphMemory = int64(o.MaxGraphs) * 1000
	var host device.HostOptions
	if r.IntN(2) == 0 {
		host.CaptureDelay = time.Duration(r.IntN(300)) * time.Microsecond
	}
	if r.IntN(4) == 0 {
		host.Delay = func() time.Duration { return time.Duration(rand.IntN(30)/20) * time.Microsecond }
	}
	return o, host
}
