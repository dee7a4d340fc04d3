package scheduler

// The reserve: a user that holds nothing finds a place and pages at once, whatever
// one other user does, and no running sequence is preempted for it.
//
// Places. MaxBatch places are for all. The Reserve places past them are for users
// that hold none: while MaxBatch or more are taken, only such a user may join.
// With U users that hold places at most MaxBatch+U-1 are taken, since every place
// past MaxBatch was the first of its user.
//
// Pages. Each of Reserve+1 users has a share of ReservePages pages. At all times
//
//	free pages + Σ over users min(pages held, ReservePages) >= (Reserve+1) × ReservePages
//
// A request that stays within its user's share leaves the sum as it is; what goes
// past the share lowers it, and is admitted only if the sum stays high enough.
// Freeing pages never lowers it. So if U <= Reserve users hold pages, at least
// (Reserve+1-U) × ReservePages pages are free, and a request of a further user that
// needs at most ReservePages pages fits. One user alone holds at most MaxBatch
// places and Pages - Reserve×ReservePages pages, which New checks to be enough for
// the longest sequence.
//
// Order. The request whose turn it is waits until it fits, and holds up those
// behind it, so that smaller ones do not starve it. The exception is a request
// from the reserve: of a user that holds nothing, within its share, and with the
// waiting user counted at most Reserve+1 users hold something. It changes neither
// the places left to the waiting request nor the sum above, and what else runs
// ends: so the waiting request joins all the same.

// need is how many pages q holds while it runs. The last token that is drawn is
// never fed, so it needs no room.
func (s *Scheduler) need(q *Sequence) int {
	return pagesFor(len(q.Prompt)+q.MaxTokens-1, s.PageTokens)
}

// nextJoin returns the waiting sequence that may join now; nil if none may.
func (s *Scheduler) nextJoin() *Sequence {
	if s.root.queued == 0 || len(s.slots) == 0 {
		return nil
	}
	q := s.root.first()
	if s.fits(q) {
		return q
	}
	return s.nextReserved(q)
}

// fits reports whether the reserve is whole after q has joined.
func (s *Scheduler) fits(q *Sequence) bool {
	user, n := q.share.user(), s.need(q)
	if s.root.places >= s.MaxBatch && user.places > 0 {
		return false
	}
	within := s.within + min(user.pages+n, s.ReservePages) - min(user.pages, s.ReservePages)
	return n <= s.pages.Free() && s.pages.Free()-n+within >= (s.Reserve+1)*s.ReservePages
}

// nextReserved returns the waiting sequence that may join from the reserve before
// barred, whose turn it is; nil if none may.
func (s *Scheduler) nextReserved(barred *Sequence) (next *Sequence) {
	users := s.holders + 1
	if barred.share.user().places == 0 {
		users++
	}
	if users > s.Reserve+1 {
		return nil
	}
	var best *share
	for _, user := range s.root.children {
		if user.queued == 0 || user.places > 0 {
			continue
		}
		q := user.first()
		if s.need(q) <= s.ReservePages && s.fits(q) && (best == nil || user.precedes(q, best, next)) {
			best, next = user, q
		}
	}
	return next
}

// hold notes that q's shares hold so many more places and pages, or fewer.
func (s *Scheduler) hold(q *Sequence, places, pages int) {
	user := q.share.user()
	s.within -= min(user.pages, s.ReservePages)
	s.holders -= min(user.places, 1)
	for a := q.share; a != nil; a = a.parent {
		a.places += places
		a.pages += pages
	}
	s.within += min(user.pages, s.ReservePages)
	s.holders += min(user.places, 1)
}

// maySpare reports whether a page is free that the reserve does not need.
func (s *Scheduler) maySpare() bool {
	return s.pages.Free() > 0 && s.pages.Free()-1+s.within >= (s.Reserve+1)*s.ReservePages
}
