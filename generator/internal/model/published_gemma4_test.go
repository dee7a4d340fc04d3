package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/kernels"
)

// gemma4Of returns a published config of Gemma 4: that of a size, whose fields are given, in the form before transformers
// 5.24.
func gemma4Of(kind string, each int, fields string) string {
	layers := map[string]int{"e2b": 35, "e4b": 42, "26b": 30, "31b": 60, "12b": 48}[kind]
	var kinds []string
	for i := range layers {
		if (i+1)%each == 0 {
			kinds = append(kinds, `"full_attention"`)
		} else {
			kinds = append(kinds, `"sliding_attention"`)
		}
	}
	outer, unified := "gemma4", ""
	if kind == "12b" {
		outer, unified = "gemma4_unified", "Unified"
	}
	return fmt.Sprintf(`{"architectures":["Gemma4%sForConditionalGeneration"],"audio_config":{"hidden_size":640},
		"audio_token_id":258881,"boa_token_id":256000,"boi_token_id":255999,"dtype":"bfloat16","eoa_token_index":258883,
		"eoi_token_id":258882,"eos_token_id":[1,106,50],"image_token_id":258880,"initializer_range":0.02,
		"model_type":"%s","text_config":{"attention_bias":false,"attention_dropout":0.0,"bos_token_id":2,
		"eos_token_id":1,"final_logit_softcapping":30.0,"global_head_dim":512,"head_dim":256,
		"hidden_activation":"gelu_pytorch_tanh","initializer_range":0.02,"layer_types":[%s],"model_type":"%s_text",
		"num_hidden_layers":%d,"pad_token_id":0,"rms_norm_eps":1e-06,"rope_parameters":{"full_attention":{
		"partial_rotary_factor":0.25,"rope_theta":1000000.0,"rope_type":"proportional"},"sliding_attention":{
		"rope_theta":10000.0,"rope_type":"default"}},"tie_word_embeddings":true,"use_cache":true,"vocab_size":262144,
		"vocab_size_per_layer_input":262144,%s},"tie_word_embeddings":true,"transformers_version":"5.10.0.dev0",
		"video_token_id":258884,"vision_config":{"patch_size":16},"vision_soft_tokens_per_image":280}`, unified, outer,
		strings.Join(kinds, ","), outer, layers, fields)
}

func init() {
	published["gemma-4-e2b"] = gemma4Of("e2b", 5, `"attention_k_eq_v":false,"enable_moe_block":false,"hidden_size":1536,
		"hidden_size_per_layer_input":256,"intermediate_size":6144,"max_position_embeddings":131072,
		"moe_intermediate_size":null,"num_attention_heads":8,"num_experts":null,"num_global_key_value_heads":null,
		"num_key_value_heads":1,"num_kv_shared_layers":20,"sliding_window":512,"top_k_experts":null,
		"use_bidirectional_attention":null,"use_double_wide_mlp":true`)
	published["gemma-4-e4b"] = gemma4Of("e4b", 6, `"attention_k_eq_v":false,"enable_moe_block":false,"hidden_size":2560,
		"hidden_size_per_layer_input":256,"intermediate_size":10240,"max_position_embeddings":131072,
		"num_attention_heads":8,"num_global_key_value_heads":null,"num_key_value_heads":2,"num_kv_shared_layers":18,
		"sliding_window":512,"use_double_wide_mlp":false`)
	published["gemma-4-26b-a4b"] = gemma4Of("26b", 6, `"attention_k_eq_v":true,"enable_moe_block":true,
		"hidden_size":2816,"hidden_size_per_layer_input":0,"intermediate_size":2112,"max_position_embeddings":262144,
		"moe_intermediate_size":704,"num_attention_heads":16,"num_experts":128,"num_global_key_value_heads":2,
		"num_key_value_heads":8,"num_kv_shared_layers":0,"sliding_window":1024,"top_k_experts":8,
		"use_bidirectional_attention":"vision","use_double_wide_mlp":false`)
	published["gemma-4-31b"] = gemma4Of("31b", 6, `"attention_k_eq_v":true,"enable_moe_block":false,"hidden_size":5376,
		"hidden_size_per_layer_input":0,"intermediate_size":21504,"max_position_embeddings":262144,
		"num_attention_heads":32,"num_global_key_value_heads":4,"num_key_value_heads":16,"num_kv_shared_layers":0,
		"sliding_window":1024,"use_bidirectional_attention":"vision","use_double_wide_mlp":false`)
	published["gemma-4-12b"] = gemma4Of("12b", 6, `"attention_k_eq_v":true,"enable_moe_block":false,"hidden_size":3840,
		"hidden_size_per_layer_input":0,"intermediate_size":15360,"max_position_embeddings":262144,
		"num_attention_heads":16,"num_global_key_value_heads":1,"num_key_value_heads":8,"num_kv_shared_layers":0,
		"sliding_window":1024,"use_bidirectional_attention":"vision","use_double_wide_mlp":false`)
}

