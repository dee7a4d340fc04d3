package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// FromOllama returns a GGUF file that Ollama's converters wrote in the form of llama.cpp's: its metadata, its tensors,
// and the number of tensors that are for images and sounds and were left out. A file in llama.cpp's form stays as it is.
// (Ollama: convert/, where each version of a converter left files that are still pulled; llama/compat, which lists what
// such files lack.)
func FromOllama(m weights.Metadata, file Tensors) (weights.Metadata, Tensors, int) {
	o := ollamaFile{Metadata: maps.Clone(m), file: file, names: map[string]string{}, halves: map[string]ollamaHalf{}}
	if o.arch, _ = m.String("general.architecture"); o.Metadata == nil {
		return m, file, 0
	}
	change, ok := ollamaForms[o.arch]
	if !ok {
		return m, file, 0
	}
	change(&o)
	if len(o.hidden) == 0 && len(o.renames) == 0 {
		return o.Metadata, file, 0
	}
	others := o.setNames()
	return o.Metadata, &o, others
}

// ollamaForms changes the files of an architecture, by Ollama's name of it.
var ollamaForms = map[string]func(*ollamaFile){"gemma2": (*ollamaFile).gemma2, "gemma3": (*ollamaFile).gemma3,
	"gemma4": (*ollamaFile).gemma4, "gptoss": (*ollamaFile).gptOss, "mistral3": (*ollamaFile).mistral3,
	"glm4moelite": (*ollamaFile).glmFlash, "qwen3moe": (*ollamaFile).qwen3Experts, "llama": (*ollamaFile).llama}

// ollamaFile is a file of Ollama's with tensors under llama.cpp's names.
type ollamaFile struct {
	weights.Metadata
	file    Tensors
	arch    string
	hidden  []string              // prefixes of the names of tensors that are left out
	renames []string              // pairs of parts of names: Ollama's, llama.cpp's
	names   map[string]string     // from llama.cpp's name to the file's
	halves  map[string]ollamaHalf // by llama.cpp's name: what is a part of a tensor, or in another order
}

// key returns a key of the architecture.
func (o *ollamaFile) key(name string) string { return o.arch + "." + name }

