package model

import (
	"encoding/binary"
	"math"

	"reel/generator/internal/weights"
	"reel/kernels"
	"reel/kernels/device"
)

// Load gives dev the weights of a checkpoint of c. progress is called with the
// share of the bytes that is done, 0 to 1. The tensors' data stays as it is while
// the model lives: a device may read it in place. Errors: those of CheckTensors,
// then the device's; what a failure leaves is given back.
func Load(dev device.Device, c Config, tensors Tensors, progress func(float64)) (*Model, error) {
	if err := c.CheckTensors(tensors); err != nil {
		return nil, err
	}
	m := &Model{Config: c, layers: make([]layer, c.Layers)}
	l := loader{weights: kernels.NewLoader(dev), dev: dev, tensors: tensors, model: m, total: c.Parameters(), progress: progress}
	err := weights.Guard(func() error { l.load(); return l.err })
	if err = device.GiveBack(func() error { return err }, l.weights.Close); err != nil {
		return nil, device.GiveBack(func() error { return err }, func() error { return m.Free(dev) })
	}
	m.uniformDType = hasUniformDType(m.layers)
	return m, nil
}

// Free gives the model's memory back. No step reads it any more.
func (m *Model) Free(dev device.Memory) error {
	var releases []func() error
	for _, b := range m.taken {
		releases = append(releases, func() error { return dev.Free(b) })
	}
	m.taken = nil
	return device.GiveBack(releases...)
}

// loader loads tensors, whose shapes were checked, until one fails.
type loader struct {
	dev      device.Memory
	weights  *kernels.Loader
	tensors  Tensors
	model    *Model
	progress func(float64)
	done     int64 // elements
	total    int64
	err      error
}

func (l *loader) load() {
	m, c := l.model, l.model.Config
	m.embedding = l.matrix(embeddingName)
	for i := range m.layers {
		m.layers[i] = l.layer(c, layerPrefix(i))
	}
	m.norm = l.vector(normName)
	if m.head = m.embedding; !c.TiedHead {
		m.head = l.matrix(headName)
	}
	if l.err == nil {
		m.rope = l.floats(ropeTable(c))
	}
}

func (l *loader) layer(c Config, prefix string) layer {
	w := layer{
		attentionNorm:   l.vector(prefix + "input_layernorm.weight"),
		output:          l.matrix(prefix + "self_attn.o_proj.weight"),
		feedForwardNorm: l.vector(prefix + "post_attention_layernorm.weight"),
		down:            l.matrix(prefix + "mlp.down_proj.weight"),
	}
	if c.Fused {
		q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		qkv := l.parts(prefix+"self_attn.qkv_proj.weight", q, kv, kv)
		gateUp := l.parts(prefix+"mlp.gate_up_proj.weight", c.Inner, c.Inner)
		w.q, w.k, w.v, w.gate, w.up = qkv[0], qkv[1], qkv[2], gateUp[0], gateUp[1]
	} else {
		w.q, w.k, w.v = l.matrix(prefix+"self_attn.q_proj.weight"), l.matrix(prefix+"self_attn.k_proj.weight"), l.matrix(prefix+"self_attn.v_proj.weight")
		w.gate, w.up = l.matrix(prefix+"mlp.gate_proj.weight"), l.matrix(prefix+"mlp.up_proj.weight")
	}
	if c.Bias {
		w.bias = l.vector(prefix+"self_attn.q_proj.bias", prefix+"self_attn.k_proj.bias", prefix+"self_attn.v_proj.bias")
	}
	if c.HeadNorms {
		w.headNorms = l.vector(prefix+"self_attn.q_norm.weight", prefix+"self_attn.k_norm.weight")
	}
	return w
}

// tensor fetches a tensor.
func (l *loader) tensor(name string) (t weights.Tensor) {
	if l.err == nil {
		t, l.err = l.tensors.Tensor(name)
	}
	return t
}

// dtypes are the element types of a checkpoint as the ops know them.
var dtypes = map[weights.DType]kernels.DType{weights.BF16: kernels.BF16, weights.F16: kernels.F16, weights.F32: kernels.F32}

// matrix loads a weight as the checkpoint has it.
func (l *loader) matrix(name string) kernels.Weight {
	t := l.tensor(name)
	if l.err != nil {
		return kernels.Weight{}
	}
	return l.rows(t, 0, t.Shape[0])
}

// parts loads a tensor as several weights, each of the next so many rows.
func (l *loader) parts(name string, rows ...int) []kernels.Weight {
	t, parts, at := l.tensor(name), make([]kernels.Weight, len(rows)), 0
	for i, n := range rows {
		parts[i] = l.rows(t, at, n)
		at += n
	}
	return parts
}

// rows loads n rows of a matrix, from the first-th on.
func (l *loader) rows(t weights.Tensor, first, n int) (w kernels.Weight) {
	if l.err != nil {
		return w
	}
	row := t.Shape[1] * t.DType.Size()
	w, l.err = l.weights.Weight(dtypes[t.DType], n, t.Shape[1], t.Data[first*row:(first+n)*row])
	l.took(w.Data, int64(n*t.Shape[1]))
	return w
}

// vector loads vectors one after another, as float32.
func (l *loader) vector(names ...string) device.Buffer {
	var all []float32
	for _, name := range names {
		all = append(all, widened(l.tensor(name))...)
	}
	return l.floats(all)
}

func (l *loader) floats(v []float32) (b device.Buffer) {
	if l.err == nil {
		b, l.err = kernels.LoadVector(l.dev, v)
		l.took(b, int64(len(v)))
	}
	return b
}

// took notes a buffer that was taken for so many elements.
func (l *loader) took(b device.Buffer, elements int64) {
	if l.err != nil {
		return
	}
	l.model.taken = append(l.model.taken, b)
	l.done += elements
	l.progress(min(1, float64(l.done)/float64(l.total)))
}

// widened are a tensor's elements as float32, which loses nothing.
func widened(t weights.Tensor) []float32 {
	size := t.DType.Size()
	if size == 0 {
		return nil
	}
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
