package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Recent makes the rows and the block tables with which a draft model attends over the first pages and the last tokens
// of each sequence alone. The rows come in groups of Queries of one sequence, of which the first has the lowest
// position p; rows of another slot in a group are padding.
//
//	o = max(First, ⌊(p+1-Window)/PageTokens⌋) - First pages are left out, if that is more than 0
//	View.BlockTable[group] = the first First pages, then those from First+o on
//	ViewRows: Slot = the group, or View.Count-1 for padding; Position = that of the row - o·PageTokens, or 1
//
// So attention sees at least the last Window tokens, in whole pages. Keys have had their RoPE: positions here only say
// where they lie.
type Recent struct {
	Rows     Rows  // of the draft model
	Slots    Slots // of the sequences
	View     Slots // out: BlockTable; a slot for each group, and the trash slot, whose table is zeros
	ViewRows Rows  // out: Slot, Position

	T, Queries, PageTokens int // rows, a multiple of Queries
	First, Window          int // pages, tokens
}

// ViewPages returns the pages of a [Recent] view: pages of so many tokens, of which first and the last window tokens
// are seen, and queries rows of a sequence.
func ViewPages(pageTokens, first, window, queries int) int {
	return first + splitsOf(window+queries, pageTokens) + 1
}

// Kernel returns "recent".
func (Recent) Kernel() string { return "recent" }

// Check compares dimensions.
func (o Recent) Check() error {
	groups := o.T / max(1, o.Queries)
	if o.Queries < 1 || o.T%o.Queries != 0 || o.First < 1 || o.Window < 1 || o.PageTokens < 1 ||
		o.View.Count <= groups || o.View.Pages < ViewPages(o.PageTokens, o.First, o.Window, o.Queries) {
		return fmt.Errorf("%w: a view of %d pages of %d groups of %d rows, %d first pages and %d tokens",
			device.ErrBadShape, o.View.Pages, groups, o.Queries, o.First, o.Window)
	}
	return checkBuffers(need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
		need{"block table", o.Slots.BlockTable, o.Slots.Count * o.Slots.Pages},
		need{"view", o.View.BlockTable, o.View.Count * o.View.Pages},
		need{"slots of the view's rows", o.ViewRows.Slot, o.T},
		need{"positions of the view's rows", o.ViewRows.Position, o.T})
}

// Host makes the view on the host.
func (o Recent) Host(h *device.Host) {
	slots, positions := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position)
	for first := 0; first < o.T; first += o.Queries {
		group, slot := first/o.Queries, slots[first]
		out := max(o.First, (int(positions[first])+1-o.Window)/o.PageTokens) - o.First
		table := h.Int32(o.Slots.BlockTable)[int(slot)*o.Slots.Pages:][:o.Slots.Pages]
		view := h.Int32(o.View.BlockTable)[group*o.View.Pages:][:o.View.Pages]
		for i := range view {
			from := i
			if i >= o.First {
				from += out
			}
			if view[i] = 0; from < len(table) {
				view[i] = table[from]
			}
		}
		for t := first; t < first+o.Queries; t++ {
			at, position := int32(group), positions[t]-int32(out*o.PageTokens)
			if slots[t] != slot || slot == int32(o.Slots.Count-1) {
				at, position = int32(o.View.Count-1), 1
			}
			h.Int32(o.ViewRows.Slot)[t], h.Int32(o.ViewRows.Position)[t] = at, position
		}
	}
}
