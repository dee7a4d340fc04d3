package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// askFormatted makes up requests of the nano model, most of them with a format, and runs each alone.
func askFormatted(t *testing.T, r *rand.Rand, n, maxPrompt, maxTokens int) *asked {
	t.Helper()
	a := ask(t, r, n, maxPrompt, maxTokens)
	for i := range a.requests {
		if r.IntN(4) > 0 {
			a.requests[i].Format = randomAutomaton(r, nanoConfig().Vocab, true)
		}
	}
	return askEach(t, a.requests)
}

// Tokens never leave the mask, and a request whose text is complete ends with stop, without a further pass.
func TestTokensStayWithinTheFormat(t *testing.T) {
	r := seeded(t)
	a := askFormatted(t, r, 40, 20, 30)
	kinds := map[string]int{}
	for i, q := range a.requests {
		if q.Format == nil {
			continue
		}
		b := built(t, device.HostOptions{}, nano(), nil)
		b.run()
		s := b.complete(q)
		a.check(t, i, s, true)
		begins, ended := q.Format.(*automaton).accepts(s.tokens)
		want := protocol.FinishLength
		if ended {
			want = protocol.FinishStop
		}
		if !begins || s.finish.Reason != want || s.finish.Err != nil {
			t.Errorf("request %d: %v follow the format: %v, and end with %+v", i, s.tokens, begins, s.finish)
		}
		if n := b.Stats().Steps.Tokens; n != uint64(len(s.tokens)) {
			t.Errorf("request %d: %d tokens sampled, %d delivered", i, n, len(s.tokens))
		}
		kinds[s.finish.Reason]++
		if err := b.finish(); err != nil {
			t.Error(err)
		}
		b.baseline()
	}
	if len(kinds) != 2 {
		t.Errorf("ends: %v", kinds)
	}
}

// A request with a format gives the same tokens at any schedule, and so do the requests beside it.
func TestAnyScheduleGivesTheSameTokensWithFormats(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	askFormatted(t, r, 24, 14, 14).anySchedule(t, r, schedules()/2)
}

// The same holds for requests that move out to the host tier and come back to other slots, with drafts and without.
func TestFormatsMoveOutAndComeBack(t *testing.T) {
	r := seeded(t)
	a := askFormatted(t, r, 24, 10, 50)
	a.moveOut(t, tiered(20), 0)
	o := tiered(20)
	o.Draft, o.DraftTokens, o.planDrafts = DraftLookup, MaxDrafts, randomPlan(r.Uint64(), MaxDrafts)
	if accepted := a.moveOut(t, o, MaxDrafts); accepted == 0 {
		t.Error("no draft of a format stood")
	}
}

// moveOut runs the requests until 20 have moved out and come back, each with so many drafts, and checks them. It
// returns how many drafts of formats stood.
func (a *asked) moveOut(t *testing.T, o Options, drafts int) (accepted int) {
	t.Helper()
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	b.eventually("the host tier is pinned", func() bool { return b.Stats().KV.HostPages == 100 })
	for round := 0; b.Stats().KV.MovedIn < 20; round++ {
		if round > 100 {
			t.Fatalf("%+v", b.Stats().KV)
		}
		var sinks []*sink
		for i, q := range a.requests {
			q.User, q.DraftTokens = User{UID: uint32(i % 2)}, drafts
			s, _ := b.submit(q)
			sinks = append(sinks, s)
		}
		for i, s := range sinks {
			if a.check(t, i, s.must(t), true); a.requests[i].Format != nil {
				accepted += s.finish.Usage.AcceptedTokens
			}
		}
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()
	return accepted
}

// While a mask is being made, the request beside it gets all of its tokens, the same as without it.
func TestSlowMaskDelaysNobodyElse(t *testing.T) {
	b := start(t, defaults(), nil)
	q := Request{Tokens: []int32{1, 2, 3}, MaxTokens: 60, Sampling: sampled(1)}
	alone := b.complete(q)
	f := newManual()
	slow, _ := b.submit(Request{Tokens: []int32{4, 5}, MaxTokens: 3, Sampling: sampled(2), Format: f})
	for range 4 { // the last one says whether the text is complete
		done := f.asked(t)
		if beside := b.complete(q); !slices.EqualFunc(beside.tokens, alone.tokens, sameToken) {
			t.Error("a request gives other tokens beside one with a format")
		}
		done(allowing(96, 1, 2, 50))
	}
	if slow.must(t); len(slow.tokens) != 3 || slow.finish.Reason != protocol.FinishLength {
		t.Errorf("%d tokens, %+v", len(slow.tokens), slow.finish)
	}
	f.mustBeClosed(t)
}
