package model

import (
	"math"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Layers may have embeddings of their own beside that of the model: an input of Config.PerLayer elements to each layer,
//
//	input = (rmsnorm(Wmodel·e/√Hidden) + √PerLayer·E[token]) / √2
//
// of the row's embedding e and its token. After the feed-forward of a layer
//
//	x += rmsnorm(Wproj·(act(Wgate·x) ⊙ input))
//
// (Gemma 3n and 4, E2B and E4B; transformers, modeling_gemma4.py.)

// perLayerWeights is what a model has for the inputs of all layers.
type perLayerWeights struct {
	table      kernels.Weight // [vocab][Layers*PerLayer]
	scale      float32        // of its rows
	projection kernels.Weight // Wmodel: [Layers*PerLayer][hidden]
	norm       device.Buffer  // float32 [PerLayer]
}

// layerEmbedding is what a layer has to add its input.
type layerEmbedding struct {
	gate, projection kernels.Weight // [PerLayer][hidden], [hidden][PerLayer]
	after            device.Buffer  // float32 [hidden]: the norm of the result
}

// Names of the tensors, those of a layer after its prefix.
const (
	perLayerTable      = "model.embed_tokens_per_layer.weight"
	perLayerModel      = "model.per_layer_model_projection.weight"
	perLayerNorm       = "model.per_layer_projection_norm.weight"
	perLayerGate       = "per_layer_input_gate.weight"
	perLayerProjection = "per_layer_projection.weight"
	perLayerAfter      = "post_per_layer_input_norm.weight"

	layerScalar = "layer_scalar"
)

// perLayerTensors lists the tensors outside the layers.
func (c Config) perLayerTensors() []TensorSpec {
	if c.PerLayer == 0 {
		return nil
	}
	all := c.PerLayer * c.Layers
	return []TensorSpec{{Name: perLayerTable, Kind: EmbeddingTensor, Shape: []int{c.Vocab, all}},
		{Name: perLayerModel, Kind: EmbeddingTensor, Shape: []int{all, c.Hidden}},
		{Name: perLayerNorm, Kind: NormTensor, Shape: []int{c.PerLayer}}}
}

// perLayer adds the tensors of a layer.
func (s *specs) perLayer() {
	if c := s.c; c.PerLayer > 0 {
		s.add(FeedForwardTensor, perLayerGate, c.PerLayer, c.Hidden)
		s.add(FeedForwardTensor, perLayerProjection, c.Hidden, c.PerLayer)
		s.add(NormTensor, perLayerAfter, c.Hidden)
	}
}

// perLayer loads what is outside the layers.
func (l *loader) perLayer(c Config) (w perLayerWeights) {
	w.table, w.projection = l.matrix(perLayerTable), l.matrix(perLayerModel)
	w.norm = l.floats(divided(l.normWeights(perLayerNorm), math.Sqrt2))
	w.scale = l.rootOf(c.PerLayer, perLayerTable) / math.Sqrt2
	return w
}

// perLayerOf loads what a layer has.
func (l *loader) perLayerOf(c Config, prefix string) layerEmbedding {
	return layerEmbedding{gate: l.matrix(prefix + perLayerGate), projection: l.matrix(prefix + perLayerProjection),
		after: l.floats(divided(l.normWeights(prefix+perLayerAfter), c.branchDivisor()))}
}

// perLayerMemory is what the ops of embeddings of layers work in; none: there are no such.
type perLayerMemory struct {
	inputs    device.Buffer // float32 [MaxRows][Layers][PerLayer]
	projected device.Buffer // the same: Wmodel·e
	gated     device.Buffer // float32 [MaxRows][PerLayer]
}

// perLayerBuffers lists that memory.
func (s *StepMemory) perLayerBuffers(dev tracked, c Config) []wantedBuffer {
	if c.PerLayer == 0 {
		return nil
	}
	rows, m := int64(max(s.MaxRows, s.MaxSamples)), &s.perLayer
	all := 4 * rows * int64(c.Layers*c.PerLayer)
	return []wantedBuffer{{&m.inputs, dev.Uncleared, all}, {&m.projected, dev.Uncleared, all},
		{&m.gated, dev.Uncleared, 4 * rows * int64(c.PerLayer)}}
}

// activations returns the buffers that a pass writes before it reads them.
func (m perLayerMemory) activations() []device.Buffer {
	if m.inputs.IsZero() {
		return nil
	}
	return []device.Buffer{m.inputs, m.projected, m.gated}
}

// perLayerInputs launches what makes the inputs of all layers. The rows of the residual stream are the embeddings still.
func (p *pass) perLayerInputs() {
	c, s, w := p.model.Config, p.memory, &p.model.perLayer
	if c.PerLayer == 0 {
		return
	}
	m := s.perLayer
	p.launch(kernels.Embed{Table: w.table, Rows: s.Rows, X: m.inputs, T: p.Rows, Scale: w.scale})
	p.launch(kernels.Projection{Name: kernels.InputsProjection, W: w.projection, In: s.x, X: m.projected, Store: true,
		T: p.Rows, Class: p.Class, Generated: kernels.Generated(p.Generated), Workspace: s.hiddenWorkspace()})
	// A norm of a·v with Eps is one of v with Eps/a².
	by := c.streamDivisor() / float32(math.Sqrt(float64(c.Hidden)))
	p.launch(kernels.AddNorm{Branch: m.projected, Norm: w.norm, X: m.inputs, T: p.Rows * c.Layers, Cols: c.PerLayer,
		Eps: c.RMSNormEps / (by * by)})
}

// addPerLayer launches what adds the input of layer i to the residual stream.
func (p *pass) addPerLayer(i int) {
	if c := p.model.Config; c.PerLayer > 0 {
		s, w := p.memory, &p.model.layers[i].perLayer
		gate := kernels.Projection{Name: kernels.InputGate, W: w.gate, In: s.x, X: s.perLayer.gated, Store: true,
			T: p.Rows, Class: p.Class, Generated: kernels.Generated(p.Generated), Workspace: s.hiddenWorkspace()}
		p.perLayerInput(i, gate, kernels.PerLayerGate{T: p.Rows}, kernels.Projection{X: s.x, T: p.Rows, Class: p.Class,
			Generated: gate.Generated, Workspace: s.innerWorkspace()})
	}
}

// addSampledPerLayer is addPerLayer for the sampled rows of a prefill pass.
func (p *pass) addSampledPerLayer(i int) {
	if c := p.model.Config; c.PerLayer > 0 {
		s, w := p.memory, &p.model.layers[i].perLayer
		gate := kernels.Projection{Name: kernels.InputGate, W: w.gate, In: s.sampledX, X: s.perLayer.gated, Store: true,
			RowIndex: s.sampledIndex, T: p.Samples, Workspace: s.hiddenWorkspace()}
		p.perLayerInput(i, gate, kernels.PerLayerGate{RowIndex: s.Rows.Sample, T: p.Samples},
			kernels.Projection{X: s.sampledX, RowIndex: s.sampledIndex, T: p.Samples, Workspace: s.innerWorkspace()})
	}
}

// perLayerInput launches the three ops, of which rows, class and workspace are set.
func (p *pass) perLayerInput(i int, gate kernels.Projection, activate kernels.PerLayerGate, project kernels.Projection) {
	c, m, w := p.model.Config, p.memory.perLayer, &p.model.layers[i].perLayer
	p.launch(gate)
	activate.X, activate.Inputs, activate.Activation = m.gated, m.inputs, c.Activation
	activate.Layer, activate.Layers, activate.Cols, activate.Scale = i, c.Layers, c.PerLayer, c.streamDivisor()
	p.launch(activate)
	project.Name, project.W, project.In = kernels.InputProjection, w.projection, m.gated
	p.project(project, i, w.after)
}
