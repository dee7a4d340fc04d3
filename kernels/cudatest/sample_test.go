//go:build cuda

package cudatest

import (
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/distribution"
	"reel.internal/reel/kernels/internal/tune"
)

// drawing samples from slots that the test fills itself.
type drawing struct {
	*both
	slots   [2]kernels.Slots
	shared  [2]kernels.SlotsView
	history []int32 // [slots][context]
	prompt  []int32
	queries int           // of a verify pass, whose samples go into drawn; 0: another pass
	drawn   device.Buffer // on the GPU
}

const drawContext = 200

// newDrawing gives each slot a Sampling, a random prompt of less than 100 tokens, and a random history of tokens below
// vocab.
func newDrawing(b *both, sampling []kernels.Sampling, vocab int) *drawing {
	prompts := make([]int32, len(sampling))
	for i := range prompts {
		prompts[i] = b.r.Int32N(100)
	}
	return newDrawingAfter(b, prompts, sampling, vocab)
}

// newDrawingAfter is newDrawing with prompts of these lengths.
func newDrawingAfter(b *both, prompts []int32, sampling []kernels.Sampling, vocab int) *drawing {
	d := &drawing{both: b, history: make([]int32, (len(sampling)+1)*drawContext), prompt: prompts}
	for i := range d.history {
		d.history[i] = b.r.Int32N(int32(vocab))
	}
	params := make([]int32, (len(sampling)+1)*kernels.ParamWords)
	for slot, s := range sampling {
		words := (&kernels.Init{Generation: int32(slot + 1), Prompt: d.prompt[slot], Sampling: s}).Params()
		copy(params[slot*kernels.ParamWords:], words[:])
	}
	n := len(sampling) + 1
	words := func(v []int32) twin { return put(b, v) }
	table, length, token, history, par := words(make([]int32, n)), words(make([]int32, n)), words(make([]int32, n)),
		words(d.history), words(params)
	for on := range d.slots {
		d.slots[on] = kernels.Slots{Count: n, Pages: 1, Context: drawContext, BlockTable: table[on],
			Length: length[on], Token: token[on], History: history[on], Params: par[on]}
		d.shared[on] = b.shareSlots(on, &d.slots[on], vocab)
		for slot, s := range sampling {
			b.must(d.shared[on].WriteBiases(&kernels.Init{Slot: int32(slot), Sampling: s}))
		}
	}
	return d
}

// shareSlots allocates what slots share with the host, on one device.
func (b *both) shareSlots(on int, slots *kernels.Slots, vocab int) kernels.SlotsView {
	b.t.Helper()
	view, err := slots.AllocShared(b.devices[on], vocab)
	b.must(err)
	b.t.Cleanup(func() {
		b.must(b.devices[on].Free(slots.Mask))
		b.must(b.devices[on].Free(slots.Bias))
	})
	return view
}

// sample draws for slot[i] at position[i] from logits [len(slot)][vocab], padded to N samples. It
// returns the records of both devices; the host's only if host is set.
func (d *drawing) sample(slot, position []int32, logits []float32, N int, host bool) (records [2][]kernels.Record) {
	d.t.Helper()
	vocab := len(logits) / len(slot)
	samples := append(counted(len(slot)), slices.Repeat([]int32{-1}, N-len(slot))...)
	padded := append(slices.Clone(logits), make([]float32, (N-len(slot))*vocab)...)
	l, rows, numbers := put(d.both, padded), [2]kernels.Rows{}, put(d.both, []int32{3, 1})
	edited := d.poisoned(len(padded))
	index, slots, positions := put(d.both, samples), put(d.both, slot), put(d.both, position)
	drawn := d.poisoned(N)
	d.drawn = drawn[1]
	var rings [2]*device.Mapped
	op := func(on int) device.Op {
		results, mapped, err := d.devices[on].Pinned(4 * 2 * int64(N) * kernels.RecordWords)
		d.must(err)
		d.t.Cleanup(func() { d.must(d.devices[on].Free(results)) })
		rings[on] = mapped
		rows[on] = kernels.Rows{Slot: slots[on], Position: positions[on], Sample: index[on], Drawn: drawn[on],
			Number: numbers[on]}
		return kernels.Sample{Logits: l[on], Rows: rows[on], Slots: d.slots[on], Records: results, Edited: edited[on],
			T: len(slot), N: N, Vocab: vocab, RingSlots: 2, MaxSamples: N, Queries: d.queries}
	}
	if host {
		d.run(op)
	} else {
		d.onGPU(op(1))
	}
	for on, ring := range rings {
		for i := 0; ring != nil && i < N; i++ {
			var r kernels.Record
			kernels.DecodeRecord(ring.Bytes()[4*kernels.RecordWords*(N+i):], &r) // step number 3 has place 1 of 2
			if i >= len(slot) {
				if r.Step != 0 || r.Count != 0 {
					d.t.Fatalf("padding sample %d was published: %+v", i, r)
				}
				continue
			}
			if r.Step != 1<<32+3 || r.Count != 1 || r.Slot != slot[i] || r.Generation != slot[i]+1 {
				d.t.Fatalf("record %d is %+v", i, r)
			}
			r.Top = slices.Clone(r.Top)
			records[on] = append(records[on], r)
		}
	}
	return records
}

