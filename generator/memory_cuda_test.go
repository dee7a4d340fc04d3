//go:build linux && cuda

package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"reel/generator/internal/engine"
	"reel/kernels/device"
	gpu "reel/kernels/device/cuda"
)

// onGPU makes a model of a directory ready, with the device to close.
func onGPU(t *testing.T, o Options, open func(Options) (hardware, error)) (prepared, *engine.Engine, error) {
	t.Helper()
	if o.MaxGraphs == 0 {
		o.MaxGraphs = 1024
	}
	o.Device = "cuda"
	l, err := prepareOn(open, o, func(float64, string) {})
	if err != nil {
		return l, nil, err
	}
	e, err := engine.New(l.hardware.Device, l.model, l.plan)
	return l, e, err
}

func closeGPU(t *testing.T, l prepared, e *engine.Engine) {
	t.Helper()
	if e != nil {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if l.model != nil {
		if err := l.model.Free(l.hardware); err != nil {
			t.Error(err)
		}
	}
	if err := l.hardware.Device.(*gpu.Device).Close(); err != nil {
		t.Error(err)
	}
}

// modelDirs are the embedded model, some tiny families, and what REEL_MODELS names.
func modelDirs() []string {
	dirs := []string{"", "internal/model/testdata/qwen3", "internal/model/testdata/phi-3"}
	return append(dirs, strings.Fields(os.Getenv("REEL_MODELS"))...)
}

// What a model takes when it is ready is what the plan says: never more, and at most a
// tenth less above 4 GiB, at most 128 MiB less below.
func TestGPUMemoryIsAsPlanned(t *testing.T) {
	for _, dir := range modelDirs() {
		for _, o := range []Options{{Model: dir, MaxBatch: 64}, {Model: dir, MaxBatch: 4, MaxSeqLen: 512}} {
			l, e, err := onGPU(t, o, openHardware)
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			taken, by := l.hardware.taken()
			planned := l.sizes.atStart()
			t.Logf("%s, %d sequences of %d tokens: planned %s, NVML (%s) has %s, %s more; overhead %s, weights %s, arena %s, KV %s, %d graphs %s", l.name, l.plan.MaxBatch, l.plan.Context,
				gib(planned), by, gib(taken), gib(planned-taken), gib(l.sizes.overhead), gib(l.sizes.weightBytes()), gib(l.sizes.arena), gib(l.sizes.kvPool()), l.sizes.startGraphs, gib(l.sizes.graphsAtStart))
			most := int64(128 << 20)
			if taken > 4<<30 {
				most = taken / 10
			}
			if by == "" || planned < taken || planned-taken > most {
				t.Errorf("%s: planned %d bytes, taken %d by %q", l.name, planned, taken, by)
			}
			closeGPU(t, l, e)
		}
	}
}

// ballast takes all of the GPU's memory but `leave` bytes.
func ballast(t *testing.T, d *gpu.Device, leave int64) (release func()) {
	t.Helper()
	var taken []device.Buffer
	for piece := int64(1 << 36); piece >= 2<<20; {
		free, _, err := d.MemInfo()
		if err != nil {
			t.Fatal(err)
		}
		if free-piece < leave {
			piece /= 2
			continue
		}
		b, err := d.Alloc(piece)
		if errors.Is(err, device.ErrOutOfMemory) {
			piece /= 2
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, b)
	}
	return func() {
		for _, b := range taken {
			if err := d.Free(b); err != nil {
				t.Error(err)
			}
		}
	}
}

var leaves = []int64{1 << 30, 256 << 20, 16 << 20}

// With almost no memory left beside it a running engine goes on: what graphs it cannot
// have it does without, and the tokens are the same.
func TestGPUUnderBallast(t *testing.T) {
	l, e, err := onGPU(t, Options{MaxBatch: 8, Precapture: []int{}, GraphMemory: 1 << 30}, openHardware)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run() }()
	want := map[int]string{}
	for _, leave := range leaves {
		release := ballast(t, l.hardware.Device.(*gpu.Device), leave)
		free, _, _ := l.hardware.Device.(*gpu.Device).MemInfo()
		promptsOf(t, e, want)
		s := e.Stats().Graphs
		t.Logf("%s left: %d graphs live, %d rolled, %d evicted, %d failed (%s); steps exact %d, padded %d, eager %d", gib(free), s.Live, s.Rolled, s.Evicted, s.Failed, s.Failure, s.Exact, s.Padded, s.Eager)
		release()
	}
	shed(t, e) // with a typed error, not a failure
	e.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	closeGPU(t, l, nil)
}

// Started with almost no memory left it serves with what there is, or says what to
// lower before it takes any.
func TestGPUStartsUnderBallast(t *testing.T) {
	for _, leave := range leaves {
		release := func() {}
		l, e, err := onGPU(t, Options{}, func(o Options) (hardware, error) {
			h, err := openHardware(o)
			if err == nil {
				release = ballast(t, h.Device.(*gpu.Device), leave)
			}
			return h, err
		})
		switch {
		case err == nil:
			ended := make(chan error, 1)
			go func() { ended <- e.Run() }()
			c, err := complete(t, e, 50, 20)
			if err != nil {
				t.Fatal(err)
			}
			c.await(t, 20)
			s := e.Stats()
			t.Logf("%s left: serves with %d pages, %d graphs live, %d failed (%s)", gib(leave), s.KV.Pages, s.Graphs.Live, s.Graphs.Failed, s.Graphs.Failure)
			e.Stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		case errors.Is(err, errConfig) && leave < 64<<20:
			t.Logf("%s left: %v", gib(leave), err)
		default:
			t.Errorf("%s left: %v", gib(leave), err)
		}
		release()
		closeGPU(t, l, nil)
	}
}

// Loading, generating and unloading 200 times grows neither the GPU's memory nor this
// process's.
func TestGPULoads200Times(t *testing.T) {
	h, err := openHardware(Options{Device: "cuda"})
	if err != nil {
		t.Fatal(err)
	}
	d := h.Device.(*gpu.Device)
	taken := func() int64 {
		free, total, err := d.MemInfo()
		if err != nil {
			t.Fatal(err)
		}
		return total - free
	}
	loadOften(t, h, 200, taken)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
