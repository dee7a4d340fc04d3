package engine

import (
	"errors"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// heartbeat asks for a heartbeat; the channel is closed when it comes.
func (b *testEngine) heartbeat() <-chan struct{} {
	done := make(chan struct{})
	b.Heartbeat(func() { close(done) })
	return done
}

// mustHeartbeat waits for a heartbeat.
func (b *testEngine) mustHeartbeat() {
	b.t.Helper()
	select {
	case <-b.heartbeat():
	case <-time.After(patience):
		b.t.Fatal("no heartbeat")
	}
}

// An idle engine runs one step for each heartbeat that is asked for. The step is not counted as work.
func TestIdleEngineHasAHeartbeat(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	before := b.next
	const heartbeats = 5
	for range heartbeats {
		b.mustHeartbeat()
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
	if ran := b.next - before; ran != heartbeats {
		t.Errorf("%d steps ran for %d heartbeats", ran, heartbeats)
	}
	if s := b.Stats().Steps; s.Prefill+s.Decode+s.Tokens != 0 {
		t.Errorf("heartbeats are counted as work: %+v", s)
	}
}

// Heartbeats before, during and between requests change no token.
func TestHeartbeatsChangeNoToken(t *testing.T) {
	a := ask(t, seeded(t), 12, 20, 20)
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	for i := range a.requests {
		b.mustHeartbeat()
		first, _ := b.submit(a.requests[i])
		second, _ := b.submit(a.requests[(i+1)%len(a.requests)])
		for range 3 {
			b.mustHeartbeat()
		}
		a.check(t, i, first.must(t), true)
		a.check(t, (i+1)%len(a.requests), second.must(t), true)
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
}

// A device that hangs stops the heartbeat, whether the engine is idle or busy.
func TestHungDeviceHasNoHeartbeat(t *testing.T) {
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
		b.mustHeartbeat()
		close(armed)
		if busy {
			b.submit(Request{Tokens: []int32{1}, MaxTokens: 9})
			<-hung
		}
		heartbeat := b.heartbeat()
		<-hung
		select {
		case <-heartbeat:
			t.Errorf("%s: a heartbeat came from a device that hangs", name)
		case <-time.After(20 * time.Millisecond):
		}
		b.Stats() // must not block
		close(hang)
		<-heartbeat
		if err := b.finish(); err != nil {
			t.Fatal(err)
		}
	}
}

// The graphs' budget can be changed up to the memory set aside at the start, but not without a roller.
func TestResizeStaysWithinTheStartsMemory(t *testing.T) {
	o := nano()
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	if err := b.Resize(2, o.GraphMemory+1); !errors.Is(err, ErrBudget) || b.Stats().Graphs.MaxGraphs != o.MaxGraphs {
		t.Errorf("more than the start's: %v, %+v", err, b.Stats().Graphs)
	}
	err := b.Resize(2, 0)
	if g := b.Stats().Graphs; err != nil || g.MaxGraphs != 2 || g.Budget != o.GraphMemory {
		t.Errorf("two graphs: %v, %+v", err, g)
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
