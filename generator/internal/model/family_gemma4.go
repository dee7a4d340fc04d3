package model

import (
	"errors"
	"fmt"
	"strconv"

	"reel.internal/reel/kernels"
)

// Gemma 4 differs from Gemma 3 so: norms have their weights whole; heads of v are normed; scores are not scaled; layers
// without a window have wider heads, of which RoPE rotates a part, and may make values by the matrix of keys; the
// residual stream is multiplied after each layer; experts may stand beside the feed-forward (26B-A4B); and the last
// layers may use keys and values of others, and all have embeddings of their own (E2B, E4B).
// (transformers, modeling_gemma4.py.)
var gemma4 = family{architecture: "Gemma4ForCausalLM", config: gemma4Config(), theta: 1e6, windows: allButEach(6),
	localRoPE: true, scalings: []RoPEKind{ProportionalRoPE}, defaults: gemma4Defaults(30, 512, 131072),
	own: func() ownFields { return newGemma4Fields(256) }, gguf: ggufGemma4,
	ggufKeys: []string{keyLogitsCap, keyLocalTheta, keyLocalHeadDim, keyLocalValueDim, keyLocalRotated, keyPattern,
		keyPerLayer, keySharedKV},
	ggufByLayer: []string{keyInner, keyKVHeads}}

func gemma4Config() Config {
	c := gemma3Config()
	c.NormsFromOne, c.ValueNorms, c.LayerScales = false, true, true
	c.setAttentionScale(1)
	return c
}

// gemma4Unified is Gemma 4 12B, without embeddings of layers. (transformers, modeling_gemma4_unified.py.)
var gemma4Unified = func() family {
	f := gemma4
	f.architecture, f.defaults = "Gemma4UnifiedForCausalLM", gemma4Defaults(30, 1024, 262144)
	f.own = func() ownFields { return newGemma4Fields(0) }
	return f
}()

func gemma4Defaults(layers, window, context int) configFile {
	f := gemmaDefaults(262144, context)
	f.Layers, f.Window, f.EOS = layers, new(window), tokenIDs{1}
	return f
}

// gemma4Fields are those of Gemma 4.
type gemma4Fields struct {
	Act           string   `json:"hidden_activation"`
	LogitsCap     *float64 `json:"final_logit_softcapping"`
	KeysAreValues bool     `json:"attention_k_eq_v"`
	GlobalHeadDim int      `json:"global_head_dim"`
	GlobalKVHeads *int     `json:"num_global_key_value_heads"`
	PerLayer      int      `json:"hidden_size_per_layer_input"`
	PerLayerVocab int      `json:"vocab_size_per_layer_input"`
	SharedKV      int      `json:"num_kv_shared_layers"`
	DoubleWide    bool     `json:"use_double_wide_mlp"`
	Sparse        bool     `json:"enable_moe_block"`
	Experts       int      `json:"num_experts"`
	Used          int      `json:"top_k_experts"`
	ExpertInner   int      `json:"moe_intermediate_size"`
	Bidirectional *string  `json:"use_bidirectional_attention"` // vision: rows of images see one another
	// LayerConfig is in the place of GlobalHeadDim and GlobalKVHeads, by layer, as transformers writes it since 5.24.
	LayerConfig map[string]map[string]int `json:"per_layer_config"`
}

func newGemma4Fields(perLayer int) *gemma4Fields {
	return &gemma4Fields{Act: gelu, GlobalHeadDim: 512, PerLayer: perLayer, PerLayerVocab: 262144}
}

func (g *gemma4Fields) fill(f *configFile) {
	f.setLocalTheta(1e4)
	if f.RoPE == nil {
		f.RoPE = &ropes{Type: string(ProportionalRoPE), Fraction: new(0.25), Theta: new(1e6)}
	}
	f.setLayerKinds(6)
	if n := len(f.LayerKinds); n > 0 && n == f.Layers {
		f.LayerKinds[n-1] = fullLayer // whatever it says
	}
}

