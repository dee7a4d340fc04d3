//go:build cuda

package engine

import (
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
)

// gpuLayersConfig is a model whose layers differ as those of Gemma 4 do: in heads, of which the wide ones have kernels of
// their own, in windows, in values that are keys.
func gpuLayersConfig() model.Config {
	c := model.Config{Name: "gemma4", Vocab: 320, Hidden: 1024, Inner: 2048, Layers: 5, Heads: 8, KVHeads: 4, HeadDim: 64,
		Context: 2048, RMSNormEps: 1e-5, RoPETheta: 10000, Windows: []int{100, 0, 100, 100, 0}}
	c.Wide = &model.Wide{Layers: []bool{false, true, false, false, true}, HeadDim: 512, KVHeads: 2, KeysAreValues: true}
	c.LocalTheta, c.Local = 100, []bool{true, false, true, true, false}
	c.RoPE = model.RoPEScaling{Kind: model.ProportionalRoPE, Factor: 1, Fraction: 0.25}
	c.HeadNorms, c.ValueNorms, c.NormsAfter, c.LayerScales, c.AttentionScale = true, true, true, true, 1
	c.StreamDivisor, c.InnerDivisor, c.LogitsCap, c.Activation = 4, 8, 20, kernels.GELUTanh
	return c
}

// gpuLayersConfigs are that model, with experts beside its feed-forwards, and with embeddings of layers, of which the last
// two use keys and values of others.
func gpuLayersConfigs() map[string]model.Config {
	plain := gpuLayersConfig()
	experts, shared := plain, plain
	experts.Experts = &model.Experts{Count: 8, Used: 2, Inner: 256, Shared: 2048, Normalise: true, Beside: true}
	shared.SharedKV, shared.PerLayer = &model.SharedKV{Layers: 2, Inner: 1024}, 64
	quantised := plain
	quantised.Name = quantisedName
	return map[string]model.Config{"plain": plain, "experts": experts, "shared": shared, "quantised": quantised}
}

// Models whose layers differ give the same tokens and log-probabilities, bit for bit, alone and beside others, also with
// pages in a host tier.
func TestGPUGivesTheSameTokensOfLayersThatDiffer(t *testing.T) {
	for name, c := range gpuLayersConfigs() {
		t.Run(name, func(t *testing.T) {
			further := inHostTier()
			further["larger chunks"] = func(o *Options) { o.Chunk = 128 }
			further["drafts"] = func(o *Options) { o.Draft, o.DraftTokens, o.DraftAlways = DraftLookup, 3, true }
			sameTokens(t, randomRequest(), further, func(o Options) *Engine { return onGPUs(t, openGPU(t), c, o) })
		})
	}
}

// Their passes can be captured, and replays equal the eager run.
func TestGPUReplayOfLayersThatDifferEqualsEager(t *testing.T) {
	for name, c := range gpuLayersConfigs() {
		t.Run(name, func(t *testing.T) {
			o := defaults()
			o.Pages = 64
			replaysEqualEager(t, onGPUs(t, openGPU(t), c, o))
		})
	}
}
