package engine

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels/device"
)

// gathering returns an idle engine that waits so long for requests on their way.
func gathering(t *testing.T, most time.Duration) *testEngine {
	t.Helper()
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("this test wants two processors: a single one is the readers'")
	}
	o := defaults()
	o.gather = most
	b := start(t, o, nil)
	b.waitIdle()
	return b
}

// prompt submits a request that asks for one token. Its prompt has so many tokens.
func (b *testEngine) prompt(tokens int) *sink {
	b.t.Helper()
	s := newSink()
	r := &Request{Tokens: make([]int32, tokens), MaxTokens: 1, IgnoreEOS: true, Sink: s}
	if _, err := b.Submit(r); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// together waits until requests are served, and checks that it took one step.
func (b *testEngine) together(name string, before uint64, all ...*sink) {
	b.t.Helper()
	for i, s := range all {
		select {
		case <-s.ended:
		case <-time.After(patience):
			b.t.Fatalf("%s: request %d is not served", name, i)
		}
	}
	b.waitIdle()
	if steps := b.Stats().Steps.Prefill - before; steps != 1 {
		b.t.Errorf("%s: %d steps for %d requests", name, steps, len(all))
	}
}

// waits checks that a request is not served for a moment.
func (s *sink) waits(t *testing.T, name string) {
	t.Helper()
	select {
	case <-s.ended:
		t.Errorf("%s: the first request does not wait", name)
	case <-time.After(20 * time.Millisecond):
	}
}

// The first request for an idle engine waits for those that are being read, and they have one step. It does not wait if
// nobody is being read, if there is half a step, or for ever.
func TestRequestsThatAreReadComeTogether(t *testing.T) {
	b := gathering(t, 2*patience)
	steps := func() uint64 { return b.Stats().Steps.Prefill }
	before := steps()
	b.Expect()
	first := b.prompt(1)
	first.waits(t, "being read")
	second := b.prompt(1)
	b.EndExpect()
	b.together("being read", before, first, second)

	before = steps()
	b.together("nobody is being read", before, b.prompt(1))
	b.Expect()
	before = steps()
	b.together("half a step", before, b.prompt(b.opts.Chunk/2))
	b = gathering(t, time.Millisecond)
	b.Expect()
	b.together("a short time", steps(), b.prompt(1))
}

// After a burst the first request waits for a moment without another, and after that not again.
func TestRequestsAfterABurstComeTogether(t *testing.T) {
	b := gathering(t, 2*patience)
	b.Expect()
	burst := []*sink{b.prompt(1), b.prompt(1), b.prompt(1), b.prompt(1)}
	before := b.Stats().Steps.Prefill
	b.EndExpect()
	b.together("a burst", before, burst...)

	beat := make(chan struct{})
	b.Heartbeat(func() { close(beat) })
	<-beat
	b.waitIdle()
	before = b.Stats().Steps.Prefill
	first := b.prompt(1)
	first.waits(t, "after a burst")
	b.together("after a burst", before, first, b.prompt(b.opts.Chunk/2))
	before = b.Stats().Steps.Prefill
	b.together("after that", before, b.prompt(1))
}

// A request that comes while the engine takes the one before is in the first step too. There is one wait for each idle
// time, and none for the readers of a single processor.
func TestGatherComesOnce(t *testing.T) {
	b := withGap(t, 0)
	take := func() {
		t.Helper()
		if _, err := b.obey(); err != nil {
			t.Fatal(err)
		}
	}
	b.submit(Request{Tokens: []int32{1}, MaxTokens: 1})
	take()
	b.submit(Request{Tokens: []int32{2}, MaxTokens: 1})
	processors := runtime.GOMAXPROCS(1)
	alone := b.gather()
	runtime.GOMAXPROCS(max(processors, 2))
	defer runtime.GOMAXPROCS(processors)
	if alone || !b.gather() || b.gather() {
		t.Errorf("the engine does not gather once, or on a single processor (%v)", alone)
	}
	take()
	if err := b.formAndEnqueue(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.inFlight[0].batch.Step.Rows); n != 2 {
		t.Errorf("the first step has %d rows of two requests", n)
	}
	b.runOn()
}

// A heartbeat's step is not the first step of the requests that come while it runs: more of a burst may come in theirs.
func TestHeartbeatHidesNoBurst(t *testing.T) {
	o := defaults()
	o.Gap = time.Second
	b, err := tryBuildModel(t, microConfig(), device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	turn := func() {
		commands, _, _ := b.takeCommands()
		if err := errors.Join(b.apply(commands, nil), b.formAndEnqueue(), b.enqueueHeartbeat()); err != nil {
			t.Fatal(err)
		}
	}
	b.Heartbeat(func() {})
	turn()
	b.submit(Request{Tokens: []int32{1}, MaxTokens: 1})
	if err := b.completeStep(); err != nil {
		t.Fatal(err)
	}
	b.Expect()
	turn()
	if !b.coming.more() {
		t.Error("nobody may come in the first step of the requests")
	}
	for range scheduler.LeastBurst - 1 {
		b.submit(Request{Tokens: []int32{1}, MaxTokens: 1})
	}
	b.EndExpect()
	if err := b.completeStep(); err != nil {
		t.Fatal(err)
	}
	if !b.coming.bursts {
		t.Error("the burst is not known as one")
	}
	b.runOn()
}
