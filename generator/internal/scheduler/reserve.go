package scheduler

// The reserve lets a user that holds nothing get a slot and pages at once, even if one other user takes all it can.
// No running sequence is preempted for it.
//
// Slots. MaxBatch slots are for everybody. The Reserve slots past them are for users that hold none: while MaxBatch
// or more are taken, only such a user may join. With U users that hold slots, at most MaxBatch+U-1 are taken, since
// every slot past MaxBatch was its user's first.
//
// Pages. Each of Reserve+1 users has a share of ReservePages pages. The invariant is
//
//	free pages + Σ over users min(pages held, ReservePages) >= (Reserve+1) × ReservePages
//
// A request that stays within its user's share leaves the sum unchanged. A request past the share lowers it, and is
// admitted only if the invariant still holds. Freeing pages never lowers the sum. So while U <= Reserve users hold
// pages, at least (Reserve+1-U) × ReservePages pages are free, and a further user's request fits if it needs at
// most ReservePages pages. One user alone holds at most MaxBatch slots and Pages - Reserve×ReservePages pages; New
// checks that these are enough for the longest sequence.
//
// Order. The next request in the order of shares waits until it fits, and blocks those behind it, so that smaller
// ones do not starve it. A request from the reserve may pass it: one of a user that holds nothing, within its
// share, if at most Reserve+1 users hold something, with the blocked user counted. It changes neither the slots
// left to the blocked request nor the sum above, and everything else that runs ends, so the blocked request still
// joins.

// need returns the number of pages that q holds while it runs. The last token is sampled but never prefilled, so it
// needs no place.
func (s *Scheduler) need(q *Sequence) int {
	return pagesFor(len(q.Prompt)+q.MaxTokens-1, s.PageTokens)
}

// nextJoin returns the waiting sequence that may join now; nil if none may.
func (s *Scheduler) nextJoin() *Sequence {
	if s.root.queued == 0 || len(s.freeSlots) == 0 {
		return nil
	}
	q := s.root.first()
	if s.fits(q) {
		return q
	}
	return s.nextReserved(q)
}

// fits reports whether q has pages and the reserve stays whole if q joins.
func (s *Scheduler) fits(q *Sequence) bool {
	user, n := q.share.user(), s.need(q)
	if s.root.slots >= s.MaxBatch && user.slots > 0 {
		return false
	}
	within := s.withinShares + min(user.pages+n, s.ReservePages) - min(user.pages, s.ReservePages)
	return n <= s.pages.Free() && s.pages.Free()-n+within >= (s.Reserve+1)*s.ReservePages
}

// nextReserved returns the waiting sequence that may join from the reserve although blocked, the next in order,
// does not fit; nil if none may.
func (s *Scheduler) nextReserved(blocked *Sequence) (next *Sequence) {
	users := s.slotUsers + 1
	if blocked.share.user().slots == 0 {
		users++
	}
	if users > s.Reserve+1 {
		return nil
	}
	var best *share
	for _, user := range s.root.children {
		if user.queued == 0 || user.slots > 0 {
			continue
		}
		q := user.first()
		if s.need(q) <= s.ReservePages && s.fits(q) && (best == nil || user.precedes(q, best, next)) {
			best, next = user, q
		}
	}
	return next
}

// addHeld adds to the slots and pages that q's shares hold; both may be negative.
func (s *Scheduler) addHeld(q *Sequence, slots, pages int) {
	user := q.share.user()
	s.withinShares -= min(user.pages, s.ReservePages)
	s.slotUsers -= min(user.slots, 1)
	for a := q.share; a != nil; a = a.parent {
		a.slots += slots
		a.pages += pages
	}
	s.withinShares += min(user.pages, s.ReservePages)
	s.slotUsers += min(user.slots, 1)
}

// hasSparePage reports whether a page is free that the reserve does not need.
func (s *Scheduler) hasSparePage() bool {
	return s.pages.Free() > 0 && s.pages.Free()-1+s.withinShares >= (s.Reserve+1)*s.ReservePages
}
