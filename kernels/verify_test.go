package kernels

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// junk is what memory holds before the ops of a verify pass write it.
const junk = -12345

// verifyPass is a staged verify pass over random sequences.
type verifyPass struct {
	*rig
	queries, n int       // rows of a group, and of the pass with padding
	slotOf     []int32   // of each group
	drafts     []int     // of each group
	lengths    []int     // of each group's sequence before the pass
	texts      [][]int32 // its tokens with the one sampled last; the rig's history has them up to its length
	masked     []bool    // whether a group's sequence has masks, and so drafts of the host
}

// newVerifyPass stages a pass over random sequences, whose tokens are of an alphabet of this size.
func newVerifyPass(g *rig, alphabet int) *verifyPass {
	p := &verifyPass{rig: g, queries: 1 + g.r.IntN(8)}
	groups := 1 + g.r.IntN(min(g.slots.Count-1, g.layout.MaxSamples/p.queries))
	p.n = p.queries * (groups + g.r.IntN(1+g.layout.MaxSamples/p.queries-groups))
	for _, b := range []device.Buffer{g.rows.Slot, g.rows.Position, g.rows.Token, g.rows.Sample, g.rows.Drawn,
		g.slots.History, g.slots.Length, g.slots.Token} {
		for i := range g.h.Int32(b) {
			g.h.Int32(b)[i] = junk
		}
	}
	var step Step
	for _, slot := range g.r.Perm(g.slots.Count - 1)[:groups] {
		length := 1 + g.r.IntN(rigContext-p.queries)
		text := make([]int32, length+1)
		for i := range text {
			text[i] = int32(g.r.IntN(alphabet))
		}
		copy(g.h.Int32(g.slots.History)[slot*rigContext:], text[:length])
		g.h.Int32(g.slots.Length)[slot], g.h.Int32(g.slots.Token)[slot] = int32(length), text[length]
		p.slotOf, p.lengths, p.texts = append(p.slotOf, int32(slot)), append(p.lengths, length), append(p.texts, text)
		p.drafts, p.masked = append(p.drafts, g.r.IntN(p.queries)), append(p.masked, g.r.IntN(4) == 0)
		g.h.Int32(g.slots.Params)[slot*ParamWords+maskedParam] = word(p.masked[len(p.masked)-1])
		for i := range p.queries {
			row := Row{int32(slot), FromDevice, FromDraft}
			if i == 0 {
				row.Token = FromDevice
			} else if p.masked[len(p.masked)-1] {
				row.Token = hostDraft(slot, i)
			}
			if i > p.drafts[len(p.drafts)-1] {
				row = Row{Slot: NoSlot, Position: int32(g.r.IntN(3)), Token: int32(g.r.IntN(3))}
			}
			step.Samples = append(step.Samples, int32(len(step.Rows)))
			step.Rows = append(step.Rows, row)
		}
	}
	g.stage(step, p.n, p.n)
	return p
}

// hostDraft is the host's i-th draft of the masked sequence in a slot.
func hostDraft(slot, i int) int32 { return int32(500 + 8*slot + i) }

// each calls f for each row, with its group and its index there; the group of padding after the groups is -1.
func (p *verifyPass) each(f func(row, group, i int)) {
	for row := range p.n {
		group := row / p.queries
		if group >= len(p.slotOf) {
			group = -1
		}
		f(row, group, row%p.queries)
	}
}

// state returns copies of all that the ops of a pass may write.
func (p *verifyPass) state() map[string][]int32 {
	all := map[string][]int32{}
	for name, b := range map[string]device.Buffer{"slots": p.rows.Slot, "positions": p.rows.Position,
		"tokens": p.rows.Token, "samples": p.rows.Sample, "drawn": p.rows.Drawn, "histories": p.slots.History,
		"lengths": p.slots.Length, "last tokens": p.slots.Token} {
		all[name] = slices.Clone(p.h.Int32(b))
	}
	return all
}

// check compares the state with want, but not what the slots hold of the trash slot.
func (p *verifyPass) check(what string, want map[string][]int32) {
	p.t.Helper()
	trash := p.slots.Count - 1
	got := p.state()
	for name := range maps.Keys(got) {
		n := map[string]int{"histories": trash * rigContext, "lengths": trash, "last tokens": trash}[name]
		if n == 0 {
			n = len(got[name])
		}
		if !slices.Equal(got[name][:n], want[name][:n]) {
			p.t.Fatalf("%s of %d rows in groups of %d, drafts %v: %s are\n     %v,\nwant %v", what, p.n, p.queries,
				p.drafts, name, got[name][:n], want[name][:n])
		}
	}
}

