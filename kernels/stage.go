package kernels

import "reel.internal/reel/kernels/device"

// Stage starts a step: it finds the step's descriptor in the ring by the device's own counter,
// applies its changes to the slots, and writes each row's slot, position and token to Rows,
// from which the other ops read them. Rows past the descriptor's and those of NoSlot are padding and
// belong to the trash slot. Drafts of FromDraft are 0 until a drafter, such as [Lookup], writes them.
type Stage struct {
	Ring    device.Buffer // int32 [RingSlots][Layout.Words()], the descriptor ring, written by the host
	Counter device.Buffer // uint32 [1]: steps staged so far
	Layout  StepLayout
	Slots   Slots
	Rows    Rows

	RingSlots int
	T, N      int // rows and samples of this step, with padding
}

// Kernel returns "stage".
func (Stage) Kernel() string { return "stage" }

// Check compares dimensions.
func (o Stage) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	return checkBuffers(need{"ring", o.Ring, o.RingSlots * o.Layout.Words()}, need{"counter", o.Counter, 1},
		need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
		need{"tokens", o.Rows.Token, o.T},
		need{"samples", o.Rows.Sample, max(o.N, 1)}, need{"number", o.Rows.Number, 2})
}

// sharedBytes returns the shared memory of the kernel's block, StageShared of stage.cu: the head and the rows of a
// descriptor, the first and the last row of each slot, and the entries of block tables. It depends on the pass and not on
// the most rows of a step, so that memory for more rows changes no launch of a pass of few (kernels/notes/stream_k.md).
func (o Stage) sharedBytes() int {
	return 4 * (headWords + rowWords*o.T + 2*o.Slots.Count + mostEntries(o.T))
}

// Host stages on the host.
func (o Stage) Host(h *device.Host) {
	counter, words := h.Int32(o.Counter), o.Layout.Words()
	at := int(uint32(counter[0])%uint32(o.RingSlots)) * words
	d := h.Int32(o.Ring)[at : at+words]
	counter[0]++
	copy(h.Int32(o.Rows.Number), d[4:6])
	o.applyInits(h, d)
	o.applyPages(h, d)
	o.resolveRows(h, d)
	samples := h.Int32(o.Rows.Sample)
	for i := range o.N {
		samples[i] = -1
		if i < int(d[1]) {
			samples[i] = d[o.Layout.sampleAt()+i]
		}
	}
}

func (o Stage) applyInits(h *device.Host, d []int32) {
	params, lengths := h.Int32(o.Slots.Params), h.Int32(o.Slots.Length)
	for i := range int(d[2]) {
		in := d[o.Layout.initAt()+i*initWords:][:initWords]
		slot := int(in[0])
		copy(params[slot*ParamWords:][:ParamWords], in[1:])
		lengths[slot] = 0
	}
}

func (o Stage) applyPages(h *device.Host, d []int32) {
	table := h.Int32(o.Slots.BlockTable)
	for i := range int(d[3]) {
		p := d[o.Layout.pageAt()+i*pageWords:][:pageWords]
		table[int(p[0])*o.Slots.Pages+int(p[1])] = p[2]
	}
}

// resolveRows fills in values that only the device knows. A sequence's rows are in the order
// of their positions, so the last one sets the slot's length.
func (o Stage) resolveRows(h *device.Host, d []int32) {
	slots, positions, tokens := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position), h.Int32(o.Rows.Token)
	lengths, last, history := h.Int32(o.Slots.Length), h.Int32(o.Slots.Token), h.Int32(o.Slots.History)
	for t := range o.T {
		slot, position, token := int32(o.Slots.Count-1), int32(0), int32(0)
		if row := d[headWords+t*rowWords:][:rowWords]; t < int(d[0]) && row[0] != NoSlot {
			slot, position, token = row[0], row[1], row[2]
		}
		if position == FromDevice {
			position = lengths[slot]
		}
		switch token {
		case FromDevice:
			token = last[slot]
		case FromDraft:
			token = 0
		}
		slots[t], positions[t], tokens[t] = slot, position, token
		lengths[slot] = position + 1
		history[int(slot)*o.Slots.Context+int(position)] = token
	}
}
