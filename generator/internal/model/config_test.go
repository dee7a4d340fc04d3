package model

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// published are config.json files of published models: the fields that the forward pass
// depends on, and some others.
var published = map[string]string{
	"llama-2-7b": `{"architectures":["LlamaForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
		"hidden_size":4096,"initializer_range":0.02,"intermediate_size":11008,"max_position_embeddings":4096,
		"model_type":"llama","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
		"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":null,"tie_word_embeddings":false,
		"torch_dtype":"float16","transformers_version":"4.31.0.dev0","use_cache":true,"vocab_size":32000}`,
	"llama-3.2-1b": `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":128000,"eos_token_id":[128001,128008,128009],"head_dim":64,"hidden_act":"silu",
		"hidden_size":2048,"intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,
		"model_type":"llama","num_attention_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,
		"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,
		"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,
		"tie_word_embeddings":true,"torch_dtype":"bfloat16","vocab_size":128256}`,
	"mistral-7b-v0.1": `{"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,
		"hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":32768,
		"model_type":"mistral","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,
		"rms_norm_eps":1e-05,"rope_theta":10000.0,"sliding_window":4096,"tie_word_embeddings":false,
		"vocab_size":32000}`,
	"mistral-7b-v0.3": `{"architectures":["MistralForCausalLM"],"hidden_act":"silu","hidden_size":4096,
		"intermediate_size":14336,"max_position_embeddings":32768,"model_type":"mistral","num_attention_heads":32,
		"num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
		"sliding_window":null,"tie_word_embeddings":false,"vocab_size":32768}`,
	"qwen2.5-0.5b": `{"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,
		"eos_token_id":151645,"hidden_act":"silu","hidden_size":896,"intermediate_size":4864,
		"max_position_embeddings":32768,"max_window_layers":21,"model_type":"qwen2","num_attention_heads":14,
		"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
		"sliding_window":32768,"tie_word_embeddings":true,"use_cache":true,"use_sliding_window":false,
		"vocab_size":151936}`,
	"qwen3-4b": `{"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"head_dim":128,"hidden_act":"silu",
		"hidden_size":2560,"intermediate_size":9728,"max_position_embeddings":40960,"max_window_layers":36,
		"model_type":"qwen3","num_attention_heads":32,"num_hidden_layers":36,"num_key_value_heads":8,
		"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,
		"tie_word_embeddings":true,"use_sliding_window":false,"vocab_size":151936}`,
	"phi-3-mini-4k": `{"_name_or_path":"Phi-3-mini-4k-instruct","architectures":["Phi3ForCausalLM"],
		"attention_bias":false,"attention_dropout":0.0,"auto_map":{"AutoConfig":"configuration_phi3.Phi3Config"},
		"embd_pdrop":0.0,"resid_pdrop":0.0,"eos_token_id":32000,"hidden_act":"silu","hidden_size":3072,
		"intermediate_size":8192,"max_position_embeddings":4096,"model_type":"phi3","num_attention_heads":32,
		"num_hidden_layers":32,"num_key_value_heads":32,"original_max_position_embeddings":4096,
		"pad_token_id":32000,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000.0,"sliding_window":2047,
		"tie_word_embeddings":false,"vocab_size":32064}`,
}

