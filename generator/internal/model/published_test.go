package model

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func init() {
	ones := func(n int) string { return strings.TrimSuffix(strings.Repeat("1,", n), ",") }
	noRoPE := strings.TrimSuffix(strings.Repeat("1,1,1,0,", 9), ",")
	full := strings.TrimSuffix(strings.Repeat(`"full_attention",`, 36), ",")
	published["phi-4-mini"] = `{"architectures":["Phi3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":199999,"embd_pdrop":0.0,"eos_token_id":199999,"full_attn_mod":1,"hidden_act":"silu",
		"hidden_size":3072,"initializer_range":0.02,"intermediate_size":8192,"interpolate_factor":1,
		"lm_head_bias":false,
		"max_position_embeddings":131072,"mlp_bias":false,"model_type":"phi3","num_attention_heads":24,
		"num_hidden_layers":32,"num_key_value_heads":8,"original_max_position_embeddings":4096,"pad_token_id":199999,
		"partial_rotary_factor":0.75,"resid_pdrop":0.0,"rms_norm_eps":1e-05,"rope_scaling":{
		"long_factor":[` + ones(48) + `],"short_factor":[` + ones(48) + `],"type":"longrope"},"rope_theta":10000.0,
		"sliding_window":262144,"tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.45.0",
		"use_cache":true,"vocab_size":200064}`
	published["smollm3-3b"] = `{"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":128000,"eos_token_id":128012,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
		"intermediate_size":11008,"layer_types":[` + full + `],"max_position_embeddings":65536,"max_window_layers":28,
		"mlp_bias":false,"model_type":"smollm3","no_rope_layer_interval":4,"no_rope_layers":[` + noRoPE + `],
		"num_attention_heads":16,"num_hidden_layers":36,"num_key_value_heads":4,"pad_token_id":128004,
		"pretraining_tp":2,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":5000000.0,"sliding_window":null,
		"torch_dtype":"bfloat16","transformers_version":"4.54.0.dev0","use_cache":false,"use_sliding_window":false,
		"vocab_size":128256}`
	published["mistral-nemo"] = `{"architectures":["MistralForCausalLM"],"attention_dropout":0.0,"bos_token_id":1,
		"eos_token_id":2,"head_dim":128,"hidden_act":"silu","hidden_size":5120,"initializer_range":0.02,
		"intermediate_size":14336,"max_position_embeddings":131072,"model_type":"mistral","num_attention_heads":32,
		"num_hidden_layers":40,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
		"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":131072}`
	published["mistral-small-3.1"] = `{"architectures":["Mistral3ForConditionalGeneration"],"image_token_index":10,
		"model_type":"mistral3","multimodal_projector_bias":false,"projector_hidden_act":"gelu","spatial_merge_size":2,
		"text_config":{"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu","hidden_size":5120,
		"initializer_range":0.02,"intermediate_size":32768,"max_position_embeddings":131072,"model_type":"mistral",
		"num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,"rms_norm_eps":1e-05,
		"rope_theta":1000000000.0,"sliding_window":null,"use_cache":true,"vocab_size":131072},
		"torch_dtype":"bfloat16","transformers_version":"4.50.0.dev0","vision_config":{"attention_dropout":0.0,
		"head_dim":64,"hidden_act":"gelu","hidden_size":1024,"image_size":1540,"intermediate_size":4096,
		"model_type":"pixtral","num_attention_heads":16,"num_channels":3,"num_hidden_layers":24,"patch_size":14,
		"rope_theta":10000.0},"vision_feature_layer":-1}`
	published["ministral-3-3b"] = `{"architectures":["Mistral3ForConditionalGeneration"],"dtype":"bfloat16",
		"image_token_index":10,"model_type":"mistral3","multimodal_projector_bias":false,"projector_hidden_act":"gelu",
		"quantization_config":{"activation_scheme":"static","dequantize":false,"modules_to_not_convert":[
		"model.vision_tower","model.multi_modal_projector","lm_head"],"quant_method":"fp8","weight_block_size":null},
		"spatial_merge_size":2,"text_config":{"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu",
		"hidden_size":3072,"initializer_range":0.02,"intermediate_size":9216,"max_position_embeddings":262144,
		"model_type":"ministral3","num_attention_heads":32,"num_hidden_layers":26,"num_key_value_heads":8,
		"rms_norm_eps":1e-05,"rope_parameters":{"beta_fast":32.0,"beta_slow":1.0,"factor":16.0,
		"llama_4_scaling_beta":0.1,"mscale":1.0,"mscale_all_dim":1.0,"original_max_position_embeddings":16384,
		"rope_theta":1000000.0,"rope_type":"yarn","type":"yarn"},"sliding_window":null,"tie_word_embeddings":true,
		"use_cache":true,"vocab_size":131072},"transformers_version":"5.0.0.dev0","vision_config":{
		"model_type":"pixtral"},"vision_feature_layer":-1}`
}

