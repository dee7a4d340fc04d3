package model

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// wholeDump is PretrainedConfig with its default values, as old versions of transformers and some
// trainers write it.
const wholeDump = `"return_dict":true,"output_hidden_states":false,"output_attentions":false,"torchscript":false,
	"torch_dtype":"float16","use_bfloat16":false,"tf_legacy_loss":false,"pruned_heads":{},"chunk_size_feed_forward":0,
	"is_encoder_decoder":false,"is_decoder":false,"cross_attention_hidden_size":null,"add_cross_attention":false,
	"tie_encoder_decoder":false,"max_length":20,"min_length":0,"do_sample":false,"early_stopping":false,
	"num_beams":1,"num_beam_groups":1,"diversity_penalty":0.0,"temperature":1.0,"top_k":50,"top_p":1.0,
	"typical_p":1.0,"repetition_penalty":1.0,"length_penalty":1.0,"no_repeat_ngram_size":0,
	"encoder_no_repeat_ngram_size":0,"bad_words_ids":null,"num_return_sequences":1,"output_scores":false,
	"return_dict_in_generate":false,"forced_bos_token_id":null,"forced_eos_token_id":null,
	"remove_invalid_values":false,"exponential_decay_length_penalty":null,"suppress_tokens":null,
	"begin_suppress_tokens":null,"finetuning_task":null,"id2label":{"0":"LABEL_0","1":"LABEL_1"},
	"label2id":{"LABEL_0":0,"LABEL_1":1},"tokenizer_class":null,"prefix":null,"bos_token_id":1,"pad_token_id":0,
	"sep_token_id":null,"decoder_start_token_id":null,"task_specific_params":null,"problem_type":null,
	"_name_or_path":"","transformers_version":"4.33.0","name_or_path":"org/base"`

// inertForms are the fields that published configs have beyond those of their family, by the kind
// of checkpoint that has them.
var inertForms = []struct{ form, base, fields string }{
	{"whole dump of PretrainedConfig", "llama-2-7b", wholeDump},
	{"whole dump, mistral", "mistral-7b-v0.1", wholeDump},
	{"Vicuna 1.5", "llama-2-7b", `"_name_or_path":"vicuna-7b-v1.5","max_length":4096,"temperature":0.9,"top_p":0.6,
		"initializer_range":0.02,"pad_token_id":0,"use_cache":true,"transformers_version":"4.31.0"`},
	{"first Llama conversions", "llama-2-7b", `"max_sequence_length":2048,"pad_token_id":-1,"torch_dtype":"float16",
		"transformers_version":"4.27.0.dev0"`},
	{"Alpaca and its descendants", "llama-2-7b", `"gradient_checkpointing":true,"do_sample":true,"num_beams":4,
		"repetition_penalty":1.1,"use_cache":false`},
	{"Tulu and Zephyr", "mistral-7b-v0.1", `"attention_dropout":0.0,"use_cache":false,"gradient_checkpointing":false`},
	{"OpenHermes", "mistral-7b-v0.1", `"_name_or_path":"mistralai/Mistral-7B-v0.1","torch_dtype":"bfloat16",
		"initializer_range":0.02,"use_cache":false,"transformers_version":"4.34.0.dev0"`},
	{"Mistral saved by transformers 5", "mistral-7b-v0.3", `"dtype":"bfloat16","bos_token_id":1,"pad_token_id":null,
		"transformers_version":"5.0.0","attention_dropout":0.0,"initializer_range":0.02`},
	{"Unsloth, Llama 3.2", "llama-3.2-1b", `"unsloth_version":"2024.9","unsloth_fixed":true,
		"_name_or_path":"unsloth/Llama-3.2-1B-Instruct","pad_token_id":128004`},
	{"Unsloth, Qwen2.5", "qwen2.5-0.5b", `"unsloth_version":"2025.3.19","unsloth_fixed":true,"pad_token_id":151665`},
	{"Unsloth, Qwen3", "qwen3-4b", `"unsloth_version":"2025.4.7","unsloth_fixed":true,"pad_token_id":151654`},
	{"Unsloth, Phi-3", "phi-3-mini-4k", `"unsloth_version":"2024.8","model_max_length":4096`},
	{"ONNX community, Llama 3.2", "llama-3.2-1b",
		`"transformers.js_config":{"kv_cache_dtype":{"q4f16":"float16","fp16":"float16"},"dtype":"q4"}`},
	{"ONNX community, Qwen2.5", "qwen2.5-0.5b",
		`"transformers.js_config":{"use_external_data_format":{"model.onnx":1}}`},
	{"ONNX community, Qwen3", "qwen3-4b", `"transformers.js_config":{"dtype":"q4f16"},"attention_dropout":0.0`},
	{"SmolLM", "llama-2-7b", `"is_llama_config":true,"rope_interleaved":false,"initializer_range":0.041666666666666664,
		"transformers.js_config":{"kv_cache_dtype":{"q4f16":"float16","fp16":"float16"}}`},
	{"TinyLlama", "llama-2-7b", `"attention_dropout":0.0,"initializer_range":0.02,"transformers_version":"4.35.0"`},
	{"DeepSeek-LLM", "llama-2-7b", `"_name_or_path":"deepseek","bos_token_id":100000,"initializer_range":0.02`},
	{"DeepSeek-R1-Distill-Qwen", "qwen2.5-0.5b", `"use_mrope":false,"attention_dropout":0.0,"initializer_range":0.02`},
	{"DeepSeek-R1-Distill-Llama", "llama-3.2-1b", `"torch_dtype":"bfloat16","initializer_range":0.02,"use_cache":true`},
	{"Yi", "llama-2-7b", `"bos_token_id":1,"pad_token_id":0,"attention_dropout":0.0,"prefix":"<|startoftext|>"`},
	{"Qwen1.5", "qwen2.5-0.5b", `"initializer_range":0.02,"transformers_version":"4.37.0","min_p":0.0`},
	{"Phi-3 fine-tunes", "phi-3-mini-4k", `"bos_token_id":1,"initializer_range":0.02,"use_cache":true,
		"_attn_implementation_autoset":true,"attn_implementation":"flash_attention_2","unk_token_id":0`},
	{"trained for classification before", "mistral-7b-v0.1", `"num_labels":2,"problem_type":null,
		"id2label":{"0":"a"},"label2id":{"a":0},"finetuning_task":"x","use_return_dict":true`},
	{"remote code of a family", "qwen2.5-0.5b", `"auto_map":{"AutoModel":"m.M"},"trust_remote_code":true,
		"cache_dir":null,"revision":"main","max_new_tokens":512,"keys_to_ignore_at_inference":["past_key_values"]`},
}

