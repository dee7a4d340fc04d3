package model

import (
	"fmt"
	"math"
	"slices"

	"reel.internal/reel/kernels"
)

// Gemma 2 and 3 have norms before and after attention and feed-forward, whose weights are stored minus 1, GELU, and
// embeddings times √Hidden. Gemma 2 bounds scores and logits. Gemma 3 norms the heads of q and k, and its layers with
// windows have a RoPE of their own. (transformers, modeling_gemma2.py, modeling_gemma3.py.)
var (
	gemma2 = family{architecture: "Gemma2ForCausalLM", config: gemmaConfig(), windows: allButEach(2),
		inert:    []string{"sliding_window_size"},
		defaults: gemmaDefaults(256000, 8192),
		own:      func() ownFields { return newGemmaFields(50, 30) },
		gguf:     ggufGemma2, ggufKeys: []string{keyScoreCap, keyLogitsCap}}

	gemma3 = family{architecture: "Gemma3ForCausalLM", config: gemma3Config(), theta: 1e6,
		windows: allButEach(6), localRoPE: true,
		defaults: gemmaDefaults(262208, 131072), own: newGemma3Fields,
		gguf: ggufGemma3, ggufKeys: []string{keyLocalTheta, keyLogitsCap}}
)

const gelu = "gelu_pytorch_tanh"

func gemmaConfig() Config {
	return Config{NormsAfter: true, NormsFromOne: true, EmbeddingRoot: true, Activation: kernels.GELUTanh,
		StreamDivisor: 256, // hidden states of Gemma 3 reach some 800,000
		InnerDivisor:  256, // nothing bounds gate times up, whose inputs have weights of norms of tens
		published: map[string]string{
			afterAttentionNorm:   "post_attention_layernorm.weight",
			postAttentionNorm:    "pre_feedforward_layernorm.weight",
			afterFeedForwardNorm: "post_feedforward_layernorm.weight"}}
}

func gemma3Config() Config {
	c := gemmaConfig()
	c.HeadNorms = true
	return c
}

// gemmaDefaults are those of the smallest model when the family was published; wrapped configs omit them.
func gemmaDefaults(vocab, context int) configFile {
	return configFile{Vocab: vocab, Hidden: 2304, Inner: 9216, Layers: 26, Heads: 8, KVHeads: new(4), HeadDim: 256,
		Context: context, Eps: 1e-6, Tied: true, Window: new(4096), Act: gelu}
}

// gemmaFields are those of both families.
type gemmaFields struct {
	Act       string   `json:"hidden_activation"`
	Query     float64  `json:"query_pre_attn_scalar"` // its root divides scores, in the place of √HeadDim
	ScoreCap  *float64 `json:"attn_logit_softcapping"`
	LogitsCap *float64 `json:"final_logit_softcapping"`
}

func newGemmaFields(scores, logits float64) *gemmaFields {
	return &gemmaFields{Act: gelu, Query: 256, ScoreCap: &scores, LogitsCap: &logits}
}

func (g *gemmaFields) fill(*configFile) {}

func (g *gemmaFields) set(f *configFile, c *Config) error {
	if g.Act != gelu {
		return fmt.Errorf("%w: config.json: hidden_activation %.40q", ErrUnsupported, g.Act)
	}
	if f.Window == nil {
		return fmt.Errorf("%w: config.json: sliding_window null", ErrUnsupported)
	}
	if !(g.Query >= minScale && g.Query <= maxScale) {
		return outside("query_pre_attn_scalar", g.Query, minScale, maxScale)
	}
	c.setAttentionScale(1 / math.Sqrt(g.Query))
	for _, limit := range []struct {
		value *float64
		to    *float32
	}{{g.ScoreCap, &c.ScoreCap}, {g.LogitsCap, &c.LogitsCap}} {
		if limit.value != nil { // null: nothing is bounded
			*limit.to = float32(*limit.value)
		}
	}
	return c.checkMultipliers()
}

// gemma3Fields are Gemma 3's, in the form before version 5 of transformers.
type gemma3Fields struct {
	gemmaFields
	LocalTheta float64 `json:"rope_local_base_freq"`   // of layers with windows
	Pattern    int     `json:"sliding_window_pattern"` // each so-manieth layer sees everything
}

func newGemma3Fields() ownFields {
	return &gemma3Fields{gemmaFields: *newGemmaFields(0, 0), LocalTheta: 1e4, Pattern: 6}
}

func (g *gemma3Fields) fill(f *configFile) {
	f.setLocalTheta(g.LocalTheta)
	f.setLayerKinds(g.Pattern)
}

// setLayerKinds sets LayerKinds where the file has none: each so-manieth layer sees everything.
func (f *configFile) setLayerKinds(each int) {
	if f.LayerKinds != nil || each < 1 || f.Layers < 1 || f.Layers > maxLayers {
		return
	}
	f.LayerKinds = slices.Repeat([]string{slidingLayer}, f.Layers)
	for i := each - 1; i < f.Layers; i += each {
		f.LayerKinds[i] = fullLayer
	}
}

func (g *gemma3Fields) set(f *configFile, c *Config) error {
	if g.Pattern < 1 {
		return outside("sliding_window_pattern", g.Pattern, 1, maxLayers)
	}
	g.ScoreCap = nil // transformers hands it to no layer of Gemma 3
	return g.gemmaFields.set(f, c)
}

// Keys of Gemma in GGUF.
const (
	keyScoreCap   = "attn_logit_softcapping"
	keyLogitsCap  = "final_logit_softcapping"
	keyLocalTheta = "rope.freq_base_swa"
)

// Layers of the models whose scores are divided by the root of Hidden/Heads, which GGUF does not say.
// (llama.cpp: src/models/gemma2.cpp, gemma3.cpp.)
const gemma2Layers27B, gemma3Layers27B = 46, 62

// gemma2Window is the window of files of Gemma 2 that do not say it, as the first ones. (llama.cpp: src/models/gemma2.cpp.)
const gemma2Window = 4096

func ggufGemma2(r *ggufReader, c *Config) {
	c.ScoreCap = float32(r.float(keyScoreCap, minScale, maxScale, 50))
	c.LogitsCap = float32(r.float(keyLogitsCap, minScale, maxScale, 30))
	if c.Layers == gemma2Layers27B {
		c.AttentionScale = float32(1 / math.Sqrt(float64(c.Hidden/c.Heads)))
	}
}

func ggufGemma3(r *ggufReader, c *Config) {
	if c.Layers == gemma3Layers27B {
		c.AttentionScale = float32(1 / math.Sqrt(float64(c.Hidden/c.Heads)))
	}
	if r.has(r.arch + "." + keyLogitsCap) {
		c.LogitsCap = float32(r.float(keyLogitsCap, minScale, maxScale, 1))
	}
	// A file without windows, as of a model whose sliding_window_pattern is 1, has one RoPE for all layers.
	var window configFile
	if r.has(r.arch+"."+keyWindow) && r.optional(keyWindow) > 0 {
		window.Window = new(1)
	}
	c.LocalTheta = r.float(keyLocalTheta, minTheta, maxTheta, 1e4)
	for i := range c.Layers {
		c.Local = append(c.Local, allButEach(6)(&window, i))
	}
}
