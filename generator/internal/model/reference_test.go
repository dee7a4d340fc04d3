package model_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// exact computes a model in float64, op by op as the families' papers have them, from tensors of float32 or bfloat16.
type exact struct {
	t    *testing.T
	c    model.Config
	w    model.Tensors
	read map[string]matrix // tensors, by name
}

func newExact(t *testing.T, c model.Config, w model.Tensors) exact {
	return exact{t, c, w, map[string]matrix{}}
}

// matrix is a tensor in float64: [rows][columns], or one row.
type matrix struct {
	data []float64
	cols int
}

func (m matrix) row(i int) []float64 { return m.data[i*m.cols:][:m.cols] }

// times returns the product with a vector.
func (m matrix) times(x []float64) []float64 {
	y := make([]float64, len(m.data)/m.cols)
	for i := range y {
		for j, v := range m.row(i) {
			y[i] += v * x[j]
		}
	}
	return y
}

func (r exact) tensor(format string, args ...any) matrix {
	name := fmt.Sprintf(format, args...)
	if m, ok := r.read[name]; ok {
		return m
	}
	x, err := r.w.Tensor(name)
	if err != nil {
		r.t.Fatal(err)
	}
	m := matrix{cols: x.Shape[len(x.Shape)-1]}
	var values []float32
	if x.DType == weights.BF16 {
		values = asFloat32(x)
	} else {
		for at := 0; at < len(x.Data); at += 4 {
			values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(x.Data[at:])))
		}
	}
	for _, v := range values {
		m.data = append(m.data, float64(v))
	}
	r.read[name] = m
	return m
}

// norm is RMSNorm.
func (r exact) norm(x []float64, weight matrix) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale, y := 1/math.Sqrt(sum/float64(len(x))+float64(r.c.RMSNormEps)), make([]float64, len(x))
	for i := range x {
		y[i] = x[i] * scale * weight.data[i]
	}
	return y
}

// heads adds biases to heads of q or k, norms them, and rotates pairs (j, j + half) for a position, in a part of each
// head if Rotated says so. It knows scalings that are divisors.
func (r exact) heads(layer int, kind string, x []float64, position int) {
	if r.c.Bias {
		add(x, r.tensor("model.layers.%d.self_attn.%s_proj.bias", layer, kind).data)
	}
	half := r.c.HeadDim / 2
	if r.c.Rotated > 0 {
		half = r.c.Rotated / 2
	}
	for at := 0; at < len(x); at += r.c.HeadDim {
		head := x[at : at+r.c.HeadDim]
		if r.c.HeadNorms {
			copy(head, r.norm(head, r.tensor("model.layers.%d.self_attn.%s_norm.weight", layer, kind)))
		}
		for j := range half {
			frequency := math.Pow(r.c.RoPETheta, -float64(j)/float64(half))
			if r.c.RoPEDivisors != nil {
				frequency /= float64(r.c.RoPEDivisors[j])
			}
			sin, cos := math.Sincos(float64(position) * frequency)
			if scale := float64(r.c.RoPE.Attention); scale != 0 {
				sin, cos = sin*scale, cos*scale
			}
			head[j], head[j+half] = head[j]*cos-head[j+half]*sin, head[j+half]*cos+head[j]*sin
		}
	}
}

func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

// projections returns q, k and v.
func (r exact) projections(layer int, x []float64) (q, k, v []float64) {
	prefix := fmt.Sprintf("model.layers.%d.self_attn.", layer)
	if r.c.FusedQKV {
		all, queries, keys := r.tensor("%sqkv_proj.weight", prefix).times(x), r.c.Heads*r.c.HeadDim, r.c.KVHeads*r.c.HeadDim
		return all[:queries], all[queries : queries+keys], all[queries+keys:]
	}
	v = r.tensor("%sv_proj.weight", prefix).times(x)
	if r.c.Bias {
		add(v, r.tensor("%sv_proj.bias", prefix).data)
	}
	return r.tensor("%sq_proj.weight", prefix).times(x), r.tensor("%sk_proj.weight", prefix).times(x), v
}

