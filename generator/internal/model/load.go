package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"reel/generator/internal/weights"
	"reel/kernels"
	"reel/kernels/device"
)

// ErrTensor marks a checkpoint whose tensors do not fit its config.
var ErrTensor = errors.New("model: tensor does not fit the config")

// Tensors gives the loader a checkpoint's tensors by their published names.
type Tensors interface {
	Tensor(name string) (weights.Tensor, error)
}

// Load gives dev the weights of a Llama checkpoint. progress is called with
// the share that is done, 0 to 1. The tensors' data stays as it is while the
// model lives: a device may read it in place.
func Load(dev device.Memory, c Config, tensors Tensors, progress func(float64)) (*Model, error) {
	l := loader{dev: dev, tensors: tensors}
	m := &Model{Config: c, layers: make([]layer, c.Layers)}
	m.embedding = l.matrix("model.embed_tokens.weight", c.Vocab, c.Hidden)
	for i := range m.layers {
		m.layers[i] = l.layer(c, i)
		if l.err != nil {
			return nil, l.err
		}
		progress(float64(i+1) / float64(c.Layers+1))
	}
	m.norm = l.vector("model.norm.weight", c.Hidden)
	if m.head = m.embedding; !c.TiedHead {
		m.head = l.matrix("lm_head.weight", c.Vocab, c.Hidden)
	}
	if l.err == nil {
		m.rope, l.err = kernels.LoadVector(dev, ropeTable(c.Context, c.HeadDim, c.RoPETheta))
	}
	progress(1)
	return m, l.err
}

// loader loads tensors until one fails.
type loader struct {
	dev     device.Memory
	tensors Tensors
	err     error
}

func (l *loader) layer(c Config, i int) layer {
	name := func(s string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, s) }
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return layer{
		attentionNorm: l.vector(name("input_layernorm"), c.Hidden),
		q:             l.matrix(name("self_attn.q_proj"), q, c.Hidden),
		k:             l.matrix(name("self_attn.k_proj"), kv, c.Hidden),
		v:             l.matrix(name("self_attn.v_proj"), kv, c.Hidden),
		output:        l.matrix(name("self_attn.o_proj"), c.Hidden, q),
		innerNorm:     l.vector(name("post_attention_layernorm"), c.Hidden),
		gate:          l.matrix(name("mlp.gate_proj"), c.Inner, c.Hidden),
		up:            l.matrix(name("mlp.up_proj"), c.Inner, c.Hidden),
		down:          l.matrix(name("mlp.down_proj"), c.Hidden, c.Inner),
	}
}

// tensor fetches a tensor of the shape that the config asks for.
func (l *loader) tensor(name string, shape ...int) weights.Tensor {
	if l.err != nil {
		return weights.Tensor{}
	}
	t, err := l.tensors.Tensor(name)
	if err == nil && !slices.Equal(t.Shape, shape) {
		err = fmt.Errorf("%w: %s is %v, the config asks for %v", ErrTensor, name, t.Shape, shape)
	}
	l.err = err
	return t
}

// dtypes are the element types of a checkpoint as the ops know them.
var dtypes = map[weights.DType]kernels.DType{weights.BF16: kernels.BF16, weights.F16: kernels.F16, weights.F32: kernels.F32}

// matrix loads a weight as the checkpoint has it.
func (l *loader) matrix(name string, rows, cols int) (w kernels.Weight) {
	t := l.tensor(name, rows, cols)
	if l.err == nil {
		w, l.err = kernels.LoadWeight(l.dev, dtypes[t.DType], rows, cols, t.Data)
	}
	return w
}

// vector loads a norm's weights as float32.
func (l *loader) vector(name string, n int) device.Buffer {
	t := l.tensor(name, n)
	if l.err != nil {
		return device.Buffer{}
	}
	var b device.Buffer
	b, l.err = kernels.LoadVector(l.dev, floats(t))
	return b
}

// floats widens a tensor's elements to float32, which loses nothing.
func floats(t weights.Tensor) []float32 {
	size := t.DType.Size()
	out := make([]float32, len(t.Data)/size)
	for i := range out {
		b := t.Data[i*size:]
		switch t.DType {
		case weights.BF16:
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
		case weights.F16:
			out[i] = half(binary.LittleEndian.Uint16(b))
		default:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b))
		}
	}
	return out
}

// half is the float32 of IEEE 754 binary16 bits.
func half(b uint16) float32 {
	sign, exponent, fraction := uint32(b>>15)<<31, uint32(b>>10&31), uint32(b&1023)
	switch exponent {
	case 0: // zero or subnormal: fraction · 2^-24
		return float32(math.Copysign(float64(fraction)/(1<<24), 1-2*float64(b>>15)))
	case 31: // infinity or NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
