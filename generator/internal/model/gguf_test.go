package model_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/kernels"
)

type ggufFS struct{ fs.FS }

func (ggufFS) GGUF() string { return "model.gguf" }

// parseGGUF writes and reads a GGUF file.
func parseGGUF(t testing.TB, pairs []ggufmake.Pair, tensors []weights.Tensor) (model.Config, model.Tensors, error) {
	t.Helper()
	data := ggufmake.File(pairs, tensors)
	file, err := weights.Open(ggufFS{fstest.MapFS{"model.gguf": {Data: data}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	m, named, _ := model.FromOllama(file.Metadata(), file)
	return model.ParseGGUF(m, named)
}

// run returns the logits after a prompt, and after each of a few sampled tokens.
func run(t *testing.T, c model.Config, tensors model.Tensors, tokens []int32) (all [][]float32) {
	t.Helper()
	h, m := onHost(t, c, tensors)
	r := newRunner(t, h, m, 128, kernels.F32)
	r.prompt(tokens, 128)
	all = append(all, r.logits())
	for range 3 {
		r.decode()
		all = append(all, r.logits())
	}
	r.free()
	return all
}

func same(t testing.TB) func(weights.Tensor) weights.Tensor {
	t.Helper()
	return func(x weights.Tensor) weights.Tensor { return x }
}

// A GGUF file gives the same logits as the checkpoint that it was made from, bit for bit: in bfloat16, float16
// (Mistral) and float32 (Qwen3), with permuted rows, biases, norms of heads, fused tensors, windows and Llama 3's RoPE.
func TestGGUFEqualsSafetensors(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := model.Plain(checkpoint(t, name))
			got, tensors, err := parseGGUF(t, ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t)))
			if name == "qwen2-window" { // GGUF does not say which layers have the window
				if !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), "sliding_window") {
					t.Error(err)
				}
				return
			}
			if name == "deepseek-v2" { // nor by what a softmax's groups are chosen
				if !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), "expert_group_count") {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if name == "deepseek-v3" { // and of yarn it says mscale_all_dim alone
				c.RoPE.Attention = 1
			}
			if d := got.AttentionScale/c.AttentionScale - 1; c.Latent != nil && d*d < 1e-12 { // from a rounded logarithm
				c.AttentionScale = got.AttentionScale
			}
			if c.NormsFromOne { // of Gemma GGUF does not say query_pre_attn_scalar
				c.AttentionScale = got.AttentionScale
			}
			if got.RoPE != c.RoPE || got.RoPEDivisors != nil || !slices.Equal(got.EOS, c.EOS) ||
				!slices.Equal(got.Windows, c.Windows) {
				t.Errorf("%+v, wants %+v", got, c)
			}
			golden := loadGolden(t, filepath.Join("testdata", name), 5, c.Vocab)
			for _, g := range golden[2:4] {
				a, b := run(t, c, w, g.Tokens), run(t, got, tensors, g.Tokens)
				for i := range a {
					if !slices.Equal(a[i], b[i]) {
						t.Fatalf("logits %d after %d tokens differ by %.1e", i, len(g.Tokens),
							relativeError(b[i], a[i]))
					}
				}
			}
		})
	}
}

// asFloat32 returns the elements of a bfloat16 tensor.
func asFloat32(x weights.Tensor) (out []float32) {
	for at := 0; at < len(x.Data); at += 2 {
		out = append(out, math.Float32frombits(uint32(binary.LittleEndian.Uint16(x.Data[at:]))<<16))
	}
	return out
}

// quantised is a checkpoint of bfloat16 whose matrices are replaced by Q8_0 and their values, but some are float32.
type quantised struct {
	model.Tensors
	values bool // the values instead of the blocks
}

func (q quantised) Tensor(name string) (weights.Tensor, error) {
	x, err := q.Tensors.Tensor(name)
	if err == nil && len(x.Shape) > 1 {
		x = q.quantise(x, strings.Contains(name, "v_proj"))
	}
	return x, err
}

