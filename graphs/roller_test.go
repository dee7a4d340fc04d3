package graphs

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"reel/kernels/device"
)

// What is missed twice is captured beside the steps, and then replayed.
func TestRollerCapturesWhatIsMissed(t *testing.T) {
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

func TestRollerLeavesAloneWhatComesOnce(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(100))
	for i := range 20 {
		r.run(Decode(i + 1))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.grant(); w != nil {
		t.Errorf("%s was granted after %d misses", w.key, w.count)
	}
}

// Padding of less than an eighth is not worth a graph.
func TestRollerLeavesAloneWhatIsWellCovered(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Prefill(80))
	for range 10 {
		r.run(Prefill(75))
		r.run(Prefill(40))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.grant(); w == nil || w.key != Prefill(40) {
		t.Errorf("granted %+v, wants prefill 40", w)
	}
}

// The step does not wait for a capture of 200 ms: the engine's calls return while
// it is under way. With the capture on the step's own path they would not.
func TestNoStepWaitsForACapture(t *testing.T) {
	gate := make(chan struct{})
	var r *rig
	r = newRig(t, device.HostOptions{}, Options{Pass: func(s device.Stream, k Key) error {
		if s != r.s { // the roller's stream: hold the capture
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

// The budget is never passed, and the least recently used graph goes first.
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
		r.step += recentSteps // 20 has not been used for long
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

// A wish that is rarer than the graph it would push out is dropped.
func TestRareWishDoesNotPushOutABusyGraph(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{MaxGraphs: 1})
	r.precapture(Decode(4))
	for range 30 {
		r.run(Decode(4))
	}
	r.run(Decode(7))
	r.run(Decode(7))
	r.mu.Lock()
	r.room = r.grant()
	r.mu.Unlock()
	r.Maintain(r.next, true)
	if s := r.Stats(); s.Evicted != 0 || s.CaptureRequests != 0 {
		t.Errorf("%+v", s)
	}
}

// While sequences run, the roller makes at most one call between two steps, and
// rests for longer than it worked.
func TestRollerIsPaced(t *testing.T) {
	var p pacer
	now := time.Now()
	for step := range uint64(100) {
		now = now.Add(time.Millisecond)
		p.tended(step, true, now)
	}
	if !p.allows() {
		t.Fatal("not allowed before its first call")
	}
	p.took(10 * time.Millisecond)
	rest := 0
	for step := uint64(100); !p.allows(); step++ {
		now = now.Add(time.Millisecond)
		p.tended(step, true, now)
		rest++
	}
	if rest < 40 || rest > 42 {
		t.Errorf("after a call as long as ten steps it rested for %d, wants about %d", rest, 10*restShare)
	}
	p.took(time.Nanosecond)
	if p.allows() {
		t.Error("a second call is allowed before the next step")
	}
	p.tended(1000, false, now)
	if !p.allows() {
		t.Error("an idle engine holds the roller up")
	}
}

// Ten thousand graphs through a pool of 128: the books come back to zero, which
// the rig checks, and the device never holds more than the pool may.
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
		for range 2 * grantAfter { // twice: counts may be halved between them
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

// A key that is missed again while its graph is on the way is captured once.
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
		t.Errorf("captured %d times, %d wishes left", s.Rolled, s.CaptureRequests)
	}
}

// Failures in the roller's calls, at random: nothing leaks (the rig checks), and
// in the end the graph is there.
func TestRollerOutlivesFailures(t *testing.T) {
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

// Whichever of the roller's calls finds the device lost, it is the last one.
func TestRollerEndsWhenTheDeviceIsLost(t *testing.T) {
	for at := 1; ; at++ {
		rolled := make(chan struct{}, 1)
		r := newRig(t, device.HostOptions{}, Options{Wake: func() { rolled <- struct{}{} }})
		r.lost = true
		r.run(Decode(2))
		r.run(Decode(2))
		r.Maintain(r.next, false) // idle: the roller need not pace itself
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
			t.Fatalf("lost at call %d: ended with %v after %d calls, wants ErrSticky and none after", at, err, calls.Load())
		}
	}
}

// A roller that is told of a lost device ends with the call that it is in.
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
