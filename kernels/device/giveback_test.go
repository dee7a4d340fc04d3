package device

import (
	"errors"
	"runtime"
	"slices"
	"testing"
)

// Free and every Destroy free their object even if they return an error.
func TestFailedReleaseStillFrees(t *testing.T) {
	runtime.LockOSThread() // a capture must end on the thread on which it began
	defer runtime.UnlockOSThread()
	h := NewHost(HostOptions{})
	defer h.Close()
	s, _ := h.NewStream()
	e, _ := h.NewEvent()
	b, _ := h.Alloc(8)
	if err := errors.Join(s.BeginCapture(), s.Launch(appendOp{b, 1})); err != nil {
		t.Fatal(err)
	}
	g, err := s.EndCapture()
	if err != nil {
		t.Fatal(err)
	}
	x, err := g.Instantiate()
	if err != nil {
		t.Fatal(err)
	}
	free := func() error { return h.Free(b) }
	for i, release := range []func() error{x.Destroy, g.Destroy, e.Destroy, s.Destroy, free} {
		h.Faults().FailAt(1, false)
		if err := release(); err == nil {
			t.Errorf("release %d did not report the failure", i)
		}
	}
	if h.Live() != (Live{}) {
		t.Errorf("left: %+v", h.Live())
	}
}

func TestGiveBackStopsAtALostDevice(t *testing.T) {
	broken := errors.New("broken")
	var called []int
	release := func(i int, err error) func() error {
		return func() error { called = append(called, i); return err }
	}
	err := GiveBack(release(1, nil), release(2, broken), release(3, ErrSticky), release(4, nil))
	if !errors.Is(err, broken) || !errors.Is(err, ErrSticky) || !slices.Equal(called, []int{1, 2, 3}) {
		t.Errorf("%v after %v", err, called)
	}
}
