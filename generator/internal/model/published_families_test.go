package model

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/kernels"
)

func init() {
	list := func(n int, kinds ...string) string {
		return `"` + strings.Join(slices.Repeat(kinds, n/len(kinds)), `","`) + `"`
	}
	const sliding, full = "sliding_attention", "full_attention"
	published["granite-3.1-8b"] = `{"architectures":["GraniteForCausalLM"],"attention_bias":false,
		"attention_dropout":0.1,"attention_multiplier":0.0078125,"bos_token_id":0,"embedding_multiplier":12.0,
		"eos_token_id":0,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":12800,
		"logits_scaling":16.0,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"granite",
		"num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,"pad_token_id":0,
		"residual_multiplier":0.22,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000000.0,
		"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_cache":true,"vocab_size":49155}`
	published["granite-4.0-micro"] = `{"architectures":["GraniteMoeHybridForCausalLM"],"attention_bias":false,
		"attention_multiplier":0.015625,"bos_token_id":100257,"embedding_multiplier":12,"eos_token_id":100257,
		"hidden_act":"silu","hidden_size":2560,"init_method":"mup","initializer_range":0.1,"intermediate_size":8192,
		"layer_types":[` + list(40, "attention") + `],"logits_scaling":10,"mamba_chunk_size":256,
		"mamba_conv_bias":true,"mamba_d_conv":4,"mamba_d_head":64,"mamba_d_state":256,"mamba_expand":2,
		"mamba_n_groups":1,"mamba_n_heads":80,"mamba_proj_bias":false,"max_position_embeddings":131072,
		"model_type":"granitemoehybrid","normalization_function":"rmsnorm","num_attention_heads":40,
		"num_experts_per_tok":0,"num_hidden_layers":40,"num_key_value_heads":8,"num_local_experts":0,
		"output_router_logits":false,"pad_token_id":100256,"position_embedding_type":"rope",
		"residual_multiplier":0.22,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000000,
		"router_aux_loss_coef":0.01,"shared_intermediate_size":8192,"tie_word_embeddings":true,"use_cache":true,
		"vocab_size":100352}`
	published["olmo-2-7b"] = `{"architectures":["Olmo2ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"eos_token_id":100257,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,
		"intermediate_size":11008,"max_position_embeddings":4096,"model_type":"olmo2","num_attention_heads":32,
		"num_hidden_layers":32,"num_key_value_heads":32,"pad_token_id":100277,"rms_norm_eps":1e-06,
		"rope_scaling":null,"rope_theta":500000,"tie_word_embeddings":false,"use_cache":true,"vocab_size":100352}`
	published["olmo-3-7b"] = `{"architectures":["Olmo3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"eos_token_id":100257,"hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,
		"layer_types":[` + list(32, sliding, sliding, sliding, full) + `],"max_position_embeddings":65536,
		"model_type":"olmo3","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
		"pad_token_id":100277,"rms_norm_eps":1e-06,"rope_scaling":{"attention_factor":1.2079441541679836,
		"beta_fast":32.0,"beta_slow":1.0,"factor":8.0,"original_max_position_embeddings":8192,"rope_type":"yarn"},
		"rope_theta":500000,"sliding_window":4096,"tie_word_embeddings":false,"use_cache":true,
		"vocab_size":100278}`
	published["glm-4-9b-0414"] = `{"architectures":["Glm4ForCausalLM"],"attention_bias":true,"attention_dropout":0.0,
		"eos_token_id":[151329,151336,151338],"head_dim":128,"hidden_act":"silu","hidden_size":4096,
		"initializer_range":0.02,"intermediate_size":13696,"max_position_embeddings":32768,"model_type":"glm4",
		"num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":2,"pad_token_id":151329,
		"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,"rope_theta":10000.0,"tie_word_embeddings":false,
		"use_cache":true,"vocab_size":151552}`
	published["gemma-2-9b"] = `{"architectures":["Gemma2ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"attn_logit_softcapping":50.0,"bos_token_id":2,"cache_implementation":"hybrid","eos_token_id":1,
		"final_logit_softcapping":30.0,"head_dim":256,"hidden_act":"gelu_pytorch_tanh",
		"hidden_activation":"gelu_pytorch_tanh","hidden_size":3584,"initializer_range":0.02,
		"intermediate_size":14336,"max_position_embeddings":8192,"model_type":"gemma2","num_attention_heads":16,
		"num_hidden_layers":42,"num_key_value_heads":8,"pad_token_id":0,"query_pre_attn_scalar":256,
		"rms_norm_eps":1e-06,"rope_theta":10000.0,"sliding_window":4096,"sliding_window_size":4096,"use_cache":true,
		"vocab_size":256000}`
	published["gemma-3-1b"] = `{"architectures":["Gemma3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"attn_logit_softcapping":null,"bos_token_id":2,"cache_implementation":"hybrid","eos_token_id":[1,106],
		"final_logit_softcapping":null,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","hidden_size":1152,
		"initializer_range":0.02,"intermediate_size":6912,"max_position_embeddings":32768,
		"model_type":"gemma3_text","num_attention_heads":4,"num_hidden_layers":26,"num_key_value_heads":1,
		"pad_token_id":0,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_local_base_freq":10000,
		"rope_scaling":null,"rope_theta":1000000,"sliding_window":512,"sliding_window_pattern":6,"use_cache":true,
		"vocab_size":262144}`
	published["gemma-3-12b"] = `{"architectures":["Gemma3ForConditionalGeneration"],"boi_token_index":255999,
		"eoi_token_index":256000,"eos_token_id":[1,106],"image_token_index":262144,"initializer_range":0.02,
		"mm_tokens_per_image":256,"model_type":"gemma3","text_config":{"hidden_size":3840,"intermediate_size":15360,
		"model_type":"gemma3_text","num_attention_heads":16,"num_hidden_layers":48,"num_key_value_heads":8,
		"rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024},"torch_dtype":"bfloat16",
		"vision_config":{"hidden_size":1152,"image_size":896,"intermediate_size":4304,
		"model_type":"siglip_vision_model","num_attention_heads":16,"num_hidden_layers":27,"patch_size":14,
		"vision_use_head":false}}`
}

