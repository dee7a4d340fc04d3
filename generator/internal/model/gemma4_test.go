package model_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/kernels/device"
)

// changed is a checkpoint with tensors added or replaced.
type changed struct {
	model.Tensors
	by map[string]weights.Tensor
}

func (c changed) Tensor(name string) (weights.Tensor, error) {
	if t, ok := c.by[name]; ok {
		return t, nil
	}
	return c.Tensors.Tensor(name)
}

func (c changed) Names() []string {
	names := c.Tensors.Names()
	for name := range c.by {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Published checkpoints have matrices of keys and values in layers that use those of others. They are left out; a layer
// that uses its own has no other.
func TestUnusedKeysAndValues(t *testing.T) {
	c, w := checkpoint(t, "gemma-4-e2b")
	own, err := w.Tensor("model.layers.0.self_attn.k_proj.weight")
	if err != nil {
		t.Fatal(err)
	}
	for name, redundant := range map[string]bool{"model.layers.2.self_attn.k_proj.weight": true,
		"model.layers.3.self_attn.v_proj.weight": true, "model.layers.3.self_attn.k_norm.weight": true,
		"model.layers.2.self_attn.k_proj.weight_scale": true, "model.layers.3.self_attn.v_proj.qweight": true,
		"model.layers.3.self_attn.z_proj.weight": false, "model.layers.1.self_attn.z_proj.weight": false} {
		own.Name = name
		err := c.CheckTensors(changed{w, map[string]weights.Tensor{name: own}})
		if (err == nil) != redundant || !redundant && !errors.Is(err, model.ErrTensor) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Metadata that do not fit the layers are refused, and the key is named.
func TestGGUFRefusesLayers(t *testing.T) {
	c, w := checkpoint(t, "gemma-4-e2b")
	tensors := ggufmake.Tensors(c, w, same(t))
	for _, x := range []struct {
		key   string
		value any // nil: the key is missing
	}{{"attention.sliding_window_pattern", nil}, {"attention.sliding_window_pattern", true},
		{"attention.sliding_window_pattern", []bool{true, false, true}},
		{"attention.sliding_window_pattern", []bool{true, true, true, true}}, {"attention.sliding_window", uint32(0)},
		{"attention.key_length_swa", nil}, {"attention.value_length_swa", uint32(64)},
		{"rope.dimension_count_swa", uint32(8)}, {"rope.freq_base_swa", float32(0)},
		{"attention.head_count_kv", []int32{1, 1, 1}}, {"attention.head_count_kv", []int32{1, 1, 2, 1}},
		{"attention.head_count_kv", []int32{1, 1, 0, 1}}, {"feed_forward_length", []int32{64, 64, 128}},
		{"feed_forward_length", []int32{64, 128, 128, 128}}, {"embedding_length_per_layer_input", "x"},
		{"attention.shared_kv_layers", []int32{2}}, {"final_logit_softcapping", float32(-1)}} {
		key := "gemma4." + x.key
		pairs := slices.DeleteFunc(ggufmake.Pairs(c), func(p ggufmake.Pair) bool { return p.Key == key })
		if x.value != nil {
			pairs = append(pairs, ggufmake.Pair{Key: key, Value: x.value})
		}
		if _, _, err := parseGGUF(t, pairs, tensors); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s %v: %v", key, x.value, err)
		}
	}
}

// A layer's number multiplies the residual stream, so 0 and what is no number are refused.
func TestLayerScalars(t *testing.T) {
	c, w := checkpoint(t, "gemma-4")
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	const name = "model.layers.1.layer_scalar"
	scalar, err := w.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, bits := range [][]byte{{0, 0}, {0, 0x80}, {0xc0, 0x7f}, {0x80, 0x7f}} {
		scalar.Data = bits
		if _, err := model.Load(h, c, changed{w, map[string]weights.Tensor{name: scalar}}, func(float64) {}); !errors.Is(err,
			model.ErrTensor) || !strings.Contains(err.Error(), name) {
			t.Errorf("%x: %v", bits, err)
		}
	}
}

// Gates and ups of experts in one tensor, as llama.cpp's converter writes them, give the bits of two.
func TestGGUFGatesTogether(t *testing.T) {
	c, w := checkpoint(t, "gemma-4-moe")
	list := ggufmake.Tensors(c, w, same(t))
	find := func(name string) *weights.Tensor {
		i := slices.IndexFunc(list, func(t weights.Tensor) bool { return t.Name == name })
		if i < 0 {
			t.Fatal(name)
		}
		return &list[i]
	}
	for _, prefix := range []string{"blk.0.", "blk.1.", "blk.2.", "blk.3."} {
		gate, up := find(prefix+"ffn_gate_exps.weight"), find(prefix+"ffn_up_exps.weight")
		both, each := *gate, len(gate.Data)/c.Experts.Count
		both.Name, both.Data, both.Shape = prefix+"ffn_gate_up_exps.weight", nil,
			[]int{gate.Shape[0], 2 * gate.Shape[1], gate.Shape[2]}
		for e := range c.Experts.Count {
			both.Data = append(append(both.Data, gate.Data[e*each:(e+1)*each]...), up.Data[e*each:(e+1)*each]...)
		}
		*gate = both
		list = slices.DeleteFunc(list, func(t weights.Tensor) bool { return t.Name == prefix+"ffn_up_exps.weight" })
	}
	got, tensors, err := parseGGUF(t, ggufmake.Pairs(c), list)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.CheckTensors(tensors); err != nil {
		t.Fatal(err)
	}
	g := loadGolden(t, filepath.Join("testdata", "gemma-4-moe"), 5, c.Vocab)[2]
	if a, b := run(t, c, w, g.Tokens), run(t, got, tensors, g.Tokens); !slices.EqualFunc(a, b, slices.Equal) {
		t.Error("gates and ups in one tensor give other logits")
	}
	less := find("blk.2.ffn_gate_up_exps.weight")
	less.Data = less.Data[:len(less.Data)/c.Experts.Count*(c.Experts.Count-1)]
	less.Shape[0]--
	if _, tensors, err = parseGGUF(t, ggufmake.Pairs(c), list); err == nil {
		err = got.CheckTensors(tensors)
	}
	if err == nil {
		t.Error("a tensor of too few experts is accepted")
	}
}

// hfGemma4 is a small Gemma 4 with experts whose columns are multiples of 128, without its quantization_config.
const hfGemma4 = `{"architectures":["Gemma4ForCausalLM"],"model_type":"gemma4_text","vocab_size":96,"hidden_size":128,
"intermediate_size":256,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
"global_head_dim":64,"num_global_key_value_heads":1,"attention_k_eq_v":true,"max_position_embeddings":256,
"layer_types":["sliding_attention","full_attention"],"hidden_size_per_layer_input":0,"enable_moe_block":true,
"num_experts":4,"top_k_experts":2,"moe_intermediate_size":128,"quantization_config":%s}`

// hfGemma4E2B is the same with embeddings of layers, of which the last two use keys and values of others.
const hfGemma4E2B = `{"architectures":["Gemma4ForCausalLM"],"model_type":"gemma4_text","vocab_size":96,"hidden_size":128,
"intermediate_size":256,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,
"global_head_dim":64,"max_position_embeddings":256,"layer_types":["sliding_attention","full_attention",
"sliding_attention","full_attention"],"hidden_size_per_layer_input":128,"vocab_size_per_layer_input":96,
"num_kv_shared_layers":2,"quantization_config":%s}`

// Quantised checkpoints, in which the experts are one by one, as llm-compressor writes them, and keys and values that
// are not used are quantised too, give the logits of their values, bit for bit.
func TestQuantisedGemma4(t *testing.T) {
	for _, name := range []string{"float8 by row", "packed", "packed with zero points"} {
		for _, base := range []string{hfGemma4, hfGemma4E2B} {
			r := rand.New(rand.NewPCG(rand.Uint64(), 29))
			m, plain := newHFModelAs(t, r, hfFormats[name], base)
			if base == hfGemma4E2B {
				for _, unused := range []string{"2.self_attn.k_proj", "3.self_attn.v_proj"} {
					hfFormats[name].layer(r, m, "model.layers."+unused, 64, 128)
				}
			}
			c, tensors, err := openHF(m.config(), m.file())
			if err != nil {
				t.Fatal(name, err)
			}
			pc, values, err := openHF(plain.config(), plain.file())
			if err != nil {
				t.Fatal(name, err)
			}
			tokens := []int32{3, 14, 15, 92, 6, 53, 58}
			got, want := run(t, c, tensors, tokens), run(t, pc, values, tokens)
			if !c.Quantised(tensors) || pc.Quantised(values) || !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s, %d layers: the logits are not those of the values", name, c.Layers)
			}
		}
	}
}
