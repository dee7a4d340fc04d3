package server

import (
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/protocol"
)

// The engine gets a request's bound on drafts, and what it predicts; done counts the guesses.
func TestDraftsOfARequest(t *testing.T) {
	f := ready(t, nil)
	f.engine.drafted, f.engine.drafter = true, protocol.DrafterGiven
	c := f.client()
	for i, want := range []struct {
		draft *protocol.Draft
		most  int
	}{
		{nil, 7}, {&protocol.Draft{Word: "on"}, 7}, {&protocol.Draft{Word: "off"}, 0}, {&protocol.Draft{Tokens: 3}, 3},
		{&protocol.Draft{}, 0},
	} {
		g := generate(uint64(i), "abc", 5)
		g.Draft, g.Prediction = want.draft, []int32{1, 2}
		done := c.ask(g).done
		f.engine.mu.Lock()
		most, foretold := f.engine.drafts, f.engine.foretold
		f.engine.mu.Unlock()
		if most != want.most || !slices.Equal(foretold, g.Prediction) {
			t.Errorf("%v: the engine got %d drafts and the prediction %v", want.draft, most, foretold)
		}
		if u := done.Usage; u.DraftedTokens != 15 || u.AcceptedTokens != 2 {
			t.Errorf("%+v, want 15 drafted tokens and 2 accepted", u)
		}
	}
	for _, d := range []*protocol.Draft{{Word: "lookup"}, {Tokens: 8}, {Tokens: -1}} {
		g := generate(9, "abc", 1)
		g.Draft = d
		c.send(g)
		if e := c.wantError(protocol.CodeBadRequest); !strings.Contains(e.Message, "on, off or a number, 0 to 7") {
			t.Errorf("%v: %+v", d, e)
		}
	}
	c.send(&protocol.Hello{Version: protocol.Version})
	if w := expect[protocol.Welcome](c); w.Drafter != protocol.DrafterGiven {
		t.Errorf("welcome has the drafter %q", w.Drafter)
	}
	if d := f.Status().Drafts; d.Drafter != protocol.DrafterGiven || d.Tokens != 7 {
		t.Errorf("status has %+v", d)
	}
	f.stop()
	if n := strings.Count(f.log.String(), `"n_drafted":15,"n_accepted":2,`); n != 5 {
		t.Errorf("%d log lines count guesses, want 5: %s", n, f.log.String())
	}
}

// Guesses that the engine made behind a stop string are none of the completion's.
func TestDraftsBehindAStop(t *testing.T) {
	f := ready(t, nil)
	f.engine.drafted = true
	g := generate(1, "abcdefgh", 8)
	g.Stop = []string{"d"}
	if u := f.client().ask(g).done.Usage; u.CompletionTokens != 4 || u.AcceptedTokens != 2 {
		t.Errorf("%+v, want 4 tokens, of which 2 had been guessed", u)
	}
}

// A drafter that takes no prediction gets none, and a generator without a drafter names none.
func TestPredictionsAreForMeasurements(t *testing.T) {
	for _, drafter := range []string{protocol.DrafterLookup, protocol.DrafterOff} {
		f := ready(t, nil)
		f.engine.drafter = drafter
		c := f.client()
		g := generate(1, "abc", 1)
		g.Prediction = []int32{1, 2}
		c.ask(g)
		f.engine.mu.Lock()
		if f.engine.foretold != nil {
			t.Errorf("%s: the engine got %v", drafter, f.engine.foretold)
		}
		f.engine.mu.Unlock()
		c.send(&protocol.Hello{Version: protocol.Version})
		if w := expect[protocol.Welcome](c); (w.Drafter == "") != (drafter == protocol.DrafterOff) {
			t.Errorf("%s: welcome has the drafter %q", drafter, w.Drafter)
		}
	}
}
