//go:build cuda

package engine

import (
	"errors"
	"math/rand/v2"
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
		d, err := gpu.New(number, cuda.Fatbin)
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

// completeOn runs requests on an engine, alone and beside others, and ends it.
func completeOn(t *testing.T, e *Engine, r *rand.Rand, request Request) (alone, beside []Token) {
	t.Helper()
	b := &testEngine{Engine: e, t: t, ended: make(chan error, 1)}
	go func() { b.ended <- e.Run() }()
	alone = b.complete(request).tokens
	beside = b.besideOthers(r, request).tokens
	e.Stop()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
	return alone, beside
}

// On two GPUs a request gives the same tokens and log-probabilities, bit for bit, alone and beside 31 others, with
// exact, padded and rolled graphs, eagerly, and in other chunks. Those of one GPU are compared too: on Hopper its
// prompts have another order of sums, so only the log says whether they are equal.
func TestTwoGPUsGiveTheSameTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	request := Request{Tokens: tokens(r, 77), MaxTokens: 60, Sampling: sampled(7)}
	c := gpuRanksConfig()
	c.Ranks = 2
	var want []Token
	for name, change := range ways(map[string]func(*Options){
		"drafts": func(o *Options) { o.Draft, o.DraftTokens, o.DraftAlways = DraftLookup, 3, true },
		"host tier": func(o *Options) {
			o.HostCache, o.Pages = 64<<20, 96
		},
	}) {
		o := defaults()
		change(&o)
		alone, beside := completeOn(t, onGPUs(t, openGPUs(t), c, o), r, request)
		if want == nil {
			want = alone
		}
		for how, got := range map[string][]Token{"alone": alone, "beside others": beside} {
			if len(got) != request.MaxTokens || !slices.EqualFunc(got, want, sameToken) {
				t.Errorf("%s, %s: %d tokens that differ from the first run's %d", name, how, len(got), len(want))
			}
		}
	}
	c.Ranks = 0
	one, _ := completeOn(t, onGPUs(t, openGPU(t), c, defaults()), r, request)
	t.Logf("the same bits as on one GPU: %v", slices.EqualFunc(one, want, sameToken))
}

// For every graph of the lattice the pass can be captured on both GPUs, and replays equal the eager run on both.
func TestTwoGPUsReplayEqualsEager(t *testing.T) {
	c, o := gpuRanksConfig(), defaults()
	c.Ranks, o.Pages = 2, 64
	replaysEqualEager(t, onGPUs(t, openGPUs(t), c, o))
}
