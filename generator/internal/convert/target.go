package convert

import (
	"maps"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// Target names the format, or the mixture of formats, of a file's matrices. Vectors are float32 in all.
type Target string

// The targets. Q8_0 and Q4_0 have one format for all matrices, as llama-quantize has with --pure.
const (
	Q8_0   Target = "q8_0"
	Q4_0   Target = "q4_0"
	Q4_K_M Target = "q4_k_m"
)

// fileTypes are the values of general.file_type. (llama.h: llama_ftype.)
var fileTypes = map[Target]uint32{Q4_0: 2, Q8_0: 7, Q4_K_M: 15}

// Targets returns the names of all targets.
func Targets() string {
	var names []string
	for t := range maps.Keys(fileTypes) {
		names = append(names, string(t))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// format returns the format of a matrix: float16 if its columns are no whole blocks of any. (llama.cpp:
// tensor_type_fallback, which has no such format for a matrix that is to be Q8_0 or Q4_0 itself.)
func (t Target) format(c model.Config, s model.TensorSpec) (d weights.DType) {
	switch t {
	case Q8_0:
		d = weights.Q8_0
	case Q4_0:
		d = weights.Q4_0
	default:
		d = narrower(mixture(c, s), s.Shape[1])
	}
	if elements, _ := d.Block(); s.Shape[1]%elements != 0 {
		return weights.F16
	}
	return d
}

// mixture returns the format of a matrix in Q4_K_M: Q6_K of the head, which may be the embedding, and of half of the
// matrices that lose most, those of values and the feed-forward's last. Llama 3 70B and models alike have small
// matrices of values, which are never below Q5_K. (llama.cpp: llama_tensor_get_type_impl.)
func mixture(c model.Config, s model.TensorSpec) weights.DType {
	layer, _, inLayer := model.LayerOf(s.Name)
	values := strings.Contains(s.Name, "v_proj") || strings.Contains(s.Name, "qkv_proj")
	switch {
	case s.Kind == model.HeadTensor || s.Kind == model.EmbeddingTensor && c.TiedHead:
		return weights.Q6_K
	case inLayer && (values || strings.Contains(s.Llama, "down_proj")) && moreBits(layer, c.Layers):
		return weights.Q6_K
	case values && seventyB(c):
		return weights.Q5_K
	}
	return weights.Q4_K
}

// moreBits reports whether a layer is in the first or the last eighth, or a third one between.
func moreBits(layer, layers int) bool {
	return layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2
}

// seventyB reports whether llama.cpp takes a model for one of 70 billion parameters.
func seventyB(c model.Config) bool {
	llama := (c.Name == "llama" || c.Name == "mistral") && c.Heads != c.KVHeads
	return c.Layers == 80 && (llama || c.Name == "qwen2")
}

// narrower returns the format with blocks of 32 that stands for one with blocks of 256 whose columns are no whole
// blocks. (llama.cpp: tensor_type_fallback.)
func narrower(d weights.DType, columns int) weights.DType {
	if elements, _ := d.Block(); columns%elements == 0 {
		return d
	}
	return map[weights.DType]weights.DType{weights.Q4_K: weights.Q5_0, weights.Q5_K: weights.Q5_1,
		weights.Q6_K: weights.Q8_0}[d]
}
