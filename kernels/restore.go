package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// SlotState is the state of a slot whose sequence goes on from keys and values that are in the KV pool already.
type SlotState struct {
	Init    Init
	Token   int32   // the token sampled last; 0 before the first
	Pages   []int32 // the begin of the block table
	History []int32 // the sequence's tokens; their number becomes the slot's length
}

// restoreHead is the number of words before a staged slot's pages: Init.Params, the token, and unused words.
const restoreHead = 16

// MaxStateWords returns the words of a staged state with that many pages and tokens.
func MaxStateWords(pages, tokens int) int { return restoreHead + pages + tokens }

// Words returns the length of the staged state in int32 words.
func (s *SlotState) Words() int { return MaxStateWords(len(s.Pages), len(s.History)) }

// Encode writes the state to dst, of Words()*4 bytes, as [Restore] reads it. It returns [device.ErrBadShape] if dst
// is shorter.
func (s *SlotState) Encode(dst []byte) error {
	if len(dst) < 4*s.Words() {
		return fmt.Errorf("%w: state of %d words in %d bytes", device.ErrBadShape, s.Words(), len(dst))
	}
	w, params := wordWriter{dst: dst}, s.Init.Params()
	w.put(params[:]...)
	w.put(s.Token)
	w.at = restoreHead
	w.put(s.Pages...)
	w.put(s.History...)
	return nil
}

// Restore sets a slot's state from pinned memory, before the first row of its sequence. A step's descriptor is too
// small for that: a history of 100,000 tokens takes 400 KB.
//
//	params, token, block table [0, Pages), history [0, Tokens), length = Tokens
type Restore struct {
	Staged device.Buffer // int32 [restoreHead+Pages+Tokens], pinned, as SlotState.Encode writes it
	Slots  Slots
	Slot   int // of the sequence
	Pages  int // block table entries
	Tokens int // of the history
}

// Kernel returns "restore".
func (Restore) Kernel() string { return "restore" }

// Check compares dimensions.
func (o Restore) Check() error {
	if err := o.Slots.check(); err != nil {
		return err
	}
	if o.Slot < 0 || o.Slot >= o.Slots.Count-1 || o.Pages < 0 || o.Pages > o.Slots.Pages || o.Tokens < 0 ||
		o.Tokens > o.Slots.Context {
		return fmt.Errorf("%w: restore of %d pages and %d tokens into slot %d of %d", device.ErrBadShape, o.Pages,
			o.Tokens, o.Slot, o.Slots.Count)
	}
	return checkBuffers(need{"staged state", o.Staged, restoreHead + o.Pages + o.Tokens})
}

// Host restores on the host.
func (o Restore) Host(h *device.Host) {
	staged := h.Int32(o.Staged)
	copy(h.Int32(o.Slots.Params)[o.Slot*ParamWords:][:ParamWords], staged)
	h.Int32(o.Slots.Token)[o.Slot] = staged[ParamWords]
	copy(h.Int32(o.Slots.BlockTable)[o.Slot*o.Slots.Pages:][:o.Pages], staged[restoreHead:])
	copy(h.Int32(o.Slots.History)[o.Slot*o.Slots.Context:][:o.Tokens], staged[restoreHead+o.Pages:])
	h.Int32(o.Slots.Length)[o.Slot] = int32(o.Tokens)
}
