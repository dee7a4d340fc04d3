package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// ggufFamilies maps GGUF's architectures to ours. llama is also Mistral's.
// (llama.cpp: convert_hf_to_gguf.py, src/llama-arch.cpp.)
var ggufFamilies = map[string]string{"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3",
	"smollm3": "smollm3", "mistral3": "ministral3", "granite": "granite", "olmo2": "olmo2", "glm4": "glm4",
	"gemma2": "gemma2", "gemma3": "gemma3_text", "gemma4": "gemma4_text", "qwen3moe": "qwen3_moe", "olmoe": "olmoe", "gpt-oss": "gpt_oss",
	"deepseek2": "deepseek_v3"}

// ggufInterleaved are the architectures whose RoPE rotates neighbours. (llama.cpp: llama_model_rope_type.)
var ggufInterleaved = []string{"llama", "smollm3", "mistral3", "granite", "glm4", "deepseek2"}

// Keys that follow the architecture's name.
const (
	keyContext    = "context_length"
	keyHidden     = "embedding_length"
	keyInner      = "feed_forward_length"
	keyLayers     = "block_count"
	keyHeads      = "attention.head_count"
	keyKVHeads    = "attention.head_count_kv"
	keyHeadDim    = "attention.key_length"
	keyValueDim   = "attention.value_length"
	keyEps        = "attention.layer_norm_rms_epsilon"
	keyWindow     = "attention.sliding_window"
	keyPattern    = "attention.sliding_window_pattern" // by layer, whether it has the window
	keyRotated    = "rope.dimension_count"
	keyTheta      = "rope.freq_base"
	keyScaling    = "rope.scaling.type"
	keyScale      = "rope.scaling.factor"
	keyOriginal   = "rope.scaling.original_context_length"
	keyAttnFactor = "rope.scaling.attn_factor"
	keyFinetuned  = "rope.scaling.finetuned"
	keyYarnLog    = "rope.scaling.yarn_log_multiplier"
	keyYarnMix    = "rope.scaling.yarn_ext_factor"
	keyBetaFast   = "rope.scaling.yarn_beta_fast"
	keyBetaSlow   = "rope.scaling.yarn_beta_slow"
	keyQueryScale = "attention.temperature_scale"
	keyQueryFrom  = "attention.temperature_length"
	keyVocab      = "vocab_size"
	keyExperts    = "expert_count"
	keyUsed       = "expert_used_count"
	keyExpertDim  = "expert_feed_forward_length"
	keyLayout     = "tensor_data_layout"
	keyPooling    = "pooling_type"
)

// ggufKeys are the keys that may be there. Others may change the pass, so they are refused unless they are a whole number, 0.
var ggufKeys = []string{keyContext, keyHidden, keyInner, keyLayers, keyHeads, keyKVHeads, keyHeadDim, keyValueDim,
	keyEps, keyWindow, keyRotated, keyTheta, keyScaling, keyScale, keyOriginal, keyAttnFactor, keyFinetuned, keyVocab,
	keyExperts, keyUsed, keyExpertDim, keyLayout, keyYarnLog, keyYarnMix, keyBetaFast, keyBetaSlow, keyQueryScale,
	keyQueryFrom, keyPooling}

// ParseGGUF returns the config of a GGUF file, from its metadata and the presence of tensors, and its tensors under
// their published names. It may read the divisors of RoPE's frequencies. Errors: ErrUnsupported, ErrTensor,
// weights.ErrMissing, weights.ErrChanged, and values out of bounds.
func ParseGGUF(m weights.Metadata, tensors Tensors) (c Config, named Tensors, err error) {
	err = weights.Guard(func() (err error) {
		r := ggufReader{metadata: m, tensors: tensors}
		r.architecture()
		c = r.config()
		if r.err == nil {
			r.err = c.check()
		}
		return r.err
	})
	if err != nil {
		return Config{}, nil, fmt.Errorf("GGUF: %w", err)
	}
	return c, newGGUFTensors(c, tensors), nil
}

// ggufReader reads values until one is missing or wrong.
type ggufReader struct {
	metadata weights.Metadata
	tensors  Tensors
	arch     string
	name     string // of its family
	family   family
	err      error
}

func (r *ggufReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *ggufReader) refuse(format string, args ...any) {
	r.fail(fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...))
}

