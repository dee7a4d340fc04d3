package model

import (
	"math"

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
	op := kernels.Embed{Table: p.model.embedding, Rows: p.memory.Rows, X: p.memory.x, T: p.Rows}
	if e := p.model.Config.Eagle; e != nil {
		if op.X = p.memory.eagle.embedded; !e.Embedding {
			op.Table = p.target.embedding
		}
	}
	return op
}

func (p *pass) qkv(i int, h kernels.Handover) kernels.QKV {
	m, s, w := p.model, p.memory, &p.model.layers[i]
	x := s.x
	if m.Config.Eagle != nil {
		x = s.eagle.joined
	}
	return kernels.QKV{
		X: x, Norm: w.attentionNorm, Eps: m.Config.RMSNormEps,
		Q: w.q, K: w.k, V: w.v, Bias: w.bias, HeadNorms: w.headNorms, RoPE: m.ropeOf(i),
		Rows: s.Rows, Slots: s.Slots, KV: s.kvOf(i), Layer: s.kvLayer(i), Out: s.q, BeforeRoPE: s.beforeRoPE,
		T: p.Rows, Hidden: m.Config.layerInput(), Heads: m.Config.Heads,
		Class: p.Class, Workspace: s.hiddenWorkspace(), Handover: h,
	}
}

// ropeOf returns the table of a layer.
func (m *Model) ropeOf(i int) device.Buffer {
	if !m.Config.rotates(i) {
		return m.noRoPE
	}
	return m.rope
}

func (p *pass) attend(i int, h kernels.Handover) kernels.Attend {
	c, s := p.model.Config, p.memory
	return kernels.Attend{
		Q: s.q, Rows: s.Rows, Slots: s.Slots, KV: s.kvOf(i), Layer: s.kvLayer(i), Out: s.attended,
		T: p.Rows, Heads: c.Heads, Scale: float32(1 / math.Sqrt(float64(c.HeadDim))), Window: c.Window(i),
		Class: p.Class, Workspace: s.attendWorkspace, Handover: h,
		AfterQKV: true, Queries: p.Queries,
	}
}

// deferRoPE moves biases, head norms and RoPE from qkv into attend if the family has biases
// or head norms: a fused epilogue of the product cannot apply these. Only the decode class
// can defer, and no verify pass: there a row needs the keys of others that are as new. An attention over a view of the
// pages does not know where a row's own key goes, and one from a position on has no kernels for it.
func (p *pass) deferRoPE(qkv kernels.QKV, attend kernels.Attend) (kernels.QKV, kernels.Attend) {
	post := p.model.Config.Bias || p.model.Config.HeadNorms
	if post && !p.verifies() && attend.Rows == qkv.Rows && attend.First == 0 {
		qkv.DeferRoPE, attend.Post = true, qkv.Post()
	}
	return qkv, attend
}

func (p *pass) outputProjection(i int, h kernels.Handover) kernels.Projection {
	s := p.memory
	return kernels.Projection{
		Name: kernels.OutputProjection, W: p.model.layers[i].output, In: s.attended, X: s.x,
		T: p.Rows, Class: p.Class, Workspace: s.innerWorkspace(), Handover: h,
	}
}

func (p *pass) gateUp(i int, h kernels.Handover) kernels.GateUp {
	s, w := p.memory, &p.model.layers[i]
	return kernels.GateUp{
		X: s.x, Norm: w.feedForwardNorm, Eps: p.model.Config.RMSNormEps, Gate: w.gate, Up: w.up, Out: s.inner,
		T: p.Rows, Class: p.Class, Workspace: s.hiddenWorkspace(), Handover: h,
	}
}

func (p *pass) downProjection(i int, h kernels.Handover) kernels.Projection {
	s := p.memory
	return kernels.Projection{
		Name: kernels.DownProjection, W: p.model.layers[i].down, In: s.inner, X: s.x,
		T: p.Rows, Class: p.Class, Workspace: s.innerWorkspace(), Handover: h,
	}
}

func (p *pass) head() kernels.Head {
	m, s := p.model, p.memory
	return kernels.Head{
		X: s.x, Norm: m.norm, Eps: m.Config.RMSNormEps, W: m.head, Rows: s.Rows, Logits: s.logits,
		T: p.Rows, N: p.Samples, Class: p.Class, Workspace: kernels.Workspace{Rounded: s.roundedHidden},
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

func (p *pass) accept() kernels.Accept {
	s := p.memory
	return kernels.Accept{Rows: s.Rows, Slots: s.Slots, Records: s.records, T: p.Rows, Queries: p.Queries,
		RingSlots: s.RingSlots, MaxSamples: s.MaxSamples}
}

// The ops of the sampled rows after the last attention of a prefill pass. They have
// p.Samples rows, of which the sample index marks the padding.

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
		Name: kernels.OutputProjection, W: p.model.layers[i].output,
		In: s.attended, RowIndex: s.Rows.Sample, X: s.sampledX, T: p.Samples,
	}
}

func (p *pass) sampledGateUp(i int) kernels.GateUp {
	s, w := p.memory, &p.model.layers[i]
	return kernels.GateUp{
		X: s.sampledX, RowIndex: s.sampledIndex, Norm: w.feedForwardNorm, Eps: p.model.Config.RMSNormEps,
		Gate: w.gate, Up: w.up, Out: s.inner, T: p.Samples,
	}
}

func (p *pass) sampledDownProjection(i int) kernels.Projection {
	s := p.memory
	return kernels.Projection{
		Name: kernels.DownProjection, W: p.model.layers[i].down,
		In: s.inner, RowIndex: s.sampledIndex, X: s.sampledX, T: p.Samples,
	}
}

func (p *pass) sampledHead() kernels.Head {
	head := p.head()
	head.X, head.T, head.Rows.Sample = p.memory.sampledX, p.Samples, p.memory.sampledIndex
	return head
}
