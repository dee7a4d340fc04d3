package graphs

import (
	"testing"

	"reel.internal/reel/kernels/device"
)

// With fewer graphs or bytes allowed, the least recently used graphs are evicted and
// the roller destroys them. With more allowed, requests are admitted again.
func TestResizeEvictsGraphsAboveTheBounds(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(1), Decode(2), Decode(3), Decode(4))
	for _, n := range []int{2, 1, 3, 4} {
		r.run(Decode(n))
	}
	r.rolling()
	r.Resize(3, 1<<30)
	r.until(Decode(4), "three are left", func() bool { return r.Stats().Execs == 3 })
	if plan := r.run(Decode(2)); plan.Kind != Padded {
		t.Errorf("the least recently used graph is still live: %+v", plan)
	}
	r.Resize(8, 2*graphBytes)
	r.until(Decode(4), "two are left", func() bool { s := r.Stats(); return s.Execs == 2 && s.Bytes <= 2*graphBytes })
	r.Resize(0, 1<<30)
	r.until(Decode(4), "none is left", func() bool { return r.Stats().Execs == 0 })
	if plan, s := r.run(Decode(9)), r.Stats(); plan.Kind != Eager || s.CaptureRequests != 0 || s.MaxGraphs != 0 {
		t.Errorf("%+v, %+v", plan, s)
	}
	r.Resize(1, 1<<30)
	r.until(Decode(5), "a request is admitted again", func() bool { return r.Stats().Live == 1 })
}
