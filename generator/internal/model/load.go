package model

import (
	"slices"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Load checks the tensors of a checkpoint against c and loads them onto dev. It calls
// progress with the fraction of the parameters that is loaded, 0 to 1. A device may read
// the tensors' data in place, so the data must stay valid and unchanged until
// [Model.Free]. Errors: those of [Config.CheckTensors], then the device's. After an error
// nothing stays allocated.
func Load(dev device.Device, c Config, tensors Tensors, progress func(float64)) (*Model, error) {
	if err := c.CheckTensors(tensors); err != nil {
		return nil, err
	}
	m := &Model{Config: c, layers: make([]layer, c.Layers)}
	l := loader{
		weights: kernels.NewLoader(dev), dev: dev, tensors: tensors, model: m,
		total: c.Parameters(), progress: progress,
	}
	err := weights.Guard(func() error { l.load(); return l.err })
	if err = device.GiveBack(func() error { return err }, l.weights.Close); err != nil {
		return nil, device.GiveBack(func() error { return err }, func() error { return m.Free(dev) })
	}
	return m, nil
}

// Free gives the model's memory back. No step may be running on it.
func (m *Model) Free(dev device.Memory) error {
	var releases []func() error
	for _, b := range m.allocated {
		releases = append(releases, func() error { return dev.Free(b) })
	}
	m.allocated = nil
	return device.GiveBack(releases...)
}

// loader loads tensors until one fails. CheckTensors has checked their shapes.
type loader struct {
	dev      device.Device
	weights  *kernels.Loader
	tensors  Tensors
	model    *Model
	progress func(float64)
	done     int64 // elements loaded
	total    int64 // elements
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

// layer loads one block. The names of its tensors begin with prefix.
func (l *loader) layer(c Config, prefix string) layer {
	w := layer{
		attentionNorm:   l.vector(prefix + inputNorm),
		output:          l.matrix(prefix + oProj),
		feedForwardNorm: l.vector(prefix + postAttentionNorm),
		down:            l.matrix(prefix + downProj),
	}
	if c.Fused {
		q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		qkv := l.fused(prefix+qkvProj, q, kv, kv)
		gateUp := l.fused(prefix+gateUpProj, c.Inner, c.Inner)
		w.q, w.k, w.v, w.gate, w.up = qkv[0], qkv[1], qkv[2], gateUp[0], gateUp[1]
	} else {
		w.q = l.heads(prefix+qProj, c.Heads)
		w.k = l.heads(prefix+kProj, c.KVHeads)
		w.v = l.matrix(prefix + vProj)
		w.gate, w.up = l.matrix(prefix+gateProj), l.matrix(prefix+upProj)
	}
	if c.Bias {
		w.bias = l.biases(prefix)
	}
	if c.HeadNorms {
		w.headNorms = l.vector(prefix+qNorm, prefix+kNorm)
	}
	return w
}

// tensor returns a tensor of the checkpoint.
func (l *loader) tensor(name string) (t weights.Tensor) {
	if l.err == nil {
		t, l.err = l.tensors.Tensor(name)
	}
	return t
}

// dtypes maps the element types of a checkpoint to those of the ops.
var dtypes = map[weights.DType]kernels.DType{
	weights.BF16: kernels.BF16, weights.F16: kernels.F16, weights.F32: kernels.F32,
	weights.Q4_0: kernels.Q4_0, weights.Q4_1: kernels.Q4_1, weights.Q5_0: kernels.Q5_0, weights.Q5_1: kernels.Q5_1,
	weights.Q8_0: kernels.Q8_0, weights.Q4_K: kernels.Q4_K, weights.Q5_K: kernels.Q5_K, weights.Q6_K: kernels.Q6_K,
	weights.IQ4_XS: kernels.IQ4_XS, weights.MXFP4: kernels.MXFP4, weights.F8: kernels.F8,
	weights.G4_32: kernels.G4_32, weights.G4_64: kernels.G4_64, weights.G4_128: kernels.G4_128,
}

// matrix loads a whole tensor as one weight.
func (l *loader) matrix(name string) kernels.Weight {
	t := l.tensor(name)
	if l.err != nil {
		return kernels.Weight{}
	}
	return l.rows(t, 0, t.Shape[0])
}

// fused loads a fused tensor as several weights. rows holds the number of rows of each.
func (l *loader) fused(name string, rows ...int) []kernels.Weight {
	t, parts, at := l.tensor(name), make([]kernels.Weight, len(rows)), 0
	for i, n := range rows {
		parts[i] = l.rows(t, at, n)
		at += n
	}
	return parts
}

// rows loads n rows of a matrix, beginning with row first.
func (l *loader) rows(t weights.Tensor, first, n int) (w kernels.Weight) {
	if l.err != nil {
		return w
	}
	if t.Conversion != nil {
		return l.convert(t, first, n)
	}
	row := t.DType.Bytes(t.Shape[1])
	w, l.err = l.weights.Weight(dtypes[t.DType], n, t.Shape[1], t.Data[first*row:(first+n)*row])
	l.loaded(w.Data, int64(n*t.Shape[1]))
	return w
}

// convert loads n rows of a matrix that is converted, beginning with row first. A host then needs its sources no more.
func (l *loader) convert(t weights.Tensor, first, n int) (w kernels.Weight) {
	source := t.Conversion.Rows
	w, l.err = l.weights.Convert(dtypes[t.DType], n, t.Shape[1],
		func(dst []byte, row int) error { return source(dst, first+row) })
	l.loaded(w.Data, int64(n*t.Shape[1]))
	if !l.dev.Capabilities().PacksWeights {
		t.Drop()
	}
	if l.err == nil && t.Conversion.Order != nil {
		w, l.err = l.weights.Order(w, t.Conversion.Order)
		l.loaded(w.Order, 0)
	}
	return w
}

// heads loads the rows of n heads of q or k. Rows that a checkpoint holds interleaved are copied in order.
func (l *loader) heads(name string, n int) kernels.Weight {
	t := l.tensor(name)
	if l.err != nil {
		return kernels.Weight{}
	}
	if l.model.Config.Interleaved {
		t.Data = ordered(t.Data, t.DType.Bytes(t.Shape[1]), n)
	}
	return l.rows(t, 0, t.Shape[0])
}

// biases loads the biases of q, k and v.
func (l *loader) biases(prefix string) device.Buffer {
	c := l.model.Config
	q, k := toFloat32(l.tensor(prefix+qBias)), toFloat32(l.tensor(prefix+kBias))
	if c.Interleaved {
		q, k = ordered(q, 1, c.Heads), ordered(k, 1, c.KVHeads)
	}
	return l.floats(slices.Concat(q, k, toFloat32(l.tensor(prefix+vBias))))
}

// ordered returns a copy of the interleaved rows of n heads, each of size elements, in the order of RoPE by halves:
// within a head, row 2·j becomes j, and row 2·j+1 becomes j + half. llama.cpp's converter did the reverse.
// (convert_hf_to_gguf.py, LlamaModel.permute.)
func ordered[T any](data []T, size, n int) []T {
	out := make([]T, 0, len(data))
	head := len(data) / n
	for at := 0; at < len(data); at += head {
		for _, first := range []int{0, size} {
			for row := first; row < head; row += 2 * size {
				out = append(out, data[at+row:][:size]...)
			}
		}
	}
	return out
}

// vector loads vectors one after another into one buffer, as float32.
func (l *loader) vector(names ...string) device.Buffer {
	var all []float32
	for _, name := range names {
		all = append(all, toFloat32(l.tensor(name))...)
	}
	return l.floats(all)
}

func (l *loader) floats(v []float32) (b device.Buffer) {
	if l.err == nil {
		b, l.err = kernels.LoadVector(l.dev, v)
		l.loaded(b, int64(len(v)))
	}
	return b
}

// loaded records a buffer of the model and reports progress, unless loading failed.
func (l *loader) loaded(b device.Buffer, elements int64) {
	if l.err != nil {
		return
	}
	l.model.allocated = append(l.model.allocated, b)
	l.done += elements
	l.progress(min(1, float64(l.done)/float64(l.total)))
}

// toFloat32 returns the elements of a floating-point tensor, which is exact for all types.
func toFloat32(t weights.Tensor) []float32 {
	size := t.DType.Size()
	if size == 0 {
		return nil
	}
	out := make([]float32, len(t.Data)/size)
	for i := range out {
		out[i] = t.Float(i)
	}
	return out
}
