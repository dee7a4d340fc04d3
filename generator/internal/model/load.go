package model

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

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
	dev     device.Device
	weights *kernels.Loader
	tensors Tensors
	model   *Model
	counts  counter
	ones    device.Buffer
	err     error
}

func (l *loader) load() {
	m, c := l.model, l.model.Config
	if c.Eagle == nil || c.Eagle.Embedding {
		m.embedding = l.matrix(embeddingName)
	}
	for i := range m.layers {
		m.layers[i] = l.layer(c, i)
	}
	if c.PerLayer > 0 {
		m.perLayer = l.perLayer(c)
	}
	m.norm = l.finalNorm()
	m.head = l.head(c)
	if l.err == nil {
		m.takesTags = c.tags() && m.canTag()
		m.rope = l.floats(ropeTable(c.wide()))
	}
	if l.err == nil && c.hasUnrotated() {
		m.noRoPE = l.floats(identityTable(c))
	}
	if l.err == nil && c.LocalTheta != 0 {
		m.localRoPE = l.floats(ropeTable(c.ofLocal()))
	}
	m.embeddingScale = l.embeddingScale()
	if c.Eagle != nil {
		l.eagle(c)
	}
}

// eagle loads what an EAGLE-3 head has beside its layer.
func (l *loader) eagle(c Config) {
	e, w := c.Eagle, &l.model.eagle
	w.features = l.matrix(featuresName)
	if e.FeaturesNorm {
		w.allNorm = l.vector(allNormName)
	}
	for part := range e.parts() {
		if e.PartNorms {
			w.partNorms = append(w.partNorms, l.vector(partNormName(part)))
		}
	}
	if !e.Mapped || l.err != nil {
		return
	}
	tokens, err := c.tokens(l.tensors)
	if l.err = err; err == nil {
		w.tokens, l.err = l.dev.Load(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens)))
		l.loaded(w.tokens, int64(len(tokens)))
	}
}

// layer loads block i.
func (l *loader) layer(c Config, i int) layer {
	prefix, c := layerPrefix(i), c.At(i)
	name := func(llama string) string { return c.layerName(prefix, llama) }
	w := layer{output: l.partOf(name(oProj))}
	switch q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim; {
	case c.Latent != nil:
		l.latent(&w, c, prefix)
	case c.FusedQKV:
		qkv := l.tensor(name(qkvProj))
		l.attention(&w, c, qkv, &heads{qkv, q}, &heads{qkv, q + kv})
	case c.sharesKV(i):
		l.attention(&w, c, l.tensor(name(qProj)), nil, nil)
	case c.valuesAreKeys(i):
		l.attention(&w, c, l.tensor(name(qProj)), &heads{l.tensor(name(kProj)), 0}, nil)
		w.v = w.k
	default:
		l.attention(&w, c, l.tensor(name(qProj)), &heads{l.tensor(name(kProj)), 0}, &heads{l.tensor(name(vProj)), 0})
	}
	if c.sparse(i) {
		l.experts(&w, prefix)
	} else {
		l.feedForward(&w, c, prefix)
	}
	if c.Bias {
		w.bias = l.biases(prefix)
	}
	if c.OutputBias {
		w.outputBias = l.vector(prefix + oBias)
	}
	if c.Sinks {
		w.sinks = l.vectorPart(toFloat32(l.tensor(prefix+sinks)), c.heads(), c.queryHead)
	}
	l.norms(c, &w, i)
	if w.sparse() && w.router.norm.IsZero() {
		w.router.norm, w.router.expertsNorm = w.feedForwardNorm, w.feedForwardNorm
	}
	if c.PerLayer > 0 {
		w.perLayer = l.perLayerOf(c, prefix)
	}
	w.scale = 1
	if c.LayerScales {
		w.scale = l.scale(prefix + layerScalar)
	}
	return w
}

// scale returns the number that a tensor of one element has.
func (l *loader) scale(name string) float32 {
	v := toFloat32(l.tensor(name))
	if l.err != nil {
		return 1
	}
	if x := float64(v[0]); x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		l.err = fmt.Errorf("%w: %s is %v, wants a number that is not 0", ErrTensor, name, x)
	}
	return v[0]
}

// feedForward loads the feed-forward of a layer without experts.
func (l *loader) feedForward(w *layer, c Config, prefix string) {
	name := func(llama string) string { return c.layerName(prefix, llama) }
	if c.FusedGateUp {
		both := l.tensor(name(gateUpProj))
		w.gate, w.up = l.part(both, 0, c.Inner), l.part(both, c.Inner, c.Inner)
	} else {
		w.gate, w.up = l.partOf(name(gateProj)), l.partOf(name(upProj))
	}
	w.down = l.partOf(name(downProj))
}

