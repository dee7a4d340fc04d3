package model

// The families that need no op of their own: Llama, Mistral and Ministral 3.
var (
	llama = family{architecture: "LlamaForCausalLM"}

	mistral = family{architecture: "MistralForCausalLM", windows: everyLayer,
		defaults: configFile{KVHeads: new(8), Window: new(4096)}}

	ministral3 = family{architecture: ministral3Architecture, windows: everyLayer,
		defaults: configFile{KVHeads: new(8), HeadDim: 128},
		rope: &ropes{Type: string(YarnRoPE), Theta: new(1e6), Factor: 16, Original: 16384, BetaFast: 32, BetaSlow: 1, Scale: 1,
			ScaleAll: 1, QueryScale: 0.1}}
)

const ministral3Architecture = "Ministral3ForCausalLM"
