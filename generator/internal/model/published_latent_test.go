package model

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

func init() {
	published["deepseek-v2-lite"] = `{"architectures":["DeepseekV2ForCausalLM"],"attention_bias":false,
		"attention_dropout":0.0,"auto_map":{"AutoConfig":"configuration_deepseek.DeepseekV2Config"},"aux_loss_alpha":0.001,
		"bos_token_id":100000,"eos_token_id":100001,"first_k_dense_replace":1,"hidden_act":"silu","hidden_size":2048,
		"initializer_range":0.02,"intermediate_size":10944,"kv_lora_rank":512,"max_position_embeddings":163840,
		"model_type":"deepseek_v2","moe_intermediate_size":1408,"moe_layer_freq":1,"n_group":1,"n_routed_experts":64,
		"n_shared_experts":2,"norm_topk_prob":false,"num_attention_heads":16,"num_experts_per_tok":6,
		"num_hidden_layers":27,"num_key_value_heads":16,"pretraining_tp":1,"q_lora_rank":null,"qk_nope_head_dim":128,
		"qk_rope_head_dim":64,"rms_norm_eps":1e-06,"rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,
		"mscale":0.707,"mscale_all_dim":0.707,"original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":10000,
		"routed_scaling_factor":1.0,"scoring_func":"softmax","seq_aux":true,"tie_word_embeddings":false,"topk_group":1,
		"topk_method":"greedy","torch_dtype":"bfloat16","transformers_version":"4.33.1","use_cache":true,
		"v_head_dim":128,"vocab_size":102400}`
	published["moonlight-16b-a3b"] = `{"architectures":["DeepseekV3ForCausalLM"],"attention_bias":false,
		"attention_dropout":0.0,"aux_loss_alpha":0.001,"bos_token_id":163584,"eos_token_id":163585,"ep_size":1,
		"first_k_dense_replace":1,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
		"intermediate_size":11264,"kv_lora_rank":512,"max_position_embeddings":8192,"model_type":"deepseek_v3",
		"moe_intermediate_size":1408,"moe_layer_freq":1,"n_group":1,"n_routed_experts":64,"n_shared_experts":2,
		"norm_topk_prob":true,"num_attention_heads":16,"num_experts_per_tok":6,"num_hidden_layers":27,
		"num_key_value_heads":16,"num_nextn_predict_layers":0,"pretraining_tp":1,"q_lora_rank":null,
		"qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-05,"rope_theta":50000.0,
		"routed_scaling_factor":2.446,"scoring_func":"sigmoid","seq_aux":true,"tie_word_embeddings":false,"topk_group":1,
		"topk_method":"noaux_tc","torch_dtype":"bfloat16","use_cache":true,"v_head_dim":128,"vocab_size":163840}`
	published["glm-4.7-flash"] = `{"architectures":["Glm4MoeLiteForCausalLM"],"attention_bias":false,
		"attention_dropout":0.0,"dtype":"bfloat16","eos_token_id":[154820,154827,154829],"first_k_dense_replace":1,
		"hidden_act":"silu","hidden_size":2048,"intermediate_size":10240,"kv_lora_rank":512,
		"max_position_embeddings":202752,"model_type":"glm4_moe_lite","moe_intermediate_size":1536,"n_group":1,
		"n_routed_experts":64,"n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":20,
		"num_experts_per_tok":4,"num_hidden_layers":47,"num_key_value_heads":20,"num_nextn_predict_layers":1,
		"pad_token_id":154820,"partial_rotary_factor":1.0,"q_lora_rank":768,"qk_nope_head_dim":192,
		"qk_rope_head_dim":64,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":1000000,
		"routed_scaling_factor":1.8,"tie_word_embeddings":false,"topk_group":1,"topk_method":"noaux_tc",
		"v_head_dim":256,"vocab_size":154880}`
}