// experts loads the router and the experts of a layer.
func (l *loader) experts(w *layer, prefix string) {
	r, e := &w.router, l.model.Config.Experts
	r.weights = l.vector(l.model.Config.layerName(prefix, routerProj))
	w.gate, w.up = l.stack(prefix+expertsGate, e.Inner), l.stack(prefix+expertsUp, e.Inner)
	w.down = l.stack(prefix+expertsDown, l.model.Config.Hidden)
	if e.RouterBias {
		r.bias = l.vector(prefix + routerBias)
	}
	if e.Choice {
		r.choice = l.vector(prefix + routerChoice)
	}
	if e.Shared > 0 {
		name := func(llama string) string { return l.model.Config.layerName(prefix, llama) }
		w.shared = feedForward{l.partOf(name(sharedGate)), l.partOf(name(sharedUp)), l.partOf(name(sharedDown))}
	}
	if e.Beside {
		root := float32(math.Sqrt(float64(l.model.Config.Hidden)))
		r.norm = l.floats(divided(toFloat32(l.tensor(prefix+routerScale)), root))
		r.scales, r.expertsNorm = l.vector(prefix+routerScales), l.norm(prefix+expertsNorm)
		r.afterShared, r.afterExperts = l.norm(prefix+afterShared), l.norm(prefix+afterExperts)
	}
	if e.Bias {
		r.gateBias, r.upBias = l.stackVector(prefix+gateBias, e.Inner), l.stackVector(prefix+upBias, e.Inner)
		r.downBias = l.stackVector(prefix+downBias, l.model.Config.Hidden)
	}
}

