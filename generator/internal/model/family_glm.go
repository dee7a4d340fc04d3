package model

// GLM-4 of April 2025 has norms before and after attention and feed-forward, and rotates neighbours in half of a head.
// (transformers, modeling_glm4.py.)
var glm4 = family{architecture: "Glm4ForCausalLM",
	config: Config{FusedGateUp: true, NormsAfter: true, Interleaved: true}, partial: true, mayBias: true,
	defaults: configFile{KVHeads: new(2), HeadDim: 128, Fraction: 0.5, AttentionBias: true, Eps: 1.5625e-7}}
