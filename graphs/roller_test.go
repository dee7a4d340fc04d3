package graphs

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"reel.internal/reel/kernels/device"
)

// A shape that is missed twice is captured while steps run, and then replayed.
func TestRollerCapturesMissedShapes(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.rolling()
	if p := r.run(Decode(3)); p.Kind != Eager {
		t.Fatalf("first step ran as kind %d", p.Kind)
	}
	r.until(Decode(3), "the graph", func() bool { return r.Stats().Live == 1 })
	if p := r.run(Decode(3)); p.Kind != Exact || !p.Rolled() {
		t.Errorf("kind %d, rolled %v", p.Kind, p.Rolled())
	}
}

func TestShapeMissedOnceIsNotAdmitted(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(100))
	for i := range 20 {
		r.run(Decode(i + 1))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.policy.admit(); c != nil {
		t.Errorf("%s was admitted after %d misses", c.key, c.misses)
	}
}

// Padding of less than an eighth is not worth a graph.
func TestWellCoveredShapeIsNotAdmitted(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Prefill(80))
	for range 10 {
		r.run(Prefill(75))
		r.run(Prefill(40))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.policy.admit(); c == nil || c.key != Prefill(40) {
		t.Errorf("admitted %+v, wants prefill 40", c)
	}
}

// The engine's calls return while a capture is under way. If a step waited for the
// capture, which waits for the gate, this test would never end.
func TestNoStepWaitsForACapture(t *testing.T) {
	gate := make(chan struct{})
	var r *rig
	r = newRig(t, device.HostOptions{}, Options{Pass: func(s device.Stream, k Key) error {
		if s != r.s { // the roller's stream
			<-gate
		}
		return r.pass(s, k)
	}})
	r.rolling()
	for range 2000 {
		if p := r.run(Decode(5)); p.Kind != Eager {
			t.Fatal("the capture went past its gate")
		}
	}
	close(gate)
	r.until(Decode(5), "the graph", func() bool { return r.Stats().Live == 1 })
}