// sameRecord reports whether two records are equal, up to rounding of log-probabilities.
func (d *drawing) sameRecord(got, want kernels.Record) bool {
	near := func(a, b float32) bool { return math.Abs(float64(a)-float64(b)) <= 1e-5*(1+math.Abs(float64(b))) }
	if got.Token != want.Token || !near(got.Logprob, want.Logprob) || len(got.Top) != len(want.Top) {
		return false
	}
	for i, w := range want.Top {
		if got.Top[i].Token != w.Token || !near(got.Top[i].Logprob, w.Logprob) {
			return false
		}
	}
	return true
}

func repeat(s kernels.Sampling, n int) []kernels.Sampling {
	return slices.Repeat([]kernels.Sampling{s}, n)
}

// randomPositions returns n slots, each with a random position after its prompt.
func (d *drawing) randomPositions(n int) (slot, position []int32) {
	for i := range int32(n) {
		slot = append(slot, i)
		position = append(position, d.prompt[i]+d.r.Int32N(drawContext-100))
	}
	return slot, position
}

// Greedy tokens, alternatives and their log-probabilities equal the host's, with ties, penalties
// and vocabularies of any size, in blocks and in clusters.
func TestCUDAGreedyEqualsHost(t *testing.T) {
	defer func(least int) { tune.LeastClusterVocab = least }(tune.LeastClusterVocab)
	for _, vocab := range []int{1, 2, 20, 31, 1000, 1025, 32000, 151936} {
		for i, penalty := range []float32{1, 1.3, 1, 1.3} {
			b := newBoth(t)
			n := max(2, min(64, 1_500_000/vocab))
			if i >= 2 { // each in a cluster of blocks
				n, tune.LeastClusterVocab = min(n, 8), 1
			}
			d := newDrawing(b, repeat(kernels.Sampling{RepeatPenalty: penalty, Logprobs: kernels.MaxTop}, n), vocab)
			logits := b.normal(n*vocab, 4) // truncated to bfloat16, so that there are ties
			for i := range vocab {
				logits[i] = float32(i % 3) // only ties in the first row
			}
			slot, position := d.randomPositions(n)
			r := d.sample(slot, position, logits, n, true)
			for i := range r[0] {
				if !d.sameRecord(r[1][i], r[0][i]) {
					t.Fatalf("%d tokens, penalty %v, sample %d: %+v, wants %+v", vocab, penalty, i, r[1][i], r[0][i])
				}
			}
			b.same("tokens of slots", twin{d.slots[0].Token, d.slots[1].Token})
		}
	}
}

