package kernels

import (
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels/internal/distribution"
)

// Known answers of Philox4x32-10, from the authors' Random123 distribution.
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox4x32(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, wants %x", c.counter, c.key, got, c.want)
		}
	}
}

// 10,000 draws match the exact filtered softmax, by a chi-square test, and no draw is a token that
// was filtered out.
func TestDrawsMatchTheFilteredSoftmax(t *testing.T) {
	logits := []float32{2, 1.5, 1.5, 0.3, -0.2, 0, -1, 0.9, -2, 1.1, 0.05, -3}
	window := []int32{0, 3, 8, 3}
	const draws = 10000
	for name, s := range map[string]Sampling{
		"plain":         {Temperature: 1, TopP: 1, RepeatPenalty: 1},
		"hot":           {Temperature: 1.7, TopP: 1, RepeatPenalty: 1},
		"penalty":       {Temperature: 0.9, TopP: 1, RepeatPenalty: 1.8},
		"top_k in ties": {Temperature: 1, TopK: 2, TopP: 1, RepeatPenalty: 1},
		"top_p":         {Temperature: 1, TopP: 0.7, RepeatPenalty: 1},
		"min_p":         {Temperature: 1, TopP: 1, MinP: 0.3, RepeatPenalty: 1},
		"presence":      {Temperature: 1, TopP: 1, PresencePenalty: 1.1},
		"frequency":     {Temperature: 1, TopP: 1, FrequencyPenalty: 0.7},
		"rewards":       {Temperature: 1, TopP: 1, PresencePenalty: -0.4, FrequencyPenalty: -0.3},
		"biases":        {Temperature: 1, TopP: 1, Biases: []Bias{{11, 4}, {0, -100}, {3, 0.5}}},
		"mask":          {Temperature: 1, TopP: 1, Masked: true},
		"all":           {Temperature: 0.8, TopK: 8, TopP: 0.9, MinP: 0.1, RepeatPenalty: 1.3},
		"all, edited": {Temperature: 0.8, TopK: 8, TopP: 0.9, MinP: 0.1, RepeatPenalty: 1.3, PresencePenalty: 0.5,
			FrequencyPenalty: 0.4, Biases: []Bias{{5, 1}, {3, -1}, {4, 3}}, Masked: true},
	} {
		past := Past{Tokens: window, Prompt: 1, Mask: maskOf(len(logits), allowed)}
		want := distribution.Exact(logits, filters(s), window, window[1:])
		counts := map[int]int{}
		d := new(draw)
		for i := range draws {
			s.Seed = 0x9E3779B97F4A7C15 * uint64(i+1)
			counts[int(d.token(logits, s, past))]++
		}
		distribution.Check(t, name, counts, want, draws)
	}
}

// filters returns the settings of s that form the distribution.
func filters(s Sampling) distribution.Filters {
	f := distribution.Filters{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		RepeatPenalty: max(s.RepeatPenalty, 1), PresencePenalty: s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty, Bias: map[int32]float32{}}
	for _, b := range s.Biases {
		f.Bias[b.Token] = b.Value
	}
	if s.Masked {
		f.Allowed = allowed
	}
	return f
}

// allowed are the tokens that the masks of these tests allow.
var allowed = []int32{1, 3, 5, 6, 8, 9, 11}

// maskOf returns a mask that allows these tokens only. The bits past the vocabulary are set.
func maskOf(vocab int, allowed []int32) []uint32 {
	mask := make([]uint32, MaskWords(vocab))
	for i := range 32 * len(mask) {
		if i >= vocab || slices.Contains(allowed, int32(i)) {
			mask[i/32] |= 1 << (i % 32)
		}
	}
	return mask
}

// Consecutive indices of one seed are as random as different seeds.
func TestOneSeedManyIndices(t *testing.T) {
	const draws, cells = 10000, 16
	var counts [cells]float64
	for i := range draws {
		counts[int(uniform(42, i)*cells)]++
	}
	var chi float64
	for _, n := range counts {
		chi += math.Pow(n-draws/cells, 2) / (draws / cells)
	}
	if chi > 45 { // 99.99% of 15 degrees of freedom is 44.3
		t.Errorf("chi-square %.1f over 15 degrees of freedom", chi)
	}
}

