package kernels

import (
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
)

// Propose takes a draft model's most probable token as draft number Draft of each group of a verify pass, whose rows
// come in groups of Queries as [Accept] describes: the first among equals, and logit 0 if none is a number.
// Padding gets no draft.
type Propose struct {
	Logits device.Buffer // float32 [T/Queries][Cols], of the draft model
	Tokens device.Buffer // int32 [Cols]: the token of each logit; or none: logit i is that of token i
	Rows   Rows          // of the verify pass; Token, out: the drafts
	Slots  Slots         // History, out: the drafts at their positions

	T, Queries, Draft int // rows, a multiple of Queries
	Cols, Vocab       int // logits of a row; the first Vocab of them are tokens of the model that checks
}

// Kernel returns "propose".
func (Propose) Kernel() string { return "propose" }

// Check compares dimensions.
func (o Propose) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if o.Queries < 2 || o.T%o.Queries != 0 || o.Draft < 1 || o.Draft >= o.Queries || o.Vocab < 1 || o.Vocab > o.Cols {
		return fmt.Errorf("%w: draft %d of %d rows in groups of %d, %d of %d tokens", device.ErrBadShape, o.Draft, o.T,
			o.Queries, o.Vocab, o.Cols)
	}
	if !o.Tokens.IsZero() {
		if err := checkBuffers(need{"tokens", o.Tokens, o.Cols}); err != nil {
			return err
		}
	}
	return checkBuffers(need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
		need{"tokens of rows", o.Rows.Token, o.T}, need{"logits", o.Logits, o.T / o.Queries * o.Cols})
}

// Host proposes on the host.
func (o Propose) Host(h *device.Host) {
	slots, positions, tokens := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position), h.Int32(o.Rows.Token)
	logits, history := h.Float32(o.Logits), h.Int32(o.Slots.History)
	for g := range o.T / o.Queries {
		row := g*o.Queries + o.Draft
		if slot := int(slots[row]); slot != o.Slots.Count-1 {
			token := mostProbable(logits[g*o.Cols:][:o.Vocab])
			if !o.Tokens.IsZero() {
				token = h.Int32(o.Tokens)[token]
			}
			tokens[row], history[slot*o.Slots.Context+int(positions[row])] = token, token
		}
	}
}

// mostProbable returns the index of the largest logit, the lowest among equals; 0 if there is no number above
// -infinity.
func mostProbable(logits []float32) (token int32) {
	most := float32(math.Inf(-1))
	for i, l := range logits {
		if l > most {
			token, most = int32(i), l
		}
	}
	return token
}