// 10,000 draws match the exact filtered softmax, as on the host.
func TestCUDADrawsMatchTheFilteredSoftmax(t *testing.T) {
	logits := []float32{2, 1.5, 1.5, 0.3, -0.2, 0, -1, 0.9, -2, 1.1, 0.05, -3}
	const draws, batch = 10000, 1000
	for name, s := range map[string]kernels.Sampling{
		"plain":         {Temperature: 1, TopP: 1, RepeatPenalty: 1},
		"hot":           {Temperature: 1.7, TopP: 1, RepeatPenalty: 1},
		"penalty":       {Temperature: 0.9, TopP: 1, RepeatPenalty: 1.8},
		"top_k in ties": {Temperature: 1, TopK: 2, TopP: 1, RepeatPenalty: 1},
		"top_p":         {Temperature: 1, TopP: 0.7, RepeatPenalty: 1},
		"min_p":         {Temperature: 1, TopP: 1, MinP: 0.3, RepeatPenalty: 1},
		"all":           {Temperature: 0.8, TopK: 8, TopP: 0.9, MinP: 0.1, RepeatPenalty: 1.3},
		"presence":      {Temperature: 1, TopP: 1, PresencePenalty: 1.1},
		"frequency":     {Temperature: 1, TopP: 1, FrequencyPenalty: -0.7},
		"biases":        {Temperature: 1, TopP: 1, Biases: []kernels.Bias{{Token: 11, Value: 4}, {Value: -100}}},
		"mask":          {Temperature: 1, TopP: 1, Masked: true},
		"all, edited": {Temperature: 0.8, TopK: 8, TopP: 0.9, MinP: 0.1, RepeatPenalty: 1.3, PresencePenalty: 0.5,
			FrequencyPenalty: 0.4, Biases: []kernels.Bias{{Token: 5, Value: 1}, {Token: 3, Value: -1}}, Masked: true},
	} {
		b := newBoth(t)
		counts := map[int]int{}
		window := []int32{0, 3, 8, 3}
		for round := range draws / batch {
			sampling := repeat(s, batch)
			for i := range sampling {
				sampling[i].Seed = 0x9E3779B97F4A7C15 * uint64(round*batch+i+1)
			}
			d := newDrawingAfter(b, slices.Repeat([]int32{1}, batch), sampling, len(logits))
			for i := range batch {
				copy(d.history[i*drawContext:], window)
				copy(d.shared[1].Masks(int32(i)), maskOf(len(logits), allowed))
			}
			d.slots[1].History = b.load(1, bytesOf(d.history))
			position := slices.Repeat([]int32{3}, batch)
			for _, r := range d.sample(counted(batch), position, slices.Repeat(logits, batch), batch, false)[1] {
				counts[int(r.Token)]++
			}
		}
		distribution.Check(t, name, counts, distribution.Exact(logits, filters(s), window, window[1:]), draws)
	}
}

