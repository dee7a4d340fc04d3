package graphs

import (
	"testing"

	"reel/kernels/device"
)

// Fewer graphs, or fewer bytes: the ones that were least recently used go, and
// the roller destroys them. More again: wishes are granted again.
func TestResizeEvictsWhatHasNoPlace(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(1), Decode(2), Decode(3), Decode(4))
	for _, n := range []int{2, 1, 3, 4} {
		r.run(Decode(n))
	}
	r.rolling()
	r.Resize(3, 1<<30)
	r.until(Decode(4), "three are left", func() bool { return r.Stats().Execs == 3 })
	if plan := r.run(Decode(2)); plan.Kind != Padded {
		t.Errorf("the one that was least recently used is still there: %+v", plan)
	}
	r.Resize(8, 2*graphBytes)
	r.until(Decode(4), "two are left", func() bool { s := r.Stats(); return s.Execs == 2 && s.Bytes <= 2*graphBytes })
	r.Resize(0, 1<<30)
	r.until(Decode(4), "none is left", func() bool { return r.Stats().Execs == 0 })
	if plan, s := r.run(Decode(9)), r.Stats(); plan.Kind != Eager || s.CaptureRequests != 0 || s.MaxGraphs != 0 {
		t.Errorf("%+v, %+v", plan, s)
	}
	r.Resize(1, 1<<30)
	r.until(Decode(5), "a wish is granted again", func() bool { return r.Stats().Live == 1 })
}