// holds reports whether the name of a tensor begins with one of the prefixes.
func (o *ollamaFile) holds(prefixes ...string) bool {
	return slices.ContainsFunc(o.file.Names(), func(name string) bool { return hasPrefix(name, prefixes) })
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// dropKeys removes the keys of the architecture that begin with one of the prefixes.
func (o *ollamaFile) dropKeys(prefixes ...string) {
	for _, key := range o.Keys() {
		if name, ok := strings.CutPrefix(key, o.arch+"."); ok && hasPrefix(name, prefixes) {
			delete(o.Metadata, key)
		}
	}
}

// dropZero removes numbers that are 0, which Ollama's converters write where config.json has none.
func (o *ollamaFile) dropZero(names ...string) {
	for _, name := range names {
		if f, ok := o.Float(o.key(name)); ok && f == 0 {
			delete(o.Metadata, o.key(name))
		}
	}
}

// setDefaults sets numbers that the file lacks.
func (o *ollamaFile) setDefaults(values map[string]float32) {
	for name, f := range values {
		if !o.Has(o.key(name)) {
			o.SetFloat(o.key(name), f)
		}
	}
}

const (
	keyTokenizer = "tokenizer.ggml.model"
	keyPre       = "tokenizer.ggml.pre"
	keyPrefix    = "tokenizer.ggml.add_space_prefix"
)

// setPre names the pre-tokenizer where the file does not: Ollama's converters know few and call others default.
func (o *ollamaFile) setPre(name string) {
	if pre, _ := o.String(keyPre); pre == "" || pre == "default" {
		o.SetString(keyPre, name)
	}
}

// ollamaMedia begins the names of tensors, and the keys, of images and sounds.
var ollamaMedia, ollamaMediaKeys = []string{"v.", "mm."}, []string{"vision.", "mm."}

// withoutMedia leaves out what a file has for images and sounds, and reports whether it has any.
func (o *ollamaFile) withoutMedia(tensors, keys []string) bool {
	before := len(o.Metadata)
	o.dropKeys(keys...)
	if o.holds(tensors...) {
		o.hidden = tensors
	}
	return len(o.hidden) > 0 || len(o.Metadata) < before
}

// gemma2 says that no space is put in front of a text. llama.cpp's converter writes so.
func (o *ollamaFile) gemma2() {
	if !o.Has(keyPrefix) {
		o.SetBool(keyPrefix, false)
	}
}

// Layers of Gemma 3's models.
const gemma3Layers1B, gemma3Layers4B, gemma3Layers12B = 26, 34, 48

// gemma3 has tensors of images, keys of RoPE with other names, and lacks numbers that are the same in all models of the
// family. The 4B model's tokenizer has a token more than the embedding has rows.
func (o *ollamaFile) gemma3() {
	o.gemma2()
	media := o.withoutMedia(ollamaMedia, ollamaMediaKeys)
	named := o.Has(o.key("rope.global.freq_base")) || o.Has(o.key("rope.local.freq_base"))
	if !media && !named && !o.Has("tokenizer.ggml.add_padding_token") && !o.Has("tokenizer.ggml.add_unknown_token") {
		return
	}
	o.Rename(o.key("rope.global.freq_base"), o.key(keyTheta))
	o.Rename(o.key("rope.local.freq_base"), o.key(keyLocalTheta))
	o.setDefaults(map[string]float32{keyEps: 1e-6, keyTheta: 1e6, keyLocalTheta: 1e4})
	o.gemma3Layers()
	if embedding, err := o.file.Tensor(ggufEmbedding); err == nil && len(embedding.Shape) == 2 {
		for _, name := range []string{"tokens", "scores", "token_type"} {
			o.Truncate("tokenizer.ggml."+name, embedding.Shape[0])
		}
	}
}

// gemma3Layers corrects what converters wrote of RoPE, windows and the bound of logits: they left out that RoPE of all
// models but the smallest is scaled, and bound the logits of the 1B model, which Gemma 3 does not. A pattern of windows
// that is the family's own needs no key.
func (o *ollamaFile) gemma3Layers() {
	layers, _ := o.Uint(o.key(keyLayers))
	context, _ := o.Uint(o.key(keyContext))
	large := slices.Contains([]uint64{gemma3Layers4B, gemma3Layers12B, gemma3Layers27B}, layers)
	if (large || context >= 1<<17) && !o.Has(o.key(keyScaling)) && !o.Has(o.key(keyScale)) {
		o.SetString(o.key(keyScaling), "linear")
		o.SetFloat(o.key(keyScale), 8)
	}
	if window, _ := o.Uint(o.key(keyWindow)); layers == gemma3Layers1B && window < context {
		delete(o.Metadata, o.key(keyLogitsCap))
	}
	pattern, _ := o.Bools(o.key(keyPattern))
	own := uint64(len(pattern)) == layers
	for i, windowed := range pattern {
		own = own && windowed == ((i+1)%6 != 0)
	}
	if own {
		delete(o.Metadata, o.key(keyPattern))
	}
}

// gemma4 has tensors of images and sounds, and a tokenizer with merges that it calls one with scores.
func (o *ollamaFile) gemma4() {
	o.withoutMedia(append([]string{"a.", "model.vision_tower."}, ollamaMedia...),
		append([]string{"audio."}, ollamaMediaKeys...))
	model, _ := o.String(keyTokenizer)
	pre, _ := o.String(keyPre)
	if model == "llama" && pre == "gemma4" && o.Has("tokenizer.ggml.merges") {
		o.SetString(keyTokenizer, "gemma4")
	}
	o.renames = []string{".ffn_gate_inp.per_expert_scale", ".ffn_down_exps.scale"}
}

// mistral3 has tensors of images, and keys of yarn with other names. Files of a converter that knew no yarn keep a key
// that is refused: their RoPE is wrong.
func (o *ollamaFile) mistral3() {
	o.withoutMedia(ollamaMedia, append([]string{"image_token_index", "spatial_merge_size"}, ollamaMediaKeys...))
	o.setPre("tekken")
	kind, _ := o.String(o.key(keyScaling))
	if kind == "" || kind == "default" {
		delete(o.Metadata, o.key(keyScaling))
		o.dropZero(keyScale, keyBetaFast, keyBetaSlow, "rope.scaling.beta_fast", "rope.scaling.beta_slow")
		return
	}
	for name, to := range map[string]string{"rope.scaling.beta_fast": keyBetaFast, "rope.scaling.beta_slow": keyBetaSlow,
		"rope.scaling.mscale_all_dim": keyYarnLog, "rope.scaling_beta": keyQueryScale} {
		o.Rename(o.key(name), o.key(to))
	}
	if scale, _ := o.Float(o.key("rope.scaling.mscale")); scale == 1 { // what yarn has without the key
		delete(o.Metadata, o.key("rope.scaling.mscale"))
	}
}

// glmFlash is GLM-4.7-Flash, which llama.cpp calls deepseek2. The lengths with the ending mla are those of a row of the
// cache, which are the others in llama.cpp's files.
func (o *ollamaFile) glmFlash() {
	o.dropKeys(keyLatentDim, keyLatentValue)
	o.rearchitect("deepseek2")
	o.setPre("glm4")
}

// rearchitect gives the file the architecture that llama.cpp has for it.
func (o *ollamaFile) rearchitect(arch string) {
	o.RenamePrefix(o.arch+".", arch+".")
	o.SetString("general.architecture", arch)
	o.arch = arch
}

// qwen3Experts says that weights of experts are normalised, which those of all Qwen 3 are, and not how wide experts
// are.
func (o *ollamaFile) qwen3Experts() {
	if norm, _ := o.Bool(o.key("norm_top_k_prob")); norm {
		delete(o.Metadata, o.key("norm_top_k_prob"))
		o.expertWidth()
	}
}

// expertWidth sets the width of an expert, if the file lacks it, to that of the tensor of gates, or of gates and ups.
func (o *ollamaFile) expertWidth() {
	if o.Has(o.key(keyExpertDim)) {
		return
	}
	for parts, name := range map[int]string{1: ggufNames[expertsGate], 2: ggufGateUp} {
		if t, err := o.file.Tensor("blk.0." + name); err == nil && len(t.Shape) == 3 {
			o.SetUint(o.key(keyExpertDim), uint32(t.Shape[1]/parts))
		}
	}
}

// llama has the dimension of a head in a key of its own too, and Llama 3's pre-tokenizer without its name.
func (o *ollamaFile) llama() {
	own, _ := o.Uint(o.key("attention.head_dim"))
	if dim, ok := o.Uint(o.key(keyHeadDim)); ok && own == dim {
		delete(o.Metadata, o.key("attention.head_dim"))
	}
	const id, text = 128009, "<|eot_id|>" // of Llama 3
	if pre, _ := o.String(keyPre); pre == "" || pre == "default" {
		if tokens, _ := o.Strings("tokenizer.ggml.tokens"); len(tokens) > id && tokens[id] == text {
			o.SetString(keyPre, "llama-bpe")
		}
	}
}

// gptOss has an architecture, tensors and a pre-tokenizer with other names, does not say that yarn scales RoPE, and not
// how wide experts are. In the first files q, k and v are one tensor, and so are gates and ups of experts.
func (o *ollamaFile) gptOss() {
	o.rearchitect("gpt-oss")
	o.expertWidth()
	if !o.Has(o.key(keyScaling)) {
		o.SetString(o.key(keyScaling), "yarn")
	}
	o.setPre("gpt-4o")
	o.renames = []string{".attn_out.", ".attn_output.", ".attn_sinks", ".attn_sinks.weight", ".ffn_norm.",
		".post_attention_norm."}
	o.gptOssHalves()
}

// setNames names the tensors as llama.cpp does, and returns how many are left out.
func (o *ollamaFile) setNames() (others int) {
	for _, own := range o.file.Names() {
		if hasPrefix(own, o.hidden) {
			others++
			continue
		}
		name := own
		for pair := range slices.Chunk(o.renames, 2) {
			if strings.Contains(name, pair[0]) && !strings.Contains(name, pair[1]) {
				name = strings.Replace(name, pair[0], pair[1], 1)
			}
		}
		o.names[name] = own
	}
	return others
}

// Tensor returns a tensor by llama.cpp's name.
func (o *ollamaFile) Tensor(name string) (weights.Tensor, error) {
	if half, ok := o.halves[name]; ok {
		return half.of(o.file, name)
	}
	own, ok := o.names[name]
	if !ok {
		own = name
		if _, err := o.file.Tensor(name); err == nil { // it has another name, or is left out
			return weights.Tensor{}, fmt.Errorf("model: %.80q: %w", name, weights.ErrMissing)
		}
	}
	return o.file.Tensor(own)
}

// Names returns the names of all tensors but those that are left out.
func (o *ollamaFile) Names() (names []string) {
	whole := map[string]bool{} // tensors whose parts are there instead
	for name, half := range o.halves {
		names = append(names, name)
		whole[half.from] = true
	}
	for name, own := range o.names {
		if _, half := o.halves[name]; !half && !whole[own] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
