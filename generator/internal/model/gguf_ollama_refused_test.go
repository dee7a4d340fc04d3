package model_test

import (
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// What is not computed stays refused by name, and so is what files in llama.cpp's form, or of others, have too much.
func TestRefusedOllamaForms(t *testing.T) {
	for _, x := range []struct {
		name, family string
		change       func(f *ollamaForm)
		says         string
	}{
		{"no epsilon in llama.cpp's form", "gemma-3-text", func(f *ollamaForm) {
			f.set(map[string]any{"gemma3.attention.layer_norm_rms_epsilon": nil})
		}, "layer_norm_rms_epsilon"},
		{"images of another family", "qwen3", func(f *ollamaForm) {
			f.add("v.blk.0.attn_q.weight")
		}, "v.blk.0.attn_q.weight"},
		{"keys of images of another family", "qwen3", func(f *ollamaForm) {
			f.set(map[string]any{"qwen3.vision.block_count": uint32(3)})
		}, "qwen3.vision.block_count"},
		{"an unknown tensor", "gemma-3-text", func(f *ollamaForm) {
			f.set(gemma3Vision)
			f.add("v.blk.0.attn_q.weight", "blk.0.other.weight")
		}, "blk.0.other.weight"},
		{"an unknown key", "gemma-3-text", func(f *ollamaForm) {
			f.set(gemma3Vision)
			f.set(map[string]any{"gemma3.other": uint32(1)})
		}, "gemma3.other"},
		{"windows in another pattern", "gemma-3-text", func(f *ollamaForm) {
			f.set(gemma3Vision)
			f.set(map[string]any{"gemma3.attention.sliding_window_pattern": []bool{true, false, true, false, true,
				false, true}})
		}, "sliding_window_pattern"},
		{"windows of some layers", "gemma-3-text", func(f *ollamaForm) {
			f.set(gemma3Vision)
			f.set(map[string]any{"gemma3.attention.sliding_window_pattern": []bool{true, true, true}})
		}, "sliding_window_pattern"},
		{"embeddings of Gemma", "gemma-3-text", func(f *ollamaForm) {
			f.set(gemma3Vision)
			f.add("dense.0.weight")
		}, "dense.0.weight"},
		{"a converter without yarn", "ministral-3", func(f *ollamaForm) {
			f.rename("mistral3.attention.temperature_scale", "mistral3.rope.scaling_beta")
			f.set(map[string]any{"mistral3.rope.scaling.type": nil, "mistral3.rope.scaling.factor": nil,
				"mistral3.rope.scaling.yarn_beta_fast": nil, "mistral3.rope.scaling.yarn_beta_slow": nil,
				"mistral3.rope.scaling.yarn_log_multiplier": nil})
		}, "mistral3.rope.scaling_beta"},
		{"another scale of yarn", "ministral-3", func(f *ollamaForm) {
			f.set(map[string]any{"mistral3.rope.scaling.mscale": float32(2)})
		}, "mistral3.rope.scaling.mscale"},
		{"weights that are not normalised", "qwen3-moe", func(f *ollamaForm) {
			f.set(map[string]any{"qwen3moe.norm_top_k_prob": false})
		}, "norm_top_k_prob"},
		{"another dimension of heads", "llama-3.1", func(f *ollamaForm) {
			f.set(map[string]any{"llama.attention.head_dim": uint32(16)})
		}, "llama.attention.head_dim"},
		{"too few rows of q, k and v", "gpt-oss", func(f *ollamaForm) {
			toGptOss(f)
			f.renameTensors("attn_k.", "attn_qkv.")
		}, "attn_qkv.weight has the shape"},
		{"gates and ups of an odd number of rows", "gpt-oss", func(f *ollamaForm) {
			toGptOss(f)
			f.set(map[string]any{"gptoss.expert_feed_forward_length": uint32(32)})
			f.renameTensors("ffn_gate_exps.", "ffn_gate_up_exps.")
			for i := range f.tensors {
				if x := &f.tensors[i]; x.Name == "blk.0.ffn_gate_up_exps.weight" {
					x.Shape = []int{x.Shape[0] * x.Shape[1], 1, x.Shape[2]}
				}
			}
		}, "gates and ups"},
	} {
		c, w := checkpoint(t, x.family)
		f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
		x.change(&f)
		got, tensors, err := parseGGUF(t, f.pairs, f.tensors)
		if err == nil {
			err = got.CheckTensors(tensors)
		}
		if err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, wants a refusal that names %s", x.name, err, x.says)
		}
	}
}