// config returns the config of a published model, after replacements.
func config(t *testing.T, name string, replace ...string) Config {
	t.Helper()
	c, err := ParseConfig([]byte(strings.NewReplacer(replace...).Replace(published[name])), nil)
	if err != nil {
		t.Fatal(name, err)
	}
	return c
}

// Granite's multipliers. The usual scale of scores is none, and a residual multiplier changes the Eps of norms.
func TestPublishedGranite(t *testing.T) {
	c := config(t, "granite-3.1-8b")
	if c.EmbeddingScale != 12 || c.LogitsDivisor != 16 || c.ResidualScale != 0.22 || c.attentionScale() != 0.0078125 {
		t.Errorf("%+v", c)
	}
	if got := c.streamEps(); math.Abs(float64(got)-1e-5/(0.22*0.22)) > 1e-9 {
		t.Errorf("an Eps of %v", got)
	}
	micro := config(t, "granite-4.0-micro")
	if micro.Inner != 8192 || !micro.FusedGateUp || micro.FusedQKV || micro.hasUnrotated() || micro.AttentionScale == 0 {
		t.Errorf("%+v", micro)
	}
	if nope := config(t, "granite-4.0-micro", `"rope",`, `"nope",`); len(nope.NoRoPE) != 40 || slices.Contains(nope.NoRoPE, false) {
		t.Errorf("%v", nope.NoRoPE)
	}
}