func (g *gemma4Fields) set(f *configFile, c *Config) error {
	switch {
	case g.Act != gelu:
		return fmt.Errorf("%w: config.json: hidden_activation %.40q", ErrUnsupported, g.Act)
	case f.Window == nil:
		return fmt.Errorf("%w: config.json: sliding_window null", ErrUnsupported)
	case g.Bidirectional != nil && *g.Bidirectional != "vision":
		return fmt.Errorf("%w: config.json: use_bidirectional_attention %.40q", ErrUnsupported, *g.Bidirectional)
	case g.PerLayer > 0 && g.PerLayerVocab != c.Vocab:
		return fmt.Errorf("%w: config.json: vocab_size_per_layer_input %d beside a vocab_size of %d", ErrUnsupported,
			g.PerLayerVocab, c.Vocab)
	}
	if g.LogitsCap != nil {
		c.LogitsCap = float32(*g.LogitsCap)
	}
	if c.PerLayer = g.PerLayer; g.SharedKV != 0 {
		if c.SharedKV = (&SharedKV{Layers: g.SharedKV, Inner: c.Inner}); g.DoubleWide {
			c.SharedKV.Inner *= 2
		}
	}
	if err := g.setWide(f, c); err != nil {
		return err
	}
	if g.Sparse {
		c.setExpertsBeside(g.Experts, g.Used, g.ExpertInner)
		return errors.Join(g.checkExperts(), c.checkMultipliers())
	}
	return c.checkMultipliers()
}

// checkExperts refuses numbers of experts that are out of bounds, by Gemma 4's names for them.
func (g *gemma4Fields) checkExperts() error {
	return checkDimensions(dimension{"num_experts", g.Experts, kernels.MostExperts},
		dimension{"top_k_experts", g.Used, min(g.Experts, kernels.MostExpertsUsed)},
		dimension{"moe_intermediate_size", g.ExpertInner, maxDimension})
}

// setWide sets the heads of layers without a window.
func (g *gemma4Fields) setWide(f *configFile, c *Config) error {
	w := &Wide{HeadDim: g.GlobalHeadDim, KVHeads: c.KVHeads, KeysAreValues: g.KeysAreValues}
	if g.GlobalKVHeads != nil && g.KeysAreValues {
		w.KVHeads = *g.GlobalKVHeads
	}
	for i := range min(max(f.Layers, 0), maxLayers) {
		w.Layers = append(w.Layers, f.LayerKinds[i] == fullLayer)
	}
	if g.LayerConfig != nil {
		if err := g.byLayer(w, *c); err != nil {
			return err
		}
	}
	if c.LocalTheta == 0 { // both RoPEs are alike, but not their heads
		c.LocalTheta, c.Local = c.RoPETheta, nil
		for _, wide := range w.Layers {
			c.Local = append(c.Local, !wide)
		}
	}
	c.Wide = w
	return nil
}

// byLayer sets the heads of w as LayerConfig has them. All layers without a window are alike, and those with one are as
// c says.
func (g *gemma4Fields) byLayer(w *Wide, c Config) error {
	w.HeadDim, w.KVHeads = 0, 0
	listed := map[int]map[string]int{}
	for name, fields := range g.LayerConfig {
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(w.Layers) {
			return fmt.Errorf("%w: config.json: per_layer_config has a layer %.40q of %d", ErrUnsupported, name,
				len(w.Layers))
		}
		for field := range fields {
			if field != "head_dim" && field != "num_key_value_heads" {
				return fmt.Errorf("%w: config.json: per_layer_config: unknown field %.60q", ErrUnsupported, field)
			}
		}
		listed[i] = fields
	}
	for i, wide := range w.Layers {
		headDim, kvHeads := c.HeadDim, c.KVHeads
		if n, ok := listed[i]["head_dim"]; ok {
			headDim = n
		}
		if n, ok := listed[i]["num_key_value_heads"]; ok {
			kvHeads = n
		}
		if wide && w.HeadDim == 0 {
			w.HeadDim, w.KVHeads = headDim, kvHeads
		}
		if wide && (headDim != w.HeadDim || kvHeads != w.KVHeads) || !wide && (headDim != c.HeadDim || kvHeads != c.KVHeads) {
			return fmt.Errorf("%w: config.json: per_layer_config: layer %d has %d KV heads of %d elements, unlike others of "+
				"its kind", ErrUnsupported, i, kvHeads, headDim)
		}
	}
	return nil
}

// setExpertsBeside sets experts beside the feed-forward of each layer.
func (c *Config) setExpertsBeside(count, used, inner int) {
	c.Experts = &Experts{Count: count, Used: used, Inner: inner, Shared: c.Inner, Beside: true,
		Scoring: kernels.SoftmaxOfAll, Normalise: true}
	names := map[string]string{routerProj: "router.proj.weight", sharedGate: gateProj, sharedUp: upProj, sharedDown: downProj}
	for name, published := range c.published {
		names[name] = published
	}
	c.published = names
}
