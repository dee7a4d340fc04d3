package engine

import (
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels/device"
)

// New says once that it has taken its memory, before a pass runs or is captured: weights may be read from then on.
func TestAllocatedComesBeforePasses(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 2})
	defer h.Close()
	c := microConfig()
	m, err := model.Load(h, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	called, launched, live := 0, 0, device.Live{}
	h.Trace(func(call device.Call) {
		if call.Kind == device.CallLaunch && called == 0 {
			launched++
		}
	})
	o := defaults()
	o.Allocated = func() { called, live = called+1, h.Live() }
	e, err := New(h, m, o)
	if err != nil {
		t.Fatal(err)
	}
	if called != 1 || launched != 0 || live.Buffers != h.Live().Buffers {
		t.Errorf("%d calls after %d launches, %d of %d buffers were taken", called, launched, live.Buffers, h.Live().Buffers)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