// Published models with latent attention have the parameters of their checkpoints, and attend and route
// as theirs do.
func TestPublishedLatents(t *testing.T) {
	for name, want := range map[string]struct {
		parameters int64
		latent     Latent
		experts    Experts
	}{
		"deepseek-v2-lite": {15706484224, Latent{Rank: 512, Rope: 64, Nope: 128, Value: 128},
			Experts{Count: 64, Used: 6, Inner: 1408, Shared: 2816, Scale: 1}},
		"moonlight-16b-a3b": {15960110208, Latent{Rank: 512, Rope: 64, Nope: 128, Value: 128},
			Experts{Count: 64, Used: 6, Inner: 1408, Shared: 2816, Scale: 2.446, Normalise: true,
				Scoring: kernels.Sigmoid, Choice: true}},
		"glm-4.7-flash": {29943393920, Latent{Rank: 512, QueryRank: 768, Rope: 64, Nope: 192, Value: 256},
			Experts{Count: 64, Used: 4, Inner: 1536, Shared: 1536, Scale: 1.8, Normalise: true,
				Scoring: kernels.Sigmoid, Choice: true}},
	} {
		c, err := ParseConfig([]byte(published[name]), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		e := c.Experts
		if !equalExperts(*e, want.experts) || e.Shared != want.experts.Shared || e.Choice != want.experts.Choice ||
			*c.Latent != want.latent || c.Parameters() != want.parameters {
			t.Errorf("%s: %d parameters, %+v, %+v, wants %+v", name, c.Parameters(), *c.Latent, *e, want)
		}
		if c.sparse(0) || !c.sparse(1) || !c.sparse(c.Layers-1) || !c.Interleaved {
			t.Errorf("%s: %+v", name, e.Dense)
		}
	}
}

// Yarn multiplies the scores of latent attention by the square of what it multiplies cos and sin by in other models, by
// mscale_all_dim, and cos and sin by the quotient of both.
func TestYarnOfLatents(t *testing.T) {
	c, err := ParseConfig([]byte(published["deepseek-v2-lite"]), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := 0.1*0.707*math.Log(40) + 1
	if want := float32(m * m / math.Sqrt(192)); c.attentionScale() != want || c.RoPE.attention() != 1 ||
		c.Context != 163840 {
		t.Errorf("scores times %v, wants %v; cos and sin times %v; context %d", c.attentionScale(), want,
			c.RoPE.attention(), c.Context)
	}
	plain, err := ParseConfig([]byte(published["moonlight-16b-a3b"]), nil)
	if err != nil || plain.AttentionScale != 0 {
		t.Errorf("without yarn: scores times %v, %v", plain.AttentionScale, err)
	}
}

// What latent attention and these routers do not compute is refused by the field's name.
func TestLatentsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ base, old, with, names string }{
		{"deepseek-v2-lite", `"softmax"`, `"sigmoid"`, "scoring_func"},
		{"moonlight-16b-a3b", `"sigmoid"`, `"softmax"`, "scoring_func"},
		{"deepseek-v2-lite", `"greedy"`, `"noaux_tc"`, "topk_method"},
		{"moonlight-16b-a3b", `"noaux_tc"`, `"greedy"`, "topk_method"},
		{"deepseek-v2-lite", `"norm_topk_prob":false`, `"norm_topk_prob":true`, "norm_topk_prob"},
		{"deepseek-v2-lite", `"moe_layer_freq":1`, `"moe_layer_freq":2`, "moe_layer_freq"},
		{"deepseek-v2-lite", `"attention_bias":false`, `"attention_bias":true`, "attention_bias"},
		{"deepseek-v2-lite", `"kv_lora_rank":512`, `"kv_lora_rank":0`, "kv_lora_rank"},
		{"deepseek-v2-lite", `"kv_lora_rank":512`, `"kv_lora_rank":1000000`, "kv_lora_rank"},
		{"deepseek-v2-lite", `"q_lora_rank":null`, `"q_lora_rank":-1`, "q_lora_rank"},
		{"deepseek-v2-lite", `"qk_rope_head_dim":64`, `"qk_rope_head_dim":63`, "even"},
		{"deepseek-v2-lite", `"v_head_dim":128`, `"v_head_dim":0`, "v_head_dim"},
		{"deepseek-v2-lite", `"num_attention_heads":16`, `"num_attention_heads":2048`, "together"},
		{"deepseek-v2-lite", `"n_shared_experts":2`, `"n_shared_experts":-2`, "shared experts"},
		{"deepseek-v2-lite", `"topk_method":"greedy"`, `"topk_method":"group_limited_greedy","n_group":7`, "n_group"},
		{"deepseek-v2-lite", `"first_k_dense_replace":1`, `"first_k_dense_replace":27`, "no layer has one"},
		{"glm-4.7-flash", `"n_group":1`, `"n_group":1,"mlp_layer_types":["dense"]`, "mlp_layer_types"},
		{"glm-4.7-flash", `"num_nextn_predict_layers":1`, `"num_nextn_predict_layers":-1`, "num_nextn_predict_layers"},
	} {
		text := strings.Replace(published[c.base], c.old, c.with, 1)
		if text == published[c.base] {
			t.Fatalf("%s has no %s", c.base, c.old)
		}
		if _, err := ParseConfig([]byte(text), nil); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s with %s: %v, wants a refusal that names %s", c.base, c.with, err, c.names)
		}
	}
}