// quantise rounds a matrix to blocks with a scale that is a power of two.
func (q quantised) quantise(x weights.Tensor, float bool) weights.Tensor {
	var blocks, floats []byte
	for block := range slices.Chunk(asFloat32(x), 32) {
		most := 0.0
		for _, v := range block {
			most = max(most, math.Abs(float64(v)))
		}
		e := math.Ceil(math.Log2(max(most, 1e-4) / 127)) // the scale is 2^e
		blocks = binary.LittleEndian.AppendUint16(blocks, uint16(e+15)<<10)
		for _, v := range block {
			code := math.RoundToEven(float64(v) * math.Exp2(-e))
			blocks = append(blocks, byte(int8(code)))
			if !float {
				v = float32(code * math.Exp2(e))
			}
			floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(v))
		}
	}
	if x.DType, x.Data = weights.Q8_0, blocks; float || q.values {
		x.DType, x.Data = weights.F32, floats
	}
	return x
}

// A quantised model gives the same logits as a model of the float32 values of its blocks, bit for bit, with permuted
// rows and another type beside.
func TestQuantisedGGUFEqualsItsValues(t *testing.T) {
	for _, name := range []string{"llama-2", "qwen2"} {
		c, w := checkpoint(t, name)
		got, tensors, err := parseGGUF(t, ggufmake.Pairs(c), ggufmake.Tensors(c, quantised{w, false}, same(t)))
		if err != nil {
			t.Fatal(err)
		}
		if !got.Quantised(tensors) || c.Quantised(w) {
			t.Error(got.Quantised(tensors), c.Quantised(w))
		}
		tokens := loadGolden(t, filepath.Join("testdata", name), 5, c.Vocab)[2].Tokens
		a, b := run(t, c, quantised{w, true}, tokens), run(t, got, tensors, tokens)
		for i := range a {
			if !slices.Equal(a[i], b[i]) {
				t.Fatalf("%s: logits %d differ by %.1e", name, i, relativeError(b[i], a[i]))
			}
		}
	}
}

// Divisors that no published scaling gives are used as they are.
func TestRoPEDivisors(t *testing.T) {
	c, w := checkpoint(t, "llama-3.1")
	tensors := ggufmake.Tensors(c, w, same(t))
	last := &tensors[len(tensors)-1]
	last.Data = slices.Clone(last.Data)
	divisor := math.Float32frombits(binary.LittleEndian.Uint32(last.Data[8:]))
	binary.LittleEndian.PutUint32(last.Data[8:], math.Float32bits(1.5*divisor))
	got, named, err := parseGGUF(t, ggufmake.Pairs(c), tensors)
	if err != nil || len(got.RoPEDivisors) != c.HeadDim/2 || got.RoPE != (model.RoPEScaling{}) {
		t.Fatalf("%+v, %v", got, err)
	}
	tokens := loadGolden(t, filepath.Join("testdata", "llama-3.1"), 5, c.Vocab)[2].Tokens
	want := run(t, c, w, tokens)[0]
	if e := relativeError(run(t, got, named, tokens)[0], want); !(e > 1e-5 && e < 1) {
		t.Errorf("one other divisor changes the logits by %.1e", e)
	}
	got.RoPEDivisors[2] = divisor
	if e := relativeError(run(t, got, named, tokens)[0], want); !(e < 1e-5) {
		t.Errorf("its own divisors change the logits by %.1e", e)
	}
	binary.LittleEndian.PutUint32(last.Data[8:], 0)
	if _, _, err = parseGGUF(t, ggufmake.Pairs(c), tensors); !errors.Is(err, model.ErrTensor) {
		t.Error(err)
	}
}

