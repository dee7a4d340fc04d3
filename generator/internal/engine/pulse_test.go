package engine

import (
	"errors"
	"testing"
	"time"

	"reel/kernels/device"
)

// pulse asks for a sign of life.
func (b *bench) pulse() <-chan struct{} {
	done := make(chan struct{})
	b.Pulse(func() { close(done) })
	return done
}

func (b *bench) mustPulse() {
	b.t.Helper()
	select {
	case <-b.pulse():
	case <-time.After(patience):
		b.t.Fatal("no pulse")
	}
}

// An idle engine runs a step for each pulse that is asked for, and none besides.
// The step is on nobody's account.
func TestIdleEngineHasAPulse(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	before := b.next
	const pulses = 5
	for range pulses {
		b.mustPulse()
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
	if ran := b.next - before; ran != pulses {
		t.Errorf("%d steps ran for %d pulses", ran, pulses)
	}
	if s := b.Stats().Steps; s.Prefill+s.Decode+s.Tokens != 0 {
		t.Errorf("pulses are counted as work: %+v", s)
	}
}

// Pulses between, before and during requests change no token.
func TestPulsesChangeNoToken(t *testing.T) {
	a := ask(t, seeded(t), 12, 20, 20)
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	for i := range a.requests {
		b.mustPulse()
		first, _ := b.submit(a.requests[i])
		second, _ := b.submit(a.requests[(i+1)%len(a.requests)])
		for range 3 {
			b.mustPulse()
		}
		a.check(t, i, first.must(t), true)
		a.check(t, (i+1)%len(a.requests), second.must(t), true)
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
}

// A device that hangs stops the pulse, idle or not.
func TestHungDeviceHasNoPulse(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		hang, hung := make(chan struct{}), make(chan struct{})
		armed := make(chan struct{})
		b := built(t, device.HostOptions{Delay: func() time.Duration {
			select {
			case <-armed:
				select {
				case <-hung:
				default:
					close(hung)
				}
				<-hang
			default:
			}
			return 0
		}}, nano(), nil)
		b.run()
		b.mustPulse()
		close(armed)
		if busy {
			b.submit(Request{Tokens: []int32{1}, MaxTokens: 9})
			<-hung
		}
		pulse := b.pulse()
		<-hung
		select {
		case <-pulse:
			t.Errorf("%s: a pulse came of a device that hangs", name)
		case <-time.After(20 * time.Millisecond):
		}
		b.Stats() // answers all the same
		close(hang)
		<-pulse
		if err := b.finish(); err != nil {
			t.Fatal(err)
		}
	}
}

// The graphs' budget changes within what the start has set aside, and not where
// nothing captures any more.
func TestResizeKeepsToTheStart(t *testing.T) {
	o := nano()
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	if err := b.Resize(2, o.GraphMemory+1); !errors.Is(err, ErrBudget) || b.Stats().Graphs.MaxGraphs != o.MaxGraphs {
		t.Errorf("more than the start's: %v, %+v", err, b.Stats().Graphs)
	}
	if err := b.Resize(2, 0); err != nil || b.Stats().Graphs.MaxGraphs != 2 || b.Stats().Graphs.Budget != o.GraphMemory {
		t.Errorf("two graphs: %v, %+v", err, b.Stats().Graphs)
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
	o.NoRoller = true
	b = built(t, device.HostOptions{}, o, nil)
	b.run()
	if err := b.Resize(2, 0); !errors.Is(err, ErrBudget) {
		t.Errorf("without a roller: %v", err)
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
}
