package model

import (
	"slices"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// allocateDrafter allocates what the passes of a draft model work in: rows of its own, at most two for each sequence
// or those of a prefill chunk, and a pool whose pages have the numbers of s. It guesses for half as many sequences as a
// verify step has rows.
func (s *StepMemory) allocateDrafter(dev tracked, target Config) (*StepMemory, error) {
	g := s.Geometry
	g.MaxRows, g.MaxSamples = max(g.MaxRows, 2*g.Slots), max(1, g.MaxSamples/2)
	d := &StepMemory{Geometry: g, Slots: s.Slots}
	if g.DraftModel.Config.heads() == target.heads() { // its counters then lie in the same place
		d.attendWorkspace = s.attendWorkspace
	}
	// As many samples as sequences: passes without a head leave some too.
	d.Layout = kernels.StepLayout{MaxRows: g.MaxRows, MaxSamples: max(s.Geometry.MaxSamples, g.Slots)}
	var err error
	if d.Rows, err = kernels.AllocRows(dev, d.Layout); err != nil {
		return nil, err
	}
	if err = d.allocatePass(dev, g.DraftModel.Config); err != nil {
		return nil, err
	}
	d.pools = []kernels.KV{d.KV}
	if g.DraftWindow > 0 {
		if err = d.allocateView(dev); err != nil {
			return nil, err
		}
	}
	if c := g.DraftModel.Config; c.Eagle != nil {
		err = d.allocateEagle(dev, c, s.Rows)
	}
	return d, err
}

// asksModel reports whether passes are those of a draft model too.
func (g Geometry) asksModel() bool {
	return g.DraftModel != nil && (g.Drafter == ModelDrafter || g.Drafter == GivenDrafter)
}

// draft launches, after stage, what guesses the drafts of a verify pass, or what a draft model needs so that it can
// guess in later ones.
func (p *pass) draft() {
	s := p.memory
	switch {
	case p.eagleHead() != nil:
		p.draftEagle()
	case s.drafter != nil && (p.verifies() || p.Follow || p.Class == kernels.Prefill):
		p.draftModel()
	case p.verifies() && s.Drafter == LookupDrafter:
		p.launch(kernels.Lookup{Rows: s.Rows, Slots: s.Slots, T: p.Rows, Queries: p.Queries})
	}
	if p.verifies() && s.Drafter == GivenDrafter {
		p.launch(kernels.Given{Rows: s.Rows, Slots: s.Slots, Tokens: s.given, T: p.Rows, Queries: p.Queries})
	}
}

// draftModel launches the draft model's part of a pass. It computes keys and values of the same tokens as the model,
// and in a verify pass the drafts, one after another.
func (p *pass) draftModel() {
	switch {
	case p.Class == kernels.Prefill:
		d := p.drafterPass(0, Shape{Class: kernels.Prefill, Rows: p.Rows})
		d.prefillLayers()
		p.err = d.err
	case !p.verifies():
		d := p.drafterPass(1, Shape{Rows: 2 * p.Rows, Queries: 2})
		d.follow()
		p.err = d.err
	}
	for draft := 1; draft < p.Queries && p.err == nil; draft++ {
		groups := p.Rows / p.Queries
		shape := Shape{Rows: groups, Samples: groups}
		if draft == 1 {
			shape.Rows, shape.Queries = 2*groups, 2
		}
		d := p.drafterPass(draft, shape)
		d.propose()
		p.err = d.err
		p.launch(p.proposed(draft))
	}
}

// drafterPass returns a pass of the draft model over rows for this draft, see [kernels.DraftRows], and launches the
// op that makes the rows.
func (p *pass) drafterPass(draft int, shape Shape) pass {
	s := p.memory
	d := pass{Shape: shape, model: s.DraftModel, target: p.model, memory: s.drafter, stream: p.stream, err: p.err}
	rows := kernels.DraftRows{Of: s.Rows, Slots: s.Slots, Rows: s.drafter.Rows, T: p.Rows, Queries: max(1, p.Queries),
		Draft: draft, Vocab: d.model.Config.Vocab}
	if e := d.model.Config.Eagle; e != nil {
		rows.Vocab, rows.Single = e.Vocab, true
	}
	d.launch(rows)
	if shape.Class == kernels.Decode && s.drafter.view.Window > 0 {
		d.launch(d.recent())
	}
	return d
}

// follow launches the layers of a draft model's pass, the last one only up to its keys and values.
func (p *pass) follow() {
	p.launch(p.embed())
	p.perLayerInputs()
	last := len(p.model.layers) - 1
	for i := range last {
		p.layerOfDrafts(i)
	}
	p.keys(last, kernels.Handover{})
}

// propose launches a draft model's pass up to its logits.
func (p *pass) propose() {
	p.launch(p.embed())
	p.perLayerInputs()
	for i := range p.model.layers {
		p.layerOfDrafts(i)
	}
	p.launch(p.head())
}

// proposed returns the op that takes the draft model's most probable tokens as drafts.
func (p *pass) proposed(draft int) kernels.Propose {
	s := p.memory
	cols := s.DraftModel.Config.Vocab
	return kernels.Propose{Logits: s.drafter.logits, Tokens: s.DraftModel.eagle.tokens, Rows: s.Rows, Slots: s.Slots,
		T: p.Rows, Queries: p.Queries, Draft: draft, Cols: cols, Vocab: min(cols, p.model.Config.Vocab)}
}

// Pools returns the KV pools: that of the model, that of its draft model if there is one, and the features of an
// EAGLE-3 head. A page has the same number in both, and holds the same tokens. Do not change the result.
func (s *StepMemory) Pools() []kernels.KV { return s.pools }

// isPool reports whether b is the memory of a pool.
func (s *StepMemory) isPool(b device.Buffer) bool {
	return slices.ContainsFunc(s.pools, func(kv kernels.KV) bool { return kv.Data == b })
}

// PageBytes returns the size of a page in all pools of all ranks together.
func (s *StepMemory) PageBytes() (n int64) {
	for _, kv := range s.pools {
		n += kv.PageBytes()
	}
	return n * int64(s.ranks)
}

// PoolBytes returns the size of all pools.
func (s *StepMemory) PoolBytes() int64 { return int64(s.KV.Pages) * s.PageBytes() }

// CopyPage launches the copies of a page to another one, in all pools.
func (s *StepMemory) CopyPage(stream device.Stream, from, to int32) error {
	return s.eachPool(func(kv kernels.KV, _ int64) error {
		return stream.Launch(kernels.CopyPage{KV: kv, From: int(from), To: int(to)})
	})
}

// StorePage launches the copies of a page, of all pools one after another, to PageBytes bytes of pinned memory.
func (s *StepMemory) StorePage(stream device.Stream, page int32, to device.Buffer) error {
	return s.eachPool(func(kv kernels.KV, at int64) error {
		return stream.Launch(kernels.StorePage{KV: kv, Page: int(page), Ranks: s.ranks,
			To: to.Slice(at, int64(s.ranks)*kv.PageBytes())})
	})
}

// LoadPage launches the inverse of [StepMemory.StorePage].
func (s *StepMemory) LoadPage(stream device.Stream, page int32, from device.Buffer) error {
	return s.eachPool(func(kv kernels.KV, at int64) error {
		return stream.Launch(kernels.LoadPage{KV: kv, Page: int(page), Ranks: s.ranks,
			From: from.Slice(at, int64(s.ranks)*kv.PageBytes())})
	})
}

// eachPool calls launch for each pool, with the place of its part in a page's bytes.
func (s *StepMemory) eachPool(launch func(kv kernels.KV, at int64) error) error {
	at := int64(0)
	for _, kv := range s.pools {
		if err := launch(kv, at); err != nil {
			return err
		}
		at += int64(s.ranks) * kv.PageBytes()
	}
	return nil
}
