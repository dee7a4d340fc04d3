package model

// OLMo 2 and 3 norm the results of attention and feed-forward, not their input, and all heads of q or k together. Of
// OLMo 3's layers each fourth sees everything, and only there yarn scales RoPE.
// (transformers, modeling_olmo2.py, modeling_olmo3.py.)
var (
	olmo2 = family{architecture: "Olmo2ForCausalLM", config: olmoConfig()}

	olmo3 = family{architecture: "Olmo3ForCausalLM", config: olmoConfig(), theta: 5e5, localRoPE: true, flatRoPE: true,
		windows: allButEach(4), defaults: configFile{Window: new(4096)},
		gguf: ggufOlmo3, ggufKeys: []string{keyPattern, keyLocalTheta}}
)

func olmoConfig() Config {
	return Config{NoNormsBefore: true, NormsAfter: true, WidthNorms: true, published: map[string]string{
		afterAttentionNorm:   "post_attention_layernorm.weight",
		afterFeedForwardNorm: "post_feedforward_layernorm.weight"}}
}

// ggufOlmo3 sets the windows, and the RoPE of the layers that have one. The attention factor of the file is that of
// config.json, as transformers takes it; llama.cpp multiplies it by the one that it computes of the scaling itself.
// (llama.cpp: conversion of Olmo3ForCausalLM, src/models/olmo2.cpp, src/llama-context.cpp.)
func ggufOlmo3(r *ggufReader, c *Config) {
	windowed := r.pattern(c.Layers)
	if windowed == nil {
		return
	}
	r.setWindows(c, windowed)
	if c.RoPE.Kind == YarnRoPE && r.has(r.arch+"."+keyAttnFactor) {
		c.RoPE.Attention = float32(r.float(keyAttnFactor, minAttention, maxAttention, 1))
	}
	theta := r.float(keyLocalTheta, minTheta, maxTheta, c.RoPETheta)
	if theta != c.RoPETheta || c.RoPE != (RoPEScaling{}) {
		c.LocalTheta, c.Local = theta, windowed
	}
}
