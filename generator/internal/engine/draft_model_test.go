package engine

import (
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels/device"
)

// draftConfigs are shapes of draft models for nanoConfig: the model itself, and others in heads, layers, family, and
// numbers of tokens.
func draftConfigs() []model.Config {
	deep, biased, few, many := nanoConfig(), nanoConfig(), nanoConfig(), nanoConfig()
	deep.Layers, deep.Heads, deep.KVHeads, deep.HeadDim, deep.Hidden = 3, 4, 2, 4, 12
	biased.Bias, biased.HeadNorms, biased.Layers = true, true, 2
	few.Vocab, few.Windows = 11, []int{5}
	many.Vocab, many.TiedHead = 40, false
	return []model.Config{nanoConfig(), deep, biased, few, many}
}

// self returns options with which the model drafts for itself.
func self() Options {
	o := nano()
	o.Draft, o.DraftTokens, o.Chunk = DraftModel, 3, 16
	return o
}

// greedy returns a request whose drafts stand if they are the most probable tokens.
func greedy(prompt ...int32) Request {
	return Request{Tokens: prompt, MaxTokens: 30, IgnoreEOS: true, DraftTokens: MaxDrafts}
}

// allStand checks that a request had drafts, and that all stood.
func allStand(t *testing.T, s *sink) {
	t.Helper()
	u := s.must(t).finish.Usage
	if s.finish.Err != nil || u.DraftedTokens == 0 || u.AcceptedTokens != u.DraftedTokens {
		t.Errorf("of %d tokens %d were drafted, and %d of those stood: %v", len(s.tokens), u.DraftedTokens,
			u.AcceptedTokens, s.finish.Err)
	}
}

// inTurn returns a plan of drafts with which some steps have none.
func inTurn() func([]*scheduler.Sequence) {
	steps := 0
	return func(ready []*scheduler.Sequence) {
		steps++
		for i, q := range ready {
			q.Drafts = min((steps/2+i)%4, q.MayDraft)
		}
	}
}

// A model that drafts for itself is always right about greedy requests: its keys and values are those of the model at
// every position, also where all drafts of a step stood, after steps without drafts, and where pages were found.
func TestOwnDraftsStand(t *testing.T) {
	o := self()
	b := built(t, device.HostOptions{}, o, nil)
	b.opts.planDrafts = inTurn()
	b.run()
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	for n := range len(prompt) {
		allStand(t, b.complete(greedy(prompt[:n+1]...)))
	}
	if s := b.complete(greedy(prompt...)); s.finish.Usage.CachedTokens == 0 {
		t.Error("nothing was found")
	} else {
		allStand(t, s)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
