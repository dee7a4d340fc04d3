package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Features is where an EAGLE-3 head's features lie between passes: a pool with the pages of the KV pool. A page has the
// feature of the newest token in it, so that the first row of a later pass, also after a cached prefix, finds that of
// the token before it.
type Features struct {
	// Pool is float32, with PageTokens 1, one head, and HeadDim*2 = Cols: keys and values of a layer are one feature.
	Pool       KV
	Layer      int
	PageTokens int // of the KV pool
}

// NewFeatures returns the features of pages of so many tokens; Pool.Data is none yet. cols is even.
func NewFeatures(pages, pageTokens, layers, layer, cols int) Features {
	return Features{PageTokens: pageTokens, Layer: layer,
		Pool: KV{Pages: pages, PageTokens: 1, Layers: layers, Heads: 1, HeadDim: cols / 2}}
}

func (f Features) cols() int { return 2 * f.Pool.HeadDim }

func (f Features) check() error {
	if f.PageTokens < 1 || f.Pool.PageTokens != 1 || f.Pool.Heads != 1 || f.cols()%4 != 0 || f.Pool.DType.Size() != 4 {
		return fmt.Errorf("%w: features of %d columns for pages of %d tokens", device.ErrBadShape, f.cols(),
			f.PageTokens)
	}
	return f.Pool.check(f.Layer)
}

// at returns the feature of the page that holds a position.
func (f Features) at(h *device.Host, s Slots, slot, position int32) []float32 {
	page := h.Int32(s.BlockTable)[int(slot)*s.Pages+int(position)/f.PageTokens]
	return h.Float32(f.Pool.Data)[f.Pool.at(int(page), f.Layer, 0, 0):][:f.cols()]
}

// Keep puts the features of a pass's rows into their pages: of a sequence's last row, and of the rows at the end of a
// page. Rows of drafts that did not stand, past Slots.Length, leave none.
type Keep struct {
	X     device.Buffer // float32 [T][Cols]: the features of the rows
	Rows  Rows
	Slots Slots
	Kept  Features // out

	T int
}

// Kernel returns "keep".
func (Keep) Kernel() string { return "keep" }

// Check compares dimensions.
func (o Keep) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if err := o.Kept.check(); err != nil {
		return err
	}
	return checkBuffers(need{"features", o.X, o.T * o.Kept.cols()}, need{"slots of rows", o.Rows.Slot, o.T},
		need{"positions", o.Rows.Position, o.T})
}

// Host keeps on the host.
func (o Keep) Host(h *device.Host) {
	slots, positions, lengths := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position), h.Int32(o.Slots.Length)
	x, cols := h.Float32(o.X), o.Kept.cols()
	for t := range o.T {
		slot, next := slots[t], positions[t]+1
		inside := next < lengths[slot] && int(next)%o.Kept.PageTokens != 0 // its page has a newer token
		if int(slot) == o.Slots.Count-1 || next > lengths[slot] || inside {
			continue
		}
		copy(o.Kept.at(h, o.Slots, slot, next-1), x[t*cols:])
	}
}
