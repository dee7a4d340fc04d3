//go:build cuda

package engine

import (
	"errors"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// openGPUs opens two GPUs as one device until the test ends. With one GPU the test is skipped.
func openGPUs(t *testing.T) *device.Ranks {
	t.Helper()
	var all []*gpu.Device
	for number := range 2 {
		d, err := gpu.New(number, cuda.Kernels)
		if errors.Is(err, device.ErrBadBuffer) {
			t.Skip("this test wants two NVIDIA GPUs that can address each other's memory")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, d)
	}
	ranks, err := gpu.NewRanks(all, gpu.AnyLink, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ranks
}

// gpuRanksConfig is a model that two GPUs can share: its shares are whole tiles, and they hand them over in prompts.
func gpuRanksConfig() model.Config {
	c := microConfig()
	c.HeadDim, c.Context, c.Hidden, c.Inner = 64, 2048, 256, 384
	return c
}

// onGPUs makes an engine of the micro model on a device. The caller runs it.
func onGPUs(t *testing.T, d device.Device, c model.Config, o Options) *Engine {
	t.Helper()
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	o.KVType = kernels.BF16
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// gpuQuantisedConfig is the same model with matrices of Q4_K, and of Q8_0 where rows are too short.
func gpuQuantisedConfig() model.Config {
	c := gpuRanksConfig()
	c.Name = quantisedName
	return c
}

// On two GPUs a request gives the same tokens and log-probabilities, bit for bit, alone and beside 31 others, with
// exact, padded and rolled graphs, eagerly, and in other chunks. Those of one GPU are compared too: on Hopper its
// prompts have another order of sums, so only the log says whether they are equal.
func TestTwoGPUsGiveTheSameTokens(t *testing.T) { sameTokensOnTwo(t, gpuRanksConfig()) }

// The same holds for quantised weights.
func TestTwoGPUsGiveTheSameTokensQuantised(t *testing.T) { sameTokensOnTwo(t, gpuQuantisedConfig()) }

func sameTokensOnTwo(t *testing.T, c model.Config) {
	t.Helper()
	request, further := randomRequest(), inHostTier()
	further["drafts"] = func(o *Options) { o.Draft, o.DraftTokens, o.DraftAlways = DraftLookup, 3, true }
	divided := c
	divided.Ranks = 2
	two := sameTokens(t, request, further, func(o Options) *Engine { return onGPUs(t, openGPUs(t), divided, o) })
	one, _ := completeOn(t, onGPUs(t, openGPU(t), c, defaults()), request)
	t.Logf("the same bits as on one GPU: %v", slices.EqualFunc(one, two, sameToken))
}

// For every graph of the lattice the pass can be captured on both GPUs, and replays equal the eager run on both.
func TestTwoGPUsReplayEqualsEager(t *testing.T) {
	c, o := gpuRanksConfig(), defaults()
	c.Ranks, o.Pages = 2, 64
	replaysEqualEager(t, onGPUs(t, openGPUs(t), c, o))
}
