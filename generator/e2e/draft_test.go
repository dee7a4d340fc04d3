//go:build linux

package e2e

import (
	"os"
	"reflect"
	"testing"

	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/protocol"
)

// drafted completes a prompt that says the same again and again, and returns its tokens and how it ended.
func (p *peer) drafted(id uint64, temperature float64, draft *protocol.Draft) (tokens []protocol.Token, u protocol.Usage) {
	var prompt []int32
	for i := range int32(90) {
		prompt = append(prompt, 500+i%9)
	}
	p.send(&protocol.Generate{ID: id, Tokens: prompt, MaxTokens: new(120), Temperature: &temperature, Seed: new(uint64(7)),
		Logprobs: new(2), IgnoreEOS: true, RepeatPenalty: new(1 + temperature/10), Draft: draft})
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
	small := []string{"--max-seq-len", "256", "--max-batch", "2", "--precapture", "1-3"}
	plain := serve(t, small...)
	without, want := plain.peer(), [2][]protocol.Token{}
	for i, temperature := range []float64{0, 0.9} {
		var u protocol.Usage
		if want[i], u = without.drafted(uint64(i), temperature, &protocol.Draft{Word: protocol.DraftOn}); u.DraftedTokens != 0 ||
			len(want[i]) != 120 {
			t.Errorf("without a drafter: %d tokens, %+v", len(want[i]), u)
		}
	}
	if d := plain.status().Drafts; d.Drafter != protocol.DrafterOff || d.Counts != nil {
		t.Errorf("without a drafter status has %+v", d)
	}
	dir := tempDir(t) + "/lookup" // a directory whose name is a drafter's
	must(t, os.CopyFS(dir, tiny.Files))
	for setting, drafter := range map[string]string{"lookup": protocol.DrafterLookup, dir: protocol.DrafterModel} {
		testDrafter(t, serve(t, append(small, "--draft", setting)...), drafter, want)
	}
}

// testDrafter compares requests with drafts with the tokens that they have without.
func testDrafter(t *testing.T, g *generator, drafter string, want [2][]protocol.Token) {
	t.Helper()
	with, all := g.peer(), protocol.Usage{}
	for i, draft := range []*protocol.Draft{nil, {Tokens: 2}, {Word: protocol.DraftOff}} {
		for k, temperature := range []float64{0, 0.9} {
			got, u := with.drafted(uint64(10*i+k), temperature, draft)
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
	sum := d.Total()
	if all.DraftedTokens == 0 || d.Drafter != drafter || d.Tokens != protocol.MaxDrafts ||
		int(sum.Drafted) != all.DraftedTokens || int(sum.Accepted) != all.AcceptedTokens {
		t.Errorf("requests have %+v, status %+v", all, d)
	}
}
