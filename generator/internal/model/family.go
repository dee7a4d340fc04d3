package model

import (
	"fmt"
	"slices"
)

// family is how the models of one model_type differ from Llama.
type family struct {
	architecture string
	bias         bool // see Config
	headNorms    bool
	fused        bool
	partial      bool    // RoPE may rotate a part of each head
	theta        float64 // the base of RoPE's frequencies where config.json has none; 0: 10,000
	// defaults are the values of fields that config.json omits. Only those are set that
	// differ from Llama's.
	defaults configFile
	windows  func(f *configFile, layer int) bool // reports whether a layer has the sliding window
	noRoPE   func(f *configFile, layer int) bool // reports whether a layer has no RoPE; nil: all have
	experts  func(f *configFile) *Experts        // nil: the family has none
}

var families = map[string]family{
	"llama":   {architecture: "LlamaForCausalLM", windows: noLayer},
	"mistral": {architecture: "MistralForCausalLM", defaults: mistralDefaults(), windows: everyLayer},
	"qwen2":   {architecture: "Qwen2ForCausalLM", bias: true, defaults: qwenDefaults(0), windows: lateLayers},
	"qwen3":   {architecture: "Qwen3ForCausalLM", headNorms: true, defaults: qwenDefaults(128), windows: lateLayers},
	"phi3":    {architecture: "Phi3ForCausalLM", fused: true, partial: true, windows: everyLayer},
	"smollm3": {architecture: "SmolLM3ForCausalLM", theta: 2e6, defaults: smolLM3Defaults(), windows: noLayer,
		noRoPE: unrotated},

	"qwen3_moe": {architecture: "Qwen3MoeForCausalLM", headNorms: true, defaults: qwen3MoEDefaults(), windows: noLayer,
		experts: qwen3Experts},
	"mixtral": {architecture: "MixtralForCausalLM", theta: 1e6, defaults: mixtralDefaults(), windows: everyLayer,
		experts: mixtralExperts},

	"ministral3": {architecture: "Ministral3ForCausalLM", defaults: ministral3Defaults(), windows: everyLayer},
}

func smolLM3Defaults() configFile {
	return configFile{KVHeads: new(4), Tied: true, NoRoPEInterval: 4}
}

func ministral3Defaults() configFile { return configFile{KVHeads: new(8), HeadDim: 128} }

func mistralDefaults() configFile {
	return configFile{KVHeads: new(8), Window: new(4096)}
}

func qwenDefaults(headDim int) configFile {
	return configFile{KVHeads: new(32), HeadDim: headDim, Window: new(4096), WindowFrom: 28}
}

func noLayer(*configFile, int) bool        { return false }
func everyLayer(f *configFile, _ int) bool { return f.Window != nil }

// lateLayers selects the layers from max_window_layers on, or those that layer_types names.
func lateLayers(f *configFile, layer int) bool {
	if !f.UseWindow || f.Window == nil {
		return false
	}
	if f.LayerKinds != nil {
		return f.LayerKinds[layer] == slidingLayer
	}
	return layer >= f.WindowFrom
}

// unrotated selects the layers that no_rope_layers has a 0 for, or each fourth.
func unrotated(f *configFile, layer int) bool {
	if f.NoRoPE != nil {
		return f.NoRoPE[layer] == 0
	}
	return f.NoRoPEInterval > 0 && (layer+1)%f.NoRoPEInterval == 0
}

// The values in layer_types that this build knows.
const (
	fullLayer    = "full_attention"
	slidingLayer = "sliding_attention"
)

// supported returns ErrUnsupported with the first field that asks for something the
// forward pass does not compute.
func (f *configFile) supported(fam family) error {
	for _, r := range []struct {
		field string
		value any
		bad   bool
	}{
		{"architectures", f.Architectures,
			len(f.Architectures) > 0 && !slices.Contains(f.Architectures, fam.architecture)},
		{"hidden_act", f.Act, f.Act != "silu"},
		{"attention_bias", f.AttentionBias, f.AttentionBias},
		{"mlp_bias", f.MLPBias, f.MLPBias},
		{"pretraining_tp", f.PretrainingTP, f.PretrainingTP != 1 && f.ModelType != "smollm3"},
		{"partial_rotary_factor", f.Fraction, f.Fraction != 1 && !fam.partial},
		{"rope_parameters", f.RoPE, f.RoPE.unsupported(fam)},
		{"rope_scaling", f.RoPEScaling, f.RoPEScaling.unsupported(fam)},
		{"rope_scaling", "beside rope_parameters", f.RoPE != nil && f.RoPEScaling != nil},
		{"rope_theta", "in two places with different values",
			f.Theta != nil && f.ropes().Theta != nil && *f.Theta != *f.ropes().Theta},
		{"use_sliding_window", f.UseWindow,
			f.UseWindow && f.ModelType != "qwen2" && f.ModelType != "qwen3"},
		{"num_experts", "and num_local_experts differ", f.Experts != 0 && f.LocalExperts != 0 && f.Experts != f.LocalExperts},
		{"sliding_window", "in a " + f.ModelType,
			f.Window != nil && (f.ModelType == "llama" || f.ModelType == "smollm3")},
		{"no_rope_layers", f.NoRoPE, f.NoRoPE != nil && fam.noRoPE == nil},
		{"num_experts", f.Experts, f.Experts != 0 && fam.experts == nil},
		{"num_local_experts", f.LocalExperts, f.LocalExperts != 0 && fam.experts == nil},
		{"num_experts_per_tok", f.ExpertsUsed, f.ExpertsUsed != 0 && fam.experts == nil},
		{"moe_intermediate_size", f.ExpertInner, f.ExpertInner != 0 && fam.experts == nil},
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
		if kind != fullLayer && kind != slidingLayer || (kind == slidingLayer) != fam.windows(f, i) {
			return fmt.Errorf("%w: config.json: layer_types has %.40q for layer %d", ErrUnsupported, kind, i)
		}
	}
	return nil
}

func (f *configFile) config() (Config, error) {
	fam := families[f.ModelType]
	c := Config{Name: f.ModelType, Vocab: f.Vocab, Hidden: f.Hidden, Inner: f.Inner, Layers: f.Layers,
		Heads: f.Heads, KVHeads: f.Heads, HeadDim: f.HeadDim, Context: f.Context,
		RMSNormEps: float32(f.Eps), RoPETheta: f.theta(fam), RoPE: f.scaling(),
		ShortFactors: f.ropes().Short, LongFactors: f.ropes().Long,
		TiedHead: f.Tied, Bias: fam.bias, HeadNorms: fam.headNorms, Fused: fam.fused, EOS: f.EOS,
		Wrapped: f.wrapped, Quantisation: f.quantisation}
	if f.KVHeads != nil {
		c.KVHeads = *f.KVHeads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if fam.experts != nil {
		c.Experts = fam.experts(f)
	}
	f.setRotated(&c, fam)
	f.setContext(&c)
	return c, f.setWindows(&c, fam)
}

// setWindows sets c.Windows if any layer has a window that is shorter than the context.
func (f *configFile) setWindows(c *Config, fam family) error {
	for i := range min(max(f.Layers, 0), maxLayers) {
		if !fam.windows(f, i) {
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
