package model

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/kernels"
)

func init() {
	published["qwen3-30b-a3b"] = `{"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,
		"attention_dropout":0.0,"bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu",
		"hidden_size":2048,"initializer_range":0.02,"intermediate_size":6144,"max_position_embeddings":40960,
		"max_window_layers":48,"mlp_only_layers":[],"model_type":"qwen3_moe","moe_intermediate_size":768,
		"norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,
		"num_hidden_layers":48,"num_key_value_heads":4,"output_router_logits":false,"rms_norm_eps":1e-06,
		"rope_scaling":null,"rope_theta":1000000.0,"router_aux_loss_coef":0.001,"sliding_window":null,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.51.0","use_cache":true,
		"use_sliding_window":false,"vocab_size":151936}`
	published["mixtral-8x7b"] = `{"architectures":["MixtralForCausalLM"],"attention_dropout":0.0,"bos_token_id":1,
		"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,
		"max_position_embeddings":32768,"model_type":"mixtral","num_attention_heads":32,"num_experts_per_tok":2,
		"num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,"output_router_logits":false,
		"rms_norm_eps":1e-05,"rope_theta":1000000.0,"router_aux_loss_coef":0.02,"sliding_window":null,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,"vocab_size":32000}`
	published["olmoe-1b-7b"] = `{"architectures":["OlmoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"clip_qkv":null,"eos_token_id":50279,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
		"intermediate_size":1024,"max_position_embeddings":4096,"model_type":"olmoe","norm_topk_prob":false,
		"num_attention_heads":16,"num_experts":64,"num_experts_per_tok":8,"num_hidden_layers":16,
		"num_key_value_heads":16,"output_router_logits":false,"pad_token_id":1,"rms_norm_eps":1e-05,
		"rope_scaling":null,"rope_theta":10000.0,"router_aux_loss_coef":0.01,"tie_word_embeddings":false,
		"torch_dtype":"bfloat16","use_cache":true,"vocab_size":50304}`
	published["gpt-oss-20b"] = `{"architectures":["GptOssForCausalLM"],"attention_bias":true,"attention_dropout":0.0,
		"eos_token_id":200002,"experts_per_token":4,"head_dim":64,"hidden_act":"silu","hidden_size":2880,
		"initial_context_length":4096,"initializer_range":0.02,"intermediate_size":2880,
		"layer_types":[` + strings.Repeat(`"sliding_attention","full_attention",`, 11) +
		`"sliding_attention","full_attention"],"max_position_embeddings":131072,"model_type":"gpt_oss",
		"num_attention_heads":64,"num_experts_per_tok":4,"num_hidden_layers":24,"num_key_value_heads":8,
		"num_local_experts":32,"output_router_logits":false,"pad_token_id":199999,
		"quantization_config":{"modules_to_not_convert":["model.layers.*.self_attn","model.layers.*.mlp.router",
		"model.embed_tokens","lm_head"],"quant_method":"mxfp4"},"rms_norm_eps":1e-05,
		"rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,"original_max_position_embeddings":4096,
		"rope_type":"yarn","truncate":false},"rope_theta":150000,"router_aux_loss_coef":0.9,"sliding_window":128,
		"swiglu_limit":7.0,"tie_word_embeddings":false,"transformers_version":"4.55.0.dev0","use_cache":true,
		"vocab_size":201088}`
}

