package model

// Phi-3, Phi-4 and Phi-4-mini hold q, k and v in one tensor, and gate and up in another.
var phi3 = family{architecture: "Phi3ForCausalLM", config: Config{FusedQKV: true, FusedGateUp: true}, partial: true,
	windows: everyLayer, scalings: []RoPEKind{LongRoPE}}