// Stage gives the rows of a group the positions from the slot's length on, and the last token to the first. Padding
// belongs to the trash slot, at position 0, whatever the rows held before.
func TestStageOfAVerifyPass(t *testing.T) {
	g := newRig(t, 1, 8)
	for range 300 {
		p := newVerifyPass(g, 5)
		want := p.state()
		p.each(func(row, group, i int) {
			want["slots"][row], want["positions"][row], want["tokens"][row] = int32(g.slots.Count-1), 0, 0
			if want["samples"][row] = -1; group >= 0 {
				want["samples"][row] = int32(row)
			}
			if group < 0 || i > p.drafts[group] {
				return
			}
			slot, position := p.slotOf[group], p.lengths[group]+i
			want["slots"][row], want["positions"][row] = slot, int32(position)
			switch {
			case i == 0:
				want["tokens"][row] = p.texts[group][position]
			case p.masked[group]:
				want["tokens"][row] = hostDraft(int(slot), i)
			}
			want["histories"][int(slot)*rigContext+position] = want["tokens"][row]
			want["lengths"][slot] = int32(position + 1)
		})
		p.check("Stage", want)
	}
}

// naiveLookup returns n guesses of what follows text: it compares all ends of the text with all places before its end.
func naiveLookup(text []int32, n int) []int32 {
	last := len(text) - 1
	best, end := 0, last-1
	for e := 0; e < last; e++ {
		for m := 1; m <= min(e+1, LookupMatch); m++ {
			if slices.Equal(text[e-m+1:e+1], text[last-m+1:]) && m >= best {
				best, end = m, e
			}
		}
	}
	all := slices.Clone(text)
	for range n {
		end++
		all = append(all, all[end])
	}
	return all[last+1:]
}

// Lookup guesses like a naive search, over texts of few different tokens, which have long matches, and guesses that go
// on past the text's end. It writes nothing but the drafts, and none of the host's.
func TestLookupGuessesLikeANaiveSearch(t *testing.T) {
	g := newRig(t, 1, 8)
	beyond := 0
	for i := range 1500 {
		p := newVerifyPass(g, 1+i%4)
		want := p.state()
		p.each(func(row, group, i int) {
			if group < 0 || i == 0 || i > p.drafts[group] || p.masked[group] {
				return
			}
			guess, at := naiveLookup(p.texts[group], i)[i-1], p.lengths[group]+i
			want["tokens"][row], want["histories"][int(p.slotOf[group])*rigContext+at] = guess, guess
			if i > 1 && p.texts[group][at-i-1] == p.texts[group][at-i] {
				beyond++ // the match may end one token before the text's end
			}
		})
		g.launch(Lookup{Rows: g.rows, Slots: g.slots, T: p.n, Queries: p.queries})
		p.check("Lookup", want)
	}
	if beyond == 0 {
		t.Error("no guess went on past the end")
	}
}

