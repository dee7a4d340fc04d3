package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// anyValue marks a field of inert that no value makes harmful.
const anyValue = ""

// inert lists the fields of config.json that do not affect the forward pass, each with the only
// value that does not, in compact JSON, or anyValue. Its sources are PretrainedConfig in
// versions 4.33, 4.57 and 5.23 of transformers, and published checkpoints.
var inert = map[string]string{
	// PretrainedConfig: special tokens and the task of the model.
	"bos_token_id": anyValue, "pad_token_id": anyValue, "sep_token_id": anyValue, "unk_token_id": anyValue,
	"decoder_start_token_id": anyValue, "tokenizer_class": anyValue, "model_max_length": anyValue,
	"prefix": anyValue, "task_specific_params": anyValue, "problem_type": anyValue, "finetuning_task": anyValue,
	"id2label": anyValue, "label2id": anyValue, "num_labels": anyValue,

	// PretrainedConfig: how results are returned, and in which memory.
	"output_attentions": anyValue, "output_hidden_states": anyValue, "return_dict": anyValue,
	"use_return_dict": anyValue, "use_cache": anyValue, "keys_to_ignore_at_inference": anyValue,
	"chunk_size_feed_forward": anyValue, "torchscript": anyValue, "tf_legacy_loss": anyValue,
	"use_bfloat16": anyValue, "dtype": anyValue, "torch_dtype": anyValue, "attn_implementation": anyValue,
	"xla_device": anyValue,

	// PretrainedConfig: another model than a decoder alone.
	"pruned_heads": "{}", "is_decoder": anyValue, "tie_encoder_decoder": "false", "is_encoder_decoder": "false",
	"add_cross_attention": "false", "cross_attention_hidden_size": "null",

	// PretrainedConfig: generation, which generation_config.json holds today. A request has its own.
	"max_length": anyValue, "min_length": anyValue, "max_new_tokens": anyValue, "do_sample": anyValue,
	"early_stopping": anyValue, "num_beams": anyValue, "num_beam_groups": anyValue, "diversity_penalty": anyValue,
	"temperature": anyValue, "top_k": anyValue, "top_p": anyValue, "min_p": anyValue, "typical_p": anyValue,
	"repetition_penalty": anyValue, "length_penalty": anyValue, "no_repeat_ngram_size": anyValue,
	"encoder_no_repeat_ngram_size": anyValue, "bad_words_ids": anyValue, "num_return_sequences": anyValue,
	"output_scores": anyValue, "return_dict_in_generate": anyValue, "forced_bos_token_id": anyValue,
	"forced_eos_token_id": anyValue, "remove_invalid_values": anyValue,
	"exponential_decay_length_penalty": anyValue, "suppress_tokens": anyValue, "begin_suppress_tokens": anyValue,

	// PretrainedConfig: the origin of the checkpoint.
	"name_or_path": anyValue, "transformers_version": anyValue, "auto_map": anyValue, "revision": anyValue,
	"cache_dir": anyValue, "trust_remote_code": anyValue,

	// Training.
	"attention_dropout": anyValue, "hidden_dropout": anyValue, "embd_pdrop": anyValue, "resid_pdrop": anyValue,
	"initializer_range": anyValue, "gradient_checkpointing": anyValue,
	"output_router_logits": anyValue, "router_aux_loss_coef": anyValue, "router_jitter_noise": anyValue,

	// Tools and earlier forms of the families.
	"unsloth_version": anyValue, "unsloth_fixed": anyValue, "transformers.js_config": anyValue,
	"max_sequence_length": anyValue, "is_llama_config": "true", "rope_interleaved": "false",
	"full_attn_mod": "1", "interpolate_factor": "1", // Phi-4-mini
	"cache_implementation": anyValue, // Gemma
}

// harmless reports whether a field of config.json, with its value, does not affect the pass.
func harmless(name string, value json.RawMessage) bool {
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return false
	}
	only, listed := inert[name]
	return listed && (only == anyValue || only == compact.String())
}

// refuseUnknown refuses the first field, in order of names, that is not a field of the struct
// or structs known and not harmless, since it may change the results of the model. It accepts fields that
// are null or false or whose name begins with an underscore. place is the file or the object in
// it, for the error.
func refuseUnknown(place string, fields map[string]json.RawMessage,
	harmless func(name string, value json.RawMessage) bool, known ...reflect.Type,
) error {
	read := map[string]bool{}
	for _, t := range known {
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous {
				read[f.Tag.Get("json")] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[name])
		off := strings.HasPrefix(name, "_") || value == "null" || value == "false"
		if read[name] || off || harmless(name, fields[name]) {
			continue
		}
		return fmt.Errorf("%w: %s: unknown field %.60q with the value %.60s", ErrUnsupported, place, name, value)
	}
	return nil
}

// inertParameter lists no field: each parameter of RoPE changes the pass.
func inertParameter(string, json.RawMessage) bool { return false }