// architecture reads the architecture and refuses an unknown one, and keys that are not known.
func (r *ggufReader) architecture() {
	r.arch, _ = r.metadata.String("general.architecture")
	if ggufFamilies[r.arch] == "" {
		r.refuse("general.architecture is %.40q, this build serves %s", r.arch,
			strings.Join(slices.Sorted(maps.Keys(ggufFamilies)), ", "))
	}
	r.name = ggufFamilies[r.arch]
	if n, _ := r.metadata.Uint(r.arch + "." + keyWindow); r.name == "olmo2" && n > 0 {
		r.name = "olmo3" // which has no architecture of its own
	}
	r.family = families[r.name]
	for _, key := range r.metadata.Keys() {
		name, ours := strings.CutPrefix(key, r.arch+".")
		known := slices.Contains(ggufKeys, name) || slices.Contains(r.family.ggufKeys, name)
		if n, ok := r.metadata.Uint(key); ours && !known && !(ok && n == 0) {
			r.refuse("unknown key %.80q", key)
		}
	}
}

// number reads a number from 1 to most. An array of equal numbers, one for each layer, is the same as one, and one of
// ggufByLayer is the same as its first. absent is the value of an absent key; -1: it must be there.
func (r *ggufReader) number(name string, most, absent int) int {
	key := r.arch + "." + name
	n, ok := r.metadata.Uint(key)
	if list, array := r.metadata.Ints(key); array && len(list) > 0 {
		if len(slices.Compact(list)) > 1 && !slices.Contains(r.family.ggufByLayer, name) {
			r.refuse("%s differs between layers", key)
		}
		n, ok = uint64(list[0]), true
	}
	switch {
	case ok && (n < 1 || n > uint64(most)):
		r.fail(fmt.Errorf("model: %s is %d, wants 1 to %d", key, n, most))
	case ok:
		return int(n)
	case r.has(key) || absent < 0:
		r.fail(fmt.Errorf("model: %s is missing or no number", key))
	}
	return absent
}

// float reads a number from least to most.
func (r *ggufReader) float(name string, least, most, absent float64) float64 {
	key := r.arch + "." + name
	f, ok := r.metadata.Float(key)
	switch {
	case ok && !(f >= least && f <= most):
		r.fail(fmt.Errorf("model: %s is %v, wants %v to %v", key, f, least, most))
	case ok:
		return f
	case r.has(key) || absent == 0:
		r.fail(fmt.Errorf("model: %s is missing or no number", key))
	}
	return absent
}

// has reports whether a key is there.
func (r *ggufReader) has(key string) bool { _, ok := r.metadata[key]; return ok }

func (r *ggufReader) hasTensor(name string) bool {
	_, err := r.tensors.Tensor(name)
	return err == nil
}

func (r *ggufReader) config() Config {
	fam := r.family
	c := fam.config
	c.Name, c.NormsFromOne = r.name, false
	c.Hidden, c.Inner = r.number(keyHidden, maxDimension, -1), r.number(keyInner, maxDimension, -1)
	c.Layers, c.Heads = r.number(keyLayers, maxLayers, -1), r.number(keyHeads, maxHeads, -1)
	c.Context, c.RMSNormEps = r.number(keyContext, maxContext, -1), float32(r.float(keyEps, minEps, maxEps, 0))
	c.RoPETheta, c.Interleaved = r.float(keyTheta, minTheta, maxTheta, 10000), slices.Contains(ggufInterleaved, r.arch)
	c.Bias, c.TiedHead = r.hasTensor("blk.0.attn_q.bias"), !r.hasTensor(ggufOutput)
	if r.err != nil {
		return c
	}
	c.KVHeads = r.number(keyKVHeads, maxHeads, c.Heads)
	c.HeadDim = r.number(keyHeadDim, maxHeadDim, c.Hidden/c.Heads)
	if slices.Contains(fam.ggufKeys, keyLatent) {
		r.further(&c)
		r.latent(&c)
	}
	c.published = nil // tensors have the names of Llama's
	embedding, err := r.tensors.Tensor(ggufEmbedding)
	if err != nil {
		r.fail(err)
		return c
	}
	if c.Vocab = embedding.Shape[0]; c.Vocab > maxDimension {
		r.fail(fmt.Errorf("model: %s has %d rows, wants at most %d", ggufEmbedding, c.Vocab, maxDimension))
	}
	r.endTokens(&c)
	r.supported(c)
	r.experts(&c)
	r.window(&c, fam)
	r.rope(&c)
	r.pooling(&c)
	if fam.gguf != nil && r.err == nil {
		fam.gguf(r, &c)
		r.fail(c.checkMultipliers())
	}
	for i := range c.Layers {
		if fam.noRoPE != nil { // as of SmolLM3-3B: the file does not say which
			c.NoRoPE = append(c.NoRoPE, fam.noRoPE(&fam.defaults, i))
		}
	}
	return c
}