// Published models with experts have the number of parameters that their authors state, and route as theirs do.
func TestPublishedExperts(t *testing.T) {
	for name, want := range map[string]struct {
		parameters int64
		experts    Experts
	}{
		"qwen3-30b-a3b": {30532122624, Experts{Count: 128, Used: 8, Inner: 768, Normalise: true}},
		"mixtral-8x7b":  {46702792704, Experts{Count: 8, Used: 2, Inner: 14336, Normalise: true}},
		"olmoe-1b-7b":   {6919161856, Experts{Count: 64, Used: 8, Inner: 1024}},
		"gpt-oss-20b": {20914757184, Experts{Count: 32, Used: 4, Inner: 2880, Scoring: kernels.SoftmaxOfChosen,
			RouterBias: true, Bias: true, Transposed: true, Limit: 7}},
	} {
		c, err := ParseConfig([]byte(published[name]), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		e := *c.Experts
		e.Dense = nil
		if c.Experts.Dense != nil || !equalExperts(e, want.experts) || c.Parameters() != want.parameters {
			t.Errorf("%s: %d parameters, %+v, wants %+v", name, c.Parameters(), *c.Experts, want)
		}
	}
	c, err := ParseConfig([]byte(published["gpt-oss-20b"]), nil)
	if err != nil || !c.Sinks || !c.Bias || !c.OutputBias || c.Window(0) != 128 || c.Window(1) != 0 ||
		c.RoPE.Kind != YarnRoPE || c.RoPE.Whole || c.Quantisation.Method != methodMXFP4 {
		t.Errorf("gpt-oss: %+v, %v", c, err)
	}
}

func equalExperts(a, b Experts) bool {
	a.Dense, b.Dense = nil, nil
	return a.Count == b.Count && a.Used == b.Used && a.Inner == b.Inner && a.Normalise == b.Normalise &&
		a.Scoring == b.Scoring && a.RouterBias == b.RouterBias && a.Bias == b.Bias && a.Transposed == b.Transposed &&
		a.Limit == b.Limit && a.Scale == b.Scale && a.Groups == b.Groups
}

// decoder_sparse_step and mlp_only_layers say which layers have experts.
func TestLayersWithExperts(t *testing.T) {
	swap := strings.NewReplacer(`"decoder_sparse_step":1`, `"decoder_sparse_step":3`, `"mlp_only_layers":[]`,
		`"mlp_only_layers":[5,40]`)
	c, err := ParseConfig([]byte(swap.Replace(published["qwen3-30b-a3b"])), nil)
	if err != nil {
		t.Fatal(err)
	}
	var sparse []int
	for i := range c.Layers {
		if c.sparse(i) {
			sparse = append(sparse, i)
		}
	}
	if want := []int{2, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44, 47}; !slices.Equal(sparse, want) {
		t.Errorf("layers %v have experts, wants %v", sparse, want)
	}
}

// Fields that only some files of a family have, with the values that all of it have, change nothing: Qwen3-Coder's, and
// those of gpt-oss as transformers has come to write it.
func TestFieldsThatSayWhatAllOfAFamilyHave(t *testing.T) {
	for _, c := range []struct{ base, old, with string }{
		{"qwen3-30b-a3b", `"use_cache":true`, `"qkv_bias":false,"shared_expert_intermediate_size":0,"use_qk_norm":true`},
		{"gpt-oss-20b", `"swiglu_limit":7.0`, `"swiglu_limit":7.0,"swiglu_alpha":1.702`},
		{"gemma-3-1b", `"attn_logit_softcapping":null`, `"attn_logit_softcapping":50.0`}, // and is not applied
	} {
		if got, want := config(t, c.base, c.old, c.with), config(t, c.base); !reflect.DeepEqual(got, want) {
			t.Errorf("%s with %s: %+v, wants %+v", c.base, c.with, got, want)
		}
	}
	// OLMo 3 without scaling, by kind of layer and not.
	flat := `"rope_parameters":{"rope_theta":500000,"rope_type":"default"},`
	apart := `"rope_parameters":{"full_attention":{"rope_theta":500000,"rope_type":"default"},
		"sliding_attention":{"rope_theta":500000,"rope_type":"default"}},`
	unscaled := func(rope string) Config {
		text := published["olmo-3-7b"]
		from := strings.Index(text, `"rope_scaling"`)
		to := strings.Index(text, `"sliding_window"`)
		c, err := ParseConfig([]byte(text[:from]+rope+text[to:]), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if got, want := unscaled(flat), unscaled(apart); !reflect.DeepEqual(got, want) || got.LocalTheta != 0 {
		t.Errorf("%+v, wants %+v", got, want)
	}
}

// Experts that this build does not compute, or whose numbers do not fit each other, are refused by the field's name.
func TestExpertsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ base, old, with, names string }{
		{"qwen3-30b-a3b", `"num_experts":128`, `"num_experts":2000`, "the number of experts"},
		{"qwen3-30b-a3b", `"num_experts":128`, `"num_experts":128,"num_local_experts":64`, "num_local_experts"},
		{"qwen3-30b-a3b", `"num_experts_per_tok":8`, `"num_experts_per_tok":129`, "num_experts_per_tok"},
		{"qwen3-30b-a3b", `"num_experts_per_tok":8`, `"num_experts_per_tok":64`, "num_experts_per_tok"},
		{"qwen3-30b-a3b", `"moe_intermediate_size":768`, `"moe_intermediate_size":0`, "the width of an expert"},
		{"qwen3-30b-a3b", `"moe_intermediate_size":768`, `"moe_intermediate_size":262144`, "experts"},
		{"qwen3-30b-a3b", `"decoder_sparse_step":1`, `"decoder_sparse_step":0`, "no layer has one"},
		{"qwen3-30b-a3b", `"use_cache":true`, `"shared_expert_intermediate_size":512`,
			"shared_expert_intermediate_size"},
		{"qwen3-30b-a3b", `"use_cache":true`, `"use_qk_norm":false`, "use_qk_norm"},
		{"mixtral-8x7b", `"use_cache":true`, `"moe_intermediate_size":768`, "moe_intermediate_size"},
		{"olmoe-1b-7b", `"clip_qkv":null`, `"clip_qkv":8.0`, "clip_qkv"},
		{"gpt-oss-20b", `"swiglu_limit":7.0`, `"swiglu_limit":10.0`, "swiglu_limit"},
		{"gpt-oss-20b", `"swiglu_limit":7.0`, `"swiglu_limit":7.0,"swiglu_alpha":1.5`, "swiglu_alpha"},
		{"qwen3-30b-a3b", `"use_cache":true`, `"quantization_config":{"quant_method":"mxfp4"}`, "mxfp4"},
		{"llama-2-7b", `"model_type":"llama"`, `"model_type":"llama","num_experts_per_tok":2`, "num_experts_per_tok"},
	} {
		text := strings.Replace(published[c.base], c.old, c.with, 1)
		if text == published[c.base] {
			t.Fatalf("%s has no %s", c.base, c.old)
		}
		if _, err := ParseConfig([]byte(text), nil); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s with %s: %v, wants a refusal that names %s", c.base, c.with, err, c.names)
		}
	}
	other := strings.Replace(published["mixtral-8x7b"], `"mixtral"`, `"jamba"`, 1)
	if _, err := ParseConfig([]byte(other), nil); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
