package engine

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels/device"
)

// soakSteps returns the number of steps of TestMillionSteps: more with REEL_LONG, and REEL_SOAK_STEPS sets it.
func soakSteps(t *testing.T) uint64 {
	if text, ok := os.LookupEnv("REEL_SOAK_STEPS"); ok {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch {
	case testing.Short():
		return 5_000
	case os.Getenv("REEL_LONG") == "":
		return 10_000
	}
	return 30_000
}

// While pages move, graphs are captured and evicted, and requests with and without drafts join, leave and are cancelled
// at random, no step is enqueued with a stale block table or with a page that is being copied, and every request gets
// the tokens that it gets alone. For a million steps under the race detector:
// REEL_SOAK_STEPS=1000000 go test -race -timeout 0 -run TestMillionSteps
func TestMillionSteps(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	a := ask(t, r, 40, 20, 30)
	w := newWatch()
	o := nano()
	o.Chunk, o.Pages, o.MaxGraphs, o.GraphMemory = 16, 40, 8, 8000
	o.Draft, o.DraftTokens = []DraftKind{DraftLookup, DraftGiven, DraftModel}[r.IntN(3)], MaxDrafts
	o.planDrafts = randomPlan(r.Uint64(), o.DraftTokens)
	o.DraftWindow = []int{0, 9}[r.IntN(2)]
	drafters := draftersOf(nanoConfig())
	b, err := tryBuildPair(t, nanoConfig(), drafters[r.IntN(len(drafters))], device.HostOptions{}, o, w.wrap)
	if err != nil {
		t.Fatal(err)
	}
	w.engine = b.Engine
	b.run()
	want := soakSteps(t)
	a.soak(b, r, want)
	s := b.Stats()
	g, d := s.Graphs, s.Drafts.Total()
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()
	for _, fault := range w.faults {
		t.Error(fault)
	}
	t.Logf("%d steps, %d pages moved, %d graphs rolled, %d evicted, %d exact, %d padded, %d eager, drafts %+v",
		w.steps, w.moved, g.Rolled, g.Evicted, g.Exact, g.Padded, g.Eager, d)
	if d.Accepted == 0 || d.Accepted == d.Drafted || w.moved == 0 || g.Rolled == 0 || g.Evicted == 0 || w.steps < want {
		t.Error("some event that this test needs never happened")
	}
}

// soak keeps up to eight requests running until this number of steps has completed.
func (a *asked) soak(b *testEngine, r *rand.Rand, steps uint64) {
	type going struct {
		*sink
		handle    Handle
		index     int
		cancelled bool
	}
	var all []going
	for s := b.Stats().Steps; (s.Prefill+s.Decode) < steps && !b.t.Failed() || len(all) > 0; s = b.Stats().Steps {
		if (s.Prefill+s.Decode) < steps && len(all) < 8 {
			i := r.IntN(len(a.requests))
			q := a.drafted(r, i)
			q.Cache = CacheMode(r.IntN(3)) // pages that prompts can find do not move
			s, h := b.submit(q)
			all = append(all, going{s, h, i, false})
		}
		for range 1 + r.IntN(3) {
			b.Relocate(all[r.IntN(len(all))].handle, r.IntN(6))
		}
		if r.IntN(12) == 0 {
			i := r.IntN(len(all))
			all[i].cancelled = true
			b.Cancel(all[i].handle)
		}
		if len(all) == 8 || r.IntN(6) == 0 || (s.Prefill+s.Decode) >= steps {
			a.check(b.t, all[0].index, all[0].must(b.t), !all[0].cancelled)
			all = all[1:]
		}
	}
}

// driven returns an engine that the test drives step by step, and a step that was formed before a page of its only
// request began to move.
func driven(t *testing.T) (*watch, *testEngine, *scheduler.Batch) {
	t.Helper()
	w := newWatch()
	b := built(t, device.HostOptions{}, nano(), w.wrap)
	w.engine = b.Engine
	_, h := b.submit(Request{Tokens: []int32{1, 2, 3, 4, 5}, MaxTokens: 30, Cache: CacheOff})
	commands, _, _ := b.takeCommands()
	if err := errors.Join(b.apply(commands, nil), b.formAndEnqueue(), b.completeStep()); err != nil {
		t.Fatal(err)
	}
	batch := b.sched.Next()
	if err := b.apply([]command{{kind: relocate, handle: h}}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.finishAll(ErrShutdown)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		b.returned()
	})
	return w, b, batch
}

// A step older than a move is rebuilt and waits for the copy.
func TestStepOlderThanAMoveIsRebuiltAndWaits(t *testing.T) {
	w, b, batch := driven(t)
	if err := b.enqueue(batch); err != nil {
		t.Fatal(err)
	}
	if len(w.faults) != 0 || w.moved != 1 {
		t.Errorf("%d pages moved, faults %v", w.moved, w.faults)
	}
}

// With either guard off, watch reports the step.
func TestWatchReportsAnUnguardedStep(t *testing.T) {
	for name, c := range map[string]struct {
		rebuild bool
		want    error
	}{"not rebuilt": {false, errStale}, "not waiting": {true, errMoving}} {
		w, b, batch := driven(t)
		if c.rebuild {
			b.sched.Rebuild(batch)
		}
		err := b.memory.Write(&batch.Step)
		w.step() // as Launch would, without launching a step that races with the copy
		if err != nil || !errors.Is(errors.Join(w.faults...), c.want) {
			t.Errorf("%s: %v, faults %v, wants %v", name, err, w.faults, c.want)
		}
	}
}
