package assembly

import (
	"errors"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// Step memory and the pool of pages take as many bytes as the plan says, also with drafts.
func TestPlanIsTheSizeOfStepMemory(t *testing.T) {
	for _, draft := range []string{protocol.DrafterOff, protocol.DrafterLookup} {
		testPlannedBytes(t, config.Options{MaxBatch: 3, MaxSeqLen: 100, Draft: draft, DraftTokens: 7})
	}
}

func testPlannedBytes(t *testing.T, options config.Options) {
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	l, err := prepareOn(func(config.Options) (hardware.Hardware, error) {
		return hardware.Hardware{Device: h, Profile: plan.HostProfile,
			Available: func() (int64, error) { return 1 << 30, nil }}, nil
	}, options, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	before := h.Live().Bytes
	g := l.EngineOptions.Geometry()
	memory, err := l.Model.NewStepMemory(h, g)
	if err != nil {
		t.Fatal(err)
	}
	pinned := int64(4*4*memory.Layout.Words()+4*4*g.MaxSamples*kernels.RecordWords+4*4*memory.RestoreWords()) +
		memory.Slots.Mask.Bytes() + memory.Slots.Bias.Bytes()
	got := h.Live().Bytes - before - pinned // which is the host's
	// The plan rounds each buffer to 512 bytes.
	if want := l.sizes.Arena + l.sizes.KVPool(); got > want || want > got+32*512 {
		t.Errorf("%s: step memory takes %d bytes, the plan says %d", options.Draft, got, want)
	}
}

// Nothing is allocated on a device before a plan fits.
func TestNothingIsTakenWithoutAPlan(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	allocations := 0
	h.Trace(func(c device.Call) {
		if c.Kind == device.CallAlloc {
			allocations++
		}
	})
	_, err := prepareOn(func(config.Options) (hardware.Hardware, error) {
		return hardware.Hardware{Device: h, Profile: plan.HostProfile,
			Available: func() (int64, error) { return 1 << 20, nil }}, nil
	}, config.Options{}, func(float64, string) {})
	if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), "1.000 MiB are available") ||
		allocations != 0 {
		t.Errorf("%v, after %d allocations", err, allocations)
	}
}
