package scheduler

import (
	"slices"

	"reel.internal/reel/generator/internal/kv"
)

// rereadTokens bounds the tokens of a step that rereads. A request that arrives meanwhile waits for one such step at
// most, about 4 ms for a model of 7B on an H200.
const rereadTokens = 64

// MayReread reports whether a step may reread now: no sequence runs, waits or leaves, no other such step is in
// flight, and another slot stays free.
func (s *Scheduler) MayReread() bool {
	return s.rereading == nil && s.root.queued+s.Running()+len(s.leaving) == 0 && len(s.freeSlots) > 1
}

// Reread forms a step that computes further pages of q's prompt, up to its last token, so that later prompts find
// them. The last of them may be a partial page, which one prompt finds. The step samples nothing and counts for no
// share. q is not added: it holds a slot and pages only until the step has completed, and no sequence joins before
// that. Reread returns nil if there is nothing to compute, or no page that may be taken for it, or if the host tier
// alone has some of them: the next prompt loads those, and does not wait for more. Call it if [Scheduler.MayReread].
func (s *Scheduler) Reread(q *Sequence) *Batch {
	s.find(q)
	n := s.tokensToReread(q)
	away := slices.ContainsFunc(q.found, func(n *kv.Node) bool { return n.Page() == 0 })
	if n < 1 || away || !s.takeSpare(q, pagesFor(n, s.PageTokens)) {
		return nil
	}
	s.popSlot(q)
	b := s.blankBatch()
	b.Prefill, b.Reread = true, q
	s.prepareSlot(b, q)
	for _, token := range q.Prompt[q.prefilled:min(q.prefilled+n, len(q.pages)*s.PageTokens)] {
		s.row(b, q, int32(q.length), token)
		q.prefilled++
		s.leavePage(q)
	}
	s.Rebuild(b)
	s.rereading = q
	s.number++
	return b
}

// tokensToReread returns how many tokens of q's prompt, after q.found and without its last, the next step rereads. They
// end with a page or with the text. A partial page comes after a full one, and is tried once.
func (s *Scheduler) tokensToReread(q *Sequence) int {
	text := len(q.Prompt) - 1
	if text < s.PageTokens || q.ended {
		text = text / s.PageTokens * s.PageTokens
	}
	return min(text-len(q.found)*s.PageTokens, max(s.PageTokens, min(rereadTokens, s.Chunk)/s.PageTokens*s.PageTokens))
}

// takeSpare gives q the pages of its prompt that were found, and up to n pages for the tokens after them. It returns
// false if no page may be taken.
func (s *Scheduler) takeSpare(q *Sequence, n int) bool {
	q.pages, q.tail, q.unchained, q.restore = q.pages[:0], nil, false, false
	q.prefilled, q.length, q.published = 0, 0, 0
	for _, found := range q.found { // first, so that none of them gives way
		s.pages.Retain(found.Page())
		q.pages = append(q.pages, found.Page())
	}
	taken := s.pages.TakeSpare(n, q.owner())
	if len(taken) == 0 {
		s.releasePages(q)
		return false
	}
	q.pages = append(q.pages, taken...)
	s.adopt(q, q.found)
	return true
}

// endReread frees the slot and the pages of a step that rereads, if it has completed.
func (s *Scheduler) endReread() {
	q := s.rereading
	if q == nil || q.lastStep >= s.completed {
		return
	}
	s.rereading = nil
	s.leavePartial(q)
	s.releasePages(q)
	s.freeSlots = append(s.freeSlots, q.slot)
}

// leavePartial releases q's last page as a partial one, if the step that rereads has filled a part of it.
func (s *Scheduler) leavePartial(q *Sequence) {
	last := len(q.pages) - 1
	if q.ended = q.prefilled%s.PageTokens != 0; q.ended && q.tail != nil {
		s.pages.ReleasePartial(q.tail, q.Prompt[last*s.PageTokens:q.prefilled], q.pages[last], uint64(q.User.UID))
		q.pages = q.pages[:last]
	}
}

// releasePages ends q's references to its pages.
func (s *Scheduler) releasePages(q *Sequence) {
	for i := len(q.pages) - 1; i >= 0; i-- {
		s.pages.Release(q.pages[i])
	}
	q.pages = q.pages[:0]
}
