package graphs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/kernels/device"
)

func TestAcquirePrefersExactThenSmallestCoverThenEager(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(8), Decode(4), Prefill(16))
	for _, c := range []struct {
		key  Key
		kind Kind
		runs Key
	}{
		{Decode(4), Exact, Decode(4)},
		{Decode(3), Padded, Decode(4)},
		{Decode(5), Padded, Decode(8)},
		{Decode(9), Eager, Decode(9)},
		{Prefill(1), Padded, Prefill(16)},
		{Prefill(16), Exact, Prefill(16)},
		{Key{Variant: 1, Rows: 4, Queries: 1}, Eager, Key{Variant: 1, Rows: 4, Queries: 1}},
		{Key{Rows: 4, Queries: 2}, Eager, Key{Rows: 4, Queries: 2}},
	} {
		if p := r.run(c.key); p.Kind != c.kind || p.Key != c.runs {
			t.Errorf("%s runs as %s, kind %d; wants %s, kind %d", c.key, p.Key, p.Kind, c.runs, c.kind)
		}
	}
	if got := r.notes(); !slices.Equal(got[:9], []int32{4, 4, 4, 4, 4, 4, 8, 8, 8}) {
		t.Errorf("the device ran %v", got)
	}
	if s := r.Stats(); s.Exact != 2 || s.Padded != 3 || s.Eager != 3 || s.Precaptured != 3 ||
		s.Live != 3 || s.Bytes != 3*graphBytes {
		t.Errorf("counted %+v", s)
	}
}

// Padding by a graph of a long step takes longer than launching a shorter one op by op.
func TestALongGraphServesNoShortStep(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Prefill(1536), Prefill(512))
	for k, want := range map[Key]Kind{Prefill(1536): Exact, Prefill(1344): Padded, Prefill(1343): Eager, Prefill(513): Eager,
		Prefill(512): Exact, Prefill(1): Padded} {
		if p := r.run(k); p.Kind != want {
			t.Errorf("%s runs as %s, kind %d; wants kind %d", k, p.Key, p.Kind, want)
		}
	}
}

// A prefill chunk of one token and a decode step of one sequence have the same size
// but different classes, so neither serves the other.
func TestPrefillGraphNeverServesDecode(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Prefill(1))
	if p := r.run(Decode(1)); p.Kind != Eager {
		t.Errorf("decode of one sequence ran on %s", p.Key)
	}
}

func TestCovers(t *testing.T) {
	wide, narrow := Key{Rows: 4, Queries: 2}, Key{Rows: 2, Queries: 2}
	variant := Key{Rows: 4, Queries: 2, Variant: 1}
	for _, c := range []struct {
		graph, step Key
		want        bool
	}{{wide, narrow, true}, {narrow, wide, false}, {wide, wide, true}, {variant, wide, false}, {wide, variant, false}} {
		if got := c.graph.covers(c.step); got != c.want {
			t.Errorf("a graph of %+v covers a step of %+v: %v", c.graph, c.step, got)
		}
	}
}

func TestAnotherIdentityIsRefusedBeforeItRuns(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(1))
	plan := r.Acquire(Decode(1))
	r.Rebind(Identity{Device: "elsewhere"})
	if err := r.Launch(r.s, plan, 1); !errors.Is(err, ErrIdentity) {
		t.Fatalf("launch of a stale graph: %v, wants ErrIdentity", err)
	}
	if got := r.notes(); len(got) != 0 {
		t.Errorf("it ran: %v", got)
	}
	r.Maintain(0, true)
	if p := r.Acquire(Decode(1)); p.Kind != Eager {
		t.Errorf("the stale graph is still live")
	}
}

// A difference in any field makes another identity.
func TestIdentityComparesEveryField(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	a, _ := h.Alloc(8)
	b, _ := h.Alloc(8)
	base := Identity{Device: "host", Memory: [4]device.Buffer{a, a, a}}
	for name, other := range map[string]Identity{
		"device":        {Device: "other", Memory: [4]device.Buffer{a, a, a}},
		"first memory":  {Device: "host", Memory: [4]device.Buffer{b, a, a}},
		"second memory": {Device: "host", Memory: [4]device.Buffer{a, b, a}},
		"third memory":  {Device: "host", Memory: [4]device.Buffer{a, a, b}},
		"layout":        {Device: "host", Memory: [4]device.Buffer{a, a, a}, Layout: [5]int{1}},
	} {
		if other == base {
			t.Errorf("another %s is the same identity", name)
		}
	}
}

func TestPlanOlderThanTheEvictionIsRefused(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(1))
	plan := r.Acquire(Decode(1))
	r.mu.Lock()
	r.evict(plan.graph)
	r.mu.Unlock()
	if err := r.Launch(r.s, plan, 1); !errors.Is(err, ErrEvicted) {
		t.Errorf("launch of an evicted graph: %v, wants ErrEvicted", err)
	}
}

