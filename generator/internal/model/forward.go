package model

import (
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Shape determines the launches of a pass. The host knows all of it before the pass.
type Shape struct {
	Class kernels.Class // of the pass
	Rows  int           // token rows, padding included
	// Samples is the number of sampled rows, padding included. With 0 the pass computes no
	// logits, and a prefill pass ends at the keys and values of the last layer.
	Samples int
	// Follow has the draft model compute its keys and values beside a decode pass, so that it can guess in later ones.
	// In verify and prefill passes it always does.
	Follow bool
	// Queries, if it is more than 1, makes a pass of the decode class a verify pass: its rows come in groups of so
	// many, each with the last token of a sequence and drafts for those after it. All of them are sampled.
	Queries int
	// Generated is the number of generated rows of a mixed pass, padding included; 0: the pass is none. They come first, and
	// rows of prompts follow. Each is the only row of its sequence. Only a prefill pass can be a mixed one. See mixed.go.
	Generated int
	// Apart makes a pass whose ops may also be launched by themselves, again and again: none waits for what another one of
	// the same pass has written, see [kernels.Tags], or relies on which one is before it. It has the same results.
	Apart bool
}

// verifies reports whether the pass is a verify pass.
func (s Shape) verifies() bool { return s.Queries > 1 }

// groups returns the rows of a group in a verify pass, and 0 for other passes.
func (s Shape) groups() int {
	if s.verifies() {
		return s.Queries
	}
	return 0
}

// Forward launches one pass on s: from the step's descriptor, which [StepMemory.Write]
// put into the descriptor ring, to the records of the sampled tokens. The launches depend
// on the shape alone, so a captured pass can be replayed for any step of that shape.
// Errors are those of the launches; the first one ends the pass.
func (m *Model) Forward(s device.Stream, memory *StepMemory, shape Shape) error {
	p := pass{Shape: shape, model: m, memory: memory, stream: s}
	if shape.Class == kernels.Prefill {
		p.prefill()
	} else {
		p.decode()
	}
	return p.err
}

// decode launches a pass over the newest token of each sequence, and in a verify pass over drafts for the tokens after
// it. A row's sums have the same order in both.
func (p *pass) decode() {
	p.launch(p.stage())
	p.draft()
	p.tags = p.tagged()
	p.launch(p.embed()) // x = embedding[token]
	p.perLayerInputs()
	for i := range p.model.layers {
		p.capture(i)
		p.decodeLayer(i)
	}
	if p.Samples > 0 {
		p.decodeResults()
	}
	if p.verifies() {
		p.launch(p.accept())
	}
	p.followEagle()
}

// decodeResults launches what gives the sampled rows of a pass of the decode class their results.
func (p *pass) decodeResults() {
	if p.model.Config.Embedding != nil {
		p.launch(p.vector())
		return
	}
	p.launch(p.head()) // logits = Whead·rmsnorm(x) of the sampled rows
	p.exchangeLogits()
	p.launch(p.sample())
}

// decodeLayer launches layer i of a pass of the decode class.
func (p *pass) decodeLayer(i int) {
	p.layer(i, p.attend(i, kernels.Handover{}))
}

// layer launches layer i of a pass of the decode class with this attention.
func (p *pass) layer(i int, attend kernels.Attend) {
	h := p.handovers(i)
	p.lookAhead(i, &h)
	attend.Handover = h.attend
	if p.model.Config.Latent != nil {
		p.keys(i, h.qkv)
		p.attention(i, attend)
	} else {
		qkv, attend := p.deferRoPE(p.qkv(i, h.qkv), attend)
		if p.tags {
			attend.TagsPost = qkv.Post()
		}
		p.launch(qkv)            // q, k, v = Wqkv·rmsnorm(x); k and v go to the KV pool
		p.attendParts(i, attend) // attended = softmax(q·K/√d)·V
	}
	p.project(p.outputProjection(i, h.output), i, p.model.layers[i].afterAttention) // x += Wo·attended
	p.feedForward(i, h.gateUp, h.down)
}

// feedForward launches the feed-forward of layer i, or its experts, and what adds the layer's own embedding.
func (p *pass) feedForward(i int, gateUp, down kernels.Handover) {
	if p.model.layers[i].sparse() {
		p.sparseFeedForward(i)
	} else {
		p.gateUpParts(i, p.gateUp(i, gateUp))                                       // inner = silu(Wgate·rmsnorm(x)) ⊙ Wup·rmsnorm(x)
		p.project(p.downProjection(i, down), i, p.model.layers[i].afterFeedForward) // x += Wdown·inner
	}
	p.addPerLayer(i)
}

// sparseFeedForward launches the experts of layer i, and the feed-forward of all rows beside them.
func (p *pass) sparseFeedForward(i int) {
	if p.memory.sharedInner.Bytes() == 0 {
		p.experts(p.layerExperts(i))
		return
	}
	p.launch(p.sharedGateUp(i)) // shared = silu(Wgate·rmsnorm(x)) ⊙ Wup·rmsnorm(x)
	if p.model.Config.expertsBeside() {
		p.expertsBeside(i, p.sharedDownProjection(i), p.layerExperts(i))
		return
	}
	p.experts(p.layerExperts(i))
	p.sharedDown(i, p.sharedDownProjection(i), p.Rows) // x += Wdown·shared
}

// prefill launches a pass over tokens of prompts, in a mixed pass after generated rows. The formulas are those of decode.
// In the last layer every row leaves its keys and values; after that only the sampled rows matter.
// They are few, so ops of the decode class compute them, on rows gathered into sampledX.
func (p *pass) prefill() {
	p.launch(p.stage())
	p.draft()
	p.prefillLayers()
	if p.Samples > 0 {
		p.sampledRows()
	}
	p.followEagle()
}

// prefillLayers launches the layers of a prefill pass, the last one only up to its keys and values.
func (p *pass) prefillLayers() {
	p.handsParts = p.canHandParts()
	p.launch(p.embed())
	p.perLayerInputs()
	last := len(p.model.layers) - 1
	for i := range last {
		p.capture(i)
		h := p.handovers(i)
		p.keys(i, h.qkv)
		p.attention(i, p.attend(i, h.attend))
		p.project(p.outputProjection(i, h.output), i, p.model.layers[i].afterAttention)
		p.feedForward(i, h.gateUp, h.down)
	}
	p.capture(last)
	p.keys(last, p.handovers(last).qkv)
}

// sampledRows launches the rest of a prefill pass, for the sampled rows alone.
func (p *pass) sampledRows() {
	last := len(p.model.layers) - 1
	p.attention(last, p.attend(last, p.handovers(last).attend))
	p.launch(p.gatherSampled())
	p.completeSampled()
	p.project(p.sampledOutputProjection(last), last, p.model.layers[last].afterAttention)
	if p.model.layers[last].sparse() {
		p.sampledExperts(last)
	} else {
		p.gateUpParts(last, p.sampledGateUp(last))
		p.project(p.sampledDownProjection(last), last, p.model.layers[last].afterFeedForward)
	}
	p.addSampledPerLayer(last)
	if p.model.Config.Embedding != nil {
		p.launch(p.sampledVector())
		return
	}
	p.launch(p.sampledHead())
	p.exchangeLogits()
	p.launch(p.sample())
}

// handovers are the hand-overs of a layer's ops.
type handovers struct{ qkv, attend, output, gateUp, down kernels.Handover }

// handovers returns those of layer i: each op rounds its results for the next product, if that takes the type in which
// this one rounds. Attention rounds in any type. The first QKV of a pass rounds its own input, and the last attention of
// a prefill pass hands nothing over, since only sampled rows follow it. Results that are normed before they are added
// are not the next product's input, so their projection hands nothing over. Kernels of few rows neither take nor leave
// rounded rows, but for output and down projections over quantised weights and the QKV after them: their gates round
// their input themselves, which takes no longer.
func (p *pass) handovers(i int) (h handovers) {
	m, s := p.model, p.memory
	if n := m.Config.ranks(); n > 1 && !p.handsParts {
		return h // exchanges carry rows of float32
	}
	if p.Class == kernels.Decode && m.Config.Eagle != nil {
		return h // a head's one layer is not worth it
	}
	defer func() { h.divide(m.Config.ranks()) }()
	w := &m.layers[i]
	qkv, output, gateUp, down := w.products()
	latent, last := m.Config.Latent != nil, i+1 == len(m.layers) // latent attention takes and leaves rows of float32
	if i > 0 && !m.layers[i-1].sparse() && !latent {
		_, _, _, before := m.layers[i-1].products()
		h.qkv.InputIsRounded = !m.Config.NormsAfter && p.Class.HandsOver(before, qkv)
	}
	if last && p.Class == kernels.Prefill {
		return h
	}
	if t := p.Class.HeadsHandoverType(m.Config.At(i).HeadDim, output...); t != 0 && !latent {
		h.attend = kernels.Handover{Rounded: s.roundedInner, DType: t}
		h.output.InputIsRounded = true
	}
	if w.sparse() {
		return h // experts take and leave rows of float32
	}
	if !m.Config.NormsAfter && p.Class.HandsOver(output, gateUp) && p.Class.HandoverType(gateUp...) != 0 {
		h.output.Rounded, h.output.Norm = s.roundedHidden, w.feedForwardNorm
		h.gateUp.InputIsRounded = true
	}
	if p.Class.HandsOver(gateUp, down) {
		h.gateUp.Rounded, h.down.InputIsRounded = s.roundedInner, true
	}
	if last {
		return h
	}
	next := &m.layers[i+1]
	if qkv, _, _, _ = next.products(); !latent && !m.Config.NormsAfter && p.Class.HandsOver(down, qkv) {
		h.down.Rounded, h.down.Norm = s.roundedHidden, next.attentionNorm
	}
	return h
}

// lookAhead names the weights that come after each op of layer i, where layers are dense.
func (p *pass) lookAhead(i int, h *handovers) {
	next := func(weights []kernels.Weight) (data [3]device.Buffer) {
		for i, w := range weights {
			data[i] = w.Data
		}
		return data
	}
	_, output, gateUp, down := p.model.layers[i].products()
	h.attend.Next = next(output)
	if p.model.layers[i].sparse() {
		return
	}
	h.output.Next, h.gateUp.Next = next(gateUp), next(down)
	if i+1 < len(p.model.layers) {
		qkv, _, _, _ := p.model.layers[i+1].products()
		h.down.Next = next(qkv)
	}
}

// pass launches ops until one fails.
type pass struct {
	Shape
	model  *Model
	target *Model // of a draft model's pass: the model that it guesses for
	memory *StepMemory
	stream device.Stream
	sent   kernels.Exchange // that of the op before a projection, on several ranks
	// handsParts is whether ranks hand parts of rounded rows over: see canHandParts.
	handsParts bool
	tags       bool // whether values between ops are tagged: see tagged
	err        error
}

func (p *pass) launch(op device.Op) {
	if p.err == nil {
		p.err = p.stream.Launch(op)
	}
}
