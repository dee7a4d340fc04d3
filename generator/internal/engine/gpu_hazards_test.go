//go:build cuda

package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// A device-wide synchronise on another thread invalidates a capture, which is then ended and counted. Synchronising
// another stream does not disturb it.
func TestGPUDeviceWideSynchroniseLosesACapture(t *testing.T) {
	d := openGPU(t)
	e := builtOn(t, d, defaults())
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	pool := func(call func() error) *graphs.Pool { // its captures last until call has returned on another thread
		pass := func(s device.Stream, k graphs.Key) error {
			if err := e.pass(s, k); err != nil {
				return err
			}
			done := make(chan error)
			go func() { done <- call() }()
			<-done // an error is expected on the other thread
			return nil
		}
		p := graphs.NewPool(graphs.Options{Identity: e.identity(), MaxGraphs: 4, Budget: 1 << 30, Pass: pass})
		if _, err := p.Precapture(s, []graphs.Key{graphs.Decode(2)}, func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	lost, kept := pool(d.Synchronize), pool(e.stream.Synchronize)
	if g := lost.Stats(); g.Live != 0 || g.Failed != 1 || !strings.Contains(g.Failure, device.ErrInvalidated.Error()) {
		t.Errorf("with a device-wide synchronise: %+v", g)
	}
	if g := kept.Stats(); g.Live != 1 || g.Failed != 0 {
		t.Errorf("with a synchronise of another stream: %+v", g)
	}
	if err := errors.Join(lost.Close(), kept.Close(), s.Destroy(), e.Close()); err != nil {
		t.Fatal(err)
	}
}

// On a GPU too, the readiness detector names calls that a capture does not allow.
func TestGPUDetectorNamesTheFault(t *testing.T) {
	d := openGPU(t)
	elsewhere := device.NewHost(device.HostOptions{})
	defer elsewhere.Close()
	s, err := d.NewStream()
	other, err2 := d.NewStream()
	b, err3 := d.Alloc(64)
	foreign, err4 := elsewhere.Alloc(64)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	op := kernels.Fill{Data: b, Value: 1}
	if err := s.Launch(op); err != nil { // the first launch loads the kernel
		t.Fatal(err)
	}
	for want, call := range map[string]func(device.Stream) error{
		"":                             func(device.Stream) error { return nil },
		"synchronise":                  func(s device.Stream) error { return s.Synchronize() },
		"device-wide synchronise":      func(device.Stream) error { return d.Synchronize() },
		"device-to-host read":          func(device.Stream) error { return d.Read(make([]byte, 64), b) },
		"launch on the default stream": func(device.Stream) error { return d.DefaultStream().Launch(op) },
		"launch on another stream":     func(device.Stream) error { return other.Launch(op) },
		"memory of a foreign device":   func(s device.Stream) error { return s.Launch(kernels.Fill{Data: foreign}) },
		"allocation":                   func(device.Stream) error { _, err := d.Alloc(64); return err },
	} {
		pass := func(s device.Stream, _ graphs.Key) error { return errors.Join(s.Launch(op), call(s)) }
		report, err := graphs.Inspect(d, s, pass, graphs.Decode(1))
		faults := report.Faults()
		named := slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, ": "+want) })
		if err != nil || want == "" && len(faults) > 0 || want != "" && !named {
			t.Errorf("wants %q, the detector names %q, %v", want, faults, err)
		}
	}
	if err := errors.Join(s.Destroy(), other.Destroy()); err != nil {
		t.Error(err)
	}
}