// Fields of config.json that say something about RoPE, as published models have them.
func TestPublishedRoPE(t *testing.T) {
	read := func(name string, replace ...string) Config {
		t.Helper()
		c, err := ParseConfig([]byte(strings.NewReplacer(replace...).Replace(published[name])), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		return c
	}
	phi := read("phi-4-mini")
	if phi.Rotated != 96 || phi.RoPE.Kind != LongRoPE || phi.RoPE.Original != 4096 || phi.Context != 131072 ||
		phi.RoPE.Attention < 1.19 || phi.RoPE.Attention > 1.1903 || len(phi.LongFactors) != 48 {
		t.Errorf("%+v", phi)
	}
	if again := read("phi-4-mini", `"longrope"`, `"su"`); !reflect.DeepEqual(again, phi) {
		t.Errorf("%+v", again)
	}
	smol := read("smollm3-3b")
	if !smol.NoRoPE[3] || smol.NoRoPE[2] || !smol.NoRoPE[35] || !smol.TiedHead || smol.RoPETheta != 5e6 {
		t.Errorf("%+v", smol)
	}
	if bare := read("smollm3-3b", `"no_rope_layers"`, `"_"`); !slices.Equal(bare.NoRoPE, smol.NoRoPE) {
		t.Errorf("%+v", bare)
	}
	mini := read("ministral-3-3b")
	if mini.Context != 16384 || mini.ContextReason == "" || mini.RoPE.Attention != 1 || !mini.RoPE.Whole ||
		mini.Quantisation.Method != "fp8" || !mini.Wrapped || !mini.TiedHead {
		t.Errorf("%+v", mini)
	}
	yarn := read("qwen3-4b", `"rope_scaling":null`,
		`"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}`)
	if yarn.Context != 131072 || yarn.RoPE.Attention < 1.1386 || yarn.RoPE.Attention > 1.1387 {
		t.Errorf("%+v", yarn)
	}
	dynamic := read("llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"dynamic","factor":2.0}`)
	if dynamic.RoPE != (RoPEScaling{}) || dynamic.Context != 4096 ||
		!strings.Contains(dynamic.ContextReason, "dynamic") {
		t.Errorf("%+v", dynamic)
	}
}

// RoPE rotates each pair of a checkpoint's head at rows j and j + half of ours, and each row has one place.
func TestHeadOrder(t *testing.T) {
	for _, c := range []struct {
		Config
		first, second []int
	}{
		{Config{HeadDim: 8, Interleaved: true}, []int{0, 2, 4, 6}, []int{1, 3, 5, 7}},
		{Config{HeadDim: 8, Rotated: 4}, []int{0, 1, 4, 6}, []int{2, 3, 5, 7}},
		{Config{HeadDim: 8, Rotated: 4, Interleaved: true}, []int{0, 2, 4, 6}, []int{1, 3, 5, 7}},
	} {
		if got := c.headOrder(); !slices.Equal(got, slices.Concat(c.first, c.second)) {
			t.Errorf("%+v: %v", c.Config, got)
		}
	}
	if got := (Config{HeadDim: 8}).headOrder(); got != nil {
		t.Error(got)
	}
}
