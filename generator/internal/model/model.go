package model

import (
	"math"

	"reel/kernels"
	"reel/kernels/device"
)

// Model is a model's weights on a device.
type Model struct {
	Config Config

	embedding kernels.Weight
	rope      device.Buffer // float32 [context][HeadDim/2][cos, sin]
	layers    []layer
	norm      device.Buffer // float32 [hidden]
	head      kernels.Weight
	uniform   bool            // all matrices of all layers have one element type
	taken     []device.Buffer // every allocation, to be freed
}

// layer is the weights of one transformer block.
type layer struct {
	attentionNorm device.Buffer  // float32 [hidden]
	q, k, v       kernels.Weight // [heads*HeadDim][hidden], [KVHeads*HeadDim][hidden] twice
	bias          device.Buffer  // float32 [q, k, v], of families that have it
	headNorms     device.Buffer  // float32 [q's, k's][HeadDim], of families that have them
	output        kernels.Weight // [hidden][heads*HeadDim]
	innerNorm     device.Buffer  // float32 [hidden]
	gate, up      kernels.Weight // [inner][hidden]
	down          kernels.Weight // [hidden][inner]
}

// Weights is a buffer that tells these weights from others.
func (m *Model) Weights() device.Buffer { return m.embedding.Data }

// Shape is what a step's launches depend on, and all of it is known to the host.
type Shape struct {
	Rows    int  // token rows, padding included
	Prefill bool // whether they are prompts' tokens, else each the one that a sequence generated last
	Samples int  // rows whose next token is drawn, padding included; 0 skips the head, and of a prompt what follows the last layer's keys and values
}

// Forward launches one step on s: the descriptor that StepMemory.Write put into the
// ring, through all layers, to the sampled tokens. It computes nothing itself
// and branches on nothing but the shape, so that what it launches can be captured.
func (m *Model) Forward(s device.Stream, l *StepMemory, sh Shape) error {
	p := pass{stream: s}
	T, N := sh.Rows, sh.Samples
	p.launch(kernels.Stage{Ring: l.ring, Counter: l.counter, Layout: l.Layout, Slots: l.Slots, Rows: l.Rows, RingSlots: l.RingSlots, T: T, N: N})
	p.launch(kernels.Embed{Table: m.embedding, Rows: l.Rows, X: l.x, T: T})
	for i := range m.layers {
		m.block(&p, l, i, sh)
	}
	if N > 0 {
		head := kernels.Head{X: l.x, Norm: m.norm, W: m.head, Rows: l.Rows, Logits: l.logits, Workspace: kernels.Workspace{Rounded: l.scratch}, T: T, N: N, Eps: m.Config.RMSNormEps}
		if sh.Prefill {
			head.X, head.Rows.Sample, head.Class, head.T = l.picked, l.live, kernels.Prefill, N
		}
		p.launch(head)
		p.launch(kernels.Sample{Logits: l.logits, Rows: l.Rows, Slots: l.Slots, Results: l.results, T: T, N: N, Vocab: m.Config.Vocab, RingSlots: l.RingSlots, MaxSamples: l.MaxBatch})
	}
	return p.err
}