func TestGreedyTakesTheLowestIDAmongEquals(t *testing.T) {
	d := new(draw)
	if got := d.token([]float32{0, 3, 1, 3}, Sampling{}, Past{}); got != 1 {
		t.Errorf("argmax with a tie took %d, wants 1", got)
	}
	if got := d.token([]float32{0, 3, 1, 3}, Sampling{RepeatPenalty: 2}, Past{Tokens: []int32{1}}); got != 3 {
		t.Errorf("argmax after a penalty on 1 took %d, wants 3", got)
	}
}

// sampleStep stages one sampled row for slot 2 at the given position and samples it.
func (g *rig) sampleStep(logits []float32, s Sampling, position, prompt int32, tokens []int32) Record {
	g.t.Helper()
	step := Step{Inits: []Init{{Slot: 2, Generation: 7, Prompt: prompt, Sampling: s}}, Samples: []int32{position}}
	for p := range position + 1 {
		step.Rows = append(step.Rows, Row{2, p, tokens[p]})
	}
	g.stage(step, len(step.Rows)+1, 2)
	buf, err := LoadVector(g.h, append(logits, make([]float32, len(logits))...))
	g.must(err)
	results := g.poisoned(rigRing * g.layout.MaxSamples * RecordWords)
	g.launch(Sample{Logits: buf, Rows: g.rows, Slots: g.slots, Records: results, Edited: g.poisoned(2 * len(logits)),
		T: len(step.Rows) + 1, N: 2, Vocab: len(logits), RingSlots: rigRing, MaxSamples: g.layout.MaxSamples})
	var r Record
	at := int((g.number-1)%rigRing) * g.layout.MaxSamples * RecordWords
	DecodeRecord(g.h.Bytes(results)[4*at:4*(at+RecordWords)], &r)
	return r
}

func TestSamplePublishesItsResult(t *testing.T) {
	g := newRig(t, 1, 8)
	logits := []float32{1, -2, 4, 0.5}
	r := g.sampleStep(logits, Sampling{Logprobs: 3}, 2, 2, []int32{3, 3, 1})
	sum := math.Exp(1) + math.Exp(-2) + math.Exp(4) + math.Exp(0.5)
	if r.Step != g.number-1 || r.Slot != 2 || r.Generation != 7 || r.Count != 1 || r.Token != 2 {
		t.Fatalf("record %+v", r)
	}
	if want := 4 - math.Log(sum); !near(r.Logprob, want, 1) {
		t.Errorf("log-probability %v, wants %v", r.Logprob, want)
	}
	if len(r.Top) != 3 || r.Top[0].Token != 2 || r.Top[1].Token != 0 || r.Top[2].Token != 3 ||
		r.Top[0].Logprob != r.Logprob {
		t.Errorf("alternatives %+v", r.Top)
	}
	if got := g.h.Int32(g.slots.Token)[2]; got != 2 {
		t.Errorf("the slot's last token is %d, wants 2", got)
	}
}

// The window is the last 64 tokens of prompt and completion. The reported log-probability is that
// of the model's own distribution.
func TestPenaltyWindowAndReportedLogprob(t *testing.T) {
	l := make([]float32, 4)
	l[1], l[2] = 2, 1
	g := newRig(t, 1, 8)
	plain := g.sampleStep(slices.Clone(l), Sampling{}, 1, 1, []int32{1, 1})
	fined := g.sampleStep(slices.Clone(l), Sampling{RepeatPenalty: 4}, 1, 1, []int32{1, 1})
	if plain.Token != 1 || fined.Token != 2 {
		t.Errorf("took %d without and %d with the penalty, wants 1 and 2", plain.Token, fined.Token)
	}
	if want := 1 - math.Log(2+math.E*math.E+math.E); !near(fined.Logprob, want, 1) {
		t.Errorf("log-probability %v, wants %v of the unpenalised distribution", fined.Logprob, want)
	}
}

// A draw depends only on the seed and the token's index in the completion: not on the prompt's
// length, the slot or the step.
func TestDrawDependsOnSeedAndIndexAlone(t *testing.T) {
	logits := make([]float32, 1000)
	g := newRig(t, 1, 8)
	s := Sampling{Temperature: 1, TopP: 1, RepeatPenalty: 1, Seed: 5}
	tokens := make([]int32, 10)
	a := g.sampleStep(slices.Clone(logits), s, 3, 2, tokens)
	b := g.sampleStep(slices.Clone(logits), s, 6, 5, tokens)
	c := g.sampleStep(slices.Clone(logits), s, 6, 4, tokens)
	if a.Token != b.Token || a.Token == c.Token {
		t.Errorf("index 2 drew %d and %d, index 3 drew %d", a.Token, b.Token, c.Token)
	}
}