// OLMo 3 and Gemma 3 have two RoPEs, and windows in all layers but each fourth and sixth.
func TestPublishedLocalRoPE(t *testing.T) {
	olmo := config(t, "olmo-3-7b")
	if olmo.LocalTheta != 5e5 || olmo.RoPETheta != 5e5 || olmo.RoPE.Kind != YarnRoPE || !olmo.Local[2] || olmo.Local[3] ||
		olmo.Window(2) != 4096 || olmo.Window(3) != 0 || !olmo.WidthNorms || !olmo.NoNormsBefore {
		t.Errorf("%+v", olmo)
	}
	if plain := config(t, "olmo-3-7b", `"rope_scaling":{`, `"_":{`); plain.LocalTheta != 0 || plain.ropeTables() != 1 {
		t.Errorf("%+v", plain)
	}
	gemma := config(t, "gemma-3-12b")
	if gemma.LocalTheta != 1e4 || gemma.RoPETheta != 1e6 || gemma.RoPE.Factor != 8 || !gemma.Local[4] || gemma.Local[5] ||
		gemma.Window(4) != 1024 || gemma.Window(5) != 0 || gemma.AttentionScale != 0 || !gemma.TiedHead ||
		!gemma.Wrapped || len(gemma.EOS) != 2 || gemma.Context != 131072 {
		t.Errorf("%+v", gemma)
	}
	// A context within the window needs none, and the layers keep their RoPE.
	if short := config(t, "gemma-3-1b", `"max_position_embeddings":32768`, `"max_position_embeddings":256`); short.
		Windows != nil || !short.local(0) || short.local(5) || short.ropeTables() != 2 {
		t.Errorf("%+v", short)
	}
	// The same as version 5 of transformers writes it.
	again := config(t, "gemma-3-1b", `"rope_local_base_freq":10000,"rope_scaling":null,"rope_theta":1000000,`+
		"", `"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":1000000.0},"sliding_attention":{`+
		`"rope_type":"default","rope_theta":10000.0}},`, `"rope_local_base_freq":10000,
		"rope_scaling":null,"rope_theta":1000000,`, `"rope_parameters":{"full_attention":{"rope_type":"default",
		"rope_theta":1000000.0},"sliding_attention":{"rope_type":"default","rope_theta":20000.0}},`)
	if again.LocalTheta != 2e4 || again.RoPETheta != 1e6 {
		t.Errorf("%+v", again)
	}
}

// Gemma 2 bounds scores and logits, unless a field is null. The 27B divides scores by the root of another number.
func TestPublishedGemma2(t *testing.T) {
	c := config(t, "gemma-2-9b")
	if c.ScoreCap != 50 || c.LogitsCap != 30 || c.Activation != kernels.GELUTanh || c.Window(0) != 4096 ||
		c.Window(1) != 0 || c.LocalTheta != 0 || c.AttentionScale != 0 {
		t.Errorf("%+v", c)
	}
	large := config(t, "gemma-2-9b", `"query_pre_attn_scalar":256`, `"query_pre_attn_scalar":144`,
		`"attn_logit_softcapping":50.0`, `"attn_logit_softcapping":null`)
	if large.attentionScale() != float32(1.0/12) || large.ScoreCap != 0 {
		t.Errorf("%+v", large)
	}
}

// GLM-4 rotates half of a head, has biases, and yarn if a config asks for it.
func TestPublishedGLM4(t *testing.T) {
	c := config(t, "glm-4-9b-0414")
	if c.Rotated != 64 || !c.Interleaved || !c.Bias || !c.FusedGateUp || !c.NormsAfter {
		t.Errorf("%+v", c)
	}
	if c = config(t, "glm-4-9b-0414", `"attention_bias":true,`, ``, `"partial_rotary_factor":0.5,`, ``); c.Rotated != 64 ||
		!c.Bias {
		t.Errorf("%+v", c)
	}
	yarn := config(t, "glm-4-9b-0414", `"rope_theta":10000.0`, `"rope_theta":10000.0,"rope_scaling":{"type":"yarn",
		"factor":4.0,"original_max_position_embeddings":32768}`)
	if yarn.RoPE.Kind != YarnRoPE || yarn.Context != 131072 {
		t.Errorf("%+v", yarn)
	}
}

