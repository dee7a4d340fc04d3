package model

import (
	"fmt"
	"slices"
)

// family is how the models of a model_type differ from Llama's forward pass.
type family struct {
	architecture string
	bias         bool // q, k and v have biases
	headNorms    bool
	fused        bool
	// missing is what config.json means where it lacks a field. Only fields whose
	// meaning is not Llama's are set.
	missing configFile
	windows func(f *configFile, layer int) bool // whether a layer looks through the window
}

var families = map[string]family{
	"llama":   {architecture: "LlamaForCausalLM", windows: noLayer},
	"mistral": {architecture: "MistralForCausalLM", missing: configFile{KVHeads: some(8), Window: some(4096)}, windows: everyLayer},
	"qwen2":   {architecture: "Qwen2ForCausalLM", bias: true, missing: qwen(0), windows: lateLayers},
	"qwen3":   {architecture: "Qwen3ForCausalLM", headNorms: true, missing: qwen(128), windows: lateLayers},
	"phi3":    {architecture: "Phi3ForCausalLM", fused: true, windows: everyLayer},
}

func some(n int) *int { return &n }

func qwen(headDim int) configFile {
	return configFile{KVHeads: some(32), HeadDim: headDim, Window: some(4096), WindowFrom: 28}
}

func noLayer(*configFile, int) bool        { return false }
func everyLayer(f *configFile, _ int) bool { return f.Window != nil }

// lateLayers are those from max_window_layers on, or those that layer_types names.
func lateLayers(f *configFile, layer int) bool {
	if !f.UseWindow || f.Window == nil {
		return false
	}
	if f.LayerKinds != nil {
		return f.LayerKinds[layer] == slidingLayer
	}
	return layer >= f.WindowFrom
}

// The kinds of layer in layer_types.
const (
	fullLayer    = "full_attention"
	slidingLayer = "sliding_attention"
)

// supported refuses by name what the forward pass does not compute.
func (f *configFile) supported(of family) error {
	for _, r := range []struct {
		field string
		value any
		bad   bool
	}{
		{"architectures", f.Architectures, len(f.Architectures) > 0 && !slices.Contains(f.Architectures, of.architecture)},
		{"hidden_act", f.Act, f.Act != "silu"},
		{"attention_bias", f.AttentionBias, f.AttentionBias},
		{"mlp_bias", f.MLPBias, f.MLPBias},
		{"pretraining_tp", f.PretrainingTP, f.PretrainingTP != 1},
		{"partial_rotary_factor", f.Fraction, f.Fraction != 1},
		{"rope_parameters", f.RoPE, f.RoPE.unsupported()},
		{"rope_scaling", f.RoPEScaling, f.RoPEScaling.unsupported()},
		{"rope_scaling", "beside rope_parameters", f.RoPE != nil && f.RoPEScaling != nil},
		{"rope_theta", "in two places", f.Theta != nil && f.ropes().Theta != nil && *f.Theta != *f.ropes().Theta},
		{"use_sliding_window", f.UseWindow, f.UseWindow && (f.ModelType == "llama" || f.ModelType == "mistral" || f.ModelType == "phi3")},
		{"sliding_window", f.ModelType, f.Window != nil && f.ModelType == "llama"},
	} {
		if r.bad {
			return fmt.Errorf("%w: config.json: %s %.200v", ErrUnsupported, r.field, r.value)
		}
	}
	return f.supportedLayers(of)
}

// supportedLayers refuses layer_types that name another kind of layer, or other
// layers than those that the family gives a window.
func (f *configFile) supportedLayers(of family) error {
	if f.LayerKinds == nil {
		return nil
	}
	if len(f.LayerKinds) != f.Layers {
		return fmt.Errorf("model: config.json: layer_types has %d entries for %d layers", len(f.LayerKinds), f.Layers)
	}
	for i, kind := range f.LayerKinds {
		if kind != fullLayer && kind != slidingLayer || (kind == slidingLayer) != of.windows(f, i) {
			return fmt.Errorf("%w: config.json: layer_types has %.40q for layer %d", ErrUnsupported, kind, i)
		}
	}
	return nil
}

func (r *ropes) unsupported() bool {
	if r == nil {
		return false
	}
	known := func(t string) bool { return t == "" || t == "default" || t == "llama3" }
	plain := r.kind() != "llama3"
	return !known(r.Type) || !known(r.TypeOld) || (r.Type != "" && r.TypeOld != "" && r.Type != r.TypeOld) ||
		(plain && (r.Factor != 0 && r.Factor != 1 || r.LowFactor != 0 || r.HighFactor != 0)) || (r.Fraction != 0 && r.Fraction != 1)
}

// ropes is how RoPE is parametrised, by its new name or its old one.
func (f *configFile) ropes() ropes {
	for _, r := range []*ropes{f.RoPE, f.RoPEScaling} {
		if r != nil {
			return *r
		}
	}
	return ropes{}
}

// kind is the type, by its new name or its old one.
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

// String shows what a refusal names.
func (r *ropes) String() string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("type %q, factor %g, partial_rotary_factor %g", r.kind(), r.Factor, r.Fraction)
}

func (f *configFile) config() (Config, error) {
	of := families[f.ModelType]
	c := Config{Name: f.ModelType, Vocab: f.Vocab, Hidden: f.Hidden, Inner: f.Inner, Layers: f.Layers,
		Heads: f.Heads, KVHeads: f.Heads, HeadDim: f.HeadDim, Context: f.Context,
		RMSNormEps: float32(f.Eps), RoPETheta: f.theta(), RoPE: f.ropes().scaling(),
		TiedHead: f.Tied, Bias: of.bias, HeadNorms: of.headNorms, Fused: of.fused, EOS: f.EOS}
	if f.KVHeads != nil {
		c.KVHeads = *f.KVHeads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	return c, f.setWindows(&c, of)
}

// theta is the base of RoPE's frequencies, in whichever place it is, else that of Llama 2.
func (f *configFile) theta() float64 {
	for _, theta := range []*float64{f.Theta, f.ropes().Theta} {
		if theta != nil {
			return *theta
		}
	}
	return 10000
}

// setWindows gives c its windows, where a layer has one.
func (f *configFile) setWindows(c *Config, of family) error {
	for i := range min(max(f.Layers, 0), maxLayers) {
		if !of.windows(f, i) {
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