// In large vocabularies, also with equal logits, every draw is a token that the host's filters
// keep, and draws reach the last of them.
func TestCUDAFiltersLargeVocabularies(t *testing.T) {
	for name, c := range map[string]struct {
		vocab  int
		spread float64 // of logits; with 0 all are equal
		s      kernels.Sampling
	}{
		"top_k among equals":    {5000, 0, kernels.Sampling{Temperature: 1, TopK: 3000, TopP: 1}},
		"top_p among equals":    {5000, 0, kernels.Sampling{Temperature: 1, TopP: 0.5}},
		"top_k of equals of 2k": {151936, 0, kernels.Sampling{Temperature: 1, TopK: 70000, TopP: 1}},
		"top_k":                 {151936, 2, kernels.Sampling{Temperature: 0.7, TopK: 40, TopP: 1}},
		"wide top_k":            {32000, 2, kernels.Sampling{Temperature: 3, TopK: 5000, TopP: 1}},
		"top_p":                 {32000, 2, kernels.Sampling{Temperature: 1, TopP: 0.9}},
		"narrow top_p":          {128256, 6, kernels.Sampling{Temperature: 0.5, TopP: 0.3}},
		"min_p":                 {32000, 3, kernels.Sampling{Temperature: 1, TopP: 1, MinP: 0.05}},
		"all": {32000, 3, kernels.Sampling{Temperature: 1.2, TopK: 100, TopP: 0.8, MinP: 0.02,
			RepeatPenalty: 1.2}},
		"Gemma's":               {262208, 2, kernels.Sampling{Temperature: 0.8, TopK: 64, TopP: 0.95, RepeatPenalty: 1.1}},
		"mask":                  {151936, 2, kernels.Sampling{Temperature: 1, TopP: 1, Masked: true}},
		"top_k above the mask":  {151936, 2, kernels.Sampling{Temperature: 1, TopP: 1, TopK: 149000, Masked: true}},
		"top_p within the mask": {32000, 2, kernels.Sampling{Temperature: 1, TopP: 0.7, Masked: true}},
		"all, edited": {32000, 3, kernels.Sampling{Temperature: 1.2, TopK: 100, TopP: 0.8, MinP: 0.02,
			RepeatPenalty: 1.2, PresencePenalty: 0.3, FrequencyPenalty: 0.2, Biases: biasesOf(300, 2), Masked: true}},
	} {
		b := newBoth(t)
		const n = 64
		sampling := repeat(c.s, n)
		for i := range sampling {
			sampling[i].Seed = b.r.Uint64()
		}
		d := newDrawing(b, sampling, c.vocab)
		d.randomMasks()
		logits := b.normal(c.vocab, c.spread)
		slot, position := d.randomPositions(n)
		high, kept := 0.0, []int32(nil)
		for i, r := range d.sample(slot, position, slices.Repeat(logits, n), n, false)[1] {
			if i == 0 || c.s.RepeatPenalty != 0 || c.s.Masked {
				kept = d.kept(logits, c.s, i, position[i])
			}
			at := slices.Index(kept, r.Token)
			if len(kept) == 0 && r.Token == 0 {
				continue // the mask allows nothing
			}
			if at < 0 {
				t.Fatalf("%s: token %d was drawn, and is not among the %d that are left", name, r.Token, len(kept))
			}
			high = max(high, float64(at)/float64(len(kept)))
		}
		if c.spread == 0 && high < 0.8 { // by chance once in a million runs
			t.Errorf("%s: no draw was in the last fifth of the tokens that are left", name)
		}
	}
}

// kept returns the tokens that the host's filters keep for a slot.
func (d *drawing) kept(logits []float32, s kernels.Sampling, slot int, position int32) []int32 {
	history := d.history[slot*drawContext:][:position+1]
	// One token more than the host keeps: rounding may decide on the last one.
	if s.TopP < 1 {
		s.TopP = min(1, s.TopP*(1+1e-6))
	}
	past := kernels.Past{Tokens: history, Prompt: int(d.prompt[slot])}
	if s.Masked {
		past.Mask = d.shared[0].Masks(int32(slot))
	}
	return s.Candidates(logits, past)
}

// filters returns the settings of s that form the distribution.
func filters(s kernels.Sampling) distribution.Filters {
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

// A record has the same bits alone and among 64, also as another sample of the step.
func TestCUDASampleIsBatchInvariant(t *testing.T) {
	b := newBoth(t)
	const n, vocab = 64, 32000
	sampling := repeat(kernels.Sampling{Temperature: 1, TopK: 500, TopP: 0.95, MinP: 0.001, RepeatPenalty: 1.1,
		Logprobs: 7}, n)
	for i := range sampling {
		sampling[i].Seed = b.r.Uint64()
		if i%4 == 0 {
			sampling[i].Temperature = 0
		}
		if i%3 == 0 {
			sampling[i].PresencePenalty, sampling[i].FrequencyPenalty = 0.3, 0.2
			sampling[i].Biases, sampling[i].Masked = biasesOf(i, 3), i%2 == 0
		}
	}
	d := newDrawing(b, sampling, vocab)
	d.randomMasks()
	slot, position := d.randomPositions(n)
	logits := b.normal(n*vocab, 3)
	all := d.sample(slot, position, logits, n, false)[1]
	for i, want := range all {
		got := d.sample(slot[i:i+1], position[i:i+1], logits[i*vocab:(i+1)*vocab], 1+i%3, false)[1][0]
		if got.Token != want.Token || got.Logprob != want.Logprob || !slices.Equal(got.Top, want.Top) {
			t.Fatalf("sample %d: %+v alone, %+v among %d", i, got, want, n)
		}
	}
}