// The budget is never exceeded, and the least recently used graph is evicted first.
func TestRollerEvictsBeforeItCaptures(t *testing.T) {
	for name, o := range map[string]Options{
		"bytes":  {Budget: 4 * graphBytes, MaxGraphs: 100, Estimate: graphBytes},
		"number": {Budget: 1 << 30, MaxGraphs: 4},
	} {
		r := newRig(t, device.HostOptions{}, o)
		r.precapture(Decode(40), Decode(30), Decode(20), Decode(10))
		for range 3 {
			for _, n := range []int{40, 30, 10} {
				r.run(Decode(n))
			}
		}
		r.step += recentSteps // decode 20 was not used recently
		r.next = r.step
		r.rolling()
		r.until(Decode(22), "the graph", func() bool { return r.live[Decode(22)] != nil })
		if r.live[Decode(20)] != nil || r.live[Decode(40)] == nil {
			t.Errorf("%s: evicted the wrong graph", name)
		}
		if s := r.Stats(); s.Peak > 4*graphBytes || s.Live != 4 || s.Evicted != 1 || s.Rolled != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A request with fewer misses than the replays of the graph that it would evict is
// dropped.
func TestRareRequestDoesNotEvictABusyGraph(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{MaxGraphs: 1})
	r.precapture(Decode(4))
	for range 30 {
		r.run(Decode(4))
	}
	r.run(Decode(7))
	r.run(Decode(7))
	r.mu.Lock()
	r.evictionRequest = r.policy.admit()
	r.mu.Unlock()
	r.Maintain(r.next, true)
	if s := r.Stats(); s.Evicted != 0 || s.CaptureRequests != 0 {
		t.Errorf("%+v", s)
	}
}

// The device never holds more graphs than the pool may, and after ten thousand of
// them, of prompts and verify steps, the counts return to zero, as the rig checks.
func TestTenThousandGraphsThroughAPoolOf128(t *testing.T) {
	wake := make(chan struct{}, 1)
	r := newRig(t, device.HostOptions{}, Options{MaxGraphs: 128, Wake: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	r.rolling()
	const graphs = 10000
	for n := range uint64(graphs) {
		k := Prefill(1 + int(n))
		if n%2 == 1 {
			k = VerifyStep(1+int(n)/12, 2+int(n)/2%6) // not covered: the other one of as many queries has fewer rows
		}
		for range 2 * admitAfter { // twice as many: misses may be halved in between
			r.next++
			r.must(r.Launch(r.s, r.Acquire(k), r.next))
		}
		r.must(r.s.Synchronize())
		for r.Stats().Rolled == n {
			<-wake
			r.Maintain(r.next, false)
		}
		if l := r.h.Live(); l.Execs > 128 {
			t.Fatalf("%d execs on the device", l.Execs)
		}
	}
	if s := r.Stats(); s.Peak > 128*graphBytes || s.Evicted < graphs-130 {
		t.Errorf("%+v", s)
	}
}

func TestMoreThanAThousandLiveAtOnce(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{MaxGraphs: 2000})
	var keys []Key
	for n := range 1500 {
		keys = append(keys, Prefill(n+1))
	}
	r.precapture(keys...)
	if s := r.Stats(); s.Live != 1500 {
		t.Fatalf("%d live", s.Live)
	}
	for _, k := range keys {
		if p := r.run(k); p.Kind != Exact {
			t.Fatalf("%s ran as kind %d", k, p.Kind)
		}
	}
}

// A key that is missed again while its graph is being captured is captured once.
func TestKeyIsCapturedOnce(t *testing.T) {
	gate, begun := make(chan struct{}), make(chan struct{}, 10)
	var r *rig
	r = newRig(t, device.HostOptions{}, Options{Pass: func(s device.Stream, k Key) error {
		if s != r.s {
			begun <- struct{}{}
			<-gate
		}
		return r.pass(s, k)
	}})
	r.rolling()
	r.run(Decode(5))
	r.run(Decode(5))
	<-begun
	for range 20 {
		r.run(Decode(5))
	}
	close(gate)
	r.until(Decode(5), "the graph", func() bool { return r.Stats().Live == 1 })
	if s := r.Stats(); s.Rolled != 1 || s.CaptureRequests != 0 || s.RollTime <= 0 {
		t.Errorf("captured %d times, %d requests left", s.Rolled, s.CaptureRequests)
	}
}

// Failures at random calls of the roller leak nothing, as the rig checks, and the
// graph is captured in the end.
func TestRollerSurvivesFailures(t *testing.T) {
	for range 30 {
		r := newRig(t, device.HostOptions{}, Options{})
		r.rolling()
		r.run(Decode(2))
		r.run(Decode(2))
		r.h.Faults().FailAt(1+rand.IntN(8), false)
		for range 20 {
			r.next++
			_ = r.Launch(r.s, r.Acquire(Decode(2)), r.next) // may be the call that fails
			r.Maintain(r.next, true)
		}
		r.h.Faults().FailAt(0, false)
		r.until(Decode(2), "the graph", func() bool { return r.Stats().Live == 1 })
	}
}

// The call that finds the device lost is the roller's last, whichever call it is.
func TestRollerEndsWhenTheDeviceIsLost(t *testing.T) {
	for at := 1; ; at++ {
		rolled := make(chan struct{}, 1)
		r := newRig(t, device.HostOptions{}, Options{Wake: func() { rolled <- struct{}{} }})
		r.lost = true
		r.run(Decode(2))
		r.run(Decode(2))
		r.Maintain(r.next, false) // idle, so the roller is not paced
		var calls atomic.Int32
		r.h.Trace(func(device.Call) { calls.Add(1) })
		r.h.Faults().FailAt(at, true)
		roller, ended := NewRoller(r.Pool, r.h), make(chan error, 1)
		go func() { ended <- roller.Run() }()
		var err error
		select {
		case err = <-ended:
		case <-rolled:
			roller.Stop()
			err = <-ended
		}
		r.h.Trace(nil)
		if calls.Load() < int32(at) {
			if at < 8 { // stream, begin, three launches, end, instantiate, destroy, upload, destroy
				t.Errorf("only %d calls", calls.Load())
			}
			return
		}
		if !errors.Is(err, device.ErrSticky) || calls.Load() != int32(at) {
			t.Fatalf("lost at call %d: ended with %v after %d calls, wants ErrSticky and no call after", at, err,
				calls.Load())
		}
	}
}

// After Abandon the roller ends with the call that it is in.
func TestAbandonedRollerMakesNoFurtherCall(t *testing.T) {
	for name, keys := range map[string]int{"at rest": 0, "in a capture": 2} {
		at, gate := make(chan struct{}), make(chan struct{})
		var r *rig
		r = newRig(t, device.HostOptions{}, Options{Pass: func(s device.Stream, k Key) error {
			err := r.pass(s, k)
			if s != r.s {
				close(at)
				<-gate
			}
			return err
		}})
		r.lost = true
		for range keys {
			r.run(Decode(2))
		}
		roller, ended := NewRoller(r.Pool, r.h), make(chan error, 1)
		made := make(chan struct{})
		r.h.Trace(func(c device.Call) {
			if c.Kind == device.CallNew {
				close(made)
			}
		})
		go func() { ended <- roller.Run() }()
		if <-made; keys > 0 {
			<-at
		}
		var calls []device.CallKind
		r.h.Trace(func(c device.Call) { calls = append(calls, c.Kind) })
		roller.Abandon()
		close(gate)
		<-ended
		r.h.Trace(nil)
		if keys == 0 && len(calls) > 0 || keys > 0 && !slices.Equal(calls, []device.CallKind{device.CallEndCapture}) {
			t.Errorf("%s: on a lost device it called %v", name, calls)
		}
	}
}