// endTokens sets the tokens that end a sequence or a turn.
func (r *ggufReader) endTokens(c *Config) {
	for _, key := range []string{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"} {
		id, ok := r.metadata.Uint(key)
		if ok && id < uint64(c.Vocab) && !slices.Contains(c.EOS, int32(id)) {
			c.EOS = append(c.EOS, int32(id))
		}
	}
}

// endTexts adds the tokens with these texts to those that end a sequence or a turn.
func (r *ggufReader) endTexts(c *Config, texts []string) {
	tokens, _ := r.metadata.Strings("tokenizer.ggml.tokens")
	for id, token := range tokens[:min(len(tokens), c.Vocab)] {
		if slices.Contains(texts, token) && !slices.Contains(c.EOS, int32(id)) {
			c.EOS = append(c.EOS, int32(id))
		}
	}
}

// supported refuses values that the pass does not compute.
func (r *ggufReader) supported(c Config) {
	for _, name := range []string{keyValueDim, keyRotated} {
		n := r.number(name, maxDimension, c.HeadDim)
		if c.Latent == nil && n != c.HeadDim && !(name == keyRotated && families[c.Name].partial) {
			r.refuse("%s.%s is %d, and a head has %d elements", r.arch, name, n, c.HeadDim)
		}
	}
}

// window sets the sliding window, which all layers of llama (Mistral) and phi3 have, and of Gemma those of its pattern.
// Qwen's converters wrote it for models without one, so there it must be no less than the context.
func (r *ggufReader) window(c *Config, fam family) {
	n := 0
	switch {
	case r.has(r.arch + "." + keyWindow):
		n = int(min(maxContext, r.optional(keyWindow)))
	case r.arch == "gemma2":
		n = gemma2Window
	}
	switch {
	case n == 0 || n >= c.Context:
	case slices.Contains(fam.ggufKeys, keyPattern): // the file says which layers have it: setWindows
	case r.arch == "llama" || r.arch == "phi3" || r.arch == "mistral3":
		c.Windows = slices.Repeat([]int{n}, c.Layers)
	case fam.gguf != nil && fam.windows != nil:
		for i := range c.Layers {
			c.Windows = append(c.Windows, 0)
			if fam.windows(&fam.defaults, i) {
				c.Windows[i] = n
			}
		}
	default:
		r.refuse("%s.%s is %d", r.arch, keyWindow, n)
	}
}

// pattern reads which layers have a window; nil: the file does not say it of each.
func (r *ggufReader) pattern(layers int) []bool {
	windowed, ok := r.metadata.Bools(r.arch + "." + keyPattern)
	if len(windowed) != layers || !ok {
		r.fail(fmt.Errorf("model: %s.%s has no value for each of %d layers", r.arch, keyPattern, layers))
		return nil
	}
	return windowed
}

// setWindows sets the sliding window of the layers that have it.
func (r *ggufReader) setWindows(c *Config, windowed []bool) {
	n := int(min(maxContext, r.optional(keyWindow)))
	if n == 0 {
		r.refuse("%s.%s is 0", r.arch, keyWindow)
	}
	for i := range windowed {
		if !windowed[i] || n >= c.Context {
			continue
		}
		if c.Windows == nil {
			c.Windows = make([]int, c.Layers)
		}
		c.Windows[i] = n
	}
}

// optional reads a number that may be 0.
func (r *ggufReader) optional(name string) uint64 {
	n, ok := r.metadata.Uint(r.arch + "." + name)
	if !ok {
		r.fail(fmt.Errorf("model: %s.%s is no number", r.arch, name))
	}
	return n
}

// Names of GGUF's tensors outside the layers.
const (
	ggufEmbedding = "token_embd.weight"
	ggufOutput    = "output.weight"
	ggufDivisors  = "rope_freqs.weight"
	ggufShort     = "rope_factors_short.weight"
	ggufLong      = "rope_factors_long.weight"
	ggufRouter    = "ffn_gate_inp.weight" // of a layer
)

