package model

import "reel.internal/reel/kernels"

// sinkTokens is how many of a sequence's first tokens a draft model with a window sees, in whole pages, if the window
// is no smaller: much of the attention goes to them. (Xiao et al., "Efficient Streaming Language Models with Attention
// Sinks", 2023.)
const sinkTokens = 64

// draftView is what a draft model reads of the pages of its sequences in decode and verify passes: the first ones and
// the last tokens. [kernels.Recent] makes it for each of its passes.
type draftView struct {
	Window int // tokens; 0: there is no view
	first  int // pages
	rows   kernels.Rows
	slots  kernels.Slots
}

// allocateView allocates a draft model's view. Its passes have rows of at most Slots sequences, up to two of each.
func (s *StepMemory) allocateView(dev tracked) error {
	g, v := s.Geometry, &s.view
	v.Window, v.first = g.DraftWindow, (min(sinkTokens, g.DraftWindow)+g.PageTokens-1)/g.PageTokens
	pages := kernels.ViewPages(g.PageTokens, v.first, v.Window, mostDraftRows)
	if pages >= g.BlockTable() { // it would hold whole sequences
		v.Window = 0
		return nil
	}
	groups := max(g.Slots, g.MaxSamples)
	v.slots = kernels.Slots{Count: groups + 1, Pages: pages, Context: pages * g.PageTokens}
	return allocateBuffers([]wantedBuffer{
		{&v.slots.BlockTable, dev.Alloc, 4 * int64(v.slots.Count) * int64(pages)},
		{&v.rows.Slot, dev.Alloc, 4 * int64(mostDraftRows*groups)},
		{&v.rows.Position, dev.Alloc, 4 * int64(mostDraftRows*groups)},
	})
}

// mostDraftRows is the most rows of a sequence in a draft model's pass of the decode class.
const mostDraftRows = 2

// recent returns the op that makes the view of the pass's rows.
func (p *pass) recent() kernels.Recent {
	s := p.memory
	return kernels.Recent{Rows: s.Rows, Slots: s.Slots, View: s.view.slots, ViewRows: s.view.rows, T: p.Rows,
		Queries: max(1, p.Queries), PageTokens: s.PageTokens, First: s.view.first, Window: s.view.Window}
}

// layerOfDrafts launches layer i of a draft model's pass of the decode class. A layer with a window of its own sees
// that.
func (p *pass) layerOfDrafts(i int) {
	attend := p.attend(i, kernels.Handover{})
	if p.model.Config.Eagle != nil {
		attend.First = 1
	}
	if v := &p.memory.view; v.Window > 0 && attend.Window == 0 {
		attend.Rows, attend.Slots = v.rows, v.slots
	}
	p.layer(i, attend)
}
