package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Lookup guesses the drafts of a verify pass, whose rows come in groups as [Accept] describes, from what the sequence
// itself has said: after [Stage] it looks for the longest match of the sequence's last tokens further up in its
// history, and guesses that the text goes on as it did there.
//
//	h = history[0 … p], p the position of the group's first row
//	m(e) = length of the common end of h[0 … e] and h[0 … p], LookupMatch at most, for e < p
//	e = the one with the largest m(e), the last one among equals
//	draft j = h[e+j] for j = 1 …; past p, h goes on with the drafts themselves
//
// If no earlier token is the last one, each draft is the last token. (Saxena, "Prompt Lookup Decoding", 2023.)
// Sequences whose Sampling is Masked keep the drafts that the host has written.
type Lookup struct {
	Rows  Rows  // Token, out: the drafts
	Slots Slots // History, out: the drafts at their positions

	T, Queries int // rows, a multiple of Queries
}

// LookupMatch is the length of the longest match that counts: longer ones are equal.
const LookupMatch = 16

// Kernel returns "lookup".
func (Lookup) Kernel() string { return "lookup" }

// Check compares dimensions.
func (o Lookup) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if o.Queries < 1 || o.T%o.Queries != 0 {
		return fmt.Errorf("%w: %d rows in groups of %d", device.ErrBadShape, o.T, o.Queries)
	}
	return checkBuffers(need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
		need{"tokens of rows", o.Rows.Token, o.T})
}

// Host looks up on the host.
func (o Lookup) Host(h *device.Host) {
	slots, positions, tokens := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position), h.Int32(o.Rows.Token)
	for first := 0; first < o.T; first += o.Queries {
		slot, p := int(slots[first]), int(positions[first])
		if o.Slots.isMasked(h, slot) {
			continue
		}
		history := h.Int32(o.Slots.History)[slot*o.Slots.Context:][:o.Slots.Context]
		end := longestMatch(history[:p+1])
		for t := first + 1; t < first+o.Queries && int(slots[t]) == slot && slot != o.Slots.Count-1; t++ {
			end++
			tokens[t] = history[end]
			history[positions[t]] = history[end]
		}
	}
}

// longestMatch returns the end of the longest match of the history's end further up; without a match, the index before
// the last, so that what follows is the last token.
func longestMatch(history []int32) (end int) {
	last := len(history) - 1
	end = last - 1
	for e, most := last-1, 0; e >= 0 && most < LookupMatch; e-- {
		m := 0
		for m < LookupMatch && m <= e && history[e-m] == history[last-m] {
			m++
		}
		if m > most {
			end, most = e, m
		}
	}
	return end
}
