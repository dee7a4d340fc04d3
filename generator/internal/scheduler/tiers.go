package scheduler

import (
	"slices"

	"reel.internal/reel/generator/internal/kv"
)

// With a host tier, cached pages are copied to host memory before they leave the device, and copied back when a
// prompt finds them there. Until the copy of a page has landed no step names a sequence that holds it.
//
// A sequence is admitted by need if the tier has places for all pages that it may ever hold: it takes pages for its
// prompt and a stretch ahead, and grows. If it cannot grow, the youngest sequence of the user that holds most, and of
// that user's name that holds most, moves out: its pages are copied to its places, its slot is freed, and it comes
// back, bit for bit, before any new sequence joins, but for a few of users that run less. A sequence without such
// places takes all pages that it may need at once, and never moves.
//
// Moving out always helps: the sequence that moves out gives up its pages, each one that runs gets at least a stretch
// further before another one moves, and a sequence that runs alone fits, as New checks.

// stretch is how many pages a sequence takes ahead of its need.
const stretch = 4

// Transfer is the copy of a page between the device and the host tier.
type Transfer struct {
	Out   bool  // to the host tier
	Page  int32 // on the device
	Place int32 // in the host tier
	node  *kv.Node
	q     *Sequence // that waits for the copy; nil for none
}

// AddPlaces adds n places to the host tier.
func (s *Scheduler) AddPlaces(n int) { s.pages.AddPlaces(n) }

// Transfers returns at most n copies that are to be begun, and forgets them. Call FinishTransfer when each is done.
// The pages that they read were written by completed steps; those that they write are in no step that was formed.
func (s *Scheduler) Transfers(n int) []Transfer {
	for len(s.transfers) < n && s.pages.Ready()+s.pages.Storing() < max(s.wanted, s.lowWater()) {
		node, place := s.pages.BeginStore()
		if node == nil {
			break
		}
		s.transfers = append(s.transfers, Transfer{Out: true, Page: node.Page(), Place: place, node: node})
	}
	n = min(n, len(s.transfers))
	begun := slices.Clone(s.transfers[:n])
	s.transfers = slices.Delete(s.transfers, 0, n)
	return begun
}

// lowWater is how many pages are kept ready, so that a request seldom waits for a copy: the pages of the reserve,
// and a quarter of all. A prompt that is found in the tier needs as many pages as it has there at once, and while
// others are copied out for them it would wait twice as long. Stored pages stay cached on the device.
func (s *Scheduler) lowWater() int { return max((s.Reserve+1)*s.ReservePages, s.Pages/4) + stretch }

// FinishTransfer notes that a copy is done.
func (s *Scheduler) FinishTransfer(t Transfer) {
	switch {
	case t.node != nil && t.Out:
		s.pages.FinishStore(t.node, t.Place)
	case t.node != nil:
		s.pages.FinishLoad(t.node)
	case !t.Out:
		s.pages.GivePlaces([]int32{t.Place})
	}
	if t.q != nil {
		t.q.moving--
	}
	s.free()
}

// load begins to copy a node of the host tier to q's page.
func (s *Scheduler) load(q *Sequence, n *kv.Node, page int32) {
	place := s.pages.BeginLoad(n, page)
	s.transfers = append(s.transfers, Transfer{Page: page, Place: place, node: n, q: q})
	q.moving++
}

// fullNeed returns the number of pages that q holds at its end. The last token is sampled but never prefilled, so
// it needs no place.
func (s *Scheduler) fullNeed(q *Sequence) int {
	return pagesFor(len(q.Prompt)+q.MaxTokens-1, s.PageTokens)
}

// need returns the number of pages that q takes when it joins.
func (s *Scheduler) need(q *Sequence) int {
	full := s.fullNeed(q)
	if !s.pages.MayReserve(full) {
		return full
	}
	return min(full, pagesFor(len(q.Prompt), s.PageTokens)+stretch)
}

// slack returns the number of pages that stay free when a sequence joins by need, so that those that run can grow.
func (s *Scheduler) slack(q *Sequence) (n int) {
	if s.need(q) == s.fullNeed(q) {
		return 0
	}
	for _, other := range s.running {
		if other.promised > 0 {
			n += stretch
		}
	}
	return n
}

// grow gives pages to sequences whose next row has none. If there are too few, a sequence moves out.
func (s *Scheduler) grow() {
	s.wanted = 0
	short := false
	for _, q := range s.running {
		if !q.needsPage(s.PageTokens) {
			q.starved = false // drafts that did not stand may have made it so
			continue
		}
		user, n := q.share.user, min(stretch, s.fullNeed(q)-len(q.pages))
		if !s.mayTake(user, n, 0) {
			q.starved, short = true, true
			continue
		}
		if q.starved = n > s.pages.Ready(); q.starved {
			s.wanted = max(s.wanted, n)
			continue
		}
		q.pages, _ = s.pages.AppendTaken(q.pages, n)
		for _, page := range q.pages[len(q.pages)-n:] {
			s.charge(page, user)
		}
	}
	if short {
		s.moveOne()
	}
}

// needsPage reports whether q's next row is the first of a page that q does not have.
func (q *Sequence) needsPage(pageTokens int) bool {
	return q.length >= len(q.pages)*pageTokens && q.state == decoding && q.moving == 0 && q.sampled < q.MaxTokens
}