// Layers that guess further tokens are left out; other layers past the last one are refused.
func TestLayersThatGuessAreLeftOut(t *testing.T) {
	c, err := ParseConfig([]byte(published["glm-4.7-flash"]), nil)
	if err != nil {
		t.Fatal(err)
	}
	c = small(c)
	w := headersOf(c)
	next := layerPrefix(c.Layers)
	w[next+"eh_proj.weight"] = w[normName]
	if err := c.CheckTensors(w); err != nil {
		t.Error(err)
	}
	w[layerPrefix(c.Layers+1)+"eh_proj.weight"] = w[normName]
	if err := c.CheckTensors(w); !errors.Is(err, ErrTensor) {
		t.Errorf("a layer after them: %v, wants ErrTensor", err)
	}
}

// Rows of q and of the latent that RoPE rotates come by halves; the rows before them stay.
func TestOrderOfTails(t *testing.T) {
	c := Config{Interleaved: true, Latent: &Latent{Rope: 6}}
	if got := c.tailOrder(2); !slices.Equal(got, []int{0, 1, 2, 4, 6, 3, 5, 7}) {
		t.Errorf("%v", got)
	}
	if c.Interleaved = false; c.tailOrder(2) != nil {
		t.Error("rows by halves are put in another order")
	}
}

// Quantised matrices of heads, whole or apart, give the bits of their values, which are what a device holds.
func TestQuantisedHeadsOfLatents(t *testing.T) {
	c := micro()
	c.Hidden, c.HeadDim, c.Latent, c.EOS = 32, 36, &Latent{Rank: 64, Rope: 4, Nope: 32, Value: 5}, nil
	for _, apart := range []bool{false, true} {
		c.Latent.Apart = apart
		w := randomTensors(c, rand.New(rand.NewPCG(1, 2)))
		values := maps.Clone(w)
		for name, x := range w {
			if strings.Contains(name, "_b_proj") {
				w[name], values[name] = asQ8(x)
			}
			if strings.Contains(name, "up_proj") { // then matrices may differ in type
				w[name], _ = asQ8(x)
				values[name] = w[name]
			}
		}
		h := device.NewHost(device.HostOptions{Workers: 1})
		defer h.Close()
		var got [2][]float32
		for i, tensors := range []headers{w, values} {
			m, err := Load(h, c, tensors, func(float64) {})
			if err != nil {
				t.Fatal(err)
			}
			got[i] = lastLogits(t, h, m, 9)
			if err := m.Free(h); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("apart %t: %v, of the values %v", apart, got[0], got[1])
		}
		if n, want := c.Reordered(w), int64(4*2*2*64*(32+5)); n < want {
			t.Errorf("apart %t: %d bytes are copied, wants at least %d", apart, n, want)
		}
	}
}

// asQ8 returns a matrix in blocks of Q8_0 with the scale 1/64, and the values of these.
func asQ8(x weights.Tensor) (blocks, values weights.Tensor) {
	blocks, values = x, x
	blocks.DType, blocks.Data, values.DType, values.Data = weights.Q8_0, nil, weights.F32, nil
	for i := range len(x.Data) / 2 {
		if i%32 == 0 {
			blocks.Data = append(blocks.Data, 0, 0x24)
		}
		code := int8(i*7%256 - 128)
		blocks.Data = append(blocks.Data, byte(code))
		values.Data = binary.LittleEndian.AppendUint32(values.Data, math.Float32bits(float32(code)/64))
	}
	return blocks, values
}
