package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// DraftRows writes the rows of a draft model's pass beside a pass of the model, from the rows of that. Which ones Draft
// says, of rows in groups of Queries as [Accept] describes:
//
//	0      all rows
//	1      two of each group: the token before the group's first row, then that row
//	j > 1  one of each group: row j-1, whose token [Propose] has written
//
// With Single draft 1 has one row of each group too: its first row. Its drafter has no keys and values to catch up
// with.
//
// If all drafts of a step stand, the last one has no keys and values in the draft model: the token before the first row
// makes up for that. A prompt token always has some, and its page may belong to others too; then the first row comes
// twice. Token ids from Vocab on, which the draft model does not have, become 0. It then guesses worse; nothing else
// depends on its rows.
type DraftRows struct {
	Of    Rows  // the rows of the model's pass
	Slots Slots // History: tokens before the first rows
	Rows  Rows  // out: Slot, Position, Token, and with a Draft Sample: the last row of each group, or -1 for padding

	T, Queries, Draft int // rows of the model's pass, a multiple of Queries
	Vocab             int // tokens of the draft model
	// Single is for drafters whose keys and values [Join] makes from the model's rows. Positions are then 1 at least,
	// also those of padding, because nothing attends from position 0 or to it.
	Single bool
}

// rows returns the number of rows that the op writes, and of samples.
func (o DraftRows) rows() (rows, samples int) {
	groups := o.T / max(1, o.Queries)
	if o.Draft == 0 {
		return o.T, 0
	}
	return o.each() * groups, groups
}

// each returns how many rows of a group the op writes with a Draft.
func (o DraftRows) each() int {
	if o.Draft == 1 && !o.Single {
		return 2
	}
	return 1
}

// Kernel returns "draftrows".
func (DraftRows) Kernel() string { return "draftrows" }

// Check compares dimensions.
func (o DraftRows) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if o.Queries < 1 || o.T%o.Queries != 0 || o.Draft < 0 || o.Draft > max(1, o.Queries-1) || o.Vocab < 1 {
		return fmt.Errorf("%w: rows for draft %d of %d rows in groups of %d, %d tokens", device.ErrBadShape, o.Draft, o.T,
			o.Queries, o.Vocab)
	}
	rows, samples := o.rows()
	return checkBuffers(need{"slots of rows", o.Of.Slot, o.T}, need{"positions", o.Of.Position, o.T},
		need{"tokens of rows", o.Of.Token, o.T}, need{"samples", o.Of.Sample, max(samples, 1)},
		need{"slots of the draft model's rows", o.Rows.Slot, rows},
		need{"positions of the draft model's rows", o.Rows.Position, rows},
		need{"tokens of the draft model's rows", o.Rows.Token, rows},
		need{"samples of the draft model", o.Rows.Sample, max(samples, 1)})
}

// Host writes on the host.
func (o DraftRows) Host(h *device.Host) {
	if o.Draft == 0 {
		for t := range o.T {
			o.copyRow(h, t, t)
		}
		return
	}
	samples, of := h.Int32(o.Rows.Sample), h.Int32(o.Of.Sample)
	for g := range o.T / o.Queries {
		first, at := g*o.Queries, g
		if o.each() == 2 {
			at = 2*g + 1
			o.copyRow(h, 2*g, first)
			o.catchUp(h, 2*g)
		}
		o.copyRow(h, at, first+o.Draft-1)
		if samples[g] = int32(at); of[first] < 0 {
			samples[g] = -1
		}
	}
}

// copyRow writes row `to` as the model's row `from`.
func (o DraftRows) copyRow(h *device.Host, to, from int) {
	h.Int32(o.Rows.Slot)[to] = h.Int32(o.Of.Slot)[from]
	position := h.Int32(o.Of.Position)[from]
	if o.Single {
		position = max(1, position)
	}
	h.Int32(o.Rows.Position)[to] = position
	h.Int32(o.Rows.Token)[to] = o.known(h.Int32(o.Of.Token)[from])
}

// catchUp sets row t back by one token, unless that is a prompt token.
func (o DraftRows) catchUp(h *device.Host, t int) {
	slot, position := int(h.Int32(o.Rows.Slot)[t]), h.Int32(o.Rows.Position)[t]-1
	if prompt := h.Int32(o.Slots.Params)[slot*ParamWords+1]; position < max(0, prompt) {
		return
	}
	h.Int32(o.Rows.Position)[t] = position
	h.Int32(o.Rows.Token)[t] = o.known(h.Int32(o.Slots.History)[slot*o.Slots.Context+int(position)])
}

// known returns the token, or 0 if the draft model does not have it.
func (o DraftRows) known(token int32) int32 {
	if int(token) >= o.Vocab {
		return 0
	}
	return token
}
