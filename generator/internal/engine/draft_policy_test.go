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
