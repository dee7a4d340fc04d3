//go:build linux

package e2e

import (
	"reflect"
	"testing"

	"reel.internal/reel/protocol"
)

// draftTemperatures are those of the requests of TestDrafts.
var draftTemperatures = []float64{0, 0.9}

// drafted completes a prompt that says the same again and again, and returns its tokens and how it ended.
func (p *peer) drafted(
	id uint64, temperature float64, change func(*protocol.Generate),
) ([]protocol.Token, protocol.Usage) {
	var prompt []int32
	for i := range int32(90) {
		prompt = append(prompt, 500+i%9)
	}
	g := &protocol.Generate{ID: id, Tokens: prompt, MaxTokens: new(120), Temperature: &temperature,
		Seed: new(uint64(7)), Logprobs: new(2), IgnoreEOS: true, RepeatPenalty: new(1 + temperature/10)}
	change(g)
	p.send(g)
	var tokens []protocol.Token
	for {
		switch m := expect[any](p).(type) {
		case *protocol.Token:
			m.ID = 0
			tokens = append(tokens, *m)
		case *protocol.Done:
			return tokens, m.Usage
		default:
			p.t.Fatalf("%+v", m)
		}
	}
}

// With drafts a request gives the tokens, log-probabilities and alternatives that it gives without, and usage and
// status count the guesses. A request may want fewer, or none. A generator without a drafter guesses nothing.
func TestDrafts(t *testing.T) {
	t.Parallel()
	small := []string{"--max-seq-len", "256", "--max-batch", "2", "--precapture", "1-3"}
	plain := serve(t, small...)
	p := plain.peer()
	var want [][]protocol.Token
	for i, temperature := range draftTemperatures {
		tokens, u := p.drafted(uint64(i), temperature, func(g *protocol.Generate) {
			g.Draft = &protocol.Draft{Word: protocol.DraftOn}
		})
		if want = append(want, tokens); u.DraftedTokens != 0 || len(tokens) != 120 {
			t.Errorf("without a drafter: %d tokens, %+v", len(tokens), u)
		}
	}
	if d := plain.status().Drafts; d.Drafter != protocol.DrafterOff || d.Counts != nil {
		t.Errorf("without a drafter status has %+v", d)
	}
	for _, drafter := range []string{protocol.DrafterLookup, protocol.DrafterGiven} {
		testDrafter(t, serve(t, append(small, "--draft", drafter)...), drafter, want)
	}
}

// testDrafter checks that a drafter's guesses change no token and are counted. lookup guesses where that gains time.
func testDrafter(t *testing.T, g *generator, drafter string, want [][]protocol.Token) {
	all, p := protocol.Usage{}, g.peer()
	for i, draft := range []*protocol.Draft{nil, {Tokens: 2}, {Word: protocol.DraftOff}} {
		for k, temperature := range draftTemperatures {
			got, u := p.drafted(uint64(10*i+k), temperature, func(g *protocol.Generate) {
				g.Draft = draft
				for _, token := range want[k] { // half of it is right
					g.Prediction = append(g.Prediction, token.Token+int32(token.Index/8%2))
				}
			})
			if !reflect.DeepEqual(got, want[k]) {
				t.Errorf("%s, draft %v at temperature %g: other tokens", drafter, draft, temperature)
			}
			if u.AcceptedTokens > u.DraftedTokens || draft.Most() == 0 && u.DraftedTokens != 0 {
				t.Errorf("%s, draft %v: %+v", drafter, draft, u)
			}
			all.DraftedTokens += u.DraftedTokens
			all.AcceptedTokens += u.AcceptedTokens
		}
	}
	d := g.status().Drafts
	if sum := d.Total(); d.Drafter != drafter || d.Tokens != protocol.MaxDrafts ||
		int(sum.Drafted) != all.DraftedTokens || int(sum.Accepted) != all.AcceptedTokens {
		t.Errorf("%s: requests have %+v, status %+v", drafter, all, d)
	}
	if drafter == protocol.DrafterGiven && (all.AcceptedTokens == 0 || all.AcceptedTokens == all.DraftedTokens) {
		t.Errorf("%s: %+v", drafter, all)
	}
}
