package scheduler

import (
	"slices"

	"reel/kernels"
)

// Rebuild makes b's page entries anew from where the pages are now. Next calls
// it, and whoever enqueues a batch that Stale says is older than a move.
func (s *Scheduler) Rebuild(b *Batch) {
	for _, q := range b.Served {
		for _, index := range q.moved {
			b.entries = append(b.entries, entry{q, index})
		}
		s.moves -= len(q.moved)
		q.moved = q.moved[:0]
	}
	b.Step.Pages = b.Step.Pages[:0]
	for _, e := range b.entries {
		b.Step.Pages = append(b.Step.Pages, kernels.PageEntry{Slot: e.q.slot, Index: e.index, Page: e.q.pages[e.index]})
	}
	b.epoch = s.epoch
}

// Stale tells whether a page has moved since b was formed. Only moves count:
// taking and freeing pages never makes a step stale.
func (s *Scheduler) Stale(b *Batch) bool { return b.epoch != s.epoch }

// InMotion tells whether b names a sequence whose pages are being copied. Such a
// step must wait until they have landed.
func (s *Scheduler) InMotion(b *Batch) bool {
	return slices.ContainsFunc(b.Served, func(q *Sequence) bool { return q.moving > 0 })
}

// Move is a page on its way to another place.
type Move struct {
	From, To int32
	// After is the last step that may write the page: the copy comes after it.
	After uint64
	q     *Sequence
}

// Relocate begins to move the index-th page of q. From now until Landed no step
// is formed that names q. It is false where q does not run, has no such page in
// use, no page is free beside the reserve, or more pages move than a step's descriptor holds.
func (s *Scheduler) Relocate(q *Sequence, index int) (Move, bool) {
	if !q.Running() || index < 0 || index >= q.staged || s.moves >= kernels.MaxMoves || !s.maySpare() {
		return Move{}, false
	}
	to, _ := s.pages.Take(1)
	m := Move{From: q.pages[index], To: to[0], After: q.lastStep, q: q}
	q.pages[index] = m.To
	if !slices.Contains(q.moved, int32(index)) {
		q.moved = append(q.moved, int32(index))
		s.moves++
	}
	q.moving++
	s.epoch++
	return m, true
}

// Landed ends a move: its copy is done, and nothing reads the old place.
func (s *Scheduler) Landed(m Move) {
	m.q.moving--
	s.pages.Release(m.From)
	s.free()
}