func TestRefusedGGUF(t *testing.T) {
	c, w := checkpoint(t, "llama-2")
	tensors := ggufmake.Tensors(c, w, same(t))
	set := func(key string, value any) []ggufmake.Pair {
		pairs := slices.DeleteFunc(ggufmake.Pairs(c), func(p ggufmake.Pair) bool { return p.Key == key })
		if value != nil {
			pairs = append(pairs, ggufmake.Pair{Key: key, Value: value})
		}
		return pairs
	}
	for i, x := range []struct {
		key   string
		value any
		want  error
		names string
	}{
		{"general.architecture", "gemma3n", model.ErrUnsupported, "gemma3n"},
		{"general.architecture", nil, model.ErrUnsupported, "general.architecture"},
		{"llama.rope.scaling.type", "longrope", model.ErrUnsupported, "longrope"},
		{"llama.rope.scaling.factor", float32(4), model.ErrUnsupported, "factor"},
		{"llama.rope.scaling.attn_factor", float32(2), model.ErrUnsupported, "attn_factor"},
		{"llama.rope.scaling.yarn_attn_factor", float32(2), model.ErrUnsupported, "yarn_attn_factor"},
		{"llama.expert_count", uint32(8), nil, "expert_used_count"},
		{"llama.logit_scale", float32(2), model.ErrUnsupported, "llama.logit_scale"},
		{"llama.rope.dimension_count", uint32(16), model.ErrUnsupported, "16"},
		{"llama.attention.value_length", uint32(16), model.ErrUnsupported, "value_length"},
		{"llama.attention.head_count_kv", []int32{2, 1}, model.ErrUnsupported, "differs"},
		{"llama.attention.head_count_kv", uint32(5), nil, "divisible"},
		{"llama.block_count", nil, nil, "llama.block_count"},
		{"llama.block_count", uint32(0), nil, "llama.block_count"},
		{"llama.block_count", "two", nil, "llama.block_count"},
		{"llama.embedding_length", uint32(1 << 30), nil, "1048576"},
		{"llama.attention.layer_norm_rms_epsilon", float32(0), nil, "epsilon"},
		{"llama.rope.freq_base", float32(math.NaN()), nil, "freq_base"},
		{"llama.attention.sliding_window", "all", nil, "sliding_window"},
		{"llama.pooling_type", uint32(1), model.ErrUnsupported, "1, mean"},
		{"llama.pooling_type", uint32(2), model.ErrUnsupported, "2, cls"},
		{"llama.pooling_type", uint32(4), model.ErrUnsupported, "4, rank"},
		{"llama.pooling_type", uint32(5), model.ErrUnsupported, "no kind of pooling"},
		{"llama.pooling_type", "last", model.ErrUnsupported, "no kind of pooling"},
	} {
		_, _, err := parseGGUF(t, set(x.key, x.value), tensors)
		if err == nil || x.want != nil && !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.names) {
			t.Errorf("%d: %v, wants %v naming %q", i, err, x.want, x.names)
		}
	}
	if _, _, err := parseGGUF(t, ggufmake.Pairs(c), tensors[1:]); !errors.Is(err, weights.ErrMissing) {
		t.Errorf("without the embedding: %v", err)
	}
	same, named, err := parseGGUF(t, set("llama.attention.head_count_kv", []int32{2, 2}), tensors)
	if err != nil || same.KVHeads != 2 {
		t.Errorf("equal numbers of all layers: %v", err)
	}
	if err := same.CheckTensors(named); err != nil {
		t.Error(err)
	}
	for kind, is := range map[uint32]bool{0: false, 3: true} {
		e, named, err := parseGGUF(t, set("llama.pooling_type", kind), tensors)
		if err == nil {
			err = e.CheckTensors(named) // with a head, which embeddings do not need
		}
		if err != nil || (e.Embedding != nil) != is || is && (!e.Embedding.Unit || e.Embedding.Least != 0) {
			t.Errorf("pooling_type %d: %+v, %v", kind, e.Embedding, err)
		}
	}
	extra := append(slices.Clone(tensors), weights.Tensor{Name: "blk.0.other.weight", DType: weights.F32,
		Shape: []int{1}, Data: make([]byte, 4)})
	more, named, err := parseGGUF(t, ggufmake.Pairs(c), extra)
	if err == nil {
		err = more.CheckTensors(named)
	}
	if !errors.Is(err, model.ErrTensor) || !strings.Contains(err.Error(), "blk.0.other.weight") {
		t.Error(err)
	}
}

// A mixture of experts in a file of a family that has none is refused, and so are numbers of experts that do not fit.
func TestRefusedGGUFExperts(t *testing.T) {
	for _, x := range []struct {
		family, key string
		value       any
		names       string
	}{
		{"qwen3", "qwen3.expert_count", uint32(8), "8 experts"},
		{"qwen3-moe", "qwen3moe.expert_used_count", uint32(9), "num_experts_per_tok"},
		{"qwen3-moe", "qwen3moe.expert_count", uint32(7), "mlp.gate.weight"},
		{"qwen3-moe", "qwen3moe.expert_feed_forward_length", uint32(64), "experts.gate_proj"},
		{"mixtral", "llama.expert_weights_norm", uint32(1), "expert_weights_norm"},
	} {
		c, w := checkpoint(t, x.family)
		pairs := slices.DeleteFunc(ggufmake.Pairs(c), func(p ggufmake.Pair) bool { return p.Key == x.key })
		pairs = append(pairs, ggufmake.Pair{Key: x.key, Value: x.value})
		if x.family == "qwen3" {
			pairs = append(pairs, ggufmake.Pair{Key: "qwen3.expert_used_count", Value: uint32(2)})
		}
		got, named, err := parseGGUF(t, pairs, ggufmake.Tensors(c, w, same(t)))
		if err == nil {
			err = got.CheckTensors(named)
		}
		if err == nil || !strings.Contains(err.Error(), x.names) {
			t.Errorf("%s %v: %v, wants a refusal that names %s", x.key, x.value, err, x.names)
		}
	}
}

