package engine

import (
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// guessing returns a mask over 16 tokens with drafts: a list has the tokens that are allowed before each of them, the
// last list those after them.
func guessing(drafts []int32, lists ...[]int32) Mask {
	m := Mask{Drafts: drafts}
	for _, tokens := range lists {
		m.Words = append(m.Words, allowing(16, tokens...).Words...)
	}
	return m
}

// eager returns a running engine of the nano model in which sequences get all drafts that they may have, 3 at most.
func eager(t *testing.T, eos ...int32) *testEngine {
	t.Helper()
	o, c := nano(), nanoConfig()
	o.Draft, o.DraftTokens, c.EOS = DraftLookup, 3, eos
	o.planDrafts = func(ready []*scheduler.Sequence) {
		for _, q := range ready {
			q.Drafts = min(q.MayDraft, 3)
		}
	}
	b, err := tryBuildModel(t, c, device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	return b
}

// mustHave checks which tokens the format was given, and how many drafts it was asked for.
func (f *manual) mustHave(t *testing.T, tokens []int32, drafts ...int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.tokens, tokens) || !slices.Equal(f.drafts, drafts) {
		t.Errorf("it was given %v and asked for %v drafts, wants %v and %v", f.tokens, f.drafts, tokens, drafts)
	}
}

// One step draws what is forced and the token after it. The format is asked once for all of them, and for no more
// drafts than may be.
func TestForcedTextTakesOneStep(t *testing.T) {
	b := eager(t)
	f := newManual()
	s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 8, DraftTokens: 7, Format: f})
	f.asked(t)(allowing(16, 5))
	f.asked(t)(guessing([]int32{6, 7, 8}, []int32{6}, []int32{7}, []int32{8}, []int32{9}))
	f.asked(t)(guessing([]int32{10, 11}, []int32{10, 4}, []int32{11}, []int32{12}))
	last := f.asked(t)
	f.mustHave(t, []int32{5, 6, 7, 8, 9, 10, 11, 12}, 0, 3, 2, 0)
	last(allowing(16, 5))
	if u := s.must(t).finish.Usage; u.DraftedTokens != 5 || u.AcceptedTokens != 5 ||
		s.finish.Reason != protocol.FinishLength {
		t.Errorf("%+v", s.finish)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// Without drafts, of the engine or of the request, a format is asked for none.
func TestNoDraftsOfFormats(t *testing.T) {
	o := nano()
	o.DraftTokens = 7
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	for _, b := range []*testEngine{b, eager(t)} {
		f := newManual()
		q := Request{Tokens: []int32{1}, MaxTokens: 8, Format: f}
		if b.opts.Draft == DraftOff {
			q.DraftTokens = 7
		}
		s, _ := b.submit(q)
		f.asked(t)(allowing(16, 5))
		f.asked(t)(allowing(16, 6))
		last := f.asked(t)
		f.mustHave(t, []int32{5, 6}, 0, 0, 0)
		last(Mask{Ended: true})
		s.must(t)
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	}
}

// An end of sequence among the results of a step ends the request; the format is not asked again.
func TestEndOfSequenceAmongDrafts(t *testing.T) {
	b := eager(t, eosToken)
	f := newManual()
	s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 9, DraftTokens: 7, Format: f})
	f.asked(t)(allowing(16, 5))
	f.asked(t)(guessing([]int32{6, eosToken}, []int32{6}, []int32{eosToken}, []int32{7}))
	if s.must(t); s.finish.Reason != protocol.FinishStop || len(s.tokens) != 2 {
		t.Errorf("%+v, %+v", s.tokens, s.finish)
	}
	f.mustHave(t, []int32{5}, 0, 3)
	f.mustBeClosed(t)
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// A draft that is refused, is no token, or leads to a mask without one, is left out with those after it.
func TestDraftsThatCannotStand(t *testing.T) {
	b := eager(t)
	for name, c := range map[string]struct {
		mask  Mask
		drawn []int32
	}{
		"refused":       {guessing([]int32{6, 9, 8}, []int32{6}, []int32{7}, []int32{8}, []int32{8}), []int32{6, 7}},
		"the first":     {guessing([]int32{9, 7}, []int32{6}, []int32{7}, []int32{7}), []int32{6}},
		"negative":      {guessing([]int32{6, -1}, []int32{6}, []int32{7}, []int32{8}), []int32{6, 7}},
		"no token":      {guessing([]int32{6, 16}, []int32{6}, []int32{7, 16}, []int32{8}), []int32{6, 7}},
		"leads nowhere": {guessing([]int32{6, 7, 8}, []int32{6}, []int32{7}, nil, []int32{8}), []int32{6, 7}},
	} {
		f := newManual()
		s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 9, DraftTokens: 7, Format: f})
		f.asked(t)(allowing(16, 5))
		f.asked(t)(c.mask)
		last := f.asked(t)
		t.Run(name, func(t *testing.T) { f.mustHave(t, append([]int32{5}, c.drawn...), 0, 3, 3) })
		last(Mask{Ended: true})
		if u := s.must(t).finish.Usage; u.DraftedTokens != len(c.drawn)-1 {
			t.Errorf("%s: %+v", name, u)
		}
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
