package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// pacedConfigs are the shapes of models that two ranks can share.
func pacedConfigs() map[string]model.Config {
	quantised := ranksConfig()
	quantised.Name, quantised.Hidden, quantised.Inner = quantisedName, 256, 64
	return map[string]model.Config{"bfloat16": ranksConfig(), "quantised": quantised}
}

// Chunks of prompts whose sizes follow the times that steps took change no token and no log-probability: with
// quantised weights, in a host tier, and on two ranks; with any gap, from one that decode steps alone exceed to one that
// a whole chunk fits.
func TestAnyGapGivesTheSameTokens(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	var sizes [65]int // steps by rows of prompts
	var stored, loaded uint64
	for name, c := range pacedConfigs() {
		a := askModel(t, c, r, 8, 50, 12)
		for _, ranks := range []int{1, 2} {
			for _, gap := range []time.Duration{20 * time.Microsecond, 300 * time.Microsecond, 3 * time.Millisecond, time.Hour} {
				t.Run(fmt.Sprintf("%s on %d, %v", name, ranks, gap), func(t *testing.T) {
					b := paced(t, c, ranks, gap, &sizes)
					for range 3 { // from the second time on parts of prompts are cached
						a.atOnce(t, b)
					}
					if err := b.finish(); err != nil {
						t.Error(err)
					}
					kv := b.Stats().KV
					stored, loaded = stored+kv.Stored, loaded+kv.Loaded
				})
			}
		}
	}
	if sizes[16] == 0 || slices.Max(sizes[33:]) == 0 || stored == 0 || loaded == 0 {
		t.Errorf("steps by rows of prompts: %v; %d pages were stored and %d loaded", sizes, stored, loaded)
	}
}

// paced returns an engine with a gap that runs, and counts its steps with prompts by their rows of prompts.
func paced(t *testing.T, c model.Config, ranks int, gap time.Duration, sizes *[65]int) (b *testEngine) {
	t.Helper()
	o := nano()
	o.Chunk, o.Gap, o.MaxGraphs = 64, gap, 0
	o.HostCache, o.Pages, o.slabPages = 1<<20, 40, 4
	if ranks == 1 {
		o.MixedRows = mixedRows(o, 2)
	}
	var err error
	if ranks > 1 {
		b = mustRank(t, c, ranksOptions{n: ranks}, o).testEngine
	} else if b, err = tryBuildModel(t, c, device.HostOptions{}, o, nil); err != nil {
		t.Fatal(err)
	}
	b.h.Trace(func(call device.Call) {
		if op, ok := call.Op.(kernels.QKV); ok && op.Layer == 0 && op.Class == kernels.Prefill {
			sizes[op.T-int(op.Generated)]++ // on the engine's thread
		}
	})
	b.run()
	b.eventually("the host tier is pinned", func() bool { return b.Stats().KV.HostPages > 0 })
	return b
}