// A call ends an answer of gpt-oss, also where the metadata name one end alone.
func TestEndsOfGptOss(t *testing.T) {
	c, w := checkpoint(t, "gpt-oss")
	tokens := slices.Repeat([]string{"x"}, c.Vocab+2)
	tokens[2], tokens[7], tokens[c.Vocab+1] = "<|return|>", "<|call|>", "<|call|>"
	pairs := append(ggufmake.Pairs(c), ggufmake.Pair{Key: "tokenizer.ggml.tokens", Value: tokens})
	got, _, err := parseGGUF(t, pairs, ggufmake.Tensors(c, w, same(t)))
	if err != nil || !slices.Equal(got.EOS, []int32{2, 7}) {
		t.Errorf("%d, %v", got.EOS, err)
	}
}

// apart returns tensors with the matrices of kv_b_proj in tensors of their own, as llama.cpp's converter writes them.
func apart(c model.Config, tensors []weights.Tensor) (list []weights.Tensor) {
	l := c.Latent
	for _, t := range tensors {
		layer, is := strings.CutSuffix(t.Name, "attn_kv_b.weight")
		if !is {
			list = append(list, t)
			continue
		}
		var keys, values []byte
		for head := range c.Heads {
			rows := t.Data[head*(l.Nope+l.Value)*l.Rank*2:]
			for column := range l.Rank {
				for i := range l.Nope {
					keys = append(keys, rows[(i*l.Rank+column)*2:][:2]...)
				}
			}
			values = append(values, rows[l.Nope*l.Rank*2:][:l.Value*l.Rank*2]...)
		}
		list = append(list, weights.Tensor{Name: layer + "attn_k_b.weight", DType: t.DType,
			Shape: []int{c.Heads, l.Rank, l.Nope}, Data: keys}, weights.Tensor{Name: layer + "attn_v_b.weight",
			DType: t.DType, Shape: []int{c.Heads, l.Value, l.Rank}, Data: values})
	}
	return list
}

// Latent attention gives the same bits from a file with the matrices of heads apart, whose keys have the length of a
// row of the cache.
func TestLatentsOfGGUF(t *testing.T) {
	c, w := checkpoint(t, "deepseek-v2-lite")
	pairs := append(ggufmake.Pairs(c), ggufmake.Pair{Key: "deepseek2.attention.key_length_mla", Value: uint32(c.HeadDim)},
		ggufmake.Pair{Key: "deepseek2.attention.value_length_mla", Value: uint32(c.Latent.Value)})
	for i, p := range pairs {
		switch p.Key {
		case "deepseek2.attention.key_length":
			pairs[i].Value = uint32(c.Latent.Rank + c.Latent.Rope)
		case "deepseek2.attention.value_length":
			pairs[i].Value = uint32(c.Latent.Rank)
		case "deepseek2.attention.head_count_kv":
			pairs[i].Value = uint32(1)
		}
	}
	tokens := loadGolden(t, "testdata/deepseek-v2-lite", 5, c.Vocab)[2].Tokens
	whole, named, err := parseGGUF(t, pairs, ggufmake.Tensors(c, w, same(t)))
	if err != nil || whole.Latent.Apart {
		t.Fatalf("%+v, %v", whole.Latent, err)
	}
	got, parts, err := parseGGUF(t, pairs, apart(c, ggufmake.Tensors(c, w, same(t))))
	if err != nil || !got.Latent.Apart {
		t.Fatalf("%+v, %v", got.Latent, err)
	}
	want := run(t, whole, named, tokens)
	for i, logits := range run(t, got, parts, tokens) {
		if !slices.Equal(logits, want[i]) {
			t.Errorf("logits %d of matrices apart differ by %.1e", i, relativeError(logits, want[i]))
		}
	}
}

