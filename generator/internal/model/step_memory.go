package model

import (
	"fmt"
	"unsafe"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Geometry is the capacity of step memory.
type Geometry struct {
	MaxRows    int // token rows of a step: the prefill chunk or the batch, the larger one
	Slots      int // sequences that run at once
	MaxSamples int // sampled rows of a step
	Context    int // tokens of a sequence
	PageTokens int // tokens of a KV page
	Pages      int // KV pages without the trash page
	// RingSlots is the number of entries of the descriptor ring and of the record ring: at least the steps in
	// flight, and a power of two. The device counts steps modulo 2^32, which it must divide.
	RingSlots int
	// Masks is the number of masks of a sequence: one for each row that it may have in a verify pass. 0 is 1.
	Masks int
	// KVType is the element type of keys and values; the zero value is float32.
	KVType kernels.DType
	// NoWorkspaces leaves the products' [kernels.Workspace] out: on the host they need none.
	NoWorkspaces bool
	// Drafter guesses the drafts of verify passes. DraftModel is the draft model of ModelDrafter, or one that only
	// takes its time before GivenDrafter, with the tokens of the model and RoPE for Context positions; passes compute
	// its keys and values too, see [Shape].
	Drafter    Drafter
	DraftModel *Model
	// DraftWindow is how many of a sequence's last tokens the draft model attends to beside the first pages; 0: all.
	DraftWindow int
	// Guard separates the keys and values of the layers in each page by canaries, which
	// [StepMemory.Intact] checks. The pool then takes twice the memory.
	Guard bool
}

// Drafter is how the drafts of a verify pass are guessed, on the device.
type Drafter uint8

// The drafters.
const (
	NoDrafter     Drafter = iota // there are no verify passes
	LookupDrafter                // [kernels.Lookup]
	GivenDrafter                 // [kernels.Given], from the table that Given returns
	ModelDrafter                 // another model or an EAGLE-3 head, with a pool of its own that has the same pages
)

// restoreWords is the words of the longest sequence's slot.
func (g Geometry) restoreWords() int { return kernels.MaxStateWords(g.BlockTable(), g.Context) }

// BlockTable returns the number of pages of the longest sequence.
func (g Geometry) BlockTable() int { return (g.Context + g.PageTokens - 1) / g.PageTokens }

// StepMemory is all device memory that steps work in, at fixed addresses: the arena of
// activations and workspaces, the slots, the KV pool, and the rings that host and device
// share. Steps run one after another, so all of them use the same arena.
type StepMemory struct {
	Geometry
	Layout kernels.StepLayout
	Slots  kernels.Slots
	Rows   kernels.Rows
	KV     kernels.KV
	layers kernels.KVLayers // of KV

	restored                 device.Buffer  // int32 [RingSlots][RestoreWords]: slots to restore before a step, pinned
	restoredMap              *device.Mapped // the same as the host sees it
	descriptors, records     device.Buffer  // descriptor ring and record ring, pinned
	descriptorMap, recordMap *device.Mapped // the same as the host sees them
	shared                   kernels.SlotsView
	counter                  device.Buffer   // uint32 [1]: steps that were staged
	allocated                []device.Buffer // every allocation, to be freed

	x           device.Buffer    // float32 [MaxRows][hidden]: the residual stream
	q           device.Buffer    // float32 [MaxRows][Heads*HeadDim], of latent attention [MaxRows][Heads*(Rank+Rope)]
	attended    device.Buffer    // float32 [MaxRows][Heads*HeadDim]: results of attention; of latent attention Heads*Value
	inner       device.Buffer    // float32 [MaxRows][inner]
	sharedInner device.Buffer    // float32 [MaxRows][Experts.Shared], or none
	latent      latentMemory     // of latent attention
	branch      device.Buffer    // float32 [MaxRows][hidden]: results that a norm follows, on one rank; or none
	beside      [2]device.Buffer // the same of experts beside a feed-forward, and the sum of both; or none
	perLayer    perLayerMemory   // of layers with embeddings of their own
	own         parts            // of those above and of logits, what a rank computes itself
	ranks       int              // that share the pass
	signals     device.Signals
	given       device.Buffer // int32 [Slots+1][Context]: the table of GivenDrafter, pinned
	givenMap    *device.Mapped
	pools       []kernels.KV  // KV, and those of drafter
	drafter     *StepMemory   // of DraftModel: its rows, pool and buffers, and the same slots; nil: there is none
	eagle       eagleMemory   // of an EAGLE-3 head
	view        draftView     // of a draft model with DraftWindow
	logits      device.Buffer // float32 [MaxSamples][vocab]; of a model for embeddings none
	edited      device.Buffer // float32 [MaxSamples][vocab]: logits after penalties, biases and mask; none likewise

	vectors   device.Buffer  // float32 [RingSlots][MaxSamples][hidden]: the vector ring of such a model, pinned
	vectorMap *device.Mapped // the same as the host sees it

	sampledX     device.Buffer // float32 [MaxSamples][hidden]: x of a prefill pass's sampled rows
	sampledIndex device.Buffer // int32 [MaxSamples]: i, or -1 for padding

	chosen         kernels.Chosen // experts of the rows
	routeWorkspace kernels.RouteWorkspace
	expertsWork    kernels.ExpertWorkspace

	attendWorkspace device.Buffer
	roundedHidden   device.Buffer        // rows of x, rounded
	roundedInner    device.Buffer        // rows of attended or inner, rounded
	partials        device.Buffer        // split-K partials, their places and arrival counters
	beforeRoPE      kernels.KVBeforeRoPE // for families with biases or norms of q and k
	tags            tagMemory            // of passes of one row
}

// hiddenWorkspace is the workspace of products that read x.
func (s *StepMemory) hiddenWorkspace() kernels.Workspace {
	return kernels.Workspace{Rounded: s.roundedHidden, Partials: s.partials}
}

// innerWorkspace is the workspace of products that read attended or inner.
func (s *StepMemory) innerWorkspace() kernels.Workspace {
	return kernels.Workspace{Rounded: s.roundedInner, Partials: s.partials}
}

// ArenaBytes returns the bytes of device memory without the KV pool.
func (s *StepMemory) ArenaBytes() (n int64) {
	for _, b := range s.allocated {
		if b != s.descriptors && b != s.records && b != s.restored && b != s.Slots.Mask && b != s.Slots.Bias &&
			b != s.given && b != s.vectors && !s.isPool(b) {
			n += b.Bytes()
		}
	}
	return n
}

// Activations returns the buffers that a pass writes before it reads them.
func (s *StepMemory) Activations() []device.Buffer {
	own := []device.Buffer{s.x, s.q, s.attended, s.inner, s.sampledX}
	if s.vectorMap == nil {
		own = append(own, s.logits, s.edited)
	}
	own = append(own, s.expertActivations()...)
	own = append(own, s.latent.activations()...)
	own = append(own, s.tags.activations()...)
	own = append(own, s.perLayer.activations()...)
	for _, b := range []device.Buffer{s.branch, s.beside[0], s.beside[1]} {
		if b.Bytes() > 0 {
			own = append(own, b)
		}
	}
	if s.ranks > 1 {
		own = append(own, s.own.attended, s.own.inner, s.own.branch, s.own.gathered[0], s.own.gathered[1])
		if s.own.sharedInner.Bytes() > 0 {
			own = append(own, s.own.sharedInner)
		}
		if s.own.logits.Bytes() > 0 {
			own = append(own, s.own.logits)
		}
	}
	if d := s.drafter; d != nil {
		own = append(own, d.x, d.q, d.attended, d.inner, d.logits)
		for _, b := range []device.Buffer{d.branch, d.beside[0], d.beside[1]} {
			if b.Bytes() > 0 {
				own = append(own, b)
			}
		}
		own = append(own, d.perLayer.activations()...)
		own = append(own, d.eagle.activations()...)
		own = append(own, d.expertActivations()...)
		own = append(own, d.latent.activations()...)
	}
	return own
}

// expertActivations returns those of a model with experts. Ids of experts are not among them: kernels without waits, as
// tests have them, may read some too early, and these must be in range.
func (s *StepMemory) expertActivations() []device.Buffer {
	if s.chosen.Weights.IsZero() {
		return nil
	}
	own := []device.Buffer{s.chosen.Weights, s.routeWorkspace.Logits, s.expertsWork.Results}
	if s.sharedInner.Bytes() > 0 {
		own = append(own, s.sharedInner)
	}
	return own
}

// Arena returns a buffer that only this step memory has, to identify it.
func (s *StepMemory) Arena() device.Buffer { return s.x }

// Write puts the descriptor of a step into its slot of the descriptor ring, from which the
// first op of its pass reads it, and the biases of new sequences beside their slots. Steps are
// numbered from 0 without a gap. Errors are those of [kernels.StepLayout.Encode] and
// [kernels.SlotsView.WriteBiases].
func (s *StepMemory) Write(step *kernels.Step) error {
	for i := range step.Inits {
		if err := s.shared.WriteBiases(&step.Inits[i]); err != nil {
			return err
		}
	}
	words := s.Layout.Words()
	at := int(step.Number%uint64(s.RingSlots)) * words
	return s.Layout.Encode(s.descriptorMap.Bytes()[4*at:4*(at+words)], step)
}

// Masks returns the host's view of a slot's masks, Geometry.Masks of [kernels.MaskWords] words: a bit for each token
// that a sequence with Sampling.Masked may draw, in the first row of a pass and in each further one of a verify pass.
// Write to them only while no step in flight samples in the slot.
func (s *StepMemory) Masks(slot int32) []uint32 { return s.shared.Masks(slot) }

// Given returns the host's view of a slot's drafts by position, if GivenDrafter guesses. Write to it only while no step
// in flight names the slot.
func (s *StepMemory) Given(slot int32) []int32 {
	raw := s.givenMap.Bytes()
	all := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(raw))), len(raw)/4)
	return all[int(slot)*s.Context:][:s.Context]
}

