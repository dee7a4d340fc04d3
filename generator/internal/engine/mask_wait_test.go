package engine

import (
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// The engine waits for a part of a step, but not between short steps.
func TestPatienceForMasks(t *testing.T) {
	for _, c := range []struct{ last, before, want time.Duration }{
		{4 * time.Millisecond, 3 * time.Millisecond, 750 * time.Microsecond},
		{3 * time.Millisecond, time.Hour, 750 * time.Microsecond},
		{time.Second, time.Second, mostWait},
		{time.Second, leastStep - 1, 0},
	} {
		var a awaited
		now := time.Now()
		for _, took := range []time.Duration{0, c.before, c.last} {
			now = now.Add(took)
			a.stepEnded(now)
		}
		if got := a.patience(); got != c.want {
			t.Errorf("after steps of %v and %v: %v, wants %v", c.before, c.last, got, c.want)
		}
	}
}

// The thread sleeps until the last mask of a round has come, its time is over, or the engine stops. Masks of an earlier
// round do not count.
func TestAwaitMasks(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	begin := func(most time.Duration) (round uint64, returned chan struct{}) {
		_ = b.countAsked()
		round = b.countAsked()
		b.awaited.ended = time.Now()
		returned = make(chan struct{})
		go func() {
			defer close(returned)
			b.awaitMasks(most)
		}()
		return round, returned
	}
	waits := func(returned chan struct{}) bool {
		select {
		case <-returned:
			return false
		case <-time.After(5 * time.Millisecond):
			return true
		}
	}
	mustReturn := func(what string, returned chan struct{}) {
		t.Helper()
		select {
		case <-returned:
		case <-time.After(patience):
			t.Fatalf("it still waits after %s", what)
		}
	}

	round, returned := begin(time.Hour)
	b.idleThread()
	b.sendMask(round-1, command{kind: maskMade})
	b.sendMask(round, command{kind: maskMade})
	if !waits(returned) {
		t.Error("it waits for one mask of two")
	}
	b.sendMask(round, command{kind: maskMade})
	mustReturn("the last mask", returned)
	next, returned := begin(2 * time.Millisecond)
	if mustReturn("its time", returned); next != round+1 || b.awaited.asked != 0 {
		t.Errorf("round %d follows %d, and %d masks are still waited for", next, round, b.awaited.asked)
	}
	_, returned = begin(time.Hour)
	b.idleThread()
	b.Stop()
	mustReturn("a stop", returned)
	b.run()
	if err := b.wait(); err != nil {
		t.Error(err)
	}
}
