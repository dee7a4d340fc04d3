package model

import (
	"fmt"
	"slices"
	"strings"
)

// family is how the models of one model_type differ from Llama. A family has a file of its own, family_x.go.
type family struct {
	architecture string
	config       Config  // the fields in which all models of the family differ from Llama's; config.json has the rest
	partial      bool    // RoPE may rotate a part of each head
	mayBias      bool    // attention_bias says whether q, k and v have biases
	localRoPE    bool    // layers with windows have a RoPE of their own, of which nothing is scaled
	flatRoPE     bool    // and config.json may have one for both kinds of layers, if nothing is scaled at all
	theta        float64 // the base of RoPE's frequencies where config.json has none; 0: 10,000
	// defaults are the values of fields that config.json omits. Only those are set that
	// differ from Llama's.
	defaults configFile
	rope     *ropes                              // RoPE's parameters if config.json has none; nil: Llama 2's
	windows  func(f *configFile, layer int) bool // reports whether a layer has the sliding window; nil: none has
	noRoPE   func(f *configFile, layer int) bool // reports whether a layer has no RoPE; nil: all have
	// own returns the fields of config.json that the family has and Llama has not, with their defaults; nil: none.
	own   func() ownFields
	inert []string // fields of config.json that say nothing about the models that are served
	// gguf sets what GGUF's metadata say beside that of all families, under ggufKeys; nil: nothing.
	gguf     func(r *ggufReader, c *Config)
	ggufKeys []string
	// ggufByLayer are the keys whose arrays gguf takes apart by layer.
	ggufByLayer []string
	// scalings are the kinds of RoPE that the family has in transformers; nil: all.
	scalings []RoPEKind
}

// ownFields are fields of config.json that few families have: a pointer to a struct that encoding/json fills.
type ownFields interface {
	// fill sets fields that other families have too, before f is checked.
	fill(f *configFile)
	// set sets what the fields say in c. The error wraps ErrUnsupported, or a value is out of bounds.
	set(f *configFile, c *Config) error
}

// families are the families by model_type.
var families = map[string]family{
	"llama": llama, "mistral": mistral, "ministral3": ministral3, "qwen2": qwen2, "qwen3": qwen3, "phi3": phi3,
	"smollm3": smolLM3, "granite": granite, "granitemoehybrid": graniteDense, "olmo2": olmo2, "olmo3": olmo3,
	"gemma2": gemma2, "gemma3_text": gemma3, "gemma4_text": gemma4, "gemma4_unified_text": gemma4Unified, "glm4": glm4, "qwen3_moe": qwen3MoE, "mixtral": mixtral,
	"olmoe": olmoe, "gpt_oss": gptOss, "deepseek_v2": deepseek2, "deepseek_v3": deepseek3, "glm4_moe_lite": glm4MoELite,
}

func everyLayer(f *configFile, _ int) bool { return f.Window != nil }

// allButEach returns the windows of a family in which each n-th layer sees everything, unless layer_types says which.
func allButEach(n int) func(f *configFile, layer int) bool {
	return func(f *configFile, layer int) bool {
		switch {
		case f.Window == nil:
			return false
		case f.LayerKinds != nil:
			return f.LayerKinds[layer] == slidingLayer
		}
		return (layer+1)%n != 0
	}
}

// The values in layer_types that this build knows.
const (
	fullLayer    = "full_attention"
	slidingLayer = "sliding_attention"
)

// windowed reports whether a layer has the sliding window.
func (fam family) windowed(f *configFile, layer int) bool {
	return fam.windows != nil && fam.windows(f, layer)
}

// act returns the hidden_act of the family.
func (fam family) act() string {
	if fam.defaults.Act != "" {
		return fam.defaults.Act
	}
	return "silu"
}

// supported returns ErrUnsupported with the first field that asks for something the
// forward pass does not compute.
func (f *configFile) supported(fam family) error {
	for _, r := range []struct {
		field string
		value any
		bad   bool
	}{
		{"architectures", f.Architectures,
			len(f.Architectures) > 0 && !slices.Contains(f.Architectures, fam.architecture) && !f.headless(fam)},
		{"hidden_act", f.Act, f.Act != fam.act()},
		{"attention_bias", f.AttentionBias, f.AttentionBias && !fam.mayBias},
		{"mlp_bias", f.MLPBias, f.MLPBias},
		{"is_causal", false, f.Causal != nil && !*f.Causal},
		{"pretraining_tp", f.PretrainingTP, f.PretrainingTP != 1 && f.ModelType != "smollm3"},
		{"partial_rotary_factor", f.Fraction, f.Fraction != 1 && !fam.partial},
		{"rope_parameters", f.RoPE, f.RoPE.unsupported(fam)},
		{"rope_parameters", "of layers with windows: " + f.localRoPE.String(), f.localRoPE.scales()},
		{"rope_scaling", f.RoPEScaling, f.RoPEScaling.unsupported(fam)},
		{"rope_scaling", "beside rope_parameters", f.RoPE != nil && f.RoPEScaling != nil},
		{"rope_theta", "in two places with different values",
			f.Theta != nil && f.ropes().Theta != nil && *f.Theta != *f.ropes().Theta},
		{"use_sliding_window", f.UseWindow,
			f.UseWindow && f.ModelType != "qwen2" && f.ModelType != "qwen3"},
		{"sliding_window", "in a " + f.ModelType, f.Window != nil && fam.windows == nil},
		{"no_rope_layers", f.NoRoPE, f.NoRoPE != nil && fam.noRoPE == nil},
	} {
		if r.bad {
			return fmt.Errorf("%w: config.json: %s %.200v", ErrUnsupported, r.field, r.value)
		}
	}
	return f.supportedLayers(fam)
}

