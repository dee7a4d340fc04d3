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
	// defaults are the values of fields that config.json omits. Only those are set that
	// differ from Llama's.
	defaults configFile
	windows  func(f *configFile, layer int) bool // reports whether a layer has the sliding window
}

var families = map[string]family{
	"llama":   {architecture: "LlamaForCausalLM", windows: noLayer},
	"mistral": {architecture: "MistralForCausalLM", defaults: mistralDefaults(), windows: everyLayer},
	"qwen2":   {architecture: "Qwen2ForCausalLM", bias: true, defaults: qwenDefaults(0), windows: lateLayers},
	"qwen3":   {architecture: "Qwen3ForCausalLM", headNorms: true, defaults: qwenDefaults(128), windows: lateLayers},
	"phi3":    {architecture: "Phi3ForCausalLM", fused: true, windows: everyLayer},
}

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
		{"pretraining_tp", f.PretrainingTP, f.PretrainingTP != 1},
		{"partial_rotary_factor", f.Fraction, f.Fraction != 1},
		{"rope_parameters", f.RoPE, f.RoPE.unsupported()},
		{"rope_scaling", f.RoPEScaling, f.RoPEScaling.unsupported()},
		{"rope_scaling", "beside rope_parameters", f.RoPE != nil && f.RoPEScaling != nil},
		{"rope_theta", "in two places with different values",
			f.Theta != nil && f.ropes().Theta != nil && *f.Theta != *f.ropes().Theta},
		{"use_sliding_window", f.UseWindow,
			f.UseWindow && (f.ModelType == "llama" || f.ModelType == "mistral" || f.ModelType == "phi3")},
		{"sliding_window", "in a llama", f.Window != nil && f.ModelType == "llama"},
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

// unsupported reports whether the forward pass lacks this kind of RoPE.
func (r *ropes) unsupported() bool {
	if r == nil {
		return false
	}
	known := func(t string) bool { return t == "" || t == "default" || t == "llama3" }
	contradicts := r.Type != "" && r.TypeOld != "" && r.Type != r.TypeOld
	scales := r.Factor != 0 && r.Factor != 1 || r.LowFactor != 0 || r.HighFactor != 0
	partial := r.Fraction != 0 && r.Fraction != 1
	return !known(r.Type) || !known(r.TypeOld) || contradicts || scales && r.kind() != "llama3" || partial
}

// ropes returns RoPE's parameters, which the file holds under a new name or an old one.
func (f *configFile) ropes() ropes {
	for _, r := range []*ropes{f.RoPE, f.RoPEScaling} {
		if r != nil {
			return *r
		}
	}
	return ropes{}
}

// kind returns the type, which the file holds under a new name or an old one.
func (r ropes) kind() string {
	if r.Type != "" {
		return r.Type
	}
	return r.TypeOld
}

func (r ropes) scaling() RoPEScaling {
	if r.kind() != "llama3" {
		return RoPEScaling{}
	}
	return RoPEScaling{Factor: r.Factor, LowFactor: r.LowFactor, HighFactor: r.HighFactor, Original: r.Original}
}

// String formats r for the text of a refusal.
func (r *ropes) String() string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("type %q, factor %g, partial_rotary_factor %g", r.kind(), r.Factor, r.Fraction)
}

func (f *configFile) config() (Config, error) {
	fam := families[f.ModelType]
	c := Config{Name: f.ModelType, Vocab: f.Vocab, Hidden: f.Hidden, Inner: f.Inner, Layers: f.Layers,
		Heads: f.Heads, KVHeads: f.Heads, HeadDim: f.HeadDim, Context: f.Context,
		RMSNormEps: float32(f.Eps), RoPETheta: f.theta(), RoPE: f.ropes().scaling(),
		TiedHead: f.Tied, Bias: fam.bias, HeadNorms: fam.headNorms, Fused: fam.fused, EOS: f.EOS,
		Quantisation: f.quantisation}
	if f.KVHeads != nil {
		c.KVHeads = *f.KVHeads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	return c, f.setWindows(&c, fam)
}

// theta returns the base of RoPE's frequencies from either of its two places, or Llama 2's.
func (f *configFile) theta() float64 {
	for _, theta := range []*float64{f.Theta, f.ropes().Theta} {
		if theta != nil {
			return *theta
		}
	}
	return 10000
}

// setWindows sets c.Windows if any layer has a window.
func (f *configFile) setWindows(c *Config, fam family) error {
	for i := range min(max(f.Layers, 0), maxLayers) {
		if !fam.windows(f, i) {
			continue
		}
		if *f.Window < 1 {
			return outside("sliding_window", *f.Window, 1, maxContext)
		}
		if c.Windows == nil {
			c.Windows = make([]int, min(f.Layers, maxLayers))
		}
		c.Windows[i] = *f.Window
	}
	return nil
}
