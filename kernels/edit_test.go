package kernels

import (
	"errors"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// The presence penalty counts a token once and the frequency penalty each occurrence, of the completion alone: the
// prompt's tokens have neither.
func TestPenaltiesCountTheCompletion(t *testing.T) {
	logits := []float32{4, 4, 4, 4}
	past := Past{Tokens: []int32{3, 3, 3, 0, 1, 0, 0}, Prompt: 3}
	d := new(draw)
	got := d.scaled(logits, Sampling{PresencePenalty: 0.5, FrequencyPenalty: 0.25}, past)
	if want := []float32{2.75, 3.25, 4, 4}; !slices.Equal(got, want) {
		t.Errorf("logits are %v, want %v", got, want)
	}
	// The counts are cleared for the next draw.
	got = d.scaled(logits, Sampling{FrequencyPenalty: 1}, Past{Tokens: past.Tokens[:4], Prompt: 3})
	if want := []float32{3, 4, 4, 4}; !slices.Equal(got, want) {
		t.Errorf("the next draw's logits are %v, want %v", got, want)
	}
	// A row of the prompt has no completion yet.
	got = d.scaled(logits, Sampling{PresencePenalty: 1}, Past{Tokens: past.Tokens[:2], Prompt: 3})
	if !slices.Equal(got, logits) {
		t.Errorf("within the prompt the logits are %v", got)
	}
}

// The order is repeat penalty, presence and frequency, bias, mask.
func TestEditsHaveAnOrder(t *testing.T) {
	past := Past{Tokens: []int32{0, 0, 1}, Prompt: 1, Mask: []uint32{0b0101}}
	s := Sampling{RepeatPenalty: 2, PresencePenalty: 1, FrequencyPenalty: 0.5, Biases: []Bias{{0, -3}, {2, 5}, {3, 9}},
		Masked: true}
	got := new(draw).scaled([]float32{8, 8, 8, 8}, s, past)
	off := float32(math.Inf(-1))
	if want := []float32{-0.5, off, 13, off}; !slices.Equal(got, want) { // 8/2 - 1 - 0.5 - 3, …
		t.Errorf("logits are %v, want %v", got, want)
	}
}

// No setting draws a token that the mask does not allow, also where the filters keep more tokens than it allows. A
// mask that allows nothing draws token 0.
func TestMaskedTokensAreNeverDrawn(t *testing.T) {
	logits := make([]float32, 100)
	for i := range logits {
		logits[i] = float32(i) / 10
	}
	one, none := maskOf(100, []int32{70}), maskOf(100, nil)
	for name, s := range map[string]Sampling{
		"greedy": {TopP: 1}, "plain": {Temperature: 1, TopP: 1}, "top_k": {Temperature: 1, TopP: 1, TopK: 5},
		"top_p": {Temperature: 2, TopP: 0.9}, "min_p": {Temperature: 2, TopP: 1, MinP: 0.1},
		"bias": {Temperature: 1, TopP: 1, Biases: []Bias{{99, 100}}},
	} {
		s.Masked = true
		for seed := range uint64(50) {
			s.Seed = seed
			if got := new(draw).token(logits, s, Past{Mask: one}); got != 70 {
				t.Fatalf("%s drew %d, and only 70 is allowed", name, got)
			}
			if got := new(draw).token(logits, s, Past{Mask: none}); got != 0 {
				t.Fatalf("%s drew %d with nothing allowed, want 0", name, got)
			}
		}
	}
}

// Sample reads the biases and the mask of the row's slot, and reports what the model computed.
func TestSampleReadsItsSlotsBiasesAndMask(t *testing.T) {
	g := newRig(t, 1, 8)
	for slot := range int32(g.slots.Count) {
		for i := range g.shared.Masks(slot) {
			g.shared.Masks(slot)[i] = 0
		}
		g.must(g.shared.WriteBiases(&Init{Slot: slot, Sampling: Sampling{Biases: []Bias{{0, 50}}}}))
	}
	logits := make([]float32, 40)
	logits[7], logits[33] = 2, 1
	sum := 38 + math.Exp(2) + math.E
	for _, c := range []struct {
		s    Sampling
		want int32
	}{
		{Sampling{Logprobs: 2}, 7},
		{Sampling{Logprobs: 2, Biases: []Bias{{5, 1.5}, {33, 3}}}, 33},
		{Sampling{Logprobs: 2, Masked: true}, 33},
		{Sampling{Logprobs: 2, Masked: true, Biases: []Bias{{7, 3}}}, 33},
	} {
		g.must(g.shared.WriteBiases(&Init{Slot: 2, Sampling: c.s}))
		// Sample finds a slot's mask by its own vocabulary, which is smaller than the rig's.
		copy(g.h.Uint32(g.slots.Mask)[2*MaskWords(40):], maskOf(40, []int32{33, 34}))
		r := g.sampleStep(slices.Clone(logits), c.s, 2, 2, []int32{3, 3, 1})
		if r.Token != c.want {
			t.Errorf("%+v drew %d, want %d", c.s, r.Token, c.want)
		}
		if want := float64(logits[r.Token]) - math.Log(sum); !near(r.Logprob, want, 1) || len(r.Top) != 2 ||
			r.Top[0].Token != 7 || r.Top[1].Token != 33 {
			t.Errorf("%+v: log-probability %v, want %v; alternatives %+v", c.s, r.Logprob, want, r.Top)
		}
	}
}

func TestTooManyBiases(t *testing.T) {
	g := newRig(t, 1, 8)
	s := Sampling{Biases: make([]Bias, MaxBiases)}
	g.must(g.shared.WriteBiases(&Init{Sampling: s}))
	s.Biases = append(s.Biases, Bias{})
	if err := g.shared.WriteBiases(&Init{Sampling: s}); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("%d biases: %v, wants ErrBadShape", len(s.Biases), err)
	}
}

// The host's view of a slot's mask is what the device reads.
func TestMaskViews(t *testing.T) {
	g := newRig(t, 1, 8)
	words := MaskWords(rigVocab)
	for slot := range int32(g.slots.Count) {
		for i := range g.shared.Masks(slot) {
			g.shared.Masks(slot)[i] = uint32(int(slot)*words + i)
		}
	}
	for i, w := range g.h.Uint32(g.slots.Mask) {
		if w != uint32(i) {
			t.Fatalf("word %d is %d", i, w)
		}
	}
	if len(g.shared.Masks(0)) != 32 || MaskWords(1000) != 32 || MaskWords(1024) != 32 || MaskWords(1025) != 33 {
		t.Errorf("a mask of %d tokens has %d words", rigVocab, len(g.shared.Masks(0)))
	}
}