// A graph over memory that steps no longer use is refused before anything runs. With an identity that omits the
// memory, the graph silently writes the old memory.
func TestGPUStaleIdentity(t *testing.T) {
	d := openGPU(t)
	s, err := d.NewStream()
	before, err2 := d.Alloc(4)
	after, err3 := d.Alloc(4)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	current := before
	for guard, identity := range map[string]func() graphs.Identity{
		"on":  func() graphs.Identity { return graphs.Identity{Memory: [4]device.Buffer{current}} },
		"off": func() graphs.Identity { return graphs.Identity{} },
	} {
		current = before
		pass := func(s device.Stream, _ graphs.Key) error { return s.Launch(kernels.Fill{Data: current, Value: 7}) }
		p := graphs.NewPool(graphs.Options{Identity: identity(), MaxGraphs: 1, Budget: 1 << 30, Pass: pass})
		if err := errors.Join(s.Launch(kernels.Fill{Data: before}), s.Launch(kernels.Fill{Data: after})); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Precapture(s, []graphs.Key{graphs.Decode(1)}, func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		plan := p.Acquire(graphs.Decode(1))
		current = after
		p.Rebind(identity())
		launched := p.Launch(s, plan, 1)
		old, now := make([]byte, 4), make([]byte, 4)
		if err := errors.Join(s.Synchronize(), d.Read(old, before), d.Read(now, after)); err != nil {
			t.Fatal(err)
		}
		switch {
		case now[0] != 0:
			t.Errorf("guard %s: a graph wrote memory that it was not captured over", guard)
		case guard == "on" && (!errors.Is(launched, graphs.ErrIdentity) || old[0] != 0):
			t.Errorf("guard on: %v, and the old memory holds %d", launched, old[0])
		case guard == "off" && (launched != nil || old[0] != 7):
			t.Errorf("guard off: %v, and the old memory holds %d, wants it written without an error", launched, old[0])
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Destroy(); err != nil {
		t.Error(err)
	}
}

// moving is an engine on a GPU that the test drives, and a step that was formed before the first page of its only
// request began to move. The copy is delayed. Its destination holds NaN until the copy is done, and its source
// holds NaN afterwards.
type moving struct {
	*testEngine
	d     *gpu.Device
	sink  *sink
	batch *scheduler.Batch
}

func newMoving(t *testing.T) *moving {
	t.Helper()
	d := openGPU(t)
	m := &moving{testEngine: &testEngine{Engine: builtOn(t, d, defaults()), t: t}, d: d}
	m.sink, _ = m.submit(moved)
	commands, _, _ := m.takeCommands()
	m.must(m.apply(commands, nil), m.formAndEnqueue(), m.completeStep())
	m.batch = m.sched.Next()
	m.must(m.stream.Synchronize()) // for the steps that may write the page
	late, err := d.Alloc(8 << 30)
	m.must(err)
	for range 40 { // writing 320 GiB takes at least 70 ms
		m.must(m.copies.Launch(kernels.Fill{Data: late}))
	}
	m.must(m.apply([]command{{kind: relocate, handle: commands[0].handle}}, nil))
	if len(m.moves) != 1 {
		t.Fatal("no page moves")
	}
	m.must(m.copies.Launch(m.poison(m.moves[0].From)))
	other, err := d.NewStream()
	m.must(err, other.Launch(m.poison(m.moves[0].To)), other.Synchronize(), other.Destroy())
	if done, err := m.moves[0].done.Done(); done || err != nil {
		t.Fatalf("the copy was not delayed: %v", err)
	}
	return m
}

// moved is the request that has a page moved. Pages that the cache holds too do not move.
var moved = Request{Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, MaxTokens: 20, Sampling: sampled(9), Cache: CacheOff}

func (m *moving) must(errs ...error) {
	m.t.Helper()
	if err := errors.Join(errs...); err != nil {
		m.t.Fatal(err)
	}
}

// poison fills a page with NaN.
func (m *moving) poison(page int32) kernels.Fill {
	bytes := m.memory.KV.PageBytes()
	const nan = 0x7fc07fc0 // two of bfloat16
	return kernels.Fill{Data: m.memory.KV.Data.Slice(int64(page)*bytes, bytes), Value: nan}
}

// launch enqueues the step as enqueue does, with only the guards that are set.
func (m *moving) launch(rebuild, wait bool) {
	m.t.Helper()
	b := m.batch
	if rebuild {
		m.sched.Rebuild(b)
	}
	if !rebuild {
		m.must(m.copies.Synchronize()) // the source, which the step still names, is then reused
	}
	if wait {
		m.must(m.stream.Wait(m.moves[0].done))
	}
	m.must(m.memory.Write(&b.Step))
	plan := m.pool.Acquire(key(b))
	m.must(m.pool.Launch(m.stream, plan, b.Step.Number))
	m.inFlight = append(m.inFlight, stepInFlight{batch: b, plan: plan})
	m.next = b.Step.Number + 1
	m.must(m.stream.Record(m.events[b.Step.Number%depth]))
}

// finish runs the engine until the request has ended.
func (m *moving) finish() *sink {
	m.t.Helper()
	for len(m.sequences) > 0 {
		m.must(m.finishMoves(), m.iterate())
	}
	m.must(m.Close())
	return m.sink
}

// A step older than a move is rebuilt and waits for the copy: the tokens are those of a run without a move. If one
// of the two guards is off, they are not.
func TestGPUStepOlderThanAMove(t *testing.T) {
	b := runOnGPU(t, defaults())
	want := b.complete(moved)
	for name, launch := range map[string]func(*moving){
		"guarded":           func(m *moving) { m.must(m.enqueue(m.batch)) },
		"guarded by hand":   func(m *moving) { m.launch(true, true) },
		"stale":             func(m *moving) { m.launch(false, true) },
		"page still moving": func(m *moving) { m.launch(true, false) },
	} {
		m := newMoving(t)
		launch(m)
		got := m.finish()
		same := got.finish.Err == nil && slices.EqualFunc(got.tokens, want.tokens, sameToken)
		if guarded := strings.HasPrefix(name, "guarded"); same != guarded {
			t.Errorf("%s: the same tokens: %v; %v after %d tokens", name, same, got.finish.Err, len(got.tokens))
		}
	}
}