// supportedLayers refuses an unknown kind of layer in layer_types, and a kind that
// differs from the family's rule for windows.
func (f *configFile) supportedLayers(fam family) error {
	if f.NoRoPE != nil && len(f.NoRoPE) < f.Layers {
		return fmt.Errorf("model: config.json: no_rope_layers has %d entries for %d layers", len(f.NoRoPE), f.Layers)
	}
	if f.LayerKinds == nil {
		return nil
	}
	if len(f.LayerKinds) != f.Layers {
		return fmt.Errorf("model: config.json: layer_types has %d entries for %d layers", len(f.LayerKinds), f.Layers)
	}
	for i, kind := range f.LayerKinds {
		if kind != fullLayer && kind != slidingLayer || (kind == slidingLayer) != fam.windowed(f, i) {
			return fmt.Errorf("%w: config.json: layer_types has %.40q for layer %d", ErrUnsupported, kind, i)
		}
	}
	return nil
}

// headless reports whether the checkpoint was saved without a head, as models for embeddings are.
func (f *configFile) headless(fam family) bool {
	name := "Model"
	if strings.HasSuffix(f.ModelType, "_text") { // the text part of a model that also reads pictures
		name = "TextModel"
	}
	return slices.Contains(f.Architectures, strings.Replace(fam.architecture, "ForCausalLM", name, 1))
}

// config returns the config that the file describes. A family's own differences come first.
func (f *configFile) config() (Config, error) {
	fam := families[f.ModelType]
	c := fam.config
	c.Name, c.Vocab, c.Hidden, c.Inner, c.Layers = f.ModelType, f.Vocab, f.Hidden, f.Inner, f.Layers
	c.Heads, c.KVHeads, c.HeadDim, c.Context = f.Heads, f.Heads, f.HeadDim, f.Context
	c.RMSNormEps, c.RoPETheta, c.RoPE = float32(f.Eps), f.theta(fam), f.scaling()
	c.ShortFactors, c.LongFactors = f.ropes().Short, f.ropes().Long
	c.TiedHead, c.EOS, c.Wrapped, c.Quantisation = f.Tied, f.EOS, f.wrapped, f.quantisation
	c.headless = f.headless(fam)
	if f.KVHeads != nil {
		c.KVHeads = *f.KVHeads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if fam.mayBias {
		c.Bias = f.AttentionBias
	}
	f.setRotated(&c, fam)
	f.setContext(&c)
	f.setLocal(&c, fam)
	if err := f.setWindows(&c, fam); err != nil || f.own == nil {
		return c, err
	}
	return c, f.own.set(f, &c)
}

// setWindows sets c.Windows if any layer has a window that is shorter than the context.
func (f *configFile) setWindows(c *Config, fam family) error {
	for i := range min(max(f.Layers, 0), maxLayers) {
		if !fam.windowed(f, i) {
			continue
		}
		if *f.Window < 1 {
			return outside("sliding_window", *f.Window, 1, maxContext)
		}
		if *f.Window >= c.Context {
			return nil
		}
		if c.Windows == nil {
			c.Windows = make([]int, min(f.Layers, maxLayers))
		}
		c.Windows[i] = *f.Window
	}
	return nil
}

// setLocal sets the RoPE of layers with windows, where the family has two and they differ.
func (f *configFile) setLocal(c *Config, fam family) {
	if !fam.localRoPE {
		return
	}
	theta := c.RoPETheta
	if f.localRoPE != nil && f.localRoPE.Theta != nil {
		theta = *f.localRoPE.Theta
	}
	if theta == c.RoPETheta && c.RoPE == (RoPEScaling{}) {
		return
	}
	c.LocalTheta = theta
	for i := range min(max(f.Layers, 0), maxLayers) {
		c.Local = append(c.Local, fam.windowed(f, i))
	}
}

// without returns the field of config.json with which there is no tensor of a name, or "".
func (c Config) without(name string) string {
	_, own, _ := LayerOf(name)
	switch {
	case families[c.Name].mayBias && !c.Bias && strings.HasPrefix(own, "self_attn.") && strings.HasSuffix(own, "_proj.bias"):
		return ": attention_bias is false in config.json"
	case c.Latent != nil && c.Experts != nil && c.Experts.Shared == 0 && strings.Contains(own, "shared_expert"):
		return ": n_shared_experts is 0 in config.json"
	}
	return ""
}
