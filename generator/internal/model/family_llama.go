package model

// The families that need no op of their own: Llama, Mistral and Ministral 3.
var (
	llama = family{architecture: "LlamaForCausalLM"}

	mistral = family{architecture: "MistralForCausalLM", windows: everyLayer,
		defaults: configFile{KVHeads: new(8), Window: new(4096)}}

	ministral3 = family{architecture: ministral3Architecture, windows: everyLayer,
		defaults: configFile{KVHeads: new(8), HeadDim: 128}}
)

const ministral3Architecture = "Ministral3ForCausalLM"