// An evicted graph is destroyed only after the last step that replays it: the device
// refuses to destroy one with a replay pending.
func TestEvictedGraphOutlivesItsLastStep(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(1))
	plan := r.Acquire(Decode(1))
	r.must(r.Launch(r.s, plan, 5))
	r.mu.Lock()
	r.evict(plan.graph)
	r.mu.Unlock()
	r.Maintain(4, true)
	if len(r.retired) != 0 {
		t.Fatal("retired while step 5 may run")
	}
	r.must(r.s.Synchronize())
	r.Maintain(5, true)
	if len(r.retired) != 1 {
		t.Fatal("not retired after its last step")
	}
}

func TestPrecaptureStopsAtTheBudget(t *testing.T) {
	for name, o := range map[string]Options{"bytes": {Budget: 3*graphBytes + 1}, "number": {MaxGraphs: 3}} {
		r := newRig(t, device.HostOptions{}, o)
		left, err := r.Precapture(r.s, []Key{Decode(5), Decode(4), Decode(3), Decode(2), Decode(1)}, func(int, int) {})
		r.must(err)
		if s := r.Stats(); left != 2 || s.Live != 3 || s.Peak > r.opts.Budget {
			t.Errorf("%s: %d left out, %+v", name, left, s)
		}
	}
}

// The statistics hold the durations of the captures at start, each as long as the
// device's delay.
func TestPrecaptureMeasuresItsCaptures(t *testing.T) {
	const delay = 2 * time.Millisecond
	r := newRig(t, device.HostOptions{CaptureDelay: delay}, Options{})
	r.precapture(Decode(3), Decode(2), Decode(1))
	if s := r.Stats(); s.CaptureP50 < delay || s.CaptureTime < 3*delay || s.CaptureP50 > s.CaptureTime-2*delay {
		t.Errorf("%+v, wants 3 graphs of at least %v each", s, delay)
	}
}

// sizedExec is an exec with a size in bytes.
type sizedExec int64

func (e sizedExec) Bytes() int64   { return int64(e) }
func (e sizedExec) Destroy() error { return nil }

// The size of a graph that never fits predicts nothing. If it counted, every later
// request would evict a graph, and none would ever fit.
func TestGraphLargerThanTheBudgetBlocksNoOther(t *testing.T) {
	p := NewPool(Options{MaxGraphs: 8, Budget: 3 * graphBytes, Estimate: graphBytes})
	huge := &graph{exec: sizedExec(5 * graphBytes)}
	if p.countExec(huge) {
		t.Error("it fits the budget")
	}
	if err := p.destroy(huge); err != nil {
		t.Fatal(err)
	}
	if !p.hasRoom() {
		t.Error("an empty pool has no room for others")
	}
}

// A capture that fails at any of its device calls leaves nothing behind, and the
// pool and the stream stay usable.
func TestFailureAtEachCallOfACapture(t *testing.T) {
	calls := 0
	for at := 1; ; at++ {
		r := newRig(t, device.HostOptions{}, Options{})
		r.h.Faults().FailAt(at, false)
		r.precapture(Decode(2))
		if r.h.Faults().Calls() < at {
			break
		}
		calls++
		r.h.Faults().FailAt(0, false)
		if s := r.Stats(); s.Failed != 1 || s.Failure == "" || s.Live != 0 || s.Execs != 0 {
			t.Fatalf("call %d failed: %+v", at, s)
		}
		if p := r.run(Decode(2)); p.Kind != Eager {
			t.Fatalf("call %d failed, and the key runs as kind %d", at, p.Kind)
		}
		r.precapture(Decode(2))
		if p := r.run(Decode(2)); p.Kind != Exact {
			t.Fatalf("after call %d failed the key cannot be captured", at)
		}
	}
	if calls < 7 { // begin, three launches, end, instantiate, upload
		t.Errorf("only %d calls were made to fail", calls)
	}
}

func TestKeyThatFailsTooOftenIsNotTriedAgain(t *testing.T) {
	broken := errors.New("broken")
	var r *rig
	r = newRig(t, device.HostOptions{}, Options{Pass: func(s device.Stream, k Key) error {
		if k == Decode(3) {
			return broken
		}
		return r.pass(s, k)
	}})
	for range maxFailures {
		r.precapture(Decode(3))
	}
	r.Acquire(Decode(3))
	if s := r.Stats(); s.Failed != maxFailures || s.Refused != 1 || s.CaptureRequests != 0 {
		t.Errorf("%+v", s)
	}
}

