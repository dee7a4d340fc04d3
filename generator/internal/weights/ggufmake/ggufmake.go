// Package ggufmake writes GGUF files, for tests.
package ggufmake

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// Pair is a key and its value: a string, bool, uint32, float32, []string, []float32 or []int32.
type Pair struct {
	Key   string
	Value any
}

// types maps our types to GGUF's.
var types = map[weights.DType]uint32{weights.F32: 0, weights.F16: 1, weights.Q8_0: 8, weights.BF16: 30}

// File returns a GGUF file. Shapes of tensors are [rows][columns].
func File(pairs []Pair, tensors []weights.Tensor) []byte {
	b := append([]byte("GGUF"), 3, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(pairs)))
	for _, p := range pairs {
		b = appendValue(appendString(b, p.Key), p.Value)
	}
	offset := 0
	for _, t := range tensors {
		b = binary.LittleEndian.AppendUint32(appendString(b, t.Name), uint32(len(t.Shape)))
		for i := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(t.Shape[len(t.Shape)-1-i]))
		}
		b = binary.LittleEndian.AppendUint32(b, types[t.DType])
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		offset += (len(t.Data) + 31) / 32 * 32
	}
	for _, t := range tensors {
		b = append(pad(b), t.Data...)
	}
	return pad(b)
}

// pad appends zeros up to a multiple of 32 bytes.
func pad(b []byte) []byte { return append(b, make([]byte, (32-len(b)%32)%32)...) }

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendValue(b []byte, v any) []byte {
	kind := func(k uint32) []byte { return binary.LittleEndian.AppendUint32(b, k) }
	array := func(k uint32, n int) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(kind(9), k), uint64(n))
	}
	switch v := v.(type) {
	case uint32:
		return binary.LittleEndian.AppendUint32(kind(4), v)
	case float32:
		return binary.LittleEndian.AppendUint32(kind(6), math.Float32bits(v))
	case bool:
		if v {
			return append(kind(7), 1)
		}
		return append(kind(7), 0)
	case string:
		return appendString(kind(8), v)
	case []string:
		b = array(8, len(v))
		for _, s := range v {
			b = appendString(b, s)
		}
	case []float32:
		b = array(6, len(v))
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
	case []int32:
		b = array(5, len(v))
		for _, n := range v {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
	default:
		panic(fmt.Sprintf("no value of GGUF: %T", v))
	}
	return b
}

// Pairs returns the metadata of a model, as llama.cpp's converter writes it.
func Pairs(c model.Config) []Pair {
	arch := map[string]string{"mistral": "llama"}[c.Name]
	if arch == "" {
		arch = c.Name
	}
	pairs := []Pair{{"general.architecture", arch}, {"context_length", uint32(c.Context)},
		{"embedding_length", uint32(c.Hidden)}, {"block_count", uint32(c.Layers)},
		{"feed_forward_length", uint32(c.Inner)}, {"attention.head_count", uint32(c.Heads)},
		{"attention.head_count_kv", uint32(c.KVHeads)}, {"attention.key_length", uint32(c.HeadDim)},
		{"attention.value_length", uint32(c.HeadDim)}, {"attention.layer_norm_rms_epsilon", c.RMSNormEps},
		{"rope.freq_base", float32(c.RoPETheta)}, {"rope.dimension_count", uint32(c.HeadDim)}}
	if c.Windows != nil {
		pairs = append(pairs, Pair{"attention.sliding_window", uint32(slices.Max(c.Windows))})
	}
	for i := range pairs[1:] {
		pairs[i+1].Key = arch + "." + pairs[i+1].Key
	}
	for _, id := range c.EOS[:min(1, len(c.EOS))] {
		pairs = append(pairs, Pair{"tokenizer.ggml.eos_token_id", uint32(id)})
	}
	return pairs
}

// names replaces the published names by GGUF's.
var names = strings.NewReplacer("model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output",
	"model.layers", "blk", "input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm",
	"self_attn.qkv_proj", "attn_qkv", "self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k",
	"self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output", "self_attn.q_norm", "attn_q_norm",
	"self_attn.k_norm", "attn_k_norm", "mlp.gate_up_proj", "ffn_up", "mlp.gate_proj", "ffn_gate",
	"mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down")

// Tensors returns the tensors of a model as llama.cpp's converter writes them: rows of q and k of Llama and Mistral
// are interleaved, and Llama 3's scaling of RoPE is a tensor. change may change a tensor before, by its published name.
func Tensors(c model.Config, from model.Tensors, change func(weights.Tensor) weights.Tensor) (list []weights.Tensor) {
	for _, s := range c.Tensors() {
		t, err := from.Tensor(s.Name)
		if err != nil {
			panic(err)
		}
		t = change(t)
		if c.Name == "llama" || c.Name == "mistral" {
			switch {
			case strings.Contains(s.Name, "q_proj"):
				t.Data = interleave(t.Data, c.Heads, c.HeadDim)
			case strings.Contains(s.Name, "k_proj"):
				t.Data = interleave(t.Data, c.KVHeads, c.HeadDim)
			}
		}
		t.Name = names.Replace(s.Name)
		list = append(list, t)
	}
	if c.RoPE != (model.RoPEScaling{}) {
		list = append(list, weights.Tensor{Name: "rope_freqs.weight", DType: weights.F32, Shape: []int{c.HeadDim / 2},
			Data: divisors(c)})
	}
	return list
}

// interleave reorders rows as numpy's reshape(heads, 2, dim/2, …).swapaxes(1, 2) does.
func interleave(data []byte, heads, dim int) (out []byte) {
	row := len(data) / (heads * dim)
	for h := range heads {
		for j := range dim / 2 {
			for part := range 2 {
				out = append(out, data[(h*dim+part*dim/2+j)*row:][:row]...)
			}
		}
	}
	return out
}

// divisors returns what RoPE's frequencies are divided by, as the converter computes it.
func divisors(c model.Config) (out []byte) {
	s := c.RoPE
	for i := range c.HeadDim / 2 {
		wavelength := 2 * math.Pi * math.Pow(c.RoPETheta, float64(2*i)/float64(c.HeadDim))
		divisor := s.Factor
		if wavelength < float64(s.Original)/s.HighFactor {
			divisor = 1
		} else if wavelength <= float64(s.Original)/s.LowFactor {
			smooth := (float64(s.Original)/wavelength - s.LowFactor) / (s.HighFactor - s.LowFactor)
			divisor = 1 / ((1-smooth)/s.Factor + smooth)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(divisor)))
	}
	return out
}
