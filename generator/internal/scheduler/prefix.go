package scheduler

import (
	"slices"

	"reel.internal/reel/generator/internal/kv"
	"reel.internal/reel/kernels"
)

// A prompt's full pages stay in the chains of its scope (package kv) when their sequence ends, and later prompts
// that begin with the same tokens go on from there.
//
// The last prompt token is always computed, since a sequence needs its logits. A step may read the pages of earlier
// steps only. So of prompts that come at once with one beginning, one computes a page while the others wait for the
// next step; after that any of them may go on, and each page is computed once.
//
// Only pages of prompt tokens can be found. On a GPU a sampled token's keys and values come from another order of
// sums than those of a prompt token, so a prompt with them would give other bits than it gives alone.

// find updates q.found, the pages of a waiting sequence's prompt that are in the chains.
func (s *Scheduler) find(q *Sequence) {
	if q.Scope == "" {
		return
	}
	for i, n := range q.found {
		if !s.pages.Has(n) || n.Loading() {
			q.found = q.found[:i] // and the pages after it are gone too
			break
		}
	}
	parent := s.pages.Root(q.Scope)
	if n := len(q.found); n > 0 {
		parent = q.found[n-1]
	}
	for n := s.findPage(q, parent, len(q.found)); n != nil && !n.Loading(); n = s.findPage(q, n, len(q.found)) {
		if len(q.found) == cap(q.found) && len(q.found) >= manyFound {
			q.found = slices.Grow(q.found, len(q.Prompt)/s.PageTokens-len(q.found))
		}
		q.found = append(q.found, n)
	}
}

// manyFound is how many pages are found before memory for all of a prompt's is taken at once.
const manyFound = 64

// findPage returns the page after parent with the index-th run of q's prompt; nil if there is none, or if it holds
// the last prompt token.
func (s *Scheduler) findPage(q *Sequence, parent *kv.Node, index int) *kv.Node {
	from, to := index*s.PageTokens, (index+1)*s.PageTokens
	if to >= len(q.Prompt) {
		return nil
	}
	return s.pages.Find(parent, q.Prompt[from:to])
}

// parent returns the node after which q's next page comes.
func (s *Scheduler) parent(q *Sequence) *kv.Node {
	if q.tail == nil {
		return s.pages.Root(q.Scope)
	}
	return q.tail
}

// adopt notes that the pages of nodes, which q holds now, are the next ones of its prompt.
func (s *Scheduler) adopt(q *Sequence, nodes []*kv.Node) {
	if len(nodes) == 0 {
		return
	}
	tokens := len(nodes) * s.PageTokens
	q.prefilled, q.length, q.cached = q.prefilled+tokens, q.length+tokens, q.cached+tokens
	q.published += len(nodes)
	q.tail, q.restore = nodes[len(nodes)-1], true
}

// takePartial takes the partial page with the next tokens of q's prompt after q.found, if there is one. It returns none
// or the page, and how many tokens it has, without the prompt's last one.
func (s *Scheduler) takePartial(q *Sequence) (page []int32, tokens int) {
	from := len(q.found) * s.PageTokens
	if from == 0 || from >= len(q.Prompt) || q.ReadOnly {
		return nil, 0
	}
	parent := q.found[len(q.found)-1]
	if tokens = s.pages.FindPartial(parent, q.Prompt[from:len(q.Prompt)-1]); tokens == 0 {
		return nil, 0
	}
	page = []int32{s.pages.TakePartial(parent)}
	s.charge(page[0], q.share.user)
	return page, tokens
}

// adoptPartial notes that q's next page, if it is given, has so many of the next tokens.
func (s *Scheduler) adoptPartial(q *Sequence, page []int32, tokens int) {
	if len(page) > 0 {
		q.pages = append(q.pages, page...)
		q.prefilled, q.length, q.cached = q.prefilled+tokens, q.length+tokens, q.cached+tokens
		q.published++
	}
}

// findMore replaces q's next pages by those that other prompts have computed since q joined. It returns false if q
// must wait: this very step computes q's next page for another prompt, or a page is on its way from the host tier.
func (s *Scheduler) findMore(q *Sequence) bool {
	if !q.chained() || q.prefilled%s.PageTokens != 0 {
		return true
	}
	for {
		i := q.prefilled / s.PageTokens
		n := s.findPage(q, s.parent(q), i)
		if n == nil {
			return q.moving == 0
		}
		switch {
		case n.Page() == 0:
			s.load(q, n, q.pages[i])
		case n.Loading() || n.Step() >= s.number:
			return false
		case !s.mayExchange(n.Page(), q.share.user):
			q.unchained = true // it computes the page, and those after it, for itself
			return q.moving == 0
		default:
			s.hold(n.Page(), q.share.user)
			s.drop(q.pages[i])
			q.pages[i] = n.Page()
		}
		s.adopt(q, []*kv.Node{n})
	}
}

// chained reports whether q may still find pages of its prompt, or leave some.
func (q *Sequence) chained() bool { return q.Scope != "" && !q.unchained }

// leavePage lets other prompts find q's page that the last row has filled. If another prompt left the same page
// meanwhile, or q may leave none, its own pages stay out of the chains from there on.
func (s *Scheduler) leavePage(q *Sequence) {
	if q.prefilled%s.PageTokens != 0 || !q.chained() {
		return
	}
	if q.ReadOnly {
		q.unchained = true
		return
	}
	from := q.prefilled - s.PageTokens
	n := s.pages.Publish(s.parent(q), q.Prompt[from:q.prefilled], q.pages[from/s.PageTokens], s.number,
		uint64(q.User.UID))
	q.tail, q.unchained = n, n == nil
	s.unwrite(n)
}

// Restored is a slot that is restored before a step.
type Restored struct {
	q          *Sequence
	tokens     int // with keys and values, before the step's rows
	pageTokens int
}

func (r Restored) pages() int { return pagesFor(r.tokens, r.pageTokens) }

// Sequence returns whose slot it is.
func (r Restored) Sequence() *Sequence { return r.q }

// State returns the slot's state, with the sequence's current pages.
func (r Restored) State() kernels.SlotState {
	state := kernels.SlotState{Init: r.q.init(), Pages: r.q.pages[:r.pages()]}
	if n := len(r.q.Prompt); r.tokens <= n {
		state.History = r.q.Prompt[:r.tokens]
	} else {
		state.History = append(slices.Clone(r.q.Prompt), r.q.Sampled[:r.tokens-n]...)
	}
	if n := len(r.q.Sampled); n > 0 {
		state.Token = r.q.Sampled[n-1]
	}
	return state
}
