package engine

import (
	"reflect"
	"testing"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// TestDraftCounts: status has an entry for each number of drafts that occurred, the drafter's apart from those of
// formats, and nothing else.
func TestDraftCounts(t *testing.T) {
	counts, options := new(draftCounts), Options{Draft: DraftLookup, DraftTokens: 7}
	for _, c := range [][2]int{{7, 7}, {2, 0}, {7, 3}, {0, 0}, {2, 1}} {
		counts.add(c[0], c[1], false)
	}
	counts.add(7, 6, true)
	want := protocol.Drafts{Drafter: "lookup", Tokens: 7, Counts: []protocol.DraftCount{
		{Drafts: 2, Steps: 2, Drafted: 4, Accepted: 1}, {Drafts: 7, Steps: 2, Drafted: 14, Accepted: 10},
		{Drafts: 7, Steps: 1, Drafted: 7, Accepted: 6, Format: true}}}
	if got := counts.status(options); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := want.Total(), (protocol.DraftCount{Steps: 5, Drafted: 25, Accepted: 17}); got != want {
		t.Errorf("in all %+v, want %+v", got, want)
	}
	off := Options{DraftTokens: 7}
	if got, want := new(draftCounts).status(off), (protocol.Drafts{Drafter: "off"}); !reflect.DeepEqual(got, want) {
		t.Errorf("off: %+v, want %+v", got, want)
	}
}

// A draft that stands behind the end of sequence is none of the completion's: usage counts the delivered tokens that
// had been guessed.
func TestDraftsBehindTheEnd(t *testing.T) {
	r := seeded(t)
	a := ask(t, r, 1, 8, 40)
	all := a.alone[0]
	for end := 2; end < 8; end++ { // so that it is once in the middle of a step
		o := nano()
		o.Draft, o.DraftTokens = DraftGiven, 3
		b := built(t, device.HostOptions{}, o, nil)
		b.eos[all[end].ID] = true
		b.run()
		q := a.requests[0]
		q.IgnoreEOS, q.DraftTokens = false, 3
		for _, token := range all {
			q.Prediction = append(q.Prediction, token.ID)
		}
		s, guessed := b.complete(q), 0
		for _, token := range s.tokens {
			if token.Drafted {
				guessed++
			}
		}
		if u := s.finish.Usage; len(s.tokens) > end || u.AcceptedTokens != guessed || guessed >= max(1, len(s.tokens)) {
			t.Errorf("of %d tokens %d had been guessed: %+v", len(s.tokens), guessed, u)
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	}
}

// Status counts as many sampled tokens as requests got, and as many accepted drafts.
func TestStatsCountAcceptedDrafts(t *testing.T) {
	r := seeded(t)
	a := ask(t, r, 1, 8, 40)
	o := nano()
	o.Draft, o.DraftTokens = DraftGiven, 3
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	q := a.requests[0]
	q.DraftTokens = 3
	for _, token := range a.alone[0] {
		q.Prediction = append(q.Prediction, token.ID)
	}
	s := b.complete(q)
	stats := b.Stats()
	if n := int(stats.Steps.Tokens); n != len(s.tokens) {
		t.Errorf("%d tokens were sampled, and the request has %d", n, len(s.tokens))
	}
	if sum := stats.Drafts.Total(); int(sum.Accepted) != s.finish.Usage.AcceptedTokens || sum.Accepted == 0 {
		t.Errorf("%+v, and the request has %+v", stats.Drafts, s.finish.Usage)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
