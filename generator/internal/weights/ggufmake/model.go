package ggufmake

import (
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// Architecture returns GGUF's name of a model's family.
func Architecture(c model.Config) string {
	switch c.Name {
	case "mistral":
		return "llama"
	case "ministral3":
		return "mistral3"
	case "mixtral":
		return "llama"
	case "qwen3_moe":
		return "qwen3moe"
	case "gpt_oss":
		return "gpt-oss"
	case "deepseek_v2", "deepseek_v3", "glm4_moe_lite":
		return "deepseek2"
	case "gemma3_text":
		return "gemma3"
	case "gemma4_text", "gemma4_unified_text":
		return "gemma4"
	case "olmo3":
		return "olmo2"
	case "granitemoehybrid": // as model.Plain returns it
		return "granite"
	}
	return c.Name
}

// Pairs returns the metadata of a model, as llama.cpp's converter writes it.
func Pairs(c model.Config) []Pair {
	arch := Architecture(c)
	pairs := []Pair{{"general.architecture", arch}, {"context_length", uint32(c.Context)},
		{"embedding_length", uint32(c.Hidden)}, {"block_count", uint32(c.Layers)},
		{"feed_forward_length", uint32(c.Inner)}, {"attention.head_count", uint32(c.Heads)},
		{"attention.head_count_kv", uint32(c.KVHeads)}, {"attention.key_length", uint32(c.HeadDim)},
		{"attention.value_length", uint32(c.HeadDim)}, {"attention.layer_norm_rms_epsilon", c.RMSNormEps},
		{"rope.freq_base", float32(c.RoPETheta)}, {"rope.dimension_count", uint32(c.HeadDim)}}
	if c.Rotated > 0 {
		pairs[len(pairs)-1].Value = uint32(c.Rotated)
	}
	if l := c.Latent; l != nil { // as before attn_kv_b was split: the split form has key_length_mla and another key_length
		pairs[len(pairs)-1].Value = uint32(l.Rope)
		pairs[slices.IndexFunc(pairs, func(p Pair) bool { return p.Key == "attention.value_length" })].Value = uint32(l.Value)
	}
	if c.Wide != nil {
		pairs = byLayer(c, pairs)
	}
	pairs = append(pairs, scaling(c)...)
	pairs = append(pairs, latent(c)...)
	switch {
	case c.Windows != nil:
		pairs = append(pairs, Pair{"attention.sliding_window", uint32(slices.Max(c.Windows))})
	case c.Name == "gemma2" || slices.Contains(c.Local, true) && c.Name == "gemma3_text" || c.Wide != nil || c.Name == "olmo3":
		// Windows that the context fits into: without the key, Gemma 2's are 4,096 long, Gemma 3 and OLMo 3 have one RoPE,
		// and Gemma 4 is refused.
		pairs = append(pairs, Pair{"attention.sliding_window", uint32(c.Context)})
	case c.Name == "phi3": // without the key, llama.cpp takes Phi-3's window
		pairs = append(pairs, Pair{"attention.sliding_window", uint32(0)})
	}
	if c.Name == "olmo3" {
		windowed := make([]bool, c.Layers)
		for i := range windowed {
			windowed[i] = c.Local != nil && c.Local[i] || c.Window(i) > 0
		}
		pairs = append(pairs, Pair{"attention.sliding_window_pattern", windowed})
	}
	if c.Embedding != nil {
		pairs = append(pairs, Pair{"pooling_type", uint32(3)}) // the last token
	}
	if e := c.Experts; e != nil {
		pairs = append(pairs, Pair{"expert_count", uint32(e.Count)}, Pair{"expert_used_count", uint32(e.Used)})
		if arch != "llama" {
			pairs = append(pairs, Pair{"expert_feed_forward_length", uint32(e.Inner)})
		}
	}
	pairs = append(pairs, multipliers(c)...)
	if arch == "llama" {
		pairs = append(pairs, Pair{"vocab_size", uint32(c.Vocab)})
	}
	for i := range pairs[1:] {
		pairs[i+1].Key = arch + "." + pairs[i+1].Key
	}
	for _, id := range c.EOS[:min(1, len(c.EOS))] {
		pairs = append(pairs, Pair{"tokenizer.ggml.eos_token_id", uint32(id)})
	}
	return pairs
}

// byLayer replaces what is the same in all layers of other models, and adds what Gemma 4 has beside.
func byLayer(c model.Config, pairs []Pair) []Pair {
	var inner, kvHeads []int32
	var windowed []bool
	for i := range c.Layers {
		own := c.At(i)
		inner, kvHeads = append(inner, int32(own.Inner)), append(kvHeads, int32(own.KVHeads))
		windowed = append(windowed, !c.Wide.Layers[i])
	}
	for i := range pairs {
		switch pairs[i].Key {
		case "feed_forward_length":
			pairs[i].Value = inner
		case "attention.head_count_kv":
			pairs[i].Value = kvHeads
		case "attention.key_length", "attention.value_length", "rope.dimension_count":
			pairs[i].Value = uint32(c.Wide.HeadDim)
		}
	}
	shared := 0
	if c.SharedKV != nil {
		shared = c.SharedKV.Layers
	}
	return append(pairs, Pair{"attention.key_length_swa", uint32(c.HeadDim)}, Pair{"attention.value_length_swa",
		uint32(c.HeadDim)}, Pair{"rope.dimension_count_swa", uint32(c.HeadDim)}, Pair{"attention.sliding_window_pattern",
		windowed}, Pair{"attention.shared_kv_layers", uint32(shared)}, Pair{"embedding_length_per_layer_input",
		uint32(c.PerLayer)})
}

// latent returns the metadata of latent attention and of DeepSeek's routers, without the architecture's name.
func latent(c model.Config) (pairs []Pair) {
	l, e := c.Latent, c.Experts
	if l == nil {
		return nil
	}
	leading := 0
	for leading < len(e.Dense) && e.Dense[leading] {
		leading++
	}
	pairs = []Pair{{"attention.kv_lora_rank", uint32(l.Rank)}, {"leading_dense_block_count", uint32(leading)},
		{"expert_shared_count", uint32(e.Shared / e.Inner)},
		{"expert_weights_scale", e.Scale}, {"expert_weights_norm", e.Normalise},
		{"expert_gating_func", uint32(1 + e.Scoring)}}
	if l.QueryRank > 0 {
		pairs = append(pairs, Pair{"attention.q_lora_rank", uint32(l.QueryRank)})
	}
	if e.Groups > 1 {
		pairs = append(pairs, Pair{"expert_group_count", uint32(e.Groups)},
			Pair{"expert_group_used_count", uint32(e.GroupsUsed)})
	}
	return pairs
}

// multipliers returns the metadata of scales and bounds, without the architecture's name.
func multipliers(c model.Config) (pairs []Pair) {
	for _, p := range []struct {
		family, key string
		value       float32
	}{{"granite", "embedding_scale", c.EmbeddingScale}, {"granite", "residual_scale", c.ResidualScale},
		{"granite", "logit_scale", c.LogitsDivisor}, {"granite", "attention.scale", c.AttentionScale},
		{"gemma2", "attn_logit_softcapping", c.ScoreCap}, {"gemma2", "final_logit_softcapping", c.LogitsCap},
		{"gemma3_text", "final_logit_softcapping", c.LogitsCap}, {"gemma3_text", "rope.freq_base_swa", float32(c.LocalTheta)},
		{"gemma4", "final_logit_softcapping", c.LogitsCap}, {"gemma4", "rope.freq_base_swa", float32(c.LocalTheta)},
		{"olmo3", "rope.freq_base_swa", float32(c.LocalTheta)}} {
		if p.value != 0 && (p.family == c.Name || p.family == Architecture(c)) {
			pairs = append(pairs, Pair{p.key, p.value})
		}
	}
	if c.Name == "granite" && c.NoRoPE != nil {
		pairs = append(pairs, Pair{"rope.scaling.finetuned", false})
	}
	return pairs
}

// names replaces the published names by GGUF's.
var names = strings.NewReplacer("model.embed_tokens_per_layer", "per_layer_token_embd", "model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output",
	"model.layers", "blk", "input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm",
	"self_attn.qkv_proj", "attn_qkv", "self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k",
	"self_attn.v_proj", "attn_v", "post_self_attn_layernorm", "post_attention_norm", "post_mlp_layernorm",
	"post_ffw_norm", "self_attn.o_proj", "attn_output", "self_attn.q_norm", "attn_q_norm",
	"self_attn.k_norm", "attn_k_norm", "mlp.gate_up_proj", "ffn_up", "mlp.gate_proj", "ffn_gate",
	"mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down", "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", "mlp.gate.", "ffn_gate_inp.", "mlp.experts.gate_proj",
	"ffn_gate_exps", "mlp.experts.up_proj", "ffn_up_exps", "mlp.experts.down_proj", "ffn_down_exps",
	"self_attn.sinks", "attn_sinks.weight", "mlp.shared_experts.gate_proj", "ffn_gate_shexp",
	"mlp.shared_experts.up_proj", "ffn_up_shexp", "mlp.shared_experts.down_proj", "ffn_down_shexp",
	"self_attn.q_a_proj", "attn_q_a", "self_attn.q_a_layernorm", "attn_q_a_norm", "self_attn.q_b_proj", "attn_q_b",
	"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", "self_attn.kv_a_layernorm", "attn_kv_a_norm",
	"self_attn.kv_b_proj", "attn_kv_b", "layer_scalar", "layer_output_scale.weight", "router.scale", "ffn_gate_inp.scale",
	"router.per_expert_scale", "ffn_down_exps.scale", "pre_feedforward_layernorm_2", "pre_ffw_norm_2",
	"post_feedforward_layernorm_1", "post_ffw_norm_1", "post_feedforward_layernorm_2", "post_ffw_norm_2",
	"model.per_layer_model_projection", "per_layer_model_proj", "model.per_layer_projection_norm", "per_layer_proj_norm",
	"per_layer_input_gate", "inp_gate", "per_layer_projection", "proj", "post_per_layer_input_norm", "post_norm")

// Name returns GGUF's name of a tensor, whose name in Llama's checkpoints is given.
func Name(c model.Config, llama string) string {
	if c.Sinks { // of gpt-oss
		llama = strings.Replace(llama, "post_attention_layernorm", "post_attention_norm", 1)
	}
	if c.Experts != nil && c.Experts.Beside {
		llama = strings.Replace(llama, "mlp.shared_experts.", "mlp.", 1)
	}
	return names.Replace(llama)
}

// Shape returns the shape of a tensor in the file, where what all experts have has a dimension for them.
func Shape(c model.Config, s model.TensorSpec) []int {
	if !strings.Contains(s.Llama, ".mlp.experts.") {
		return s.Shape
	}
	return append([]int{c.Experts.Count, s.Shape[0] / c.Experts.Count}, s.Shape[1:]...)
}

// Row returns the row of a published tensor that row r of the file's holds: the rows of each head of q and k of Llama,
// Mistral and SmolLM3 are interleaved, as numpy's reshape(heads, 2, dim/2, …).swapaxes(1, 2) does.
func Row(c model.Config, published string, r int) int {
	interleaved := []string{"llama", "mistral", "mixtral", "ministral3", "smollm3", "granite"}
	if !slices.Contains(interleaved, c.Name) || !strings.Contains(published, "q_proj") && !strings.Contains(published, "k_proj") {
		return r
	}
	head, row := r/c.HeadDim*c.HeadDim, r%c.HeadDim
	return head + row%2*c.HeadDim/2 + row/2
}

// Tensors returns the tensors of a model as llama.cpp's converter writes them: rows of q and k of Llama, Mistral and
// Granite are interleaved, norms whole, and Llama 3's scaling of RoPE is a tensor. change may change a tensor before, by its published name.
func Tensors(c model.Config, from model.Tensors, change func(weights.Tensor) weights.Tensor) (list []weights.Tensor) {
	for _, s := range c.Tensors() {
		t, err := from.Tensor(s.Name)
		if err != nil {
			panic(err)
		}
		if t.Conversion != nil {
			t.Data = make([]byte, t.Shape[0]*t.DType.Bytes(t.Shape[1]))
			if err := t.Conversion.Rows(t.Data, 0); err != nil {
				panic(err)
			}
			t.Conversion = nil
		}
		if t = change(t); c.NormsFromOne && s.Kind == model.NormTensor {
			t = plusOne(t)
		}
		t.Data = ordered(c, t)
		t.Name, t.Shape = Name(c, s.Llama), Shape(c, s)
		list = append(list, t)
	}
	for _, d := range Divisors(c) {
		list = append(list, weights.Tensor{Name: d.Name, DType: weights.F32, Shape: []int{len(d.Data) / 4},
			Data: d.Data})
	}
	return list
}

// plusOne adds 1 to a vector, in float32.
func plusOne(t weights.Tensor) weights.Tensor {
	values := make([]float32, t.Shape[0])
	for i := range values {
		values[i] = t.Float(i) + 1
	}
	t.DType, t.Data = weights.F32, floats(values)
	return t
}

// ordered returns the rows of a tensor in the file's order.
func ordered(c model.Config, t weights.Tensor) (out []byte) {
	size := len(t.Data) / t.Shape[0]
	for r := range t.Shape[0] {
		out = append(out, t.Data[Row(c, t.Name, r)*size:][:size]...)
	}
	return out
}
