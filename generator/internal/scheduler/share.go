package scheduler

import "slices"

// share is one party's share of the engine: a user among all users, or a connection among its user's. Shares form
// a tree under Scheduler.root, with one policy at every level. A free slot goes to the child that runs the fewest
// sequences, and prompt tokens go to the child that was served least. Equals are ordered by the other of the two
// measures, then by arrival. A share exists while a sequence of it waits, runs or leaves.
type share struct {
	parent   *share // nil for the root
	children []*share
	key      uint64 // user or connection

	// Only in leaves, which are connections.
	waiting []*Sequence // in order of arrival
	members int         // sequences that wait, run or leave

	// Of this share and those below it.
	queued  int    // sequences that wait
	running int    // sequences that run
	slots   int    // slots held, those of leaving sequences included
	pages   int    // only in users: KV pages that no other user holds, likewise
	served  uint64 // rows of steps; a new share starts at its least served sibling's
}

// enqueue puts q at the end of its connection's queue.
func (s *Scheduler) enqueue(q *Sequence) {
	q.share = s.child(s.child(&s.root, uint64(q.User)), q.Connection)
	q.arrival = s.arrivals
	s.arrivals++
	q.share.waiting = append(q.share.waiting, q)
	q.share.members++
	for a := q.share; a != nil; a = a.parent {
		a.queued++
	}
}

// child returns the child with this key, and adds it if there is none.
func (s *Scheduler) child(parent *share, key uint64) *share {
	for _, c := range parent.children {
		if c.key == key {
			return c
		}
	}
	c := s.blankShare()
	c.parent, c.key, c.served = parent, key, parent.leastServed()
	parent.children = append(parent.children, c)
	return c
}

// blankShare returns an empty share. It reuses an old share's memory.
func (s *Scheduler) blankShare() *share {
	if len(s.oldShares) == 0 {
		return &share{}
	}
	c := s.oldShares[len(s.oldShares)-1]
	s.oldShares = s.oldShares[:len(s.oldShares)-1]
	*c = share{waiting: c.waiting[:0], children: c.children[:0]}
	return c
}

// leastServed returns the smallest served of the children; 0 without children. New children start there, so idle
// time earns no credit.
func (a *share) leastServed() (rows uint64) {
	for i, c := range a.children {
		if i == 0 || c.served < rows {
			rows = c.served
		}
	}
	return rows
}

// dequeue removes q from its connection's queue.
func (s *Scheduler) dequeue(q *Sequence) {
	q.share.waiting = without(q.share.waiting, q)
	for a := q.share; a != nil; a = a.parent {
		a.queued--
	}
}

// leaveShare removes q from its share, and removes shares that became empty from the tree.
func (s *Scheduler) leaveShare(q *Sequence) {
	a := q.share
	q.share = nil
	a.members--
	for a.parent != nil && a.members == 0 && len(a.children) == 0 {
		parent := a.parent
		i := slices.Index(parent.children, a)
		parent.children = slices.Delete(parent.children, i, i+1)
		s.oldShares = append(s.oldShares, a)
		a = parent
	}
}

// user returns the share of the user to which a, a connection's share, belongs.
func (a *share) user() *share {
	for a.parent.parent != nil {
		a = a.parent
	}
	return a
}

// first returns the waiting sequence of this share that is next for a slot; nil if none waits. It visits every
// share below once.
func (a *share) first() (next *Sequence) {
	if len(a.waiting) > 0 {
		return a.waiting[0]
	}
	var best *share
	for _, c := range a.children {
		if c.queued == 0 {
			continue
		}
		if q := c.first(); best == nil || c.precedes(q, best, next) {
			best, next = c, q
		}
	}
	return next
}

// precedes reports whether q, the first of share a, gets a slot before r, the first of a's sibling b. It does if a
// runs fewer sequences; among equals, if a was served less; among equals, if q arrived first.
func (a *share) precedes(q *Sequence, b *share, r *Sequence) bool {
	switch {
	case a.running != b.running:
		return a.running < b.running
	case a.served != b.served:
		return a.served < b.served
	}
	return q.arrival < r.arrival
}

// promptBefore reports whether prompts of connection a are prefilled before those of connection b. They are if a
// was served less; among equals, which newcomers are, if a runs fewer sequences. Connections of different users
// compare as their users do.
func (a *share) promptBefore(b *share) bool {
	for a.parent != b.parent {
		a, b = a.parent, b.parent
	}
	if a.served != b.served {
		return a.served < b.served
	}
	return a.running < b.running
}

// nextPrompt returns the running sequence that is prefilled next; nil if no prompt is left. It is of the user
// that was served least, of that user's connection that was served least, and of that connection's sequences the
// first that joined. So others' long prompts delay a prompt by about one chunk.
func (s *Scheduler) nextPrompt() (next *Sequence) {
	for _, q := range s.running {
		if q.ready(prefilling) && q.heldBack != s.rounds && (next == nil || q.share.promptBefore(next.share)) {
			next = q
		}
	}
	return next
}