// withPairs returns pairs with others in the place of those with the same keys; a value of nil leaves one out.
func withPairs(pairs []ggufmake.Pair, others ...ggufmake.Pair) []ggufmake.Pair {
	for _, other := range others {
		pairs = slices.DeleteFunc(pairs, func(p ggufmake.Pair) bool { return p.Key == other.Key })
		if other.Value != nil {
			pairs = append(pairs, other)
		}
	}
	return pairs
}

// What files do not say, or say otherwise than ours, has the meaning that llama.cpp gives it.
func TestGGUFDefaults(t *testing.T) {
	for _, x := range []struct {
		name, family string
		others       map[string]any
		want         func(c *model.Config) // changes the checkpoint's config
	}{
		{"no RoPE", "granite", map[string]any{"granite.rope.scaling.finetuned": false},
			func(c *model.Config) { c.NoRoPE = slices.Repeat([]bool{true}, c.Layers) }},
		{"RoPE", "granite", map[string]any{"granite.rope.scaling.finetuned": true}, nil},
		{"Granite 4", "granite", map[string]any{"granite.ssm.conv_kernel": uint32(4), "granite.ssm.state_size": uint32(128),
			"granite.ssm.group_count": uint32(1), "granite.ssm.inner_size": uint32(64),
			"granite.ssm.time_step_rank": uint32(8), "granite.expert_shared_feed_forward_length": uint32(64),
			"granite.expert_count": uint32(0)}, nil},
		{"window of Gemma 2", "gemma-2", map[string]any{"gemma2.attention.sliding_window": nil, "gemma2.context_length": uint32(8192)},
			func(c *model.Config) {
				c.Context = 8192
				for i, n := range c.Windows {
					c.Windows[i] = min(4096, n*4096)
				}
			}},
		{"no windows of Gemma 3", "gemma-3-text", map[string]any{"gemma3.attention.sliding_window": nil},
			func(c *model.Config) { c.Windows, c.Local = nil, make([]bool, c.Layers) }},
		{"bound of Gemma 3", "gemma-3-text", map[string]any{"gemma3.final_logit_softcapping": float32(2)},
			func(c *model.Config) { c.LogitsCap = 2 }},
		{"scores with a bias", "deepseek-v3", map[string]any{"deepseek2.expert_gating_func": nil}, nil},
		{"scores", "deepseek-v2-lite", map[string]any{"deepseek2.expert_gating_func": nil}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, w := checkpoint(t, x.family)
			pairs, tensors := ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))
			for key, value := range x.others {
				pairs = withPairs(pairs, ggufmake.Pair{Key: key, Value: value})
			}
			if x.want != nil {
				x.want(&c)
			}
			got, named, err := parseGGUF(t, pairs, tensors)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Windows, c.Windows) || !slices.Equal(got.Local, c.Local) {
				t.Errorf("%v %v, wants %v %v", got.Windows, got.Local, c.Windows, c.Local)
			}
			if x.family == "deepseek-v3" {
				c.RoPE.Attention = 1
			}
			c.AttentionScale = got.AttentionScale // see TestGGUFEqualsSafetensors
			tokens := loadGolden(t, filepath.Join("testdata", x.family), 5, c.Vocab)[3].Tokens
			a, b := run(t, c, w, tokens), run(t, got, named, tokens)
			for i := range a {
				if !slices.Equal(a[i], b[i]) {
					t.Fatalf("logits %d differ by %.1e", i, relativeError(b[i], a[i]))
				}
			}
		})
	}
}

// Layers that guess further tokens are counted and left out. (llama.cpp: conversion/glm.py, Glm4MoeLiteModel.)
func TestFurtherLayersOfGGUF(t *testing.T) {
	c, w := checkpoint(t, "deepseek-v3")
	tensors := ggufmake.Tensors(c, w, same(t))
	extra := func(name string) weights.Tensor {
		return weights.Tensor{Name: name, DType: weights.F32, Shape: []int{1}, Data: make([]byte, 4)}
	}
	further := append(slices.Clone(tensors), extra("blk."+strconv.Itoa(c.Layers)+".nextn.enorm.weight"))
	pairs := withPairs(ggufmake.Pairs(c), ggufmake.Pair{Key: "deepseek2.block_count", Value: uint32(c.Layers + 1)},
		ggufmake.Pair{Key: "deepseek2.nextn_predict_layers", Value: uint32(1)})
	got, named, err := parseGGUF(t, pairs, further)
	if err == nil {
		err = got.CheckTensors(named)
	}
	if err != nil || got.Layers != c.Layers || got.Further != 1 {
		t.Errorf("%d and %d layers: %v", got.Layers, got.Further, err)
	}
	got, named, err = parseGGUF(t, pairs, append(further, extra("blk."+strconv.Itoa(c.Layers+1)+".nextn.enorm.weight")))
	if err == nil {
		err = got.CheckTensors(named)
	}
	if !errors.Is(err, model.ErrTensor) {
		t.Errorf("a layer beyond: %v", err)
	}
	pairs = withPairs(pairs, ggufmake.Pair{Key: "deepseek2.nextn_predict_layers", Value: uint32(c.Layers + 1)})
	if _, _, err := parseGGUF(t, pairs, further); !errors.Is(err, model.ErrUnsupported) {
		t.Errorf("no layer is left: %v", err)
	}
}