// The numbers of parameters are those of the model cards and of transformers.
func TestPublishedConfigs(t *testing.T) {
	for name, want := range map[string]struct {
		parameters int64
		headDim    int
		window     int
	}{
		"llama-2-7b":      {6738415616, 128, 0},
		"llama-3.2-1b":    {1235814400, 64, 0},
		"mistral-7b-v0.1": {7241732096, 128, 4096},
		"mistral-7b-v0.3": {7248023552, 128, 0},
		"qwen2.5-0.5b":    {494032768, 64, 0},
		"qwen3-4b":        {4022468096, 128, 0},
		"phi-3-mini-4k":   {3821079552, 96, 2047},

		"phi-4-mini": {3836021760, 128, 0}, "smollm3-3b": {3075098624, 128, 0}, "mistral-nemo": {12247782400, 128, 0},
		"mistral-small-3.1": {23572403200, 128, 0}, "ministral-3-3b": {3429006336, 128, 0},

		"granite-3.1-8b": {8170848256, 128, 0}, "granite-4.0-micro": {3402836480, 64, 0},
		"olmo-2-7b": {7298617344, 128, 0}, "olmo-3-7b": {7298011136, 128, 0}, "glm-4-9b-0414": {9400279040, 128, 0},
		"gemma-2-9b": {9241705984, 256, 0}, "gemma-3-1b": {999885952, 256, 512},
		"gemma-3-12b": {11766034176, 256, 0},
	} {
		c, err := ParseConfig([]byte(published[name]), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Parameters() != want.parameters || c.HeadDim != want.headDim || c.Window(c.Layers-1) != want.window {
			t.Errorf("%s: %d parameters, head size %d, window %d, wants %v",
				name, c.Parameters(), c.HeadDim, c.Window(c.Layers-1), want)
		}
	}
}

func TestMissingFieldsHaveTheFamilysDefaults(t *testing.T) {
	bare := strings.NewReplacer(`"sliding_window":4096,`, "", `"num_key_value_heads":8,`, "")
	c, err := ParseConfig([]byte(bare.Replace(published["mistral-7b-v0.1"])), nil)
	if err != nil || c.Window(0) != 4096 || c.KVHeads != 8 {
		t.Errorf("mistral: window %d, %d KV heads, %v", c.Windows, c.KVHeads, err)
	}
	c, err = ParseConfig([]byte(strings.Replace(published["qwen3-4b"], `"head_dim":128,`, "", 1)), nil)
	if err != nil || c.HeadDim != 128 {
		t.Errorf("qwen3: head size %d, %v", c.HeadDim, err)
	}
	null := strings.NewReplacer(`"num_key_value_heads":32,`, `"num_key_value_heads":null,`)
	c, err = ParseConfig([]byte(null.Replace(published["llama-2-7b"])), []byte(`{"eos_token_id":[2,7]}`))
	if err != nil || c.KVHeads != 32 || c.RoPETheta != 10000 || len(c.EOS) != 2 {
		t.Errorf("llama: %+v, %v", c, err)
	}
}

// Without parameters of RoPE, gpt-oss and Ministral 3 have those that are published.
func TestMissingRoPEIsTheFamilys(t *testing.T) {
	for name, object := range map[string]string{"gpt-oss-20b": "rope_scaling", "ministral-3-3b": "rope_parameters"} {
		want, err := ParseConfig([]byte(published[name]), nil)
		if err != nil || want.RoPE.Kind != YarnRoPE {
			t.Fatal(name, want.RoPE, err)
		}
		field := regexp.MustCompile(`"` + object + `":\{[^}]*\}`)
		for _, with := range []string{`"` + object + `":null`, `"_":0`} {
			got, err := ParseConfig([]byte(field.ReplaceAllString(published[name], with)), nil)
			if err != nil || got.RoPE != want.RoPE || got.RoPETheta != want.RoPETheta || got.QueryScale != want.QueryScale {
				t.Errorf("%s with %s: %+v, wants %+v, %v", name, with, got.RoPE, want.RoPE, err)
			}
		}
	}
}

// Models are known to lack a head by the names that transformers has for them.
func TestNamesOfModelsWithoutAHead(t *testing.T) {
	for base, c := range map[string]struct{ old, name string }{
		"qwen3-4b": {"Qwen3ForCausalLM", "Qwen3Model"}, "gemma-3-1b": {"Gemma3ForCausalLM", "Gemma3TextModel"},
	} {
		got, err := ParseConfig([]byte(strings.Replace(published[base], c.old, c.name, 1)), nil)
		if err != nil || !got.headless {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Tokens that generation_config.json suppresses leave one to draw. Those outside the vocabulary are passed over.
func TestSuppressedTokens(t *testing.T) {
	many := strings.Repeat("1,", MaxSuppressed) // twice the same counts once
	for list, want := range map[string][]int32{
		"null": nil, "[]": nil, "7": {7}, "[9,7,9]": {7, 9}, "[32000,5,-1]": {5}, "[" + many + "0]": {0, 1},
	} {
		c, err := ParseConfig([]byte(published["llama-2-7b"]), []byte(`{"suppress_tokens":`+list+`}`))
		if err != nil || !slices.Equal(c.Suppressed, want) {
			t.Errorf("%.20s: %v, %v", list, c.Suppressed, err)
		}
	}
	var all []string
	for id := range MaxSuppressed + 1 {
		all = append(all, strconv.Itoa(id))
	}
	small := strings.Replace(published["llama-2-7b"], `"vocab_size":32000`, `"vocab_size":3`, 1)
	for _, c := range []struct{ config, list, names string }{
		{published["llama-2-7b"], `"7"`, "suppress_tokens"},
		{published["llama-2-7b"], "[" + strings.Join(all, ",") + "]", "has 257 tokens, wants at most 256"},
		{small, "[0,1,2]", "has 3 tokens, wants at most 2"},
	} {
		if _, err := ParseConfig([]byte(c.config), []byte(`{"suppress_tokens":`+c.list+`}`)); err == nil ||
			!strings.Contains(err.Error(), c.names) {
			t.Errorf("%.20s: %.300v", c.list, err)
		}
	}
}

// A config that asks for something the forward pass lacks is refused by its name.
func TestConfigsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ base, old, with, names string }{
		{"llama-2-7b", `"model_type":"llama"`, `"model_type":"gemma"`, "gemma"},
		{"llama-2-7b", `"model_type":"llama",`, ``, "model_type"},
		{"llama-2-7b", `["LlamaForCausalLM"]`, `["LlamaForSequenceClassification"]`, "LlamaForSequenceClassification"},
		{"llama-2-7b", `"silu"`, `"gelu"`, "hidden_act gelu"},
		{"llama-2-7b", `"pretraining_tp":1`, `"pretraining_tp":2`, "pretraining_tp"},
		{"qwen2.5-0.5b", `"hidden_act"`, `"is_causal":false,"hidden_act"`, "is_causal"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"ntk","factor":2.0}`, "ntk"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"linear","factor":2.0,"beta_fast":2}`, "linear"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"linear","factor":2.0,"attention_factor":2}`,
			"linear"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"yarn","factor":2.0,"llama_4_scaling_beta":0.1}`,
			"yarn"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"yarn","factor":2.0,"long_factor":[1]}`, "yarn"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"dynamic","alpha":2.0}`, "alpha"},
		{"llama-2-7b", `"rope_scaling":null`, `"no_rope_layers":[1,0]`, "no_rope_layers"},
		{"phi-3-mini-4k", `"rope_scaling":null`, `"rope_scaling":{"type":"linear","factor":2.0}`, "linear"},
		{"phi-4-mini", `"short_factor"`, `"long_mscale":1.2,"short_factor"`, "long_mscale"},
		{"smollm3-3b", `"use_sliding_window":false`, `"use_sliding_window":true`, "use_sliding_window"},
		{"mistral-small-3.1", `"model_type":"mistral",`, `"model_type":"llama",`, "text_config"},
		{"mistral-small-3.1", `"text_config"`, `"other_config"`, "other_config"},
		{"mistral-small-3.1", `"spatial_merge_size"`, `"token_compression"`, "token_compression"},
		{"mistral-small-3.1", `"Mistral3ForConditionalGeneration"`, `"Mistral3Model"`, "Mistral3Model"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"rope_type":"default","factor":2.0}`, "rope_scaling"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"rope_type":"llama3","type":"linear"}`, "rope_scaling"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"rope_type":"default","mrope_section":[1]}`,
			"mrope_section"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"rope_type":"default","partial_rotary_factor":0.5}`,
			`rope_type "default", partial_rotary_factor 0.5`},
		{"llama-2-7b", `"rope_scaling":null`, `"partial_rotary_factor":0.75`, "partial_rotary_factor"},
		{"llama-2-7b", `"rope_scaling":null`, `"quantization_config":{"bits":4}`, "quantization_config"},
		{"llama-2-7b", `"rope_scaling":null`, `"final_logit_softcapping":30.0`, "final_logit_softcapping"},
		{"llama-2-7b", `"rope_scaling":null`, `"Hidden_Size":8`, "Hidden_Size"},
		{"llama-2-7b", `"rope_scaling":null`, `"sliding_window":64`, "sliding_window"},
		{"llama-3.2-1b", `"attention_bias":false`, `"attention_bias":true`, "attention_bias"},
		{"llama-3.2-1b", `"mlp_bias":false`, `"mlp_bias":true`, "mlp_bias"},
		{"llama-3.2-1b", `"mlp_bias":false`, `"rope_parameters":{"rope_theta":500000.0}`, "rope_scaling"},
		{"llama-3.2-1b", `"factor":32.0,`, `"factor":32.0,"rope_theta":1.0,`, "rope_theta"},
		{"mistral-7b-v0.1", `"sliding_window":4096`, `"sliding_window":4096,"use_sliding_window":true`,
			"use_sliding_window"},
		{"mistral-7b-v0.1", `"num_hidden_layers":32`, `"num_hidden_layers":1,"layer_types":["full_attention"]`,
			"layer_types"},
		{"qwen2.5-0.5b", `"num_hidden_layers":24`, `"num_hidden_layers":1,"layer_types":["sliding_attention"]`,
			"layer_types"},
		{"qwen2.5-0.5b", `"num_hidden_layers":24`, `"num_hidden_layers":1,"layer_types":["linear_attention"]`,
			"linear_attention"},
		{"qwen3-4b", `"attention_bias":false`, `"attention_bias":true`, "attention_bias"},
	} {
		_, err := ParseConfig([]byte(strings.Replace(published[c.base], c.old, c.with, 1)), nil)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s with %s: %v, wants a refusal that names %s", c.base, c.with, err, c.names)
		}
	}
}

