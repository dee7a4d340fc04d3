package model

// OLMo 2 and 3 norm the results of attention and feed-forward, not their input, and all heads of q or k together. Of
// OLMo 3's layers each fourth sees everything, and only there yarn scales RoPE.
// (transformers, modeling_olmo2.py, modeling_olmo3.py.)
var (
	olmo2 = family{architecture: "Olmo2ForCausalLM", config: olmoConfig()}

	olmo3 = family{architecture: "Olmo3ForCausalLM", config: olmoConfig(), theta: 5e5, localRoPE: true, flatRoPE: true,
		windows: allButEach(4), defaults: configFile{Window: new(4096)}}
)

func olmoConfig() Config {
	return Config{NoNormsBefore: true, NormsAfter: true, WidthNorms: true, published: map[string]string{
		afterAttentionNorm:   "post_attention_layernorm.weight",
		afterFeedForwardNorm: "post_feedforward_layernorm.weight"}}
}