// A match of LookupMatch tokens is as good as a longer one, and the last of them counts.
func TestLookupPrefersTheLastOfTheLongest(t *testing.T) {
	for name, c := range map[string]struct{ text, want []int32 }{
		"longer first":   {[]int32{1, 2, 3, 7, 2, 3, 8, 1, 2, 3}, []int32{7, 2, 3, 8, 1, 2, 3}},
		"last of equals": {[]int32{2, 3, 7, 2, 3, 8, 2, 3}, []int32{8, 2, 3, 8, 2, 3, 8}},
		"no match":       {[]int32{1, 2, 3}, []int32{3, 3, 3, 3, 3, 3, 3}},
		"one token":      {[]int32{4}, []int32{4, 4, 4, 4, 4, 4, 4}},
		"past the end":   {[]int32{5, 6, 5, 6}, []int32{5, 6, 5, 6, 5, 6, 5}},
		"at the begin":   {[]int32{9, 1, 2, 9}, []int32{1, 2, 9, 1, 2, 9, 1}},
	} {
		history := append(slices.Clone(c.text), make([]int32, 7)...)
		for i, end := 0, longestMatch(c.text); i < 7; i++ {
			end++
			history[len(c.text)+i] = history[end]
		}
		if got := history[len(c.text):]; !slices.Equal(got, c.want) || !slices.Equal(got, naiveLookup(c.text, 7)) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	long := make([]int32, 2*LookupMatch+9) // one token over and over, in which all ends match: the last one counts
	if end := longestMatch(long); end != len(long)-2 {
		t.Errorf("the match ends at %d of %d", end, len(long))
	}
}

// Given takes the drafts from the table, and writes nothing else, and none of the host's.
func TestGivenTakesTheTable(t *testing.T) {
	g := newRig(t, 1, 8)
	table, err := g.h.Alloc(4 * int64(g.slots.Count*rigContext))
	g.must(err)
	for range 300 {
		p := newVerifyPass(g, 5)
		for i := range g.h.Int32(table) {
			g.h.Int32(table)[i] = int32(g.r.IntN(1000))
		}
		want := p.state()
		p.each(func(row, group, i int) {
			if group >= 0 && i > 0 && i <= p.drafts[group] && !p.masked[group] {
				at := int(p.slotOf[group])*rigContext + p.lengths[group] + i
				want["tokens"][row], want["histories"][at] = g.h.Int32(table)[at], g.h.Int32(table)[at]
			}
		})
		g.launch(Given{Rows: g.rows, Slots: g.slots, Tokens: table, T: p.n, Queries: p.queries})
		p.check("Given", want)
	}
}

// Accept counts the drafts that stand: padding never does, though its token be the one that was drawn. It writes the
// groups' counts, lengths and last tokens, and nothing else.
func TestAcceptCountsWhatStands(t *testing.T) {
	g := newRig(t, 1, 8)
	records, err := g.h.Alloc(4 * int64(rigRing*g.layout.MaxSamples*RecordWords))
	g.must(err)
	counts := map[int]int{}
	for i := 0; i < 1000 || len(counts) < 8 && i < 20000; i++ { // that seven drafts stand is rare
		p := newVerifyPass(g, 3)
		tokens, drawn, out := g.h.Int32(g.rows.Token), g.h.Int32(g.rows.Drawn), g.h.Int32(records)
		for i := range out {
			out[i] = junk
		}
		p.each(func(row, group, i int) {
			drawn[row] = int32(g.r.IntN(2))
			if i > 0 && (group < 0 || i > p.drafts[group] || g.r.IntN(3) > 0) {
				tokens[row] = drawn[row-1]
			}
		})
		want, wantRecords := p.state(), slices.Clone(out)
		for group, slot := range p.slotOf {
			first, last := group*p.queries, 0
			for last < p.drafts[group] && tokens[first+last+1] == drawn[first+last] {
				last++
			}
			want["last tokens"][slot], want["lengths"][slot] = drawn[first+last], int32(p.lengths[group]+last+1)
			begin := int((g.number-1)%rigRing) * g.layout.MaxSamples * RecordWords
			wantRecords[begin+first*RecordWords+4] = int32(last + 1)
			counts[last]++
		}
		g.launch(Accept{Rows: g.rows, Slots: g.slots, Records: records, T: p.n, Queries: p.queries, RingSlots: rigRing,
			MaxSamples: g.layout.MaxSamples})
		p.check("Accept", want)
		if !slices.Equal(out, wantRecords) {
			t.Fatalf("records\n     %v,\nwant %v", out, wantRecords)
		}
	}
	if len(counts) != 8 {
		t.Errorf("drafts that stood: %v", counts)
	}
}

// In a verify pass each row, also padding, is sampled as alone: with the history up to its own token, drafts included,
// and within a mask of its own. The slots keep their last tokens.
func TestSampleOfAVerifyPass(t *testing.T) {
	g := newRig(t, 1, 8)
	g.slots.Masks = 8
	const vocab = 24
	records := g.poisoned(rigRing * g.layout.MaxSamples * RecordWords)
	for range 100 {
		p := newVerifyPass(g, vocab)
		logits, values := g.random(p.n * vocab)
		p.each(func(row, group, i int) {
			if group >= 0 && i > 0 && i <= p.drafts[group] {
				at := int(p.slotOf[group])*rigContext + p.lengths[group] + i
				g.h.Int32(g.slots.History)[at] = int32(g.r.IntN(vocab))
			}
		})
		sampling := g.samplings(p, vocab)
		want := p.state()
		p.each(func(row, group, i int) {
			slot, position := want["slots"][row], want["positions"][row]
			s := sampling[slot]
			past := Past{want["histories"][int(slot)*rigContext:][:position+1], int(s.Prompt), rowMask(int(slot), i)}
			if group >= 0 {
				want["drawn"][row] = new(draw).token(values[row*vocab:][:vocab], s.Sampling, past)
			}
		})
		g.launch(Sample{Logits: logits, Rows: g.rows, Slots: g.slots, Records: records, Edited: g.poisoned(p.n * vocab),
			T: p.n, N: p.n, Vocab: vocab, RingSlots: rigRing, MaxSamples: g.layout.MaxSamples, Queries: p.queries})
		p.check("Sample", want)
		p.each(func(row, group, i int) {
			if group < 0 {
				return
			}
			var r Record
			at := (int((g.number-1)%rigRing)*g.layout.MaxSamples + row) * RecordWords
			DecodeRecord(g.h.Bytes(records)[4*at:4*(at+RecordWords)], &r)
			slot := want["slots"][row]
			if r.Token != want["drawn"][row] || r.Slot != slot || r.Step != g.number-1 || r.Count != 1 ||
				r.Generation != sampling[slot].Generation || len(r.Top) != int(sampling[slot].Sampling.Logprobs) {
				t.Fatalf("record %+v of slot %d, drawn %d, %+v", r, slot, want["drawn"][row], sampling[slot])
			}
		})
	}
}

// rowMask returns the mask of the i-th row of a slot's sequence, of a vocabulary of at most 32 tokens.
func rowMask(slot, i int) []uint32 { return []uint32{0x5a17c3 << ((slot + 3*i) % 5)} }

// samplings gives each slot random parameters, and the trash slot none.
func (g *rig) samplings(p *verifyPass, vocab int) map[int32]Init {
	all := map[int32]Init{int32(g.slots.Count - 1): {}}
	for slot := range g.slots.Count {
		for i := range g.slots.Masks {
			copy(g.h.Uint32(g.slots.Mask)[slot*g.slots.Masks+i:], rowMask(slot, i))
		}
	}
	for i, slot := range p.slotOf {
		s := Sampling{Temperature: g.r.Float32() * 2, TopK: int32(g.r.IntN(vocab)), TopP: 0.3 + 0.7*g.r.Float32(),
			MinP: g.r.Float32() / 4, RepeatPenalty: 1 + g.r.Float32(), Seed: g.r.Uint64(), Logprobs: int32(g.r.IntN(5)),
			PresencePenalty: g.r.Float32() * 2, FrequencyPenalty: g.r.Float32() * 2, Masked: g.r.IntN(3) == 0,
			Biases: []Bias{{int32(g.r.IntN(vocab)), 3 * g.r.Float32()}}}
		all[slot] = Init{Slot: slot, Generation: int32(i + 1), Prompt: int32(1 + g.r.IntN(p.lengths[i])), Sampling: s}
	}
	for slot, init := range all {
		params := init.Params()
		copy(g.h.Int32(g.slots.Params)[slot*ParamWords:], params[:])
		g.must(g.shared.WriteBiases(&init))
	}
	return all
}

// The ops of a verify pass refuse rows that are not whole groups, and more rows than there are samples.
func TestVerifyOpsRefuseWrongShapes(t *testing.T) {
	g := newRig(t, 1, 8)
	table, err := g.h.Alloc(4 * int64(g.slots.Count*rigContext))
	g.must(err)
	records := g.poisoned(rigRing * g.layout.MaxSamples * RecordWords)
	for _, c := range []struct {
		t, queries int
		want       bool
	}{{8, 4, true}, {8, 8, true}, {24, 1, true}, {8, 3, false}, {8, 0, false}, {33, 1, false}} {
		given := Given{Rows: g.rows, Slots: g.slots, Tokens: table, T: c.t, Queries: c.queries}
		lookup := Lookup{Rows: g.rows, Slots: g.slots, T: c.t, Queries: c.queries}
		accept := Accept{Rows: g.rows, Slots: g.slots, Records: records, T: c.t, Queries: c.queries, RingSlots: rigRing,
			MaxSamples: g.layout.MaxSamples}
		for _, err := range []error{given.Check(), lookup.Check(), accept.Check()} {
			if (err == nil) != c.want || err != nil && !errors.Is(err, device.ErrBadShape) {
				t.Errorf("%d rows in groups of %d: %v", c.t, c.queries, fmt.Sprint(err))
			}
		}
	}
	short := Accept{Rows: g.rows, Slots: g.slots, Records: records, T: 28, Queries: 4, RingSlots: rigRing,
		MaxSamples: 24}
	few := Sample{Logits: g.poisoned(8 * 24), Rows: g.rows, Slots: g.slots, Records: records, Edited: g.poisoned(8 * 24),
		T: 8, N: 8, Vocab: 24, RingSlots: rigRing, MaxSamples: g.layout.MaxSamples, Queries: 4}
	few.Slots.Masks = 3
	if err := few.Check(); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("groups of 4 rows with 3 masks: %v", err)
	}
	if err := short.Check(); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("28 rows with 24 samples: %v", err)
	}
}