// ggufNames maps the published names, those of a layer without its prefix, to GGUF's.
var ggufNames = map[string]string{
	embeddingName: ggufEmbedding, normName: "output_norm.weight", headName: ggufOutput,
	inputNorm: "attn_norm.weight", qkvProj: "attn_qkv.weight", qProj: "attn_q.weight", kProj: "attn_k.weight",
	vProj: "attn_v.weight", qBias: "attn_q.bias", kBias: "attn_k.bias", vBias: "attn_v.bias",
	qNorm: "attn_q_norm.weight", kNorm: "attn_k_norm.weight", oProj: "attn_output.weight",
	postAttentionNorm: "ffn_norm.weight", gateUpProj: "ffn_up.weight", gateProj: "ffn_gate.weight",
	upProj: "ffn_up.weight", downProj: "ffn_down.weight",
	oBias: "attn_output.bias", sinks: "attn_sinks.weight", routerProj: ggufRouter, routerBias: "ffn_gate_inp.bias", expertsGate: "ffn_gate_exps.weight",
	expertsUp: "ffn_up_exps.weight", expertsDown: "ffn_down_exps.weight", gateBias: "ffn_gate_exps.bias",
	upBias: "ffn_up_exps.bias", downBias: "ffn_down_exps.bias", routerChoice: "exp_probs_b.bias",
	sharedGate: "ffn_gate_shexp.weight", sharedUp: "ffn_up_shexp.weight", sharedDown: "ffn_down_shexp.weight",
	queryDownProj: "attn_q_a.weight", queryDownNorm: "attn_q_a_norm.weight", queryUpProj: "attn_q_b.weight",
	latentProj: "attn_kv_a_mqa.weight", latentNorm: "attn_kv_a_norm.weight", headsProj: "attn_kv_b.weight",
	absorbProj: "attn_k_b.weight", expandProj: "attn_v_b.weight",
	afterAttentionNorm: "post_attention_norm.weight", afterFeedForwardNorm: "post_ffw_norm.weight",
	layerScalar: "layer_output_scale.weight", routerScale: "ffn_gate_inp.scale", routerScales: "ffn_down_exps.scale",
	expertsNorm: "pre_ffw_norm_2.weight", afterShared: "post_ffw_norm_1.weight", afterExperts: "post_ffw_norm_2.weight",
	perLayerTable: "per_layer_token_embd.weight", perLayerModel: "per_layer_model_proj.weight",
	perLayerNorm: "per_layer_proj_norm.weight", perLayerGate: "inp_gate.weight", perLayerProjection: "proj.weight",
	perLayerAfter: "post_norm.weight",
}

// ggufTensors is a GGUF file with tensors under their published names.
type ggufTensors struct {
	file  Tensors
	names map[string]string // from the published name to the file's
	// stacks are the published names of tensors of all experts of a layer, which have a dimension more in the file.
	stacks  map[string]bool
	experts int
	// byHead are those of tensors that have a dimension for heads.
	byHead map[string]bool
	heads  int
}

// newGGUFTensors names the tensors that c asks for.
func newGGUFTensors(c Config, file Tensors) Tensors {
	if c.expertsBeside() {
		file = gatesTogether{file, c.Experts.Count}
	}
	g := ggufTensors{file: file, names: map[string]string{}, stacks: map[string]bool{}, byHead: map[string]bool{}}
	if c.Experts != nil {
		g.experts = c.Experts.Count
	}
	g.heads = c.Heads
	for _, s := range c.Tensors() {
		g.names[s.Name] = ggufNames[s.Name]
		g.stacks[s.Name] = strings.Contains(s.Name, ".mlp.experts.")
		g.byHead[s.Name] = strings.HasSuffix(s.Name, absorbProj) || strings.HasSuffix(s.Name, expandProj)
	}
	for i := range c.Layers {
		prefix := layerPrefix(i)
		for _, s := range c.layerTensors(i) {
			own := ggufNames[strings.TrimPrefix(s.Llama, prefix)]
			if c.expertsBeside() {
				own = strings.Replace(own, "_shexp.", ".", 1) // as of a layer without experts
			}
			if c.Sinks && s.Llama == prefix+postAttentionNorm { // of gpt-oss
				own = ggufNames[afterAttentionNorm]
			}
			g.names[s.Name] = fmt.Sprintf("blk.%d.%s", i, own)
		}
	}
	return g
}

// Tensor returns a tensor by its published name, or by the file's if it has no other.
func (g ggufTensors) Tensor(name string) (weights.Tensor, error) {
	own, ok := g.names[name]
	if !ok {
		return g.file.Tensor(name)
	}
	t, err := g.file.Tensor(own)
	if err == nil && len(t.Shape) > 1 && (g.stacks[name] && t.Shape[0] == g.experts || // and what each has
		g.byHead[name] && len(t.Shape) > 2 && t.Shape[0] == g.heads) {
		t.Shape = append([]int{t.Shape[0] * t.Shape[1]}, t.Shape[2:]...)
	}
	return t, err
}

// Names returns the names of all tensors but divisors of RoPE, which the config holds.
func (g ggufTensors) Names() (names []string) {
	published := map[string]string{}
	for name, own := range g.names {
		published[own] = name
	}
	for _, own := range g.file.Names() {
		if name, ok := published[own]; ok {
			names = append(names, name)
		} else if own != ggufDivisors && own != ggufShort && own != ggufLong {
			names = append(names, own)
		}
	}
	return names
}
