//go:build cuda

package engine

import (
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
)

// gpuMixedConfigs are two models that have mixed passes on a GPU: a plain one, and one with biases and norms of heads. Queries
// and keys of the latter go through one more kernel after their product.
func gpuMixedConfigs() map[string]model.Config {
	plain := model.Config{Name: "llama", Vocab: 320, Hidden: 1024, Inner: 4096, Layers: 3, Heads: 16, KVHeads: 4, HeadDim: 64,
		Context: 2048, RMSNormEps: 1e-5, RoPETheta: 10000}
	normed := plain
	normed.Bias, normed.HeadNorms = true, true
	return map[string]model.Config{"plain": plain, "biases and norms": normed}
}

// mixedOnGPU has mixed steps with the rows of a GPU's kernels.
func mixedOnGPU(o *Options) {
	o.LongChunk = 256
	all := o.Geometry().MaxRows
	o.MixedRows = func(n int) (rows, most int) {
		rows, most = kernels.MixedRows(n)
		if most = min(most, o.Chunk, all-rows); all < kernels.LeastMixed || most < 1 {
			return 0, 0
		}
		return rows, most
	}
}

// With mixed steps a request gives the same tokens and log-probabilities, bit for bit, as without, alone and beside
// others.
func TestGPUMixedStepsGiveTheSameTokens(t *testing.T) {
	for name, c := range gpuMixedConfigs() {
		t.Run(name, func(t *testing.T) {
			further := map[string]func(*Options){
				"not mixed":     func(o *Options) { o.Chunk, o.NoRoller = 32, true },
				"larger chunks": func(o *Options) { o.Chunk = 240 },
				"paced, larger": func(o *Options) { o.Chunk, o.Gap, o.lead = 240, 3*time.Millisecond, 50*time.Microsecond },
				"few pages":     func(o *Options) { o.Pages = 96 },
			}
			mixed := uint64(0)
			var engines []*Engine
			sameTokens(t, randomRequest(), further, func(o Options) *Engine {
				if o.Context = 512; !o.NoRoller {
					mixedOnGPU(&o)
				}
				e := onGPUs(t, openGPU(t), c, o)
				engines = append(engines, e)
				return e
			})
			for _, e := range engines {
				mixed += e.Stats().Steps.Mixed
			}
			if t.Logf("%d mixed steps", mixed); mixed < 50 {
				t.Errorf("only %d mixed steps", mixed)
			}
		})
	}
}

// For every graph of mixed steps in the lattice the pass can be captured, and replays equal the eager run.
func TestGPUReplayOfMixedStepsEqualsEager(t *testing.T) {
	for name, c := range gpuMixedConfigs() {
		t.Run(name, func(t *testing.T) {
			o := defaults()
			o.Pages, o.Chunk = 64, 240
			mixedOnGPU(&o)
			replaysEqualEager(t, onGPUs(t, openGPU(t), c, o))
		})
	}
}
