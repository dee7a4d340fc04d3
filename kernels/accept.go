package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Accept ends a verify pass, whose rows come in groups of Queries: a group's first row has the last token of a
// sequence, the others have drafts for the tokens after it, or are padding, with another slot. Sample i is that of row
// i, or -1 in groups of padding, which come last. The draft of a row stands if it is the token that was drawn from the
// row before it, and all drafts before it stand. So the results of a group are those of its first row and of the rows
// whose drafts stand:
//
//	count = 1; while row count has a draft and token[count] == drawn[count-1]: count++
//
// Accept leaves the count in the group's first record, the last result in Slots.Token, and the number of tokens with
// valid keys and values in Slots.Length. Sampling is a function of seed and index, so the results are those of plain
// decoding.
type Accept struct {
	Rows    Rows
	Slots   Slots
	Records device.Buffer // int32 [RingSlots][MaxSamples][RecordWords], the record ring

	T, Queries            int // rows, a multiple of Queries
	RingSlots, MaxSamples int
}

// Kernel returns "accept".
func (Accept) Kernel() string { return "accept" }

// Check compares dimensions.
func (o Accept) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if o.Queries < 1 || o.T%o.Queries != 0 || o.T > o.MaxSamples {
		return fmt.Errorf("%w: %d rows in groups of %d, with at most %d samples", device.ErrBadShape, o.T, o.Queries,
			o.MaxSamples)
	}
	return checkBuffers(need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
		need{"tokens of rows", o.Rows.Token, o.T}, need{"samples", o.Rows.Sample, o.T},
		need{"drawn tokens", o.Rows.Drawn, o.T}, need{"number", o.Rows.Number, 2},
		need{"records", o.Records, o.RingSlots * o.MaxSamples * RecordWords})
}

// Host accepts on the host.
func (o Accept) Host(h *device.Host) {
	slots, positions, tokens := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position), h.Int32(o.Rows.Token)
	samples, drawn, number := h.Int32(o.Rows.Sample), h.Int32(o.Rows.Drawn), h.Int32(o.Rows.Number)
	records := h.Int32(o.Records)[int(uint32(number[0])%uint32(o.RingSlots))*o.MaxSamples*RecordWords:]
	for first := 0; first < o.T; first += o.Queries {
		if samples[first] < 0 {
			continue
		}
		slot, count := slots[first], 1
		for count < o.Queries && slots[first+count] == slot && tokens[first+count] == drawn[first+count-1] {
			count++
		}
		if h.Rank() == 0 { // all ranks share the ring, and draw the same tokens
			records[first*RecordWords+4] = int32(count)
		}
		h.Int32(o.Slots.Token)[slot] = drawn[first+count-1]
		h.Int32(o.Slots.Length)[slot] = positions[first] + int32(count)
	}
}
