//go:build cuda

package engine

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// openGPU opens the first GPU until the test ends.
func openGPU(t *testing.T) *gpu.Device {
	t.Helper()
	d, err := gpu.New(0, cuda.Kernels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// builtOn makes an engine for the micro model on a GPU, with an EAGLE-3 head if o asks for a draft model. The caller
// runs it.
func builtOn(t *testing.T, d device.Device, o Options) *Engine {
	t.Helper()
	c := microConfig()
	c.HeadDim, c.Context = 32, max(2048, o.Context)
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if head := gpuHead(c); o.Draft == DraftModel {
		if o.DraftModel, err = model.Load(d, head, randomTensors{head}, func(float64) {}); err != nil {
			t.Fatal(err)
		}
	}
	o.KVType = kernels.BF16
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// runOnGPU runs an engine for the micro model on a GPU until the test ends.
func runOnGPU(t *testing.T, o Options) *testEngine {
	t.Helper()
	e := builtOn(t, openGPU(t), o)
	b := &testEngine{Engine: e, t: t, ended: make(chan error, 1)}
	go func() { b.ended <- e.Run() }()
	t.Cleanup(func() {
		e.Stop()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// ways returns options that change no result, by name, and further ones.
func ways(further map[string]func(*Options)) map[string]func(*Options) {
	all := map[string]func(*Options){
		"exact":  func(*Options) {},
		"padded": func(o *Options) { o.Precapture, o.MaxGraphs = []int{32}, 12 },
		"eager":  func(o *Options) { o.MaxGraphs = 0 },
		"rolled": func(o *Options) { o.Precapture, o.MaxGraphs = []int{}, 40 },
		"chunks": func(o *Options) { o.Chunk = 20 },
		"paced":  func(o *Options) { o.Gap, o.lead = 500*time.Microsecond, 50*time.Microsecond },
	}
	maps.Copy(all, further)
	return all
}

// inHostTier returns ways with pages that move to the host, alone and beside chunks that measured times size.
func inHostTier() map[string]func(*Options) {
	return map[string]func(*Options){
		"host tier": func(o *Options) { o.HostCache, o.Pages = 64<<20, 96 },
		"paced, host tier": func(o *Options) {
			o.Gap, o.lead, o.Chunk, o.HostCache, o.Pages = 500*time.Microsecond, 50*time.Microsecond, 64, 64<<20, 96
		},
	}
}

// A request gives the same tokens and log-probabilities, bit for bit, alone and beside 31 others, with exact,
// padded and rolled graphs, eagerly, in other chunks and in those that measured times size.
func TestGPUGivesTheSameTokens(t *testing.T) {
	sameTokens(t, randomRequest(), nil, func(o Options) *Engine { return builtOn(t, openGPU(t), o) })
}

// The same holds for quantised weights, also with pages in a host tier.
func TestGPUGivesTheSameTokensQuantised(t *testing.T) {
	c := gpuQuantisedConfig()
	sameTokens(t, randomRequest(), inHostTier(), func(o Options) *Engine { return onGPUs(t, openGPU(t), c, o) })
}

func randomRequest() Request {
	return Request{Tokens: tokens(rand.New(rand.NewPCG(rand.Uint64(), 0)), 77), MaxTokens: 60, Sampling: sampled(7)}
}

// sameTokens runs a request on engines that differ in ways(further), alone and beside others. It returns the tokens.
func sameTokens(t *testing.T, request Request, further map[string]func(*Options),
	engine func(Options) *Engine) (want []Token) {
	t.Helper()
	for name, change := range ways(further) {
		o := defaults()
		change(&o)
		alone, beside := completeOn(t, engine(o), request)
		if want == nil {
			want = alone
		}
		for how, got := range map[string][]Token{"alone": alone, "beside others": beside} {
			if len(got) != request.MaxTokens || !slices.EqualFunc(got, want, sameToken) {
				t.Errorf("%s, %s: %d tokens that differ from the first run's %d", name, how, len(got), len(want))
			}
		}
	}
	return want
}

// completeOn runs a request on an engine, alone and beside others, and ends it.
func completeOn(t *testing.T, e *Engine, request Request) (alone, beside []Token) {
	t.Helper()
	b := &testEngine{Engine: e, t: t, ended: make(chan error, 1)}
	go func() { b.ended <- e.Run() }()
	alone = b.complete(request).tokens
	beside = b.besideOthers(rand.New(rand.NewPCG(rand.Uint64(), 0)), request).tokens
	e.Stop()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
	return alone, beside
}

// For every graph of the lattice the pass can be captured, and replays equal the eager run.
func TestGPUReplayEqualsEager(t *testing.T) {
	o := defaults()
	o.Pages = 64
	replaysEqualEager(t, builtOn(t, openGPU(t), o))
}

// replaysEqualEager checks every graph of an engine, and closes it.
func replaysEqualEager(t *testing.T, e *Engine) {
	t.Helper()
	err := e.Check(func(c Checked, err error) {
		if err != nil {
			t.Errorf("%s: %v", c.Report.Key, err)
		}
	})
	if err := errors.Join(err, e.Close()); err != nil {
		t.Fatal(err)
	}
}