// The layers of Gemma 4 differ in their heads, and in the small ones the last layers use the keys and values of others.
func TestPublishedGemma4(t *testing.T) {
	for name, x := range map[string]struct {
		kvHeads, wide, perLayer, own, lastInner, window int
		keysAreValues                                   bool
		parameters                                      int64 // of the text, in millions
	}{
		"gemma-4-e2b":     {1, 1, 256, 15, 12288, 512, false, 4628},
		"gemma-4-e4b":     {2, 2, 256, 24, 10240, 512, false, 7463},
		"gemma-4-26b-a4b": {8, 2, 0, 30, 2112, 1024, true, 25233},
		"gemma-4-31b":     {16, 4, 0, 60, 21504, 1024, true, 30697},
		"gemma-4-12b":     {8, 1, 0, 48, 15360, 1024, true, 11907},
	} {
		c := config(t, name)
		last := c.Layers - 1
		if c.KVHeads != x.kvHeads || c.HeadDim != 256 || c.Wide.KVHeads != x.wide || c.Wide.HeadDim != 512 ||
			c.Wide.KeysAreValues != x.keysAreValues || c.PerLayer != x.perLayer || c.ownKV() != x.own ||
			c.At(last).Inner != x.lastInner || c.At(last).HeadDim != 512 || c.At(0).HeadDim != 256 ||
			c.Window(0) != x.window || c.Window(last) != 0 || !c.Local[0] || c.Local[last] || c.LocalTheta != 1e4 ||
			c.RoPETheta != 1e6 || c.RoPE.Kind != ProportionalRoPE || c.AttentionScale != 1 || c.LogitsCap != 30 ||
			!c.Wrapped || !c.TiedHead || !slices.Equal(c.EOS, []int32{1}) && !slices.Equal(c.EOS, []int32{1, 106, 50}) {
			t.Errorf("%s: %+v, %+v", name, c, c.Wide)
		}
		if n := c.Parameters() / 1e6; n != x.parameters {
			t.Errorf("%s: %d million parameters, want %d", name, n, x.parameters)
		}
	}
	c := config(t, "gemma-4-26b-a4b")
	if e := c.Experts; e.Count != 128 || e.Used != 8 || e.Inner != 704 || e.Shared != 2112 || !e.Beside {
		t.Errorf("%+v", e)
	}
	e2b := config(t, "gemma-4-e2b")
	if e2b.kvSource(34) != 14 || e2b.kvSource(33) != 13 || e2b.kvSource(14) != 14 || len(e2b.LayersKV()) != 15 {
		t.Errorf("layers 34 and 33 use %d and %d", e2b.kvSource(34), e2b.kvSource(33))
	}
}