func TestLatticeIsLargestFirst(t *testing.T) {
	keys := Lattice(DefaultCounts(128), 128, 20)
	if !slices.IsSortedFunc(keys, func(a, b Key) int { return b.Tokens() - a.Tokens() }) {
		t.Errorf("not largest first: %v", keys)
	}
	for _, want := range []Key{
		Prefill(1), Prefill(50), Prefill(64), Prefill(112), Prefill(128), Decode(1), Decode(20),
	} {
		if !slices.Contains(keys, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if slices.Contains(keys, Prefill(51)) {
		t.Error("51 tokens is not in the lattice")
	}
}

// A capture locks its thread: a goroutine that the pass starts and waits for runs on
// another one.
func TestCaptureKeepsItsThread(t *testing.T) {
	var r *rig
	r = newRig(t, device.HostOptions{}, Options{MaxGraphs: 100, Pass: func(s device.Stream, k Key) error {
		mine, other := unix.Gettid(), make(chan int)
		go func() { other <- unix.Gettid() }()
		if <-other == mine {
			return errors.New("the capture shares its thread")
		}
		return r.pass(s, k)
	}})
	for n := range 50 {
		r.precapture(Decode(n + 1))
	}
	if s := r.Stats(); s.Failed != 0 {
		t.Errorf("%d captures failed: %s", s.Failed, s.Failure)
	}
}

// The graph of a verify step runs steps of fewer sequences with as many rows each, and no others: the number decides
// where the rows of a sequence are. Where a draft model follows, another graph serves than where none does.
func TestVerifyStepsCoverTheirOwnQueries(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(VerifyStep(4, 3), Decode(12), Decode(3).Following(), Prefill(64))
	for k, want := range map[Key]Kind{VerifyStep(4, 3): Exact, VerifyStep(1, 3): Padded, VerifyStep(5, 3): Eager,
		VerifyStep(4, 2): Eager, VerifyStep(1, 2): Eager, VerifyStep(3, 4): Eager, VerifyStep(1, 1): Eager,
		Decode(2): Padded, Decode(2).Following(): Padded, Decode(4).Following(): Eager, Prefill(12): Padded} {
		if p := r.run(k); p.Kind != want {
			t.Errorf("%s ran as kind %d, wants %d", k, p.Kind, want)
		}
	}
}

// The graph of a mixed step runs steps of as many generated rows with fewer prompt tokens, and no others: the number of
// generated rows decides where those of prompts begin.
func TestMixedStepsCoverTheirOwnGeneratedRows(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Mixed(8, 64), Mixed(8, 1024), Decode(72), Prefill(72), VerifyStep(8, 8))
	for k, want := range map[Key]Kind{Mixed(8, 64): Exact, Mixed(8, 1): Padded, Mixed(8, 65): Eager, Mixed(8, 1024): Exact,
		Mixed(8, 900): Padded, Mixed(7, 64): Eager, Mixed(9, 64): Eager, Mixed(4, 4): Eager, Prefill(8): Padded,
		Decode(8): Padded, VerifyStep(8, 64): Eager} {
		if p := r.run(k); p.Kind != want || want == Padded && p.Key.Tokens() == 8+1024 != (k == Mixed(8, 900)) {
			t.Errorf("%s ran as kind %d on %s, wants kind %d", k, p.Kind, p.Key, want)
		}
	}
}

// A step of one prompt does not run on a graph of several, which samples more rows, nor the other way round.
func TestKeysOfSeveralPrompts(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Prefill(16), Prefill(32).OfSeveral())
	for k, want := range map[Key]Plan{
		Prefill(16):             {Kind: Exact, Key: Prefill(16)},
		Prefill(7):              {Kind: Padded, Key: Prefill(16)},
		Prefill(17):             {Kind: Eager, Key: Prefill(17)},
		Prefill(7).OfSeveral():  {Kind: Padded, Key: Prefill(32).OfSeveral()},
		Prefill(33).OfSeveral(): {Kind: Eager, Key: Prefill(33).OfSeveral()},
	} {
		if p := r.run(k); p.Kind != want.Kind || p.Key != want.Key {
			t.Errorf("%s ran as kind %d on %s, wants kind %d on %s", k, p.Kind, p.Key, want.Kind, want.Key)
		}
	}
	if k := Prefill(32).OfSeveral(); k.String() != "prefill 32 of several" || k.Tokens() != 32 || !k.HasPrompts() {
		t.Errorf("%s of %d tokens", k, k.Tokens())
	}
}

// Keys of different classes differ, and say so.
func TestKeysOfMixedSteps(t *testing.T) {
	k := Mixed(16, 208)
	if k.String() != "mixed 16+208" || k.Tokens() != 224 || !k.HasPrompts() || k == Prefill(224) {
		t.Errorf("%s of %d tokens", k, k.Tokens())
	}
	for _, k := range []Key{Decode(16), VerifyStep(16, 2)} {
		if k.HasPrompts() {
			t.Errorf("%s has prompts", k)
		}
	}
}
