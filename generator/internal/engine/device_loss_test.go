package engine

import (
	"errors"
	"testing"

	"reel/kernels/device"
)

// What was submitted beside a command that fails comes to its end with the others.
func TestRequestBesideAFailedMoveStillEnds(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	first, h := b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 9})
	commands, _, _ := b.takeCommands()
	if err := errors.Join(b.apply(commands, nil), b.formAndEnqueue()); err != nil {
		t.Fatal(err)
	}
	b.Relocate(h, 0)
	second, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1})
	b.h.Faults().FailAt(1, false)
	b.run()
	if err := b.wait(); !errors.Is(err, ErrDevice) {
		t.Errorf("Run returned %v", err)
	}
	for _, s := range []*sink{first, second} {
		if s.must(t); !errors.Is(s.finish.Err, ErrDevice) {
			t.Errorf("a request ended with %v, wants ErrDevice", s.finish.Err)
		}
	}
	b.returned()
}

// Fail ends what runs, what waits and what comes later with its error, and gives all
// memory back, as Stop does. After Stop it says nothing.
func TestFail(t *testing.T) {
	cause := errors.New("the weights are others")
	b := built(t, device.HostOptions{}, nano(), nil)
	first, _ := b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 9})
	b.Fail(cause)
	b.run()
	if err := b.wait(); !errors.Is(err, cause) || errors.Is(err, ErrDevice) {
		t.Errorf("Run returned %v", err)
	}
	if first.must(t); !errors.Is(first.finish.Err, cause) {
		t.Errorf("the request ended with %v", first.finish.Err)
	}
	if _, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1}); !errors.Is(err, cause) {
		t.Errorf("a later one was refused with %v", err)
	}
	b.returned()

	b = built(t, device.HostOptions{}, nano(), nil)
	b.Stop()
	b.Fail(cause)
	b.run()
	if err := b.wait(); err != nil {
		t.Errorf("after Stop, Run returned %v", err)
	}
	b.returned()
}

// An engine that rests hears from the roller that the device is lost.
func TestIdleEngineEndsWhenTheRollerLosesTheDevice(t *testing.T) {
	o := nano()
	o.Precapture = []int{}
	b := built(t, device.HostOptions{}, o, nil)
	b.h.Trace(func(c device.Call) {
		if c.Kind == device.CallBeginCapture { // the roller's
			b.h.Faults().FailAt(1, true)
		}
	})
	b.run()
	for range 3 { // a prompt of seven tokens is in no graph
		s := newSink()
		if _, err := b.Submit(&Request{Tokens: make([]int32, 7), MaxTokens: 1, Sink: s}); err != nil {
			break // it has ended already
		}
		<-s.ended
	}
	if err := b.wait(); !errors.Is(err, ErrDevice) || !errors.Is(err, device.ErrSticky) {
		t.Errorf("Run returned %v", err)
	}
}

// A stop while a step runs gives everything back, the graph that the step
// replays included, even where a call of the stop fails.
func TestFailureInAStopWhileAGraphRuns(t *testing.T) {
	for at := 1; at < 8; at++ {
		gate := make(chan struct{})
		closed := false
		b := built(t, device.HostOptions{}, nano(), func(d device.Device) device.Device {
			return &gated{Device: d, gate: gate}
		})
		_, _ = b.submit(Request{Tokens: []int32{1, 2, 3, 4}, MaxTokens: 3})
		commands, _, _ := b.takeCommands()
		if err := errors.Join(b.apply(commands, nil), b.formAndEnqueue()); err != nil {
			t.Fatal(err)
		}
		b.h.Faults().FailAt(at, false)
		b.h.Trace(func(c device.Call) {
			if c.Kind == device.CallDestroy && !closed {
				closed = true
				close(gate)
			}
		})
		b.finishAll(ErrShutdown)
		_ = b.Close()
		b.h.Trace(nil)
		b.returned()
	}
}

// gated is a device whose replays wait for a gate.
type gated struct {
	device.Device
	gate chan struct{}
}

func (g *gated) NewStream() (device.Stream, error) {
	s, err := g.Device.NewStream()
	return &gatedStream{s, g}, err
}

type gatedStream struct {
	device.Stream
	g *gated
}

func (s *gatedStream) Replay(x device.Exec) error {
	if err := s.Launch(gateOp{s.g.gate}); err != nil {
		return err
	}
	return s.Stream.Replay(x)
}

// gateOp holds its stream up until the gate is open.
type gateOp struct{ gate chan struct{} }

func (gateOp) Kernel() string      { return "gate" }
func (gateOp) Check() error        { return nil }
func (o gateOp) Host(*device.Host) { <-o.gate }

// A stop while a page moves leaves no page in the books.
func TestStopWhileAPageMoves(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	_, h := b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 9})
	commands, _, _ := b.takeCommands()
	if err := errors.Join(b.apply(commands, nil), b.formAndEnqueue(), b.apply([]command{{kind: relocate, handle: h}}, nil)); err != nil {
		t.Fatal(err)
	}
	if len(b.moves) != 1 {
		t.Fatal("no page moves")
	}
	b.finishAll(ErrShutdown)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.baseline()
	b.returned()
}
