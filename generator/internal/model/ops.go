package model

import (
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// The ops of a pass, bound to the model's weights and to the step memory. Layer i is the
// index of a transformer block.

func (p *pass) stage() kernels.Stage {
	s := p.memory
	return kernels.Stage{
		Ring: s.descriptors, Counter: s.counter, Layout: s.Layout, RingSlots: s.RingSlots,
		Slots: s.Slots, Rows: s.Rows, T: p.Rows, N: p.Samples,
	}
}

func (p *pass) embed() kernels.Embed {
	op := kernels.Embed{Table: p.model.embedding, Rows: p.memory.Rows, X: p.memory.x, T: p.Rows,
		Scale: p.model.embeddingScale, Tags: p.embedTags()}
	if e := p.model.Config.Eagle; e != nil {
		if op.X = p.memory.eagle.embedded; !e.Embedding {
			op.Table = p.target.embedding
		}
	}
	return op
}

func (p *pass) qkv(i int, h kernels.Handover) kernels.QKV {
	m, s, w, from := p.model, p.memory, &p.model.layers[i], p.model.Config.kvSource(i)
	at := m.Config.pageLayer(from)
	x := s.x
	if m.Config.Eagle != nil {
		x = s.eagle.joined
	}
	return kernels.QKV{
		X: x, Norm: w.attentionNorm, Eps: m.Config.layerEps(), HeadEps: m.Config.RMSNormEps,
		Q: w.q, K: w.k, V: w.v, Bias: w.bias, HeadNorms: w.headNorms, WidthNorms: w.widthNorms, RoPE: m.ropeOf(i),
		ValueNorms: m.Config.ValueNorms && from == i, QueriesOnly: from != i,
		Rows: s.Rows, Slots: s.Slots, KV: s.kvOf(at), Layer: s.kvLayer(at), Out: s.q, BeforeRoPE: s.beforeRoPE,
		T: p.Rows, Hidden: m.Config.layerInput(), Heads: m.Config.heads(),
		Class: p.Class, Generated: kernels.Generated(p.Generated), Workspace: s.hiddenWorkspace(), Handover: h,
		Tags: p.layerTags(i).qkv,
	}
}

// ropeOf returns the table of a layer.
func (m *Model) ropeOf(i int) device.Buffer {
	switch {
	case !m.Config.rotates(i):
		return m.noRoPE
	case m.Config.local(i):
		return m.localRoPE
	}
	return m.rope
}

func (p *pass) attend(i int, h kernels.Handover) kernels.Attend {
	c, s := p.model.Config, p.memory
	at := c.pageLayer(c.kvSource(i))
	out := s.own.attended
	if c.Latent != nil {
		out = s.latent.sums
	}
	return kernels.Attend{
		Q: s.q, Rows: s.Rows, Slots: s.Slots, KV: s.kvOf(at), Layer: s.kvLayer(at), Out: out,
		T: p.Rows, Heads: c.heads(), Scale: c.attentionScale(), Softcap: c.ScoreCap, Sinks: p.model.layers[i].sinks,
		Window: c.Window(i),
		Class:  p.Class, Generated: kernels.Generated(p.Generated), Workspace: s.attendWorkspace, Handover: h,
		AfterQKV: !p.Apart, Queries: p.Queries, Tags: p.layerTags(i).attend,
	}
}

// deferRoPE moves biases, head norms and RoPE from qkv into attend if the family has biases
// or norms of q and k: a fused epilogue of the product cannot apply these. Only the decode class
// can defer, and no verify pass: there a row needs the keys of others that are as new. An attention over a view of the
// pages does not know where a row's own key goes, and one from a position on, of wide heads or of keys of another layer
// has no kernels for it.
func (p *pass) deferRoPE(qkv kernels.QKV, attend kernels.Attend) (kernels.QKV, kernels.Attend) {
	if p.model.Config.preparesHeads() && !p.verifies() && attend.Rows == qkv.Rows && attend.First == 0 &&
		!qkv.QueriesOnly && !kernels.WideHeads(qkv.KV.HeadDim) {
		qkv.DeferRoPE, attend.Post = true, qkv.Post()
	}
	return qkv, attend
}

func (p *pass) outputProjection(i int, h kernels.Handover) kernels.Projection {
	s := p.memory
	return kernels.Projection{
		Name: kernels.OutputProjection, W: p.model.layers[i].output, Bias: p.model.layers[i].outputBias, In: s.attended, X: s.x,
		T: p.Rows, Class: p.Class, Generated: kernels.Generated(p.Generated), Workspace: s.innerWorkspace(), Handover: h,
		Tags: p.layerTags(i).output,
	}
}

func (p *pass) gateUp(i int, h kernels.Handover) kernels.GateUp {
	s, w := p.memory, &p.model.layers[i]
	return kernels.GateUp{
		X: s.x, Norm: w.feedForwardNorm, Eps: p.model.Config.layerEps(), Gate: w.gate, Up: w.up, Out: s.own.inner,
		Activation: p.model.Config.Activation, T: p.Rows, Class: p.Class, Generated: kernels.Generated(p.Generated),
		Workspace: s.hiddenWorkspace(), Handover: h, Scale: 1 / p.model.Config.innerDivisor(), Tags: p.layerTags(i).gateUp,
	}
}

func (p *pass) downProjection(i int, h kernels.Handover) kernels.Projection {
	s := p.memory
	return kernels.Projection{
		Name: kernels.DownProjection, W: p.model.layers[i].down, In: s.inner, X: s.x,
		T: p.Rows, Class: p.Class, Generated: kernels.Generated(p.Generated), Workspace: s.innerWorkspace(), Handover: h,
		Tags: p.layerTags(i).down,
	}
}

// project launches a projection of layer i. after is the norm of its results; none: they are added as they are. With a
// RowIndex of the projection the rows of X are the sampled ones.
func (p *pass) project(op kernels.Projection, i int, after device.Buffer) {
	c := p.model.Config
	if after.IsZero() {
		if c.ranks() > 1 {
			p.projectParts(op, nil)
		} else {
			p.launch(op)
		}
		return
	}
	add := kernels.AddNorm{Branch: p.memory.branch, Norm: after, X: op.X, T: op.T, Cols: c.Hidden, Eps: c.RMSNormEps}
	if !op.RowIndex.IsZero() {
		add.RowIndex = p.memory.sampledIndex
	}
	if op.Name == kernels.DownProjection {
		add.Eps /= c.innerDivisor() * c.innerDivisor()
	}
	add.Scale = p.scaleAfter(i, op.Name)
	if c.ranks() > 1 {
		p.projectParts(op, &add)
		return
	}
	op.X, op.Store = add.Branch, true
	p.launch(op)
	p.launch(add)
}

// scaleAfter returns what the residual stream is multiplied by after a projection of layer i: the layer's number after
// its last one, and 0, which is 1, after others.
func (p *pass) scaleAfter(i int, name kernels.ProjectionName) float32 {
	last := kernels.DownProjection
	if p.model.Config.PerLayer > 0 {
		last = kernels.InputProjection
	}
	if scale := p.model.layers[i].scale; name == last && scale != 1 {
		return scale
	}
	return 0
}

func (p *pass) head() kernels.Head {
	m, s := p.model, p.memory
	return kernels.Head{
		X: s.x, Norm: m.norm, Eps: m.Config.streamEps(), W: m.head, Rows: s.Rows, Logits: s.own.logits,
		Softcap: m.Config.LogitsCap,
		T:       p.Rows, N: p.Samples, Workspace: s.hiddenWorkspace(), Tags: p.headTags(),
	}
}

func (p *pass) sample() kernels.Sample {
	s := p.memory
	return kernels.Sample{
		Logits: s.logits, Rows: s.Rows, Slots: s.Slots, Records: s.records, Edited: s.edited,
		RingSlots: s.RingSlots, T: p.Rows, N: p.Samples, Vocab: p.model.Config.Vocab, MaxSamples: s.MaxSamples,
		Queries: p.groups(),
	}
}

// vector takes the place of head and sample in a model for embeddings.
func (p *pass) vector() kernels.Vector {
	m, s := p.model, p.memory
	return kernels.Vector{X: s.x, Index: s.Rows.Sample, Norm: m.norm, Eps: m.Config.streamEps(), Rows: s.Rows,
		Slots: s.Slots, Records: s.records, Vectors: s.vectors, T: p.Rows, N: p.Samples, Cols: m.Config.Hidden,
		RingSlots: s.RingSlots, MaxSamples: s.MaxSamples}
}

func (p *pass) accept() kernels.Accept {
	s := p.memory
	return kernels.Accept{Rows: s.Rows, Slots: s.Slots, Records: s.records, T: p.Rows, Queries: p.Queries,
		RingSlots: s.RingSlots, MaxSamples: s.MaxSamples}
}

// The ops of the sampled rows after the last attention of a prefill pass. They have
// p.Samples rows, of which the sample index marks the padding. One row has the fastest kernels, so a pass in which several
// prompts end has another shape.

func (p *pass) gatherSampled() kernels.GatherRows {
	s := p.memory
	return kernels.GatherRows{
		X: s.x, Rows: s.Rows, Out: s.sampledX, Index: s.sampledIndex,
		Cols: p.model.Config.Hidden, T: p.Rows, N: p.Samples,
	}
}

func (p *pass) sampledOutputProjection(i int) kernels.Projection {
	s := p.memory
	return kernels.Projection{
		Name: kernels.OutputProjection, W: p.model.layers[i].output, Bias: p.model.layers[i].outputBias,
		In: s.attended, RowIndex: s.Rows.Sample, X: s.sampledX, T: p.Samples, Workspace: s.innerWorkspace(),
	}
}

func (p *pass) sampledGateUp(i int) kernels.GateUp {
	s, w := p.memory, &p.model.layers[i]
	return kernels.GateUp{
		X: s.sampledX, RowIndex: s.sampledIndex, Norm: w.feedForwardNorm, Eps: p.model.Config.layerEps(),
		Gate: w.gate, Up: w.up, Out: s.own.inner, Activation: p.model.Config.Activation, T: p.Samples,
		Workspace: s.hiddenWorkspace(), Scale: 1 / p.model.Config.innerDivisor(),
	}
}

func (p *pass) sampledDownProjection(i int) kernels.Projection {
	s := p.memory
	return kernels.Projection{
		Name: kernels.DownProjection, W: p.model.layers[i].down,
		In: s.inner, RowIndex: s.sampledIndex, X: s.sampledX, T: p.Samples, Workspace: s.innerWorkspace(),
	}
}

func (p *pass) sampledVector() kernels.Vector {
	v := p.vector()
	v.X, v.Index, v.T = p.memory.sampledX, p.memory.sampledIndex, p.Samples
	return v
}

func (p *pass) sampledHead() kernels.Head {
	head := p.head()
	head.X, head.T, head.Rows.Sample = p.memory.sampledX, p.Samples, p.memory.sampledIndex
	return head
}
