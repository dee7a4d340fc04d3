package model

// SmolLM3 rotates q and k in three of four layers.
var smolLM3 = family{architecture: "SmolLM3ForCausalLM", theta: 2e6, noRoPE: unrotated,
	defaults: configFile{KVHeads: new(4), Tied: true, NoRoPEInterval: 4}}

// unrotated selects the layers that no_rope_layers has a 0 for, or each fourth.
func unrotated(f *configFile, layer int) bool {
	if f.NoRoPE != nil {
		return f.NoRoPE[layer] == 0
	}
	return f.NoRoPEInterval > 0 && (layer+1)%f.NoRoPEInterval == 0
}
