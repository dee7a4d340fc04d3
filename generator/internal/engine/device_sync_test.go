package engine

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// No call synchronises the whole device while the engine serves or stops, since that would invalidate the
// roller's captures. If one does, the captures are lost and counted, and no request fails.
func TestNoDeviceWideSynchronise(t *testing.T) {
	r := seeded(t)
	a := ask(t, r, 20, 20, 30)
	for _, planted := range []bool{false, true} {
		o := nano()
		o.Chunk, o.Pages, o.Precapture = 16, 40, []int{}
		b := built(t, device.HostOptions{CaptureDelay: time.Millisecond}, o, nil)
		var waits atomic.Int64
		b.h.Trace(func(c device.Call) {
			if c.Kind == device.CallDeviceSynchronize {
				waits.Add(1)
			}
		})
		stop, stopped := make(chan struct{}), make(chan error, 1)
		go func() { stopped <- b.disturb(planted, stop) }()
		b.run()
		a.soak(b, r, 600)
		// A machine that stalls may let all captures pass.
		for steps := uint64(700); planted && b.Stats().Graphs.Failed == 0 && steps <= 3000; steps += 100 {
			a.soak(b, r, steps)
		}
		close(stop)
		g := b.Stats().Graphs
		if err := errors.Join(b.finish(), <-stopped); err != nil {
			t.Error(err)
		}
		lost := strings.Contains(g.Failure, device.ErrInvalidated.Error())
		if lost != planted || (waits.Load() > 0) != planted {
			t.Errorf("planted %v: %d device-wide synchronisations, %d captures failed: %s",
				planted, waits.Load(), g.Failed, g.Failure)
		}
		if g.Rolled == 0 && !planted {
			t.Errorf("nothing was captured: %+v", g)
		}
	}
}

// disturb synchronises the whole device over and over until stop is closed, if planted is set.
func (b *testEngine) disturb(planted bool, stop <-chan struct{}) error {
	for planted {
		select {
		case <-stop:
			return nil
		case <-time.After(200 * time.Microsecond):
			if err := b.h.Synchronize(); err != nil {
				return err
			}
		}
	}
	return nil
}
