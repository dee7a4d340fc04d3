package engine

import (
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
)

// A draft model guesses well only if it has keys and values of all tokens so far. So it follows decode steps too in
// which no sequence has drafts, which takes as long as one of its passes. That ends for a sequence that had no drafts
// in mostFollowed steps in a row, because they fail or because too many run beside it: from then on it has none.
const mostFollowed = 32

// asksModel reports whether a draft model or an EAGLE-3 head guesses, or only takes its time beside given drafts.
func (o Options) asksModel() bool {
	return o.DraftModel != nil && o.verifyRows() > 0 && (o.Draft == DraftModel || o.Draft == DraftGiven)
}

// followed reports whether q may have drafts of a draft model in later steps.
func (e *Engine) followed(q *scheduler.Sequence) bool {
	s := q.Owner.(*sequence)
	return !q.Sampling.Masked && s.request.DraftTokens > 0 && s.drafting.without < mostFollowed
}

// mayDraft returns how many drafts q may have in the step that is being formed.
func (e *Engine) mayDraft(q *scheduler.Sequence) int {
	if e.opts.asksModel() && !q.Sampling.Masked && !e.followed(q) {
		return 0
	}
	return q.MayDraft
}

// stepKey returns the graph key of a step: of its shape, and for a decode step whether a draft model follows it. It is
// called once for each step.
func (e *Engine) stepKey(b *scheduler.Batch) graphs.Key {
	k, follow := key(b), false
	if k.HasPrompts() || !e.opts.asksModel() {
		return k
	}
	for i, q := range b.Sampled {
		d := &q.Owner.(*sequence).drafting
		if d.without++; b.Queries > 1 && b.Drafts[i] > 0 {
			d.without = 0
		}
		follow = follow || e.followed(q)
	}
	if follow && k.Class == graphs.DecodeClass {
		return k.Following()
	}
	return k
}
