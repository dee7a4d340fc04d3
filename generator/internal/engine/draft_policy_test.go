package engine

import "testing"

// The policy learns what steps cost also where no step has a graph or none will be captured, and tries drafts.
func TestDraftsAreTriedWithoutGraphs(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no graphs": func(o *Options) { o.MaxGraphs = 0 },
		"no roller": func(o *Options) { o.NoRoller = true },
		"a roller":  func(*Options) {},
	} {
		o := defaults()
		o.Draft, o.DraftTokens = DraftLookup, MaxDrafts
		change(&o)
		b := start(t, o, nil)
		s := b.complete(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 200, DraftTokens: MaxDrafts})
		if s.finish.Usage.DraftedTokens == 0 {
			t.Errorf("%s: no drafts in 200 tokens", name)
		}
	}
}

// With DraftAlways each step guesses as many tokens as it may, even where hardly any guess is right.
func TestDraftsAreAlwaysMade(t *testing.T) {
	o := defaults()
	o.Draft, o.DraftTokens, o.DraftAlways = DraftLookup, MaxDrafts, true
	b := start(t, o, nil)
	const tokens = 200
	usage := b.complete(Request{Tokens: []int32{1, 2, 3}, MaxTokens: tokens, IgnoreEOS: true, DraftTokens: MaxDrafts,
		Sampling: Sampling{Temperature: 3, TopP: 1, RepeatPenalty: 1, Seed: 1}}).finish.Usage
	// One step draws the first token, and the two steps before the end may count on the drafts in flight to stand.
	steps := tokens - usage.AcceptedTokens - 1 - 2*(1+MaxDrafts)
	if usage.AcceptedTokens > tokens/2 || usage.DraftedTokens < steps*MaxDrafts {
		t.Errorf("%d drafts in %d steps or more, of which %d stood", usage.DraftedTokens, steps, usage.AcceptedTokens)
	}
}
