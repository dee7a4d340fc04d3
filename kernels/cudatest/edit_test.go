//go:build cuda

package cudatest

import (
	"slices"
	"testing"

	"reel.internal/reel/kernels"
)

// allowed are the tokens that the mask of a small vocabulary allows.
var allowed = []int32{1, 3, 5, 6, 8, 9, 11}

// maskOf returns a mask that allows these tokens only.
func maskOf(vocab int, tokens []int32) []uint32 {
	mask := make([]uint32, kernels.MaskWords(vocab))
	for _, id := range tokens {
		mask[id/32] |= 1 << (id % 32)
	}
	return mask
}

// biasesOf returns n biases of up to ±most.
func biasesOf(n int, most float32) (all []kernels.Bias) {
	for i := range n {
		all = append(all, kernels.Bias{Token: int32(7 * i), Value: most * float32(i%11-5) / 5})
	}
	return all
}

// randomMasks gives each slot a mask, the same on both devices. Of some slots it allows about half of the tokens, of
// others few, one or none.
func (d *drawing) randomMasks() {
	for slot := range int32(d.slots[0].Count) {
		mask := d.shared[0].Masks(slot)
		for i := range mask {
			mask[i] = d.r.Uint32()
			if slot%4 == 1 {
				mask[i] &= d.r.Uint32() & d.r.Uint32() & d.r.Uint32() & d.r.Uint32()
			}
			if slot%4 > 1 {
				mask[i] = 0
			}
		}
		if slot%4 == 2 {
			mask[0] = 1 // token 0
		}
		copy(d.shared[1].Masks(slot), mask)
	}
}

// Greedy tokens after penalties, biases and masks equal the host's, with prompts that have no completion yet, tokens
// that occur often, and vocabularies of any size. Log-probabilities and alternatives stay those of the model.
func TestCUDAEditsEqualHost(t *testing.T) {
	for _, vocab := range []int{1, 2, 20, 31, 1000, 1025, 32000, 151936} {
		b := newBoth(t)
		n := max(4, min(64, 1_500_000/vocab))
		sampling := make([]kernels.Sampling, n)
		for i := range sampling {
			s := &sampling[i]
			s.Logprobs = kernels.MaxTop
			if i%2 == 0 {
				s.PresencePenalty = b.r.Float32()*4 - 2
			}
			if i%3 == 0 {
				s.FrequencyPenalty = b.r.Float32()*4 - 2
			}
			if i%5 == 0 {
				s.RepeatPenalty = 1.3
			}
			if i%4 < 2 {
				s.Biases = biasesOf(min((vocab+6)/7, 1+b.r.IntN(kernels.MaxBiases)), 10)
			}
			s.Masked = i%7 < 3
		}
		d := newDrawing(b, sampling, vocab)
		d.randomMasks()
		for i := range d.history {
			d.history[i] %= 10 // tokens that occur often
		}
		for on := range d.slots {
			d.slots[on].History = b.load(on, bytesOf(slices.Clone(d.history)))
		}
		slot, position := d.randomPositions(n)
		position[0] = max(0, d.prompt[0]-1)
		r := d.sample(slot, position, b.normal(n*vocab, 4), n, true)
		for i := range r[0] {
			if !d.sameRecord(r[1][i], r[0][i]) {
				t.Fatalf("%d tokens, sample %d, %+v: %+v, wants %+v", vocab, i, sampling[i], r[1][i], r[0][i])
			}
		}
	}
}
