//go:build cuda

package assembly

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/protocol"
)

// onGPU loads a model and makes its engine; the caller closes the device.
func onGPU(
	t *testing.T, o config.Options, open func(config.Options) (hardware.Hardware, error),
) (Prepared, *engine.Engine, error) {
	t.Helper()
	if o.MaxGraphs == 0 {
		o.MaxGraphs = 1024
	}
	o.Device = "cuda"
	l, err := prepareOn(open, o, func(float64, string) {})
	if err != nil {
		return l, nil, err
	}
	e, err := engine.New(l.Hardware.Device, l.Model, l.EngineOptions)
	return l, e, err
}

func closeGPU(t *testing.T, l Prepared, e *engine.Engine) {
	t.Helper()
	if e != nil {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if l.Model != nil {
		if err := l.Model.Free(l.Hardware); err != nil {
			t.Error(err)
		}
	}
	if err := l.Hardware.Device.(*gpu.Device).Close(); err != nil {
		t.Error(err)
	}
}

// modelDirs are the embedded model, tiny families, and the directories in REEL_MODELS.
func modelDirs() []string {
	dirs := []string{"", "../model/testdata/qwen3", "../model/testdata/phi-3"}
	return append(dirs, strings.Fields(os.Getenv("REEL_MODELS"))...)
}

// The memory of a ready model is never above its plan. It is at most a tenth below it above 4
// GiB, else at most 128 MiB.
func TestGPUMemoryIsAsPlanned(t *testing.T) {
	for _, dir := range modelDirs() {
		for _, o := range []config.Options{{Model: dir, MaxBatch: 64}, {Model: dir, MaxBatch: 4, MaxSeqLen: 512}} {
			l, e, err := onGPU(t, o, hardware.Open)
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			taken, by := l.Hardware.Taken()
			planned := l.sizes.AtStart()
			o, s := l.EngineOptions, l.sizes
			t.Logf("%s, %d sequences of %d tokens: planned %s, NVML (%s) has %s, %s more; "+
				"overhead %s, weights %s, arena %s, KV %s, %d graphs %s", l.Name, o.MaxBatch, o.Context,
				plan.Size(planned), by, plan.Size(taken), plan.Size(planned-taken),
				plan.Size(s.Overhead), plan.Size(s.WeightBytes()), plan.Size(s.Arena), plan.Size(s.KVPool()),
				s.StartGraphs, plan.Size(s.GraphsAtStart))
			most := int64(128 << 20)
			if taken > 4<<30 {
				most = taken / 10
			}
			if by == "" || planned < taken || planned-taken > most {
				t.Errorf("%s: planned %d bytes, taken %d by %q", l.Name, planned, taken, by)
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

// An engine that has almost no memory left goes on without the graphs that do not fit, and its
// tokens stay the same.
func TestGPUUnderBallast(t *testing.T) {
	l, e, err := onGPU(t, config.Options{MaxBatch: 8, Precapture: []int{}, GraphMemory: 1 << 30}, hardware.Open)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run() }()
	want := map[int]string{}
	for _, leave := range leaves {
		release := ballast(t, l.Hardware.Device.(*gpu.Device), leave)
		free, _, _ := l.Hardware.Device.(*gpu.Device).MemInfo()
		promptsOf(t, e, want)
		s := e.Stats().Graphs
		t.Logf("%s left: %d graphs live, %d rolled, %d evicted, %d failed (%s); "+
			"steps exact %d, padded %d, eager %d",
			plan.Size(free), s.Live, s.Rolled, s.Evicted, s.Failed, s.Failure, s.Exact, s.Padded, s.Eager)
		release()
	}
	shed(t, e) // with a typed error, no failure
	e.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	closeGPU(t, l, nil)
}

// serving opens the GPU, leaves that much of its memory, and loads the embedded model. Before
// the third look for memory it calls third.
func serving(
	t *testing.T, leave int64, third func(release func()),
) (l Prepared, e *engine.Engine, release func(), looks int, err error) {
	t.Helper()
	release = func() {}
	l, e, err = onGPU(t, config.Options{}, func(o config.Options) (hardware.Hardware, error) {
		h, err := hardware.Open(o)
		if err != nil {
			return h, err
		}
		release = sync.OnceFunc(ballast(t, h.Device.(*gpu.Device), leave))
		available := h.Available
		h.Available = func() (int64, error) {
			if looks++; looks == 3 {
				third(release)
			}
			return available()
		}
		return h, nil
	})
	return l, e, release, looks, err
}

// serves completes one request on a running engine.
func serves(t *testing.T, e *engine.Engine) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- e.Run() }()
	c, err := complete(t, e, 50, 20)
	if err != nil {
		t.Fatal(err)
	}
	c.await(t, 20)
	e.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// A start with little memory left serves with that.
func TestGPUStartsUnderBallast(t *testing.T) {
	for _, leave := range leaves[:2] {
		l, e, release, _, err := serving(t, leave, func(func()) {})
		if err != nil {
			t.Fatalf("%s left: %v", plan.Size(leave), err)
		}
		serves(t, e)
		s := e.Stats()
		t.Logf("%s left: serves with %d pages, %d graphs live, %d failed (%s)", plan.Size(leave), s.KV.Pages,
			s.Graphs.Live, s.Graphs.Failed, s.Graphs.Failure)
		release()
		closeGPU(t, l, nil)
	}
}

// A start that lacks memory because of other programs waits for them within its limit. It then
// holds nothing, and its error names the lack and its cause. If they end in time, it serves.
func TestGPUWaitsForMemory(t *testing.T) {
	defer func(w hardware.Retry) { hardware.Patience = w }(hardware.Patience)
	hardware.Patience = hardware.Retry{Limit: 300 * time.Millisecond, Pause: 10 * time.Millisecond}
	l, _, release, looks, err := serving(t, leaves[2], func(func()) {})
	if !errors.Is(err, device.ErrBusy) || !errors.Is(err, config.ErrNoRoom) || errors.Is(err, config.ErrConfig) ||
		failure.Explain(err).Code != protocol.CodeGPUBusy || looks < 2 {
		t.Fatalf("after %d looks: %v", looks, err)
	}
	t.Logf("%s left: after %d looks: %v", plan.Size(leaves[2]), looks, err)
	if free, _, err := l.Hardware.Device.(*gpu.Device).MemInfo(); err != nil || free < leaves[2] {
		t.Errorf("%s left of %s: %v", plan.Size(free), plan.Size(leaves[2]), err)
	}
	release()
	closeGPU(t, l, nil)

	hardware.Patience.Limit = time.Minute
	l, e, _, looks, err := serving(t, leaves[2], func(release func()) { release() })
	if err != nil || looks != 4 { // the last one sees that no more is freed
		t.Fatalf("after %d looks: %v", looks, err)
	}
	serves(t, e)
	closeGPU(t, l, nil)
}

// Loading, generating and unloading 200 times leaks neither GPU memory nor host memory.
func TestGPULoads200Times(t *testing.T) {
	h, err := hardware.Open(config.Options{Device: "cuda"})
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