// with adds fields to a config, in front of its own, which win.
func with(base, fields string) []byte {
	return []byte("{" + fields + "," + strings.TrimPrefix(published[base], "{"))
}

// Fields for generation, training and bookkeeping leave the config as it is without them.
func TestInertFields(t *testing.T) {
	for _, c := range inertForms {
		want, err := ParseConfig([]byte(published[c.base]), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseConfig(with(c.base, c.fields), nil)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", c.form, err)
		}
	}
}

// A field that could change the pass by its name or its value is refused by its name.
func TestFieldsThatMayChangeThePass(t *testing.T) {
	for _, fields := range []string{
		`"pruned_heads":{"0":[1]}`, `"is_encoder_decoder":true`, `"add_cross_attention":true`,
		`"tie_encoder_decoder":true`, `"cross_attention_hidden_size":64`, `"rope_interleaved":true`,
		`"is_llama_config":"other"`, `"attention_multiplier":0.0078125`, `"residual_multiplier":0.22`,
		`"embedding_multiplier":12.0`, `"logits_scaling":8.0`, `"num_experts":8`, `"num_local_experts":8`,
		`"use_mrope":true`, `"qk_layernorm":true`, `"no_rope_layers":[1,1,1,0]`, `"attn_logit_softcapping":50.0`,
		`"quantization_config":{"quant_method":"awq"}`, `"compression_config":{}`, `"vision_config":{}`,
		`"alibi":true`, `"attention_chunk_size":8192`, `"clip_qkv":8.0`, `"Temperature":1.0`, `"rope_ratio":2.0`,
		`"per_layer_config":{"0":{}}`, `"some_new_field":1`,
	} {
		name, _, _ := strings.Cut(strings.TrimPrefix(fields, `"`), `"`)
		_, err := ParseConfig(with("llama-2-7b", fields), nil)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, wants a refusal that names %s", fields, err, name)
		}
	}
}

// A quantised checkpoint is refused with its method and the next command.
func TestQuantisedCheckpoints(t *testing.T) {
	for _, method := range []string{"awq", "gptq", "bitsandbytes", ""} {
		_, err := ParseConfig(with("llama-2-7b", `"quantization_config":{"bits":4,"quant_method":"`+method+`"}`), nil)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `"`+method+`"`) ||
			!strings.Contains(err.Error(), "hf download") {
			t.Errorf("%q: %v", method, err)
		}
	}
}

// No inert field is one that the pass reads.
func TestInertFieldsAreNotRead(t *testing.T) {
	for field := range reflect.TypeFor[configFile]().Fields() {
		if _, is := inert[field.Tag.Get("json")]; is {
			t.Errorf("%s is read", field.Tag.Get("json"))
		}
	}
}