// What the families' passes do not compute is refused by name.
func TestFamiliesThatAreRefused(t *testing.T) {
	for _, c := range []struct{ base, old, with, names string }{
		{"llama-2-7b", `"rope_scaling":null`, `"residual_multiplier":0.5`, "residual_multiplier"},
		{"granite-3.1-8b", `"mlp_bias":false`, `"mlp_bias":true`, "mlp_bias"},
		{"granite-4.0-micro", `"num_local_experts":0`, `"num_local_experts":8`, "num_local_experts 8"},
		{"granite-4.0-micro", `["attention",`, `["mamba",`, "mamba"},
		{"granite-4.0-micro", `"layer_types":`, `"_":`, "mamba"},
		{"olmo-2-7b", `"attention_bias":false`, `"attention_bias":true`, "attention_bias"},
		{"olmo-2-7b", `"rope_scaling":null`, `"sliding_window":64`, "sliding_window"},
		{"olmo-2-7b", `"rope_scaling":null`, `"clip_qkv":8.0`, "clip_qkv"},
		{"olmo-3-7b", `"rope_theta":500000,`, `"rope_parameters":{"rope_type":"yarn","factor":8.0},`, "rope_parameters"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_parameters":{"full_attention":{"rope_theta":1e4}}`, "rope_parameters"},
		{"gemma-2-9b", `"hidden_activation":"gelu_pytorch_tanh"`, `"hidden_activation":"gelu"`, "hidden_activation"},
		{"gemma-2-9b", `"hidden_act":"gelu_pytorch_tanh"`, `"hidden_act":"silu"`, "hidden_act"},
		{"gemma-2-9b", `"sliding_window":4096`, `"sliding_window":null`, "sliding_window"},
		{"gemma-3-1b", `"use_cache":true`, `"use_bidirectional_attention":true`, "use_bidirectional_attention"},
		{"gemma-3-1b", `"rope_scaling":null`, `"rope_parameters":{"full_attention":{"rope_theta":1e6},
			"sliding_attention":{"rope_theta":1e4,"rope_type":"linear","factor":2.0}}`, "windows"},
		{"gemma-3-1b", `"rope_scaling":null`, `"rope_parameters":{"full_attention":{"rope_theta":1e6,"alpha":2}}`,
			"alpha"},
		{"gemma-3-12b", `"mm_tokens_per_image"`, `"spatial_merge_size"`, "spatial_merge_size"},
		{"gemma-3-12b", `"model_type":"gemma3_text"`, `"model_type":"gemma2"`, "text_config"},
		{"glm-4-9b-0414", `"hidden_act":"silu"`, `"hidden_act":"gelu"`, "hidden_act"},
	} {
		text := strings.Replace(published[c.base], c.old, c.with, 1)
		if text == published[c.base] {
			t.Errorf("%s has no %s", c.base, c.old)
		}
		if _, err := ParseConfig([]byte(text), nil); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s with %s: %v, wants ErrUnsupported naming %s", c.base, c.with, err, c.names)
		}
	}
}

// Multipliers out of bounds are refused with their name.
func TestMultipliersOutOfBounds(t *testing.T) {
	for field, with := range map[string]string{`"residual_multiplier":0.22`: `"residual_multiplier":1e-9`,
		`"embedding_multiplier":12.0`: `"embedding_multiplier":-1`, `"logits_scaling":16.0`: `"logits_scaling":1e30`,
		`"attention_multiplier":0.0078125`: `"attention_multiplier":1e9`} {
		name := strings.Split(field, `"`)[1]
		_, err := ParseConfig([]byte(strings.Replace(published["granite-3.1-8b"], field, with, 1)), nil)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", with, err)
		}
	}
	for _, field := range []string{`"residual_multiplier":0.22`, `"embedding_multiplier":12.0`, `"logits_scaling":16.0`,
		`"attention_multiplier":0.0078125`} {
		name := strings.Split(field, `"`)[1]
		for _, zero := range []string{"0", "0.0", "1e-60"} {
			_, err := ParseConfig([]byte(strings.Replace(published["granite-3.1-8b"], field, `"`+name+`":`+zero, 1)), nil)
			if err == nil || !strings.Contains(err.Error(), name+" is ") || !strings.Contains(err.Error(), "wants 0.001 to") &&
				!strings.Contains(err.Error(), "wants 1e-06 to") {
				t.Errorf("%s of %s: %v", name, zero, err)
			}
		}
		if _, err := ParseConfig([]byte(strings.Replace(published["granite-3.1-8b"], field+",", "", 1)), nil); err != nil {
			t.Errorf("without %s: %v", name, err)
		}
	}
	_, err := ParseConfig([]byte(strings.Replace(published["gemma-2-9b"], `"attn_logit_softcapping":50.0`,
		`"attn_logit_softcapping":-50.0`, 1)), nil)
	if err == nil || !strings.Contains(err.Error(), "attn_logit_softcapping") {
		t.Error(err)
	}
}

// An EAGLE-3 head takes hidden states as they are.
func TestEagleOfScaledStreamIsRefused(t *testing.T) {
	head := Config{Vocab: 49155, Hidden: 4096, Eagle: &Eagle{Vocab: 49155, Target: 4096}}
	if _, err := head.ForTarget(config(t, "granite-3.1-8b")); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "divided by 0.22") {
		t.Error(err)
	}
}