// Yarn without a multiplier of its logarithm scales cos and sin, as it does elsewhere; a multiplier of 0 is none.
func TestYarnWithoutLogarithm(t *testing.T) {
	for _, family := range []string{"deepseek-v3", "ministral-3"} {
		c, w := checkpoint(t, family)
		arch := ggufmake.Architecture(c)
		for _, value := range []any{nil, float32(0)} {
			pairs := withPairs(ggufmake.Pairs(c), ggufmake.Pair{Key: arch + ".rope.scaling.yarn_log_multiplier", Value: value})
			got, _, err := parseGGUF(t, pairs, ggufmake.Tensors(c, w, same(t)))
			want := float32(0.1*math.Log(c.RoPE.Factor) + 1)
			if d := got.RoPE.Attention/want - 1; err != nil || got.RoPE.Kind != model.YarnRoPE || d*d > 1e-10 || got.AttentionScale != 0 {
				t.Errorf("%s, %v: %+v, scale %v: %v", family, value, got.RoPE, got.AttentionScale, err)
			}
		}
	}
}

// OLMo 3 has the architecture of OLMo 2, with windows and a pattern of them. As llama.cpp's converter writes it, there is
// one base of RoPE, and the attention factor is that of config.json.
func TestGGUFOfOlmo3(t *testing.T) {
	c, w := checkpoint(t, "olmo-3")
	tensors, all := ggufmake.Tensors(c, w, same(t)), ggufmake.Pairs(c)
	without := func(keys ...string) []ggufmake.Pair {
		return slices.DeleteFunc(slices.Clone(all), func(p ggufmake.Pair) bool {
			return slices.Contains(keys, strings.TrimPrefix(p.Key, "olmo2."))
		})
	}
	read := func(pairs []ggufmake.Pair) model.Config {
		got, named, err := parseGGUF(t, pairs, tensors)
		if err == nil {
			err = got.CheckTensors(named)
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	factor := ggufmake.Pair{Key: "olmo2.rope.scaling.attn_factor", Value: float32(1.25)}
	got := read(append(without("rope.freq_base_swa", "rope.scaling.attn_factor"), factor))
	if got.Name != "olmo3" || got.RoPE.Attention != 1.25 || got.LocalTheta != got.RoPETheta ||
		!slices.Equal(got.Local, c.Local) || !slices.Equal(got.Windows, c.Windows) {
		t.Errorf("%+v", got)
	}
	scaling := []string{"rope.freq_base_swa", "rope.scaling.attn_factor", "rope.scaling.type", "rope.scaling.factor"}
	if got := read(without(scaling...)); got.Local != nil || got.LocalTheta != 0 || !slices.Equal(got.Windows, c.Windows) {
		t.Errorf("one RoPE for all layers: %+v", got)
	}
	older := without(append(scaling, "attention.sliding_window", "attention.sliding_window_pattern")...)
	if got := read(older); got.Name != "olmo2" || got.Windows != nil {
		t.Errorf("without windows: %+v", got)
	}
	for _, pattern := range []any{nil, []bool{true}, uint32(4)} {
		pairs := without("attention.sliding_window_pattern")
		if pattern != nil {
			pairs = append(pairs, ggufmake.Pair{Key: "olmo2.attention.sliding_window_pattern", Value: pattern})
		}
		if _, _, err := parseGGUF(t, pairs, tensors); err == nil || !strings.Contains(err.Error(), "sliding_window_pattern") {
			t.Errorf("pattern %v: %v", pattern, err)
		}
	}
}
