package model

// Qwen2 and Qwen2.5 have biases of q, k and v, Qwen3 norms of the heads of q and k.
var (
	qwen2 = family{architecture: "Qwen2ForCausalLM", config: Config{Bias: true}, windows: lateLayers,
		defaults: qwenDefaults(0)}

	qwen3 = family{architecture: "Qwen3ForCausalLM", config: Config{HeadNorms: true}, windows: lateLayers,
		defaults: qwenDefaults(128)}
)

func qwenDefaults(headDim int) configFile {
	return configFile{KVHeads: new(32), HeadDim: headDim, Window: new(4096), WindowFrom: 28}
}

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
