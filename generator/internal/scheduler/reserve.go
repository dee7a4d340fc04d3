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
//	free pages + Σ over users min(pages that the user alone holds, ReservePages) >= (Reserve+1) × ReservePages
//
// Cached pages count as free. A page of several users counts for none of them until all have dropped it.
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
// joins. A sequence that moved out is next in order before all that wait (tiers.go says who may pass it).

// nextJoin returns the waiting sequence that may join now; nil if none may.
func (s *Scheduler) nextJoin() *Sequence {
	if s.root.queued == 0 || len(s.freeSlots) == 0 {
		return nil
	}
	if len(s.out) > 0 {
		if q := s.nextPassing(s.out[0]); q != nil {
			return q
		}
		return s.nextReserved(s.out[0])
	}
	if len(s.moving) > 0 {
		return s.nextReserved(s.moving[0])
	}
	q := s.root.first()
	if s.fits(q) {
		return q
	}
	return s.nextReserved(q)
}

// fits reports whether q has pages and the reserve stays whole if q joins.
func (s *Scheduler) fits(q *Sequence) bool {
	user := q.share.user
	if s.root.slots >= s.MaxBatch && user.slots > 0 {
		return false
	}
	found := s.countFound(q)
	n := s.need(q) - found.held
	if !s.mayTake(user, n, found.shared) || n+s.slack(q) > s.pages.Free() {
		return false
	}
	if n -= found.unready; n > s.pages.Ready() {
		s.wanted = max(s.wanted, n)
		return false
	}
	return true
}

// counted are the numbers of pages of a waiting sequence's prompt that were found.
type counted struct {
	version uint64 // of the pool, when they were counted
	held    int    // pages that sequences hold
	shared  int    // of those, pages that do not count for its user: others' accounts lose so many at most
	unready int    // cached pages that do not count as ready
}

// countFound finds the pages of a waiting sequence's prompt and counts them. It asks for each page only after a change
// of the pool: a prompt of 100,000 tokens has 6,250 pages, and a sequence may wait for many steps.
func (s *Scheduler) countFound(q *Sequence) counted {
	if q.counted.version == s.pages.Version() {
		return q.counted
	}
	s.find(q)
	c := counted{version: s.pages.Version()}
	for _, found := range q.found {
		switch page := found.Page(); {
		case page == 0: // the host tier alone has it
		case s.pages.Held(page):
			c.held++
			if s.holders[page] != q.share.user {
				c.shared++
			}
		case !s.pages.Counted(found):
			c.unready++
		}
	}
	q.counted = c
	return c
}

// mayTake reports whether a user may take n pages that nobody holds, and share as many pages that others hold, so
// that the reserve stays whole.
func (s *Scheduler) mayTake(user *share, n, shared int) bool {
	within := s.withinShares + min(user.pages+n, s.ReservePages) - min(user.pages, s.ReservePages) - shared
	return n <= s.pages.Free() && s.pages.Free()-n+within >= (s.Reserve+1)*s.ReservePages
}

// nextReserved returns the waiting sequence that may join from the reserve although blocked, the next in order,
// does not fit; nil if none may.
func (s *Scheduler) nextReserved(blocked *Sequence) (next *Sequence) {
	users := s.slotUsers + 1
	if blocked.share.user.slots == 0 {
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

// addSlots adds n, which may be negative, to the slots that q's shares hold.
func (s *Scheduler) addSlots(q *Sequence, n int) {
	user := q.share.user
	s.slotUsers -= min(user.slots, 1)
	for a := q.share; a != nil; a = a.parent {
		a.slots += n
	}
	s.slotUsers += min(user.slots, 1)
}

// takePages gives q its pages: those that were found, and new ones for the rest of its need.
func (s *Scheduler) takePages(q *Sequence) {
	user, need := q.share.user, s.need(q)
	if full := s.fullNeed(q); s.pages.Reserve(full) {
		q.promised = full
		q.Sampled = make([]int32, 0, q.MaxTokens)
	}
	partial, tokens := s.takePartial(q)
	take := need - len(partial)
	for _, n := range q.found {
		if n.Page() != 0 {
			s.hold(n.Page(), user)
			take--
		}
	}
	taken, _ := s.pages.Take(take)
	for _, page := range taken {
		s.charge(page, user)
	}
	q.pages = make([]int32, 0, s.fullNeed(q)) // to grow without an allocation
	for _, n := range q.found {
		if n.Page() == 0 {
			s.load(q, n, taken[0])
			taken = taken[1:]
		}
		q.pages = append(q.pages, n.Page())
	}
	s.adopt(q, q.found)
	s.adoptPartial(q, partial, tokens)
	q.pages, q.found = append(q.pages, taken...), nil
}

// mayExchange reports whether the reserve stays whole if a user's sequence holds a page in place of one of its own.
// If another user alone held it, it counts for neither of them after that.
func (s *Scheduler) mayExchange(page int32, user *share) bool {
	other := s.holders[page]
	if other == nil || other == user {
		return true
	}
	free, within := s.pages.Free()+1, s.withinShares
	for _, loses := range []*share{other, user} {
		if loses.pages <= s.ReservePages {
			within--
		}
	}
	return free+within >= (s.Reserve+1)*s.ReservePages
}

// hold adds a reference of a user's sequence to a page that is held or cached; without a user it is a write's.
func (s *Scheduler) hold(page int32, user *share) {
	if page == s.written && user != nil && user != s.writtenOf {
		s.writtenOf = nil
	}
	if !s.pages.Held(page) {
		s.charge(page, user)
	} else if s.holders[page] != user {
		s.charge(page, nil)
	}
	s.pages.Retain(page)
}

// drop ends a reference of a sequence to a page.
func (s *Scheduler) drop(page int32) {
	if page == s.written {
		s.writtenOf = nil
	}
	if s.pages.Release(page); !s.pages.Held(page) {
		s.charge(page, nil)
	}
}

// charge counts a page for a user, or for none, in place of the user for whom it counted.
func (s *Scheduler) charge(page int32, user *share) {
	if old := s.holders[page]; old != nil {
		s.addPages(old, -1)
	}
	if s.holders[page] = user; user != nil {
		s.addPages(user, 1)
	}
}

func (s *Scheduler) addPages(user *share, n int) {
	s.withinShares -= min(user.pages, s.ReservePages)
	user.pages += n
	s.withinShares += min(user.pages, s.ReservePages)
}

// hasSparePage reports whether a page is free that the reserve does not need.
func (s *Scheduler) hasSparePage() bool {
	return s.pages.Free() > 0 && s.pages.Free()-1+s.withinShares >= (s.Reserve+1)*s.ReservePages
}