// block is transformer block i: attention and feed-forward, each added to the residual x.
func (m *Model) block(p *pass, l *StepMemory, i int, sh Shape) {
	c, w, T := m.Config, &m.layers[i], sh.Rows
	// A prompt's rows go from product to product as these leave them, where a GPU rounds them.
	onward := sh.Prefill && m.uniform
	var x, inner, nextNorm device.Buffer
	last := i+1 == len(m.layers)
	if onward && !last { // there sampled rows go on alone
		x, inner, nextNorm = l.scratch, l.scratchInner, m.layers[i+1].attentionNorm
	}
	qkv := kernels.QKV{X: l.x, Norm: w.attentionNorm, Q: w.q, K: w.k, V: w.v, Bias: w.bias, HeadNorms: w.headNorms, BeforeRoPE: l.raw, RoPE: m.rope, Rows: l.Rows, Slots: l.Slots, KV: l.KV,
		Out: l.q, Workspace: kernels.Workspace{Rounded: l.scratch, Partials: l.parts}, T: T, Layer: l.kvLayer(i), Hidden: c.Hidden, Heads: c.Heads, Eps: c.RMSNormEps, Class: classOf(sh.Prefill), Handover: kernels.Handover{InputIsRounded: onward && i > 0}}
	attend := kernels.Attend{Q: l.q, Rows: l.Rows, Slots: l.Slots, KV: l.KV, Out: l.attended, Workspace: l.work, T: T, Layer: l.kvLayer(i), Heads: c.Heads,
		Scale: float32(1 / math.Sqrt(float64(c.HeadDim))), Window: c.Window(i), Class: classOf(sh.Prefill), AfterQKV: true,
		Handover: kernels.Handover{Rounded: inner, DType: w.output.DType}}
	// What a generated row's heads want beside RoPE comes with attention.
	if !sh.Prefill && (c.Bias || c.HeadNorms) {
		qkv.DeferRoPE, attend.Post = true, qkv.Post()
	}
	p.launch(qkv)
	if last && sh.Prefill {
		m.sampled(p, l, attend, sh.Samples)
		return
	}
	p.launch(attend)
	p.launch(kernels.Projection{W: w.output, In: l.attended, X: l.x, Workspace: kernels.Workspace{Rounded: l.scratchInner, Partials: l.parts}, T: T, Class: classOf(sh.Prefill), Handover: kernels.Handover{InputIsRounded: onward, Rounded: x, Norm: w.innerNorm},
		Name: kernels.OutputProjection})
	p.launch(kernels.GateUp{X: l.x, Norm: w.innerNorm, Gate: w.gate, Up: w.up, Out: l.inner, Workspace: kernels.Workspace{Rounded: l.scratch, Partials: l.parts}, T: T, Eps: c.RMSNormEps,
		Class: classOf(sh.Prefill), Handover: kernels.Handover{InputIsRounded: onward, Rounded: inner}})
	p.launch(kernels.Projection{W: w.down, In: l.inner, X: l.x, Workspace: kernels.Workspace{Rounded: l.scratchInner, Partials: l.parts}, T: T, Class: classOf(sh.Prefill), Handover: kernels.Handover{InputIsRounded: onward, Rounded: x, Norm: nextNorm}, Name: kernels.DownProjection})
}

// sampled is what comes after a prompt's keys and values in the last layer. Only rows that are
// sampled go on from there, so they alone are computed, as generated rows are: in a
// prompt's way they would have to be many.
func (m *Model) sampled(p *pass, l *StepMemory, attend kernels.Attend, N int) {
	if N == 0 {
		return
	}
	c, w := m.Config, &m.layers[len(m.layers)-1]
	p.launch(attend)
	p.launch(kernels.GatherRows{X: l.x, Rows: l.Rows, Out: l.picked, Index: l.live, Cols: c.Hidden, T: attend.T, N: N})
	p.launch(kernels.Projection{W: w.output, In: l.attended, RowIndex: l.Rows.Sample, X: l.picked, T: N, Name: kernels.OutputProjection})
	p.launch(kernels.GateUp{X: l.picked, RowIndex: l.live, Norm: w.innerNorm, Gate: w.gate, Up: w.up, Out: l.inner, T: N, Eps: c.RMSNormEps})
	p.launch(kernels.Projection{W: w.down, In: l.inner, RowIndex: l.live, X: l.picked, T: N, Name: kernels.DownProjection})
}

// matrices returns the seven weight matrices of a layer.
func (l *layer) matrices() [7]kernels.Weight {
	return [...]kernels.Weight{l.q, l.k, l.v, l.output, l.gate, l.up, l.down}
}

// hasUniformDType reports whether all matrices of all layers have one element type.
func hasUniformDType(layers []layer) bool {
	for i := range layers {
		for _, w := range layers[i].matrices() {
			if w.DType != layers[0].q.DType {
				return false
			}
		}
	}
	return true
}

// pass launches ops until one fails.
type pass struct {
	stream device.Stream
	err    error
}

func (p *pass) launch(op device.Op) {
	if p.err == nil {
		p.err = p.stream.Launch(op)
	}
}

// classOf returns the launch class of a pass.
func classOf(prefill bool) kernels.Class {
	if prefill {
		return kernels.Prefill
	}
	return kernels.Decode
}
