package scheduler

import (
	"slices"

	"reel.internal/reel/kernels"
)

// Rebuild makes b's block table entries from the current pages. Next and Idle call it; call it again before a
// batch is enqueued that is [Scheduler.Stale].
func (s *Scheduler) Rebuild(b *Batch) {
	for _, q := range b.Served {
		for _, index := range q.moved {
			b.entries = append(b.entries, entry{q, index})
		}
		s.unsentMoves -= len(q.moved)
		q.moved = q.moved[:0]
	}
	b.Step.Pages = b.Step.Pages[:0]
	for _, e := range b.entries {
		b.Step.Pages = append(b.Step.Pages, kernels.PageEntry{Slot: e.q.slot, Index: e.index, Page: e.q.pages[e.index]})
	}
	b.epoch = s.epoch
}

// Stale reports whether a page began to move after b's entries were made. Taking and freeing pages never makes a
// step stale.
func (s *Scheduler) Stale(b *Batch) bool { return b.epoch != s.epoch }

// WaitsForMove reports whether b names a sequence with pages that are being copied. The device must run such a
// step after the copies.
func (s *Scheduler) WaitsForMove(b *Batch) bool {
	return slices.ContainsFunc(b.Served, func(q *Sequence) bool { return q.moving > 0 })
}

// Move is a page on its way from one place in the pool to another.
type Move struct {
	From, To int32 // page numbers
	// After is the last step that may write the page. The copy must run after it.
	After uint64
	q     *Sequence
}

// Relocate begins to move the index-th page of q. Until FinishMove no step is formed that names q. It returns
// false if q does not run, moves out or comes back, or has no such page in use, if other prompts can find the page, if
// no page is ready beside the reserve, or if a step's descriptor could not hold more moved entries.
func (s *Scheduler) Relocate(q *Sequence, index int) (Move, bool) {
	if !q.Running() || q.state == movingOut || q.restore || index < 0 || index >= q.published ||
		s.unsentMoves >= kernels.MaxMoves || !s.hasSparePage() || s.pages.Shared(q.pages[index]) {
		return Move{}, false
	}
	to, ok := s.pages.Take(1)
	if !ok { // the free pages are being copied to the host tier
		return Move{}, false
	}
	s.charge(to[0], q.share.user)
	m := Move{From: q.pages[index], To: to[0], After: q.lastStep, q: q}
	q.pages[index] = m.To
	if !slices.Contains(q.moved, int32(index)) {
		q.moved = append(q.moved, int32(index))
		s.unsentMoves++
	}
	q.moving++
	s.epoch++
	return m, true
}

// FinishMove ends a move after its copy is done, and frees the page it came from.
func (s *Scheduler) FinishMove(m Move) {
	m.q.moving--
	s.drop(m.From)
	s.free()
}
