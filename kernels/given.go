package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Given takes the drafts of a verify pass, whose rows come in groups as [Accept] describes, from a table that the host
// has written: a drafter for tests and measurements, whose acceptance they decide. Sequences whose Sampling is Masked
// keep the drafts of their rows.
type Given struct {
	Rows   Rows          // Token, out: the drafts
	Slots  Slots         // History, out: the drafts at their positions
	Tokens device.Buffer // int32 [Slots.Count][Slots.Context]: the draft for each position of a sequence, shared with the host

	T, Queries int // rows, a multiple of Queries
}

// Kernel returns "given".
func (Given) Kernel() string { return "given" }

// Check compares dimensions.
func (o Given) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if o.Queries < 1 || o.T%o.Queries != 0 {
		return fmt.Errorf("%w: %d rows in groups of %d", device.ErrBadShape, o.T, o.Queries)
	}
	return checkBuffers(need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
		need{"tokens of rows", o.Rows.Token, o.T}, need{"given tokens", o.Tokens, o.Slots.Count * o.Slots.Context})
}

// Host copies on the host.
func (o Given) Host(h *device.Host) {
	slots, positions, tokens := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position), h.Int32(o.Rows.Token)
	given, history := h.Int32(o.Tokens), h.Int32(o.Slots.History)
	for t := range o.T {
		if slot := int(slots[t]); t%o.Queries != 0 && slot != o.Slots.Count-1 && !o.Slots.isMasked(h, slot) {
			at := slot*o.Slots.Context + int(positions[t])
			tokens[t], history[at] = given[at], given[at]
		}
	}
}
