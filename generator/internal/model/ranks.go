package model

import (
	"fmt"
	"strings"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// A pass on several ranks is the pass of one, launched on all of them. Each computes a part of every product's outputs:
// of the heads of q, k and v, of the feed-forward's width, of the hidden columns that the output and the down
// projection add, and of the vocabulary. An exchange after each product gives all ranks all of its outputs, or the
// product does so itself, with tags (tags.go). No sum is divided, so a row has the same bits as on one rank. Everything
// else is the same on all ranks: embedding, norms, routers, residual stream, slots, sampling and draft models; and latent
// attention up to its output projection, with its pages.

// ranks returns the ranks that share a pass.
func (c Config) ranks() int { return max(1, c.Ranks) }

// dividesHeads reports whether each rank has a part of the heads. Norms over all heads of q or k need them all, and all
// heads of latent attention read one latent: there each rank computes all.
func (c Config) dividesHeads() bool { return c.ranks() > 1 && !c.WidthNorms && c.Latent == nil }

// heads returns the query heads of a rank.
func (c Config) heads() int {
	if c.dividesHeads() {
		return c.Heads / c.ranks()
	}
	return c.Heads
}

// kvHeads returns the KV heads of a rank. If there are fewer than ranks, or they do not divide evenly, several ranks
// have the same ones.
func (c Config) kvHeads() int {
	switch n := c.ranks(); {
	case !c.dividesHeads():
		return c.KVHeads
	case c.KVHeads%n == 0:
		return c.KVHeads / n
	case n%c.KVHeads == 0:
		return 1
	}
	return c.heads() // one for each query head
}

// queryHead returns the model's query head that a rank has as its i-th.
func (c Config) queryHead(rank, i int) int {
	if !c.dividesHeads() {
		return i
	}
	return rank*c.heads() + i
}

// kvHead returns the model's KV head that a rank has as its i-th: that of the first query head which reads it.
func (c Config) kvHead(rank, i int) int {
	return c.queryHead(rank, i*(c.heads()/c.kvHeads())) / (c.Heads / c.KVHeads)
}

// part returns how many of width outputs a rank computes.
func (c Config) part(width int) int {
	if c.ranks() == 1 {
		return width
	}
	return kernels.PartOf(width, c.ranks())
}

// CheckRanks returns an error if the model's pass cannot be divided between so many ranks.
func (c Config) CheckRanks(ranks int) error {
	switch {
	case ranks < 1 || ranks > device.MaxRanks:
		return fmt.Errorf("%w: %d GPUs, at most %d", ErrUnsupported, ranks, device.MaxRanks)
	case c.Heads%ranks != 0:
		return fmt.Errorf("%w: %d query heads do not divide between %d GPUs", ErrUnsupported, c.Heads, ranks)
	case ranks > 1 && c.OutputBias && c.NormsAfter:
		return fmt.Errorf("%w: an output bias before a norm, on several GPUs", ErrUnsupported)
	case ranks > 1 && (c.expertsBeside() || c.PerLayer > 0 || c.SharedKV != nil):
		return fmt.Errorf("%w: experts beside a feed-forward, embeddings of layers, or layers that share keys and values, "+
			"on several GPUs", ErrUnsupported)
	}
	return nil
}

// parts are the results that a rank computes, before an exchange. With one rank they are the buffers of all results.
type parts struct {
	attended device.Buffer // float32 [MaxRows][heads*HeadDim]
	inner    device.Buffer // float32 [MaxRows][part of inner]
	// sharedInner is float32 [MaxRows][part of Experts.Shared], or none.
	sharedInner device.Buffer
	branch      device.Buffer // float32 [MaxRows][part of hidden]
	logits      device.Buffer // float32 [MaxSamples][part of vocab]; of a model for embeddings none
	// gathered are float32 [MaxRows][hidden]: the columns of all ranks after attention, and after the feed-forward.
	// They take turns, since an exchange must not write where a slower rank still reads the one before.
	gathered [2]device.Buffer
}

// partBuffers lists what ranks need beside the buffers of one. With one rank the parts are those.
func (s *StepMemory) partBuffers(dev tracked, c Config) (list []wantedBuffer) {
	if c.ranks() == 1 {
		return nil
	}
	g, rows := s.Geometry, max(s.MaxRows, s.MaxSamples)
	if c.dividesHeads() {
		list = append(list, wantedBuffer{&s.own.attended, dev.Uncleared, 4 * int64(rows*c.heads()*c.wide().HeadDim)})
	}
	if c.Embedding == nil {
		list = append(list, wantedBuffer{&s.own.logits, dev.Uncleared, 4 * int64(g.MaxSamples*c.part(c.Vocab))})
	}
	if c.sharedWidth() > 0 {
		list = append(list, wantedBuffer{&s.own.sharedInner, dev.Uncleared, 4 * int64(rows*c.part(c.sharedWidth()))})
	}
	return append(list, wantedBuffer{&s.own.inner, dev.Uncleared, 4 * int64(rows*c.most(Config.innerPart))},
		wantedBuffer{&s.own.branch, dev.Uncleared, 4 * int64(rows*c.part(c.Hidden))},
		wantedBuffer{&s.own.gathered[0], dev.Uncleared, 4 * int64(rows*c.Hidden)},
		wantedBuffer{&s.own.gathered[1], dev.Uncleared, 4 * int64(rows*c.Hidden)})
}

// signalsOf returns the signals of a device of several ranks; none of memory that is no device, as a plan's.
func signalsOf(dev device.Memory) (s device.Signals) {
	if d, ok := dev.(device.Device); ok && d.Capabilities().Ranks != nil {
		s = d.Capabilities().Ranks.Signals
	}
	return s
}

// innerPart returns the elements that a rank's results of a row's gates take.
func (c Config) innerPart() int {
	if c.Experts == nil {
		return c.part(c.Inner)
	}
	return max(c.part(c.Inner), c.Experts.Used*c.part(c.Experts.Inner))
}

// setParts makes the parts of one rank the buffers of all results.
func (s *StepMemory) setParts(c Config) {
	if c.ranks() == 1 {
		s.own = parts{attended: s.attended, inner: s.inner, sharedInner: s.sharedInner, branch: s.branch, logits: s.logits}
	}
	if !c.dividesHeads() {
		s.own.attended = s.attended
	}
}

// exchange launches the exchange of rows of width columns, if there are several ranks.
func (p *pass) exchange(part, all device.Buffer, rows, width int) {
	if p.model.Config.ranks() > 1 {
		p.launch(p.exchangeOf(part, all, rows, width))
	}
}

// exchangeOf returns the exchange of rows of width columns that are divided by [kernels.PartOf].
func (p *pass) exchangeOf(part, all device.Buffer, rows, width int) kernels.Exchange {
	return kernels.Exchange{Part: part, All: all, Signals: p.memory.signals, T: rows, Width: width,
		PartCols: p.model.Config.part(width), Ranks: p.model.Config.ranks()}
}

// attendParts launches the attention of layer i over a part of the heads, which gives all ranks its results.
func (p *pass) attendParts(i int, op kernels.Attend) {
	if c := p.model.Config.At(i); c.dividesHeads() {
		op.Spread = handed(p.exchangeOf(op.Out, p.memory.attended, op.T, c.Heads*c.HeadDim), op.Handover)
		op.Spread.PartCols = c.heads() * c.HeadDim
		if op.Sends() {
			op.Spread = op.Spread.TakenBy(p.model.layers[i].output)
		}
		p.sent = op.Spread
	}
	p.launch(op)
}

// gateUpParts launches the gates of layer i, and gives all ranks their results.
func (p *pass) gateUpParts(i int, op kernels.GateUp) {
	if c := p.model.Config.At(i); c.ranks() > 1 {
		op.Spread = handed(p.exchangeOf(op.Out, p.memory.inner, op.T, c.Inner), op.Handover)
		if op.Sends() {
			op.Spread = op.Spread.TakenBy(p.model.layers[i].down)
		}
		p.sent = op.Spread
	}
	p.launch(op)
}

// expertParts returns both halves of the experts of one of several ranks, each with the exchange that gives all ranks its
// results.
func (p *pass) expertParts(gates kernels.ExpertGateUp, down kernels.ExpertDown) (kernels.ExpertGateUp,
	kernels.ExpertDown) {
	s, c := p.memory, p.model.Config
	gates.Spread = p.exchangeOf(gates.Out, s.inner, gates.T*c.Experts.Used, c.Experts.Inner)
	x := down.X
	down.X, down.Store = s.own.branch, true
	down.Spread = p.exchangeOf(down.X, s.own.gathered[1], down.T, c.Hidden)
	down.Spread.X = x
	down.TakeFrom(&gates)
	return gates, down
}

// sharedDown launches the down projection of the experts that all rows share. Its exchange comes between two that write
// to one buffer.
func (p *pass) sharedDown(i int, op kernels.Projection, rows int) {
	p.exchange(p.memory.own.sharedInner, p.memory.sharedInner, rows, p.model.Config.sharedWidth())
	p.project(op, i, device.Buffer{})
}

// exchangeLogits gives all ranks the logits, of which each then draws the same tokens.
func (p *pass) exchangeLogits() {
	p.exchange(p.memory.own.logits, p.memory.logits, p.Samples, p.model.Config.Vocab)
}

// projectParts launches a projection of which each rank computes some columns, which gives all ranks the sum, or with a
// norm that follows the results alone.
func (p *pass) projectParts(op kernels.Projection, add *kernels.AddNorm) {
	s, x, bias := p.memory, op.X, op.Bias
	gathered := s.own.gathered[1]
	if op.Name == kernels.OutputProjection {
		gathered = s.own.gathered[0]
	}
	op.X, op.Store, op.Bias = s.own.branch, true, device.Buffer{}
	op.Spread = p.exchangeOf(s.own.branch, gathered, op.T, p.model.Config.Hidden)
	if add == nil {
		op.Spread.X, op.Spread.Bias = x, bias
	}
	op.Spread = handed(op.Spread, op.Handover)
	op.Before, p.sent = p.sent, kernels.Exchange{}
	p.launch(op)
	if add != nil {
		add.Branch = gathered
		p.launch(*add)
	}
}

// canHandParts reports whether ranks hand parts of rounded rows over in a prefill pass. Then all products of all layers
// but the last one do, so that no op reads the residual stream as a whole, of which each rank has a part.
func (p *pass) canHandParts() bool {
	m, n := p.model, p.model.Config.ranks()
	c := m.Config
	// Parts are whole blocks of 64 columns, and those with sums of squares whole blocks of 128.
	if !c.dividesHeads() || c.Experts != nil || c.NormsAfter || c.OutputBias || p.captures() != nil || len(m.layers) < 2 ||
		c.Hidden%(128*n) != 0 || c.Inner%(64*n) != 0 || c.Inner%128 != 0 || c.heads()*c.HeadDim%64 != 0 ||
		c.Heads*c.HeadDim%128 != 0 {
		return false
	}
	for i := range m.layers[:len(m.layers)-1] {
		_, output, gateUp, down := m.layers[i].products()
		qkv, _, _, _ := m.layers[i+1].products()
		if p.Class.HeadsHandoverType(c.At(i).HeadDim, output...) == 0 || !p.Class.HandsOver(output, gateUp) ||
			!p.Class.HandsOver(gateUp, down) || !p.Class.HandsOver(down, qkv) {
			return false
		}
	}
	return true
}

// divide marks the rows that are handed over as those of several ranks, of which each has a part.
func (h *handovers) divide(ranks int) {
	for _, each := range []*kernels.Handover{&h.attend, &h.output, &h.gateUp, &h.down} {
		if ranks > 1 && !each.Rounded.IsZero() {
			each.Ranks = ranks
		}
	}
}

// handed returns the exchange after an op that may have handed its part over.
func handed(op kernels.Exchange, h kernels.Handover) kernels.Exchange {
	op.Rounded, op.Squares = h.Rounded, !h.Norm.IsZero()
	return op
}

// completeSampled gives all ranks the sampled rows of the residual stream, of which each has a part where parts were
// handed over.
func (p *pass) completeSampled() {
	if c := p.model.Config; p.handsParts {
		p.launch(kernels.Complete{X: p.memory.sampledX, Signals: p.memory.signals, T: p.Samples, Width: c.Hidden,
			Ranks: c.ranks()})
	}
}

// RankRows returns how many of the rows of a weight, one of t.Weights, a rank has.
func (c Config) RankRows(t TensorSpec, rows int) int {
	if c.ranks() == 1 || !t.Matrix() {
		return rows
	}
	switch t.Kind {
	case FeedForwardTensor, HeadTensor:
		return c.part(rows)
	case ExpertTensor:
		return c.Experts.Count * c.part(rows/c.Experts.Count)
	case AttentionTensor:
		c = c.At(t.layer)
		switch {
		case strings.HasSuffix(t.Llama, oProj):
			return c.part(rows)
		case !c.dividesHeads():
			return rows
		case rows == c.KVHeads*c.HeadDim:
			return c.kvHeads() * c.HeadDim
		}
		return c.heads() * c.HeadDim
	}
	return rows
}