// norms loads the norms of one block.
func (l *loader) norms(c Config, w *layer, i int) {
	prefix := layerPrefix(i)
	name := func(llama string) string { return c.layerName(prefix, llama) }
	switch {
	case c.NoNormsBefore:
		if l.ones.IsZero() {
			l.ones = l.floats(slices.Repeat([]float32{1}, c.Hidden))
		}
		w.attentionNorm, w.feedForwardNorm = l.ones, l.ones // see kernels.NoNorm
	case c.Eagle != nil:
		w.attentionNorm, w.feedForwardNorm = l.vector(name(inputNorm), name(hiddenNorm)), l.vector(name(postAttentionNorm))
	default:
		w.attentionNorm, w.feedForwardNorm = l.norm(name(inputNorm)), l.norm(name(postAttentionNorm))
	}
	if c.NormsAfter {
		by := c.branchDivisor()
		w.afterAttention = l.floats(divided(l.normWeights(name(afterAttentionNorm)), by))
		w.afterFeedForward = l.floats(divided(l.normWeights(name(afterFeedForwardNorm)), by))
	}
	switch {
	case c.HeadNorms && c.sharesKV(i):
		w.headNorms = l.norm(name(qNorm))
	case c.HeadNorms && c.ValueNorms:
		ones := slices.Repeat([]float32{1}, c.HeadDim)
		w.headNorms = l.floats(slices.Concat(l.normWeights(name(qNorm)), l.normWeights(name(kNorm)), ones))
	case c.HeadNorms:
		w.headNorms = l.headNorms(name(qNorm), name(kNorm))
	}
	if c.WidthNorms {
		w.widthNorms = l.headNorms(name(qNorm), name(kNorm))
	}
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

// rows loads n rows of a matrix, beginning with row first.
func (l *loader) rows(t weights.Tensor, first, n int) (w kernels.Weight) {
	if l.err != nil {
		return w
	}
	if t.Conversion != nil {
		return l.convert(t, n, func(dst []byte, row int) error { return t.Conversion.Rows(dst, first+row) })
	}
	row := t.DType.Bytes(t.Shape[1])
	return l.data(t, n, t.Data[first*row:(first+n)*row])
}

// data loads n rows of a tensor's type and width.
func (l *loader) data(t weights.Tensor, n int, data []byte) (w kernels.Weight) {
	w, l.err = l.weights.Weight(dtypes[t.DType], n, t.Shape[1], data)
	l.loadedWeight(w)
	return w
}

// convert loads n rows of a matrix that is converted. rows is as in [weights.Conversion]. A host then needs the sources
// no more.
func (l *loader) convert(t weights.Tensor, n int, rows func(dst []byte, first int) error) (w kernels.Weight) {
	w, l.err = l.weights.Convert(dtypes[t.DType], n, t.Shape[1], rows)
	l.loadedWeight(w)
	return l.inColumnOrder(w, t)
}

// inColumnOrder gives a weight that was converted the order of its columns, if it has one.
func (l *loader) inColumnOrder(w kernels.Weight, t weights.Tensor) kernels.Weight {
	if t.Conversion == nil {
		return w
	}
	if !l.dev.Capabilities().PacksWeights {
		t.Drop()
	}
	if l.err == nil && t.Conversion.Order != nil {
		w, l.err = l.weights.Order(w, t.Conversion.Order)
		l.loaded(w.Order, 0)
	}
	return w
}

// heads loads n rows of q or k, beginning with row first, in the order of RoPE by halves. Rows of another order are
// copied.
func (l *loader) heads(t weights.Tensor, first, n int) kernels.Weight {
	return l.inOrder(t, first, n, l.model.Config.headOrder())
}

// inOrder loads n rows of a matrix, beginning with row first, of which each len(order) rows come in that order; nil: as
// they are.
func (l *loader) inOrder(t weights.Tensor, first, n int, order []int) kernels.Weight {
	if l.err != nil || order == nil {
		return l.rows(t, first, n)
	}
	size, d := t.DType.Bytes(t.Shape[1]), len(order)
	if t.Conversion == nil && !l.weights.Packs() {
		return l.data(t, n, ordered(t.Data[first*size:(first+n)*size], size, order))
	}
	return l.convert(t, n, rowSource(t, func(i int) int { return first + i/d*d + order[i%d] }))
}

// norm loads the weights of a norm.
func (l *loader) norm(name string) device.Buffer { return l.floats(l.normWeights(name)) }

// normWeights returns the weights of a norm.
func (l *loader) normWeights(name string) []float32 {
	w := toFloat32(l.tensor(name))
	if l.model.Config.NormsFromOne {
		for i := range w {
			w[i]++
		}
	}
	return w
}

// finalNorm loads the norm before the head, which divides the logits too, or that of embeddings, which does not.
func (l *loader) finalNorm() device.Buffer {
	by := float32(1)
	if d := l.model.Config.LogitsDivisor; d != 0 && l.model.Config.Embedding == nil {
		by = d
	}
	return l.floats(divided(l.normWeights(normName), by))
}

// divided divides a vector in place.
func divided(v []float32, by float32) []float32 {
	for i := range v {
		v[i] /= by
	}
	return v
}

// embeddingScale returns what the embedding is multiplied by, see [Config].
func (l *loader) embeddingScale() float32 {
	c := l.model.Config
	scale := float32(1)
	if c.EmbeddingScale != 0 {
		scale = c.EmbeddingScale
	}
	if c.EmbeddingRoot && l.err == nil {
		scale = l.rootOf(c.Hidden, embeddingName)
	}
	return scale / c.streamDivisor()
}

// rootOf returns the root of an embedding's width as [Config].EmbeddingRoot has it.
func (l *loader) rootOf(width int, embedding string) float32 {
	root := float32(math.Sqrt(float64(width)))
	switch t, _ := l.tensors.Tensor(embedding); t.DType {
	case weights.F32:
		return root
	case weights.F16:
		return rounded(root, 13)
	}
	return rounded(root, 16)
}

// rounded rounds the last bits of a number to even.
func rounded(v float32, last int) float32 {
	b := math.Float32bits(v)
	b += 1<<(last-1) - 1 + b>>last&1
	return math.Float32frombits(b >> last << last)
}

// headNorms loads the norms of the heads of q and k: of HeadDim elements each, or of as many as all heads have.
func (l *loader) headNorms(q, k string) device.Buffer {
	all := slices.Concat(l.normWeights(q), l.normWeights(k))
	if order := l.model.Config.headOrder(); order != nil {
		all = ordered(all, 1, order)
	}
	return l.floats(all)
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

// loadedWeight records a weight of the model, unless loading failed. A loader that packs counts its elements later.
func (l *loader) loadedWeight(w kernels.Weight) {
	if l.weights.Packs() {
		l.loaded(w.Data, 0)
		return
	}
	l.loaded(w.Data, int64(w.Rows)*int64(w.Cols))
}

// loaded records a buffer of the model, unless loading failed, and counts elements that have been loaded with it.
func (l *loader) loaded(b device.Buffer, elements int64) {
	if l.err != nil {
		return
	}
	l.model.allocated = append(l.model.allocated, b)
	l.counts.add(elements)
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