// Values out of bounds give errors that name the field. Finding them takes no memory.
func TestConfigsOutOfBounds(t *testing.T) {
	for _, c := range []struct{ base, old, with, names string }{
		{"llama-2-7b", `"num_hidden_layers":32`, `"num_hidden_layers":9007199254740992`, "num_hidden_layers"},
		{"llama-2-7b", `"num_hidden_layers":32`, `"num_hidden_layers":-1`, "num_hidden_layers"},
		{"llama-2-7b", `"hidden_size":4096`, `"hidden_size":1e3`, "hidden_size"},
		{"llama-2-7b", `"hidden_size":4096`, `"hidden_size":2000000`, "hidden_size"},
		{"llama-2-7b", `"num_key_value_heads":32`, `"num_key_value_heads":0`, "num_key_value_heads"},
		{"llama-2-7b", `"num_key_value_heads":32`, `"num_key_value_heads":5`, "divisible"},
		{"llama-2-7b", `"rms_norm_eps":1e-05,`, ``, "rms_norm_eps"},
		{"llama-2-7b", `"eos_token_id":2`, `"eos_token_id":32000`, "eos_token_id"},
		{"llama-3.2-1b", `"head_dim":64`, `"head_dim":2048`, "head_dim"},
		{"llama-3.2-1b", `"head_dim":64`, `"head_dim":63`, "63"},
		{"llama-3.2-1b", `"factor":32.0`, `"factor":0.5`, "factor"},
		{"llama-3.2-1b", `"high_freq_factor":4.0`, `"high_freq_factor":1.0`, "high_freq_factor"},
		{"mistral-7b-v0.1", `"sliding_window":4096`, `"sliding_window":0`, "sliding_window"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"linear","factor":0.5}`, "factor is 0.5"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"yarn","factor":0.5}`, "factor is 0.5"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"yarn","factor":2,"beta_slow":-1}`, "beta_slow"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"yarn","factor":2,"attention_factor":1e3}`,
			"attention_factor"},
		{"phi-3-mini-4k", `"rope_scaling":null`,
			`"rope_scaling":{"type":"longrope","long_factor":[1],"short_factor":[1]}`, "short_factor has 1 entries"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"type":"yarn","factor":2},"rope_theta":1`,
			"rope_theta is 1"},
		{"phi-3-mini-4k", `"rope_scaling":null`, `"rope_scaling":{"type":"longrope"}`, "short_factor has 0 entries"},
		{"phi-4-mini", `"long_factor":[1,`, `"long_factor":[0,`, "long_factor is 0"},
		{"phi-4-mini", `"partial_rotary_factor":0.75`, `"partial_rotary_factor":0.76`, "an even number"},
		{"phi-4-mini", `"partial_rotary_factor":0.75`, `"partial_rotary_factor":1.5`, "partial_rotary_factor is 1.5"},
		{"phi-4-mini", `"partial_rotary_factor":0.75`, `"partial_rotary_factor":0`, "partial_rotary_factor is 0"},
		{"smollm3-3b", `"no_rope_layers":[1,`, `"no_rope_layers":[`, "no_rope_layers has 35 entries"},
		{"qwen2.5-0.5b", `"num_hidden_layers":24`, `"num_hidden_layers":24,"layer_types":["full_attention"]`,
			"layer_types"},
	} {
		_, err := ParseConfig([]byte(strings.Replace(published[c.base], c.old, c.with, 1)), nil)
		if err == nil || errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s with %s: %v, wants an error that names %s", c.base, c.with, err, c.names)
		}
	}
}

// implausible are values that no published checkpoint has. With some of them a pass would
// give nonsense without an error, or sums would overflow.
var implausible = []struct{ base, old, with, names string }{
	{"llama-2-7b", `"rms_norm_eps":1e-05`, `"rms_norm_eps":1e300`, "rms_norm_eps is 1e+300"},
	{"llama-2-7b", `"rms_norm_eps":1e-05`, `"rms_norm_eps":1e999`, "rms_norm_eps"},
	{"llama-2-7b", `"rms_norm_eps":1e-05`, `"rms_norm_eps":1.5`, "rms_norm_eps is 1.5"},
	{"llama-2-7b", `"rms_norm_eps":1e-05`, `"rms_norm_eps":-1e-05`, "rms_norm_eps is -1e-05"},
	{"llama-2-7b", `"rms_norm_eps":1e-05`, `"rms_norm_eps":1e-300`, "rms_norm_eps is 1e-300"},
	{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_theta":1e300`, "rope_theta is 1e+300"},
	{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_theta":-10000.0`, "rope_theta is -10000"},
	{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_theta":0`, "rope_theta is 0"},
	{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_theta":1e-30`, "rope_theta is 1e-30"},
	{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_parameters":{"rope_theta":-5,"rope_type":"default"}`,
		"rope_theta is -5"},
	{"llama-3.2-1b", `"factor":32.0`, `"factor":1e300`, "factor is 1e+300"},
	{"llama-3.2-1b", `"low_freq_factor":1.0`, `"low_freq_factor":1e-300`, "low_freq_factor is 1e-300"},
	{"llama-3.2-1b", `"high_freq_factor":4.0`, `"high_freq_factor":1e300`, "high_freq_factor is 1e+300"},
	{"llama-3.2-1b", `"original_max_position_embeddings":8192`,
		`"original_max_position_embeddings":4611686018427387904`,
		"original_max_position_embeddings is 4611686018427387904"},
	{"phi-3-mini-4k", `"original_max_position_embeddings":4096`, `"original_max_position_embeddings":-1`,
		"original_max_position_embeddings is -1"},
	{"llama-2-7b", `"num_attention_heads":32`, `"num_attention_heads":1048576,"head_dim":128`,
		"num_attention_heads is 1048576"},
	{"llama-2-7b", `"num_attention_heads":32`, `"num_attention_heads":4096,"head_dim":1024`, "4096 heads"},
	{"llama-2-7b", `"max_position_embeddings":4096`, `"max_position_embeddings":1000000000`,
		"max_position_embeddings is 1000000000"},
	{"qwen2.5-0.5b", `"max_window_layers":21`, `"max_window_layers":-1`, "max_window_layers is -1"},
	{"qwen2.5-0.5b", `"max_window_layers":21`, `"max_window_layers":1000000`, "max_window_layers is 1000000"},
	{"qwen2.5-0.5b", `"sliding_window":32768`, `"sliding_window":-1`, "sliding_window is -1"},
	{"mistral-7b-v0.1", `"sliding_window":4096`, `"sliding_window":1000000000`, "sliding_window is 1000000000"},
}

// Each error has the name of the field, its value and its bounds.
func TestImplausibleConfigs(t *testing.T) {
	for _, c := range implausible {
		raw := strings.Replace(published[c.base], c.old, c.with, 1)
		got, err := ParseConfig([]byte(raw), nil)
		overflows := strings.Contains(c.with, "1e999") // the JSON decoder refuses it, without bounds
		named := err != nil && strings.Contains(err.Error(), c.names)
		if !named || !overflows && !strings.Contains(err.Error(), "wants") {
			t.Errorf("%s with %s: %v, wants an error that names %s", c.base, c.with, err, c.names)
		}
		if raw == published[c.base] || err == nil && got.Parameters() == 0 {
			t.Errorf("%s has no %s", c.base, c.old)
		}
	}
}

// Values at the bounds pass, and those of unusual checkpoints: theta and context of Yi and
// Qwen2.5-1M, and the longest contexts of Llama 3.
func TestUnusualConfigsPass(t *testing.T) {
	for _, c := range []struct{ base, old, with string }{
		{"llama-2-7b", `"rms_norm_eps":1e-05`, `"rms_norm_eps":1`},
		{"llama-2-7b", `"rms_norm_eps":1e-05`, `"rms_norm_eps":1e-12`},
		{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_theta":1`},
		{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_theta":1e15`},
		{"mistral-7b-v0.1", `"rope_theta":10000.0`, `"rope_theta":null`},
		{"qwen2.5-0.5b", `"rope_theta":1000000.0`, `"rope_theta":10000000.0`},
		{"qwen2.5-0.5b", `"max_position_embeddings":32768`, `"max_position_embeddings":1010000`},
		{"llama-2-7b", `"max_position_embeddings":4096`,
			`"max_position_embeddings":4194304,"rope_theta":45840000000.0`},
		{"qwen2.5-0.5b", `"use_sliding_window":false`, `"use_sliding_window":true`},
		{"qwen2.5-0.5b", `"max_window_layers":21`, `"max_window_layers":80`},
	} {
		if _, err := ParseConfig([]byte(strings.Replace(published[c.base], c.old, c.with, 1)), nil); err != nil {
			t.Errorf("%s with %s: %v", c.base, c.with, err)
		}
	}
}

// FuzzParseConfig checks that ParseConfig refuses a file or returns a config within bounds.
func FuzzParseConfig(f *testing.F) {
	for _, raw := range published {
		f.Add([]byte(raw), []byte(`{"eos_token_id":[1,2]}`))
	}
	for _, c := range implausible {
		f.Add([]byte(strings.Replace(published[c.base], c.old, c.with, 1)), []byte(nil))
	}
	for _, r := range refusals {
		f.Add(with("llama-2-7b", `"quantization_config":`+r[0]), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, raw, generation []byte) {
		c, err := ParseConfig(raw, generation)
		if err != nil {
			return
		}
		if q := c.Quantisation; q.Group < -1 || q.Group > maxDimension || q.Side != 0 && q.Side != float8Side {
			t.Errorf("%+v", q)
		}
		if c.Parameters() <= 0 || len(c.Tensors()) > 16*maxLayers || c.Windows != nil && len(c.Windows) != c.Layers {
			t.Errorf("%+v: %d parameters", c, c.Parameters())
		}
		c.Context = min(c.Context, 2)
		for _, v := range ropeTable(c.withFactors()) {
			if !(v >= -maxAttention && v <= maxAttention) {
				t.Fatalf("%+v: the RoPE table holds %g", c, v)
			}
		}
	})
}