// A page has the wide layers first, so that few elements of a token are between layers, and a GPU can count places.
func TestPagesOfPublishedGemma4(t *testing.T) {
	for name, gap := range map[string]int{"gemma-4-e2b": 0, "gemma-4-e4b": 0, "gemma-4-26b-a4b": 2048, "gemma-4-31b": 0,
		"gemma-4-12b": 0} {
		c := config(t, name)
		layers, sum := c.LayersKV(), 0
		for i := range layers {
			kv := layers.Of(kernels.KV{DType: kernels.BF16, PageTokens: 1}, i)
			if n := 2 * kv.Heads * kv.HeadDim; kv.Start%n != 0 || kv.All%n != 0 || kv.Start < sum {
				t.Errorf("%s: layer %d of %d elements begins at %d of %d, after %d", name, i, n, kv.Start, kv.All, sum)
			} else {
				sum += n
			}
			if i > 0 && kv.HeadDim > layers[i-1].HeadDim {
				t.Errorf("%s: layer %d is wider than the one before", name, i)
			}
		}
		if all := layers.Of(kernels.KV{}, 0).All; all != sum+gap {
			t.Errorf("%s: %d elements for %d", name, all, sum)
		}
		for i := range c.ownKV() {
			if layers[c.pageLayer(i)].HeadDim != c.At(i).HeadDim {
				t.Errorf("%s: layer %d has another one's place", name, i)
			}
		}
		if err := kernels.CheckPages(layers); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// transformers has written the heads of each layer since 5.24. The last layer sees everything, whatever the file says.
func TestGemma4ByLayer(t *testing.T) {
	want := config(t, "gemma-4-31b")
	var each []string
	for i := 5; i < 60; i += 6 {
		each = append(each, fmt.Sprintf(`"%02d":{"head_dim":512,"num_key_value_heads":4}`, i))
	}
	byLayer := `"per_layer_config":{` + strings.Join(each, ",") + `},`
	got := config(t, "gemma-4-31b", `"global_head_dim":512,`, byLayer, `"num_global_key_value_heads":4,`, "",
		`"full_attention"],`, `"sliding_attention"],`)
	if got.Wide.HeadDim != want.Wide.HeadDim || got.Wide.KVHeads != want.Wide.KVHeads ||
		!slices.Equal(got.Wide.Layers, want.Wide.Layers) || !slices.Equal(got.Windows, want.Windows) {
		t.Errorf("%+v, want %+v", got.Wide, want.Wide)
	}
	for _, x := range []struct{ name, old, replacement, names string }{
		{"gemma-4-31b", `"global_head_dim":512,`, `"per_layer_config":{"5":{"head_dim":512}},`, "layer 11"},
		{"gemma-4-31b", `"global_head_dim":512,`, `"per_layer_config":{"4":{"head_dim":512}},`, "layer 4"},
		{"gemma-4-31b", `"global_head_dim":512,`, `"per_layer_config":{"5":{"sliding_window":8}},`, "sliding_window"},
		{"gemma-4-31b", `"global_head_dim":512,`, `"per_layer_config":{"60":{"head_dim":512}},`, `"60" of 60`},
		{"gemma-4-31b", `"global_head_dim":512,`, `"global_head_dim":513,`, "even"},
		{"gemma-4-31b", `"global_head_dim":512,`, `"global_head_dim":0,`, "global_head_dim"},
		{"gemma-4-31b", `"global_head_dim":512,`, `"global_head_dim":128,`, "global_head_dim"},
		{"gemma-4-e2b", `"enable_moe_block":false`, `"enable_moe_block":true,"num_experts":8,"top_k_experts":2,
			"moe_intermediate_size":64`, "use_double_wide_mlp"},
		{"gemma-4-31b", `"num_global_key_value_heads":4,`, `"num_global_key_value_heads":5,`, "divisible"},
		{"gemma-4-31b", `"num_kv_shared_layers":0,`, `"num_kv_shared_layers":60,`, "num_kv_shared_layers"},
		{"gemma-4-31b", `"num_kv_shared_layers":0,`, `"num_kv_shared_layers":55,`, "layer 5"},
		{"gemma-4-31b", `"use_bidirectional_attention":"vision"`, `"use_bidirectional_attention":"all"`, "bidirectional"},
		{"gemma-4-31b", `"sliding_window":1024`, `"sliding_window":null`, "layer_types"},
		{"gemma-4-31b", `"gelu_pytorch_tanh"`, `"silu"`, "hidden_activation"},
		{"gemma-4-31b", `"proportional"`, `"yarn"`, "yarn"},
		{"gemma-4-31b", `"proportional"`, `"proportional","factor":0.5`, "factor is 0.5"},
		{"gemma-4-31b", `"rope_theta":10000.0,`, `"rope_theta":0,`, "rope_theta"},
		{"gemma-4-31b", `"rope_theta":10000.0,`, `"rope_theta":1e300,`, "rope_theta"},
		{"gemma-4-31b", `"rope_theta":10000.0,"rope_type":"default"`, `"rope_type":"linear","factor":8`, "linear"},
		{"gemma-4-e2b", `"vocab_size_per_layer_input":262144`, `"vocab_size_per_layer_input":1000`, "vocab_size_per_layer_input"},
		{"gemma-4-e2b", `"hidden_size_per_layer_input":256`, `"hidden_size_per_layer_input":-1`, "hidden_size_per_layer_input"},
		{"gemma-4-26b-a4b", `"top_k_experts":8`, `"top_k_experts":129`, "top_k_experts"},
		{"gemma-4-26b-a4b", `"num_experts":128`, `"num_experts":-1`, "num_experts is -1"},
		{"gemma-4-26b-a4b", `"moe_intermediate_size":704`, `"moe_intermediate_size":0`, "moe_intermediate_size"},
		{"llama-2-7b", `"rope_scaling":null`, `"rope_scaling":{"rope_type":"proportional","partial_rotary_factor":0.25}`, "proportional"},
	} {
		text := strings.Replace(published[x.name], x.old, x.replacement, 1)
		if _, err := ParseConfig([]byte(text), nil); err == nil || text == published[x.name] || !strings.Contains(err.Error(), x.names) {
			t.Errorf("%s with %s: %v, want an error naming %s", x.name, x.replacement, err, x.names)
		}
	}
	if _, err := ParseConfig([]byte(strings.Replace(published["gemma-4-31b"], `"attention_bias":false`, `"attention_bias":true`,
		1)), nil); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
