package model

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// The configs of published EAGLE-3 heads, in the forms of SafeAILab, of NVIDIA's Model-Optimizer and of speculators.
var publishedHeads = map[string]string{
	"safeailab llama-3.1-8b": `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":128000,"eos_token_id":[128001,128008,128009],"hidden_act":"silu","hidden_size":4096,
		"initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":2048,"mlp_bias":false,
		"model_type":"llama","num_attention_heads":32,"num_hidden_layers":1,"num_key_value_heads":8,"pad_token_id":0,
		"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":500000.0,"tie_word_embeddings":false,
		"torch_dtype":"float16","transformers_version":"4.46.2","use_cache":true,"vocab_size":128256,
		"draft_vocab_size":32000}`,
	"nvidia": `{"architectures":["LlamaForCausalLMEagle3"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":151643,"draft_vocab_size":32000,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,46,90],
		"next_layer_regular":true,"parallel_draft_heads_num_layers":1,"parallel_draft_step":1,
		"use_aux_hidden_state":true,"use_input_layernorm_in_first_layer":true,"use_last_layernorm":true,
		"use_mtp_layernorm":false},"eos_token_id":151645,"head_dim":128,"hidden_act":"silu","hidden_size":4096,
		"initializer_range":0.02,"intermediate_size":24576,"max_position_embeddings":40960,"mlp_bias":false,
		"model_type":"llama","num_attention_heads":64,"num_hidden_layers":1,"num_key_value_heads":4,"pretraining_tp":1,
		"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000.0,"tie_word_embeddings":false,
		"torch_dtype":"bfloat16","use_cache":true,"vocab_size":151936}`,
	"speculators": `{"architectures":["Eagle3Speculator"],"auto_map":{"":"eagle3.Eagle3SpeculatorConfig"},
		"draft_vocab_size":32000,"eagle_aux_hidden_state_layer_ids":null,"has_no_defaults_at_init":false,
		"norm_before_residual":true,"norm_before_fc":true,"norm_output":true,"speculators_config":{"algorithm":"eagle3",
		"default_proposal_method":"greedy","proposal_methods":[{"proposal_type":"greedy","speculative_tokens":5}],
		"verifier":{"architectures":["LlamaForCausalLM"],"name_or_path":"meta-llama/Llama-3.1-8B-Instruct"}},
		"speculators_model_type":"eagle3","speculators_version":"0.2.0","target_hidden_size":null,
		"tie_word_embeddings":false,"torch_dtype":"float32","transformer_layer_config":{"attention_bias":false,
		"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,
		"intermediate_size":14336,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama",
		"num_attention_heads":32,"num_hidden_layers":1,"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,
		"rope_scaling":{"factor":8.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
		"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,"use_cache":true,
		"vocab_size":128256},"transformers_version":"4.54.1"}`,
}

// Published configs are read: their flags, their layers in either convention, their vocabularies. Other values of the
// flags are refused.
func TestPublishedEagleHeads(t *testing.T) {
	want := map[string]Eagle{
		"safeailab llama-3.1-8b": {Vocab: 128256, Target: 4096},
		"nvidia":                 {Vocab: 151936, Target: 4096, Layers: []int{2, 47, 91}},
		"speculators": {Vocab: 128256, Target: 4096, NormedResidual: true, FeaturesNorm: true,
			NormedOutput: true},
	}
	for name, text := range publishedHeads {
		c, err := ParseEagle([]byte(text))
		if err != nil || !IsEagle([]byte(text)) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(*c.Eagle, want[name]) || c.Vocab != 32000 || c.Layers != 1 || c.HeadDim != 128 {
			t.Errorf("%s: %+v, %+v", name, c, *c.Eagle)
		}
	}
	for _, model := range []string{published["llama-3.2-1b"], `{"model_type":"llama"}`, "[]"} {
		if IsEagle([]byte(model)) {
			t.Errorf("a model is taken for a head: %s", model)
		}
	}
	for old, by := range map[string]string{
		`"next_layer_regular":true`:                 `"next_layer_regular":1`,
		`"parallel_draft_step":1`:                   `"parallel_draft_step":4`,
		`"use_input_layernorm_in_first_layer":true`: `"use_input_layernorm_in_first_layer":false`,
		`"use_last_layernorm":true`:                 `"use_last_layernorm":false`,
		`"use_mtp_layernorm":false`:                 `"use_mtp_layernorm":true`,
		`"num_hidden_layers":1`:                     `"num_hidden_layers":3`,
		`[1,46,90]`:                                 `[1,2,3,4,5,6,7,8,9]`,
		`"rope_scaling":null`:                       `"rope_scaling":{"rope_type":"mrope"}`,
		`"model_type":"llama"`:                      `"model_type":"kimi_k2"`,
		`"torch_dtype":"bfloat16"`:                  `"quantization_config":{"quant_method":"fp8"}`,
	} {
		changed := strings.Replace(publishedHeads["nvidia"], old, by, 1)
		if c, err := ParseEagle([]byte(changed)); err == nil || changed == publishedHeads["nvidia"] {
			t.Errorf("%s is accepted: %+v", by, c)
		}
	}
	for _, text := range []string{"", "[1]", `{"transformer_layer_config":3,"speculators_model_type":"eagle3"}`,
		`{"transformer_layer_config":null,"speculators_model_type":"eagle3"}`, `{"eagle_config":[]}`,
		`{"speculators_model_type":"eagle3","transformer_layer_config":{}}`, `{"draft_vocab_size":"x"}`,
		`{"draft_vocab_size":5,"model_type":7}`} {
		if _, err := ParseEagle([]byte(text)); err == nil && !strings.Contains(text, "{}") {
			t.Errorf("%s is accepted", text)
		}
	}
}

// A head fits a model with its numbers of tokens and columns and with the layers that it reads; by default those are
// the second, the middle and the third from the end.
func TestHeadsFitTheirModel(t *testing.T) {
	c, err := ParseEagle([]byte(publishedHeads["safeailab llama-3.1-8b"]))
	if err != nil {
		t.Fatal(err)
	}
	target := Config{Vocab: 128256, Hidden: 4096, Layers: 32}
	if fit, err := c.ForTarget(target); err != nil || !reflect.DeepEqual(fit.Eagle.Layers, []int{2, 16, 29}) {
		t.Errorf("%+v: %v", fit.Eagle, err)
	}
	for _, change := range []func(c *Config){func(c *Config) { c.Vocab-- }, func(c *Config) { c.Hidden *= 2 },
		func(c *Config) { c.Layers = 2 }} {
		other := target
		change(&other)
		if _, err := c.ForTarget(other); !errors.Is(err, ErrTensor) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}
