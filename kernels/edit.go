package kernels

import (
	"fmt"
	"math"
	"unsafe"

	"reel.internal/reel/kernels/device"
)

// MaxBiases is the largest number of biases of a sequence.
const MaxBiases = 1024

// biasWords is the length of a slot's part of Slots.Bias: {token, value} of each bias.
const biasWords = 2 * MaxBiases

// Bias is added to the logit of a token.
type Bias struct {
	Token int32
	Value float32 // finite
}

// MaskWords returns the words of a mask over a vocabulary. Bit i%32 of word i/32 is 1 if token i may be drawn.
func MaskWords(vocab int) int { return (vocab + 31) / 32 }

// SlotsView is the host's view of what slots share with the device. The host writes a slot's part while no step in
// flight names the slot.
type SlotsView struct {
	mask, bias *device.Mapped
	maskWords  int // of a slot, all of its masks
}

// AllocShared allocates Slots.Mask and Slots.Bias for a vocabulary, with Slots.Masks masks. The caller frees the
// buffers, also those that are set beside an error.
func (s *Slots) AllocShared(m device.Memory, vocab int) (v SlotsView, err error) {
	v.maskWords = max(s.Masks, 1) * MaskWords(vocab)
	if s.Mask, v.mask, err = m.Pinned(4 * int64(s.Count) * int64(v.maskWords)); err != nil {
		return v, err
	}
	s.Bias, v.bias, err = m.Pinned(4 * int64(s.Count) * biasWords)
	return v, err
}

// Masks returns a slot's masks, Slots.Masks times [MaskWords] words. The device reads them if the Sampling of the slot's
// sequence is Masked: the first, or in a verify pass that of each row.
func (v SlotsView) Masks(slot int32) []uint32 {
	raw := v.mask.Bytes()
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(raw))), len(raw)/4)
	return words[int(slot)*v.maskWords:][:v.maskWords]
}

// WriteBiases writes the biases of a sequence to the slot that i prepares. More than MaxBiases are
// [device.ErrBadShape].
func (v SlotsView) WriteBiases(i *Init) error {
	biases := i.Sampling.Biases
	if len(biases) == 0 {
		return nil
	}
	if len(biases) > MaxBiases {
		return fmt.Errorf("%w: %d biases of a sequence, at most %d", device.ErrBadShape, len(biases), MaxBiases)
	}
	w := wordWriter{dst: v.bias.Bytes()[4*biasWords*int(i.Slot):]}
	for _, b := range biases {
		w.put(b.Token, int32(math.Float32bits(b.Value)))
	}
	return nil
}

// readBiases appends to b the biases that WriteBiases wrote to words.
func readBiases(b []Bias, words []int32) []Bias {
	for ; len(words) > 1; words = words[2:] {
		b = append(b, Bias{words[0], math.Float32frombits(uint32(words[1]))})
	}
	return b
}

// Past is what a draw depends on beside the logits and [Sampling].
type Past struct {
	Tokens []int32  // the sequence's tokens so far, of prompt and completion
	Prompt int      // number of them that are the prompt's
	Mask   []uint32 // if Sampling.Masked: [MaskWords] words
}

// index returns the index in the completion of the token that is drawn next.
func (p Past) index() int { return len(p.Tokens) - p.Prompt }

// window returns the tokens that the repeat penalty applies to.
func (p Past) window() []int32 { return p.Tokens[max(0, len(p.Tokens)-PenaltyWindow):] }

// edit applies everything between the repeat penalty and the temperature to d.logits.
func (d *draw) edit(s Sampling, p Past) {
	if s.PresencePenalty != 0 || s.FrequencyPenalty != 0 {
		d.penalizeCompletion(s, p.Tokens[min(p.Prompt, len(p.Tokens)):])
	}
	for _, b := range s.Biases {
		d.logits[b.Token] += b.Value
	}
	if s.Masked {
		for i := range d.logits {
			if p.Mask[i/32]>>(i%32)&1 == 0 {
				d.logits[i] = float32(math.Inf(-1))
			}
		}
	}
}

// penalizeCompletion subtracts the presence penalty from the logit of each token of the completion, and the frequency
// penalty times the number of its occurrences.
func (d *draw) penalizeCompletion(s Sampling, completion []int32) {
	if len(d.counts) < len(d.logits) {
		d.counts = make([]int32, len(d.logits))
	}
	for _, id := range completion {
		d.counts[id]++
	}
	for _, id := range completion {
		if n := d.counts[id]; n > 0 {
			// The conversion keeps the compiler from fusing product and difference: the bits are those of the GPU.
			d.logits[id] = d.logits[id] - s.PresencePenalty - float32(s.FrequencyPenalty*float32(n))
			d.counts[id] = 0
		}
	}
}