// RestoreWords returns the words that the slots restored before one step may take together.
func (s *StepMemory) RestoreWords() int { return s.Geometry.restoreWords() }

// Restore launches the restore of each slot, before the pass of step number is launched on the same stream. The
// states are staged in the step's part of a ring, as its descriptor is. Errors: [device.ErrBadShape] for more than
// RestoreWords words, and those of the launches.
func (s *StepMemory) Restore(stream device.Stream, number uint64, states []kernels.SlotState) error {
	begin := int(number%uint64(s.RingSlots)) * s.RestoreWords()
	at, end := begin, begin+s.RestoreWords()
	for i := range states {
		state, words := &states[i], states[i].Words()
		if at+words > end {
			return fmt.Errorf("%w: restores of more than %d words in a step", device.ErrBadShape, s.RestoreWords())
		}
		if err := state.Encode(s.restoredMap.Bytes()[4*at : 4*(at+words)]); err != nil {
			return err
		}
		if err := s.shared.WriteBiases(&state.Init); err != nil {
			return err
		}
		op := kernels.Restore{Staged: s.restored.Slice(4*int64(at), 4*int64(words)), Slots: s.Slots,
			Slot: int(state.Init.Slot), Pages: len(state.Pages), Tokens: len(state.History)}
		if err := stream.Launch(op); err != nil {
			return err
		}
		at += words
	}
	return nil
}

// Record reads the i-th record of a completed step.
func (s *StepMemory) Record(number uint64, i int, r *kernels.Record) {
	at := 4 * (int(number%uint64(s.RingSlots))*s.MaxSamples + i) * kernels.RecordWords
	kernels.DecodeRecord(s.recordMap.Bytes()[at:at+4*kernels.RecordWords], r)
}

// Vector copies the i-th embedding of a completed step of a model for embeddings to v, of as many elements.
func (s *StepMemory) Vector(number uint64, i int, v []float32) {
	at := 4 * (int(number%uint64(s.RingSlots))*s.MaxSamples + i) * len(v)
	copy(v, unsafe.Slice((*float32)(unsafe.Pointer(&s.vectorMap.Bytes()[at])), len(v)))
}

// Logits returns the logits of the last step: float32 [MaxSamples][vocab]; none of a model for embeddings.
func (s *StepMemory) Logits() device.Buffer { return s.logits }
