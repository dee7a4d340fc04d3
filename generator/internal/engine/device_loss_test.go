package engine

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
)

// A request that was submitted in the same iteration as a failing command ends with the others.
func TestRequestBesideAFailedMoveEnds(t *testing.T) {
	o := nano()
	o.NoRoller = true // its capture could meet the failure, which ends nothing
	b := built(t, device.HostOptions{}, o, nil)
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

// Fail ends running, waiting and later requests with its error, and frees all memory, as Stop does. After Stop it
// does nothing.
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

// An idle engine ends if the roller finds the device lost.
func TestIdleEngineEndsWhenTheRollerLosesTheDevice(t *testing.T) {
	o := nano()
	o.Precapture = []int{}
	b := built(t, device.HostOptions{}, o, nil)
	b.h.Trace(func(c device.Call) {
		if c.Kind == device.CallBeginCapture { // a capture of the roller
			b.h.Faults().FailAt(1, true)
		}
	})
	b.run()
	for range 3 { // no graph of the start covers a prompt of seven tokens
		s := newSink()
		if _, err := b.Submit(&Request{Tokens: make([]int32, 7), MaxTokens: 1, Sink: s}); err != nil {
			break // the engine has ended
		}
		<-s.ended
	}
	if err := b.wait(); !errors.Is(err, ErrDevice) || !errors.Is(err, device.ErrSticky) {
		t.Errorf("Run returned %v", err)
	}
}

// A stop while a step runs frees everything, the graph that the step replays included, even if a device call of
// the stop fails.
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

// gated is a device on which replays wait until gate is closed.
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

// gateOp blocks its stream until gate is closed.
type gateOp struct{ gate chan struct{} }

func (gateOp) Kernel() string      { return "gate" }
func (gateOp) Check() error        { return nil }
func (o gateOp) Host(*device.Host) { <-o.gate }

// A stop while a page moves frees both of its places.
func TestStopWhileAPageMoves(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	_, h := b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 9})
	commands, _, _ := b.takeCommands()
	err := errors.Join(b.apply(commands, nil), b.formAndEnqueue(), b.apply([]command{{kind: relocate, handle: h}}, nil))
	if err != nil {
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