// moveOne begins to move out the youngest sequence of the user that holds most pages for itself, and of that user's
// name that holds most, unless one is on its way already.
func (s *Scheduler) moveOne() {
	if len(s.moving) > 0 {
		return
	}
	var victim *Sequence
	for _, q := range s.running {
		if q.promised == 0 || q.moving > 0 {
			continue
		}
		if victim == nil || s.movesBefore(q, victim) {
			victim = q
		}
	}
	if victim == nil {
		return // copies for others are under way, and end
	}
	s.stopRunning(victim)
	victim.state, victim.starved = movingOut, false
	victim.share.user.away++
	s.moving = append(s.moving, victim)
	s.free() // no step may name it
}

// movesBefore reports whether q moves out before r.
func (s *Scheduler) movesBefore(q, r *Sequence) bool {
	if a, b := q.share.user, r.share.user; a != b {
		return a.pages > b.pages || a.pages == b.pages && q.arrival > r.arrival
	}
	if a, b := q.share.parent, r.share.parent; a != b {
		if held, other := s.heldBy(a), s.heldBy(b); held != other {
			return held > other
		}
	}
	return q.arrival > r.arrival
}

// heldBy returns the number of pages of a name's sequences that run. Those that several of them hold count for each.
func (s *Scheduler) heldBy(name *share) (n int) {
	for _, q := range s.running {
		if q.share.parent == name {
			n += len(q.pages)
		}
	}
	return n
}

// stopRunning takes q off the sequences that run.
func (s *Scheduler) stopRunning(q *Sequence) {
	s.running = without(s.running, q)
	for a := q.share; a != nil; a = a.parent {
		a.running--
	}
}

// moveOut goes on with a sequence that moves out: it begins the copies when the last step that names the sequence
// has completed, and frees slot and pages when they are done. It reports whether the sequence is out.
func (s *Scheduler) moveOut(q *Sequence) bool {
	if q.moving > 0 || q.length > 0 && q.lastStep >= s.completed {
		return false
	}
	if q.places == nil && q.length > 0 {
		places, ok := s.pages.TakePlaces(pagesFor(q.length, s.PageTokens))
		if s.lacksPlaces = !ok; !ok {
			return false
		}
		q.places = places
		for i, place := range places {
			s.transfers = append(s.transfers, Transfer{Out: true, Page: q.pages[i], Place: place, q: q})
		}
		q.moving = len(places)
		return false
	}
	s.giveBack(q)
	q.state = out
	s.out = append(s.out, q)
	s.movedOut++
	return true
}

// giveBack frees q's pages and slot.
func (s *Scheduler) giveBack(q *Sequence) {
	for _, page := range slices.Backward(q.pages) {
		s.drop(page)
	}
	s.freeSlots = append(s.freeSlots, q.slot)
	s.addSlots(q, -1)
	s.unsentMoves -= len(q.moved)
	q.pages, q.moved, q.found, q.tail = nil, nil, nil, nil
}

// nextReturn returns the sequence that comes back next, the first that moved out, if it may now.
func (s *Scheduler) nextReturn() *Sequence {
	if len(s.out) == 0 || len(s.freeSlots) == 0 || len(s.moving) > 0 {
		return nil
	}
	q := s.out[0]
	user, n := q.share.user, s.returnNeed(q)
	if s.root.slots >= s.MaxBatch && user.slots > 0 || !s.mayTake(user, n, 0) || n+s.slack(q) > s.pages.Free() {
		return nil
	}
	if n > s.pages.Ready() {
		s.wanted = max(s.wanted, n)
		return nil
	}
	return q
}

// nextPassing returns the waiting sequence that may join before first, the next to come back; nil if none may. It is
// the next in order of the users who run fewer sequences than first's user, those that moved out counted, and have
// none out themselves. At most MaxBatch join before first: else users who take turns could keep it out.
func (s *Scheduler) nextPassing(first *Sequence) (next *Sequence) {
	if len(s.moving) > 0 || first.passed >= s.MaxBatch {
		return nil
	}
	var best *share
	of := first.share.user
	for _, user := range s.root.children {
		if user.queued == 0 || user.away > 0 || user.running >= of.running+of.away {
			continue
		}
		if q := user.first(); best == nil || user.precedes(q, best, next) {
			best, next = user, q
		}
	}
	if next == nil || !s.fits(next) {
		return nil
	}
	return next
}

// returnNeed returns the number of pages that a sequence takes when it comes back.
func (s *Scheduler) returnNeed(q *Sequence) int {
	return min(s.fullNeed(q), pagesFor(max(q.length, len(q.Prompt)), s.PageTokens)+stretch)
}

// comeBack gives a sequence that moved out a slot and pages, and begins to copy its keys and values to them.
func (s *Scheduler) comeBack(q *Sequence) {
	s.out = slices.Delete(s.out, 0, 1)
	s.takeSlot(q)
	user := q.share.user
	q.pages, _ = s.pages.AppendTaken(make([]int32, 0, s.fullNeed(q)), s.returnNeed(q))
	for i, page := range q.pages {
		s.charge(page, user)
		if i < len(q.places) {
			s.transfers = append(s.transfers, Transfer{Page: page, Place: q.places[i], q: q})
		}
	}
	q.moving, q.published, q.places = len(q.places), len(q.places), nil
	q.restore, q.unchained, q.passed = q.length > 0, true, 0
	user.away--
	if q.state = decoding; q.prefilled < len(q.Prompt) {
		q.state = prefilling
	}
	s.movedIn++
}