// attend returns the results of attention of one row over the keys and values of all rows up to it.
func (r exact) attend(q []float64, keys, values [][]float64) []float64 {
	d, out := r.c.HeadDim, make([]float64, len(q))
	for h := range r.c.Heads {
		group := h * r.c.KVHeads / r.c.Heads * d
		scores, sum := make([]float64, len(keys)), 0.0
		for i, key := range keys {
			for j := range d {
				scores[i] += q[h*d+j] * key[group+j] / math.Sqrt(float64(d))
			}
			scores[i] = math.Exp(scores[i]) // small enough without subtracting the largest
			sum += scores[i]
		}
		for i, value := range values {
			for j := range d {
				out[h*d+j] += scores[i] / sum * value[group+j]
			}
		}
	}
	return out
}

// feedForward returns SwiGLU.
func (r exact) feedForward(layer int, x []float64) []float64 {
	prefix := fmt.Sprintf("model.layers.%d.mlp.", layer)
	var gate, up []float64
	if r.c.FusedGateUp {
		both := r.tensor("%sgate_up_proj.weight", prefix).times(x)
		gate, up = both[:r.c.Inner], both[r.c.Inner:]
	} else {
		gate, up = r.tensor("%sgate_proj.weight", prefix).times(x), r.tensor("%sup_proj.weight", prefix).times(x)
	}
	for i := range gate {
		gate[i] *= up[i] / (1 + math.Exp(-gate[i]))
	}
	return r.tensor("%sdown_proj.weight", prefix).times(gate)
}

// logits returns the logits after each of the tokens.
func (r exact) logits(tokens []int32) (all [][]float64) {
	embedding := r.tensor("model.embed_tokens.weight")
	var rows [][]float64
	for _, token := range tokens {
		rows = append(rows, append([]float64(nil), embedding.row(int(token))...))
	}
	for layer := range r.c.Layers {
		prefix := fmt.Sprintf("model.layers.%d.", layer)
		before, after := r.tensor("%sinput_layernorm.weight", prefix), r.tensor("%spost_attention_layernorm.weight", prefix)
		output := r.tensor("%sself_attn.o_proj.weight", prefix)
		var keys, values [][]float64
		for position, x := range rows {
			q, k, v := r.projections(layer, r.norm(x, before))
			r.heads(layer, "q", q, position)
			r.heads(layer, "k", k, position)
			keys, values = append(keys, k), append(values, v)
			first := 0
			if window := r.c.Window(layer); window > 0 {
				first = max(0, position+1-window)
			}
			add(x, output.times(r.attend(q, keys[first:], values[first:])))
			add(x, r.feedForward(layer, r.norm(x, after)))
		}
	}
	head := embedding
	if !r.c.TiedHead {
		head = r.tensor("lm_head.weight")
	}
	norm := r.tensor("model.norm.weight")
	for _, x := range rows {
		all = append(all, head.times(r.norm(x, norm)))
	}
	return all
}

// The reference itself equals transformers, on the families that it computes.
func TestReference(t *testing.T) {
	for _, name := range []string{"llama-2", "qwen2", "qwen2-window", "qwen3", "phi-3", "phi-4-mini"} {
		c, w := checkpoint(t, name)
		c.RoPEDivisors = c.LongFactors
		for _, g := range loadGolden(t, "testdata/"+name, 5, c.Vocab)[:3] {
			all := newExact(t, c, w).logits(g.Tokens)
			last := all[len(all)-1]
			got := make([]float32, len(last))
			for i := range last {
				got[i] = float32(last[i])
			}
			if e := relativeError(got, g.logits); !(e < 2e-6) {
				t.Errorf("%s, %d tokens: %.1e", name, len(g.Tokens), e)
			}
		}
	}
}
