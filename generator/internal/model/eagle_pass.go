package model

import (
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// An EAGLE-3 head has a layer of its own, which reads a token and the feature of the token before: what the model's
// passes leave at some of its layers. So its row at a position has the token there, and all that a page holds of it
// follows from the page's tokens and those before, as in a model. Position 0 has no feature, and nothing attends to it.
//
// The drafts of a verify pass come first, one after another: the first from the feature of the last token, which an
// earlier pass kept in its page, each later one from what the layer gave for the one before. After the model's layers
// the features of the pass's own rows give the keys and values that later passes read, so that those made from drafts
// are written again.

// eagleMemory is what the passes of an EAGLE-3 head work in beside a layer's.
type eagleMemory struct {
	features device.Buffer // float32 [MaxRows][parts*Target]: hidden states of the model
	of       device.Buffer // float32 [MaxRows][hidden]: the features of the rows
	embedded device.Buffer // float32 [MaxRows][hidden]
	joined   device.Buffer // float32 [MaxRows][2*hidden]: input of the layer
	kept     kernels.Features
	// follower is the head's memory with the rows of the model's pass.
	follower *StepMemory
}

func (m eagleMemory) activations() []device.Buffer {
	if m.follower == nil {
		return nil
	}
	return []device.Buffer{m.features, m.of, m.embedded, m.joined}
}

// allocateEagle allocates what an EAGLE-3 head's passes work in, and the pool of features. Rows are those of the
// model's passes.
func (s *StepMemory) allocateEagle(dev tracked, c Config, rows kernels.Rows) (err error) {
	g, m := s.Geometry, &s.eagle
	m.kept = kernels.NewFeatures(g.Pages+1, g.PageTokens, g.kvLayers(1), g.kvLayer(0), c.Hidden)
	pool := &m.kept.Pool
	if pool.Data, err = g.allocatePool(dev, *pool); err != nil {
		return err
	}
	s.pools = append(s.pools, *pool)
	err = allocateBuffers([]wantedBuffer{
		{&m.features, dev.Uncleared, 4 * int64(g.MaxRows) * int64(c.Eagle.features())},
		{&m.of, dev.Uncleared, 4 * int64(g.MaxRows*c.Hidden)},
		{&m.embedded, dev.Uncleared, 4 * int64(g.MaxRows*c.Hidden)},
		{&m.joined, dev.Uncleared, 8 * int64(g.MaxRows*c.Hidden)},
	})
	follower := *s
	follower.Rows = rows
	m.follower = &follower
	return err
}

// eagleHead returns the EAGLE-3 head that guesses for the pass's model; nil: there is none.
func (p *pass) eagleHead() *Model {
	if d := p.memory.DraftModel; p.memory.drafter != nil && d.Config.Eagle != nil {
		return d
	}
	return nil
}

// captures returns the EAGLE-3 head that takes hidden states of the pass; nil: none does.
func (p *pass) captures() *Model {
	if p.verifies() || p.Follow || p.Class == kernels.Prefill {
		return p.eagleHead()
	}
	return nil
}

// capture launches the ops that take the input of layer i for an EAGLE-3 head.
func (p *pass) capture(i int) {
	head := p.captures()
	if head == nil {
		return
	}
	e, m, target := head.Config.Eagle, &p.memory.drafter.eagle, p.model.Config.Hidden
	for part, layer := range e.Layers {
		if layer != i {
			continue
		}
		op := kernels.Capture{X: p.memory.x, Features: m.features, T: p.Rows, Cols: target, Part: part,
			Parts: len(e.Layers), Eps: head.Config.RMSNormEps}
		if e.PartNorms {
			op.Norm = head.eagle.partNorms[part]
		}
		if part == 0 {
			op.Zero, op.ZeroCols = m.of, head.Config.Hidden
		}
		p.launch(op)
	}
}

// followEagle launches, after the model's layers, what an EAGLE-3 head needs of the pass's rows in later ones: their
// keys and values, and features in their pages.
func (p *pass) followEagle() {
	head := p.captures()
	if head == nil {
		return
	}
	s := p.memory.drafter.eagle.follower
	d := pass{Shape: Shape{Class: p.Class, Rows: p.Rows}, model: head, target: p.model, memory: s, stream: p.stream,
		err: p.err}
	d.fuseFeatures()
	d.launch(d.embed())
	d.launch(d.join(s.eagle.of, false))
	d.launch(d.qkv(0, kernels.Handover{}))
	d.launch(kernels.Keep{X: s.eagle.of, Rows: s.Rows, Slots: s.Slots, Kept: s.eagle.kept, T: p.Rows})
	p.err = d.err
}

// fuseFeatures launches the product that makes a feature of the captured hidden states of each row.
func (p *pass) fuseFeatures() {
	head, m := p.model, &p.memory.eagle
	if e := head.Config.Eagle; e.FeaturesNorm {
		p.launch(kernels.Capture{X: m.features, Norm: head.eagle.allNorm, Features: m.features, T: p.Rows,
			Cols: e.features(), Parts: 1, Eps: head.Config.RMSNormEps})
	}
	p.launch(kernels.Projection{Name: kernels.FeatureProjection, W: head.eagle.features, In: m.features, X: m.of,
		T: p.Rows, Class: p.Class, Workspace: p.memory.innerWorkspace()})
}

// join returns the op that makes the layer's input. Features are those of the rows, or none; own says that x holds
// them already.
func (p *pass) join(features device.Buffer, own bool) kernels.Join {
	c, s := p.model.Config, p.memory
	op := kernels.Join{Embedded: s.eagle.embedded, Features: features, Norm: p.model.layers[0].attentionNorm, X: s.x,
		Out: s.eagle.joined, Rows: s.Rows, Slots: s.Slots, Kept: s.eagle.kept, T: p.Rows, Cols: c.Hidden,
		Eps: c.RMSNormEps, Own: own, NormedResidual: c.Eagle.NormedResidual}
	if own && c.Eagle.NormedOutput {
		op.Output = p.model.norm
	}
	return op
}

// draftEagle launches the passes of an EAGLE-3 head that guess the drafts of a verify pass, one after another.
func (p *pass) draftEagle() {
	groups := p.Rows / max(1, p.Queries)
	for draft := 1; draft < p.Queries && p.err == nil; draft++ {
		d := p.drafterPass(draft, Shape{Rows: groups, Samples: groups})
		d.launch(d.embed())
		d.launch(d.join(device.Buffer{}, draft > 1))
		d.layerOfDrafts(0)
		d.launch(d.head())
		p.err = d.err
		p.launch(p.proposed(draft))
	}
}
