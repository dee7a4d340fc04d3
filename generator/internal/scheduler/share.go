package scheduler

import "slices"

// share is what one party has of the engine: a user among all users, or a
// connection among its user's. Shares form a tree under Scheduler.root, with one
// policy at every level: a free place goes to the child that runs the fewest
// sequences, prompt tokens go to the child that was served least, and equals take
// the other measure, then the order of arrival. A share exists while a sequence of it waits, runs
// or leaves.
type share struct {
	parent   *share // nil for the root
	children []*share
	key      uint64 // among the parent's children

	waiting []*Sequence // of a share without children, in order of arrival
	members int         // of a share without children: sequences that wait, run or leave
	queued  int         // sequences that wait, in this share and below
	running int         // sequences that run, likewise
	places  int         // slots held, likewise; those of leaving sequences too
	pages   int         // KV pages held, likewise
	served  uint64      // rows of steps; a new share starts at its least served sibling's
}

// enter queues q in its connection's share of its user's.
func (s *Scheduler) enter(q *Sequence) {
	q.share = s.child(s.child(&s.root, uint64(q.User)), q.Connection)
	q.came = s.arrivals
	s.arrivals++
	q.share.waiting = append(q.share.waiting, q)
	q.share.members++
	for a := q.share; a != nil; a = a.parent {
		a.queued++
	}
}

// child returns the child of that key, and makes it if there is none.
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

// blankShare is an empty share, with the memory of one that has ended if there is one.
func (s *Scheduler) blankShare() *share {
	if len(s.ended) == 0 {
		return &share{}
	}
	c := s.ended[len(s.ended)-1]
	s.ended = s.ended[:len(s.ended)-1]
	*c = share{waiting: c.waiting[:0], children: c.children[:0]}
	return c
}

// leastServed is the rows of the child that got the fewest. New children start
// there, so idle time earns no credit.
func (a *share) leastServed() (rows uint64) {
	for i, c := range a.children {
		if i == 0 || c.served < rows {
			rows = c.served
		}
	}
	return rows
}

// unqueue takes q out of those that wait.
func (s *Scheduler) unqueue(q *Sequence) {
	q.share.waiting = without(q.share.waiting, q)
	for a := q.share; a != nil; a = a.parent {
		a.queued--
	}
}

// quit takes q out of its share, and ends the shares in which nothing is left.
func (s *Scheduler) quit(q *Sequence) {
	a := q.share
	q.share = nil
	a.members--
	for a.parent != nil && a.members == 0 && len(a.children) == 0 {
		parent := a.parent
		i := slices.Index(parent.children, a)
		parent.children = slices.Delete(parent.children, i, i+1)
		s.ended = append(s.ended, a)
		a = parent
	}
}

// user is the user's share that a, a connection's, is part of.
func (a *share) user() *share {
	for a.parent.parent != nil {
		a = a.parent
	}
	return a
}

// first returns the waiting sequence of this share whose turn it is; nil if none
// waits. It looks at every share below once.
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

// precedes reports whether q, the first of share a, gets a place before r, the
// first of a's sibling b: a runs fewer sequences, or as many and was served less,
// or q came first.
func (a *share) precedes(q *Sequence, b *share, r *Sequence) bool {
	switch {
	case a.running != b.running:
		return a.running < b.running
	case a.served != b.served:
		return a.served < b.served
	}
	return q.came < r.came
}

// promptBefore reports whether prompts of a, a connection's share, go on before
// those of b: a was served less, or as much and runs fewer, as one who has just
// come. Connections of different users compare as their users do.
func (a *share) promptBefore(b *share) bool {
	for a.parent != b.parent {
		a, b = a.parent, b.parent
	}
	if a.served != b.served {
		return a.served < b.served
	}
	return a.running < b.running
}

// nextPrompt returns the running sequence whose prompt goes on next: of the user
// that was served least, there of the connection that was, and there the one
// that joined first. So others' long prompts delay a prompt by about one chunk.
// Nil if no prompt is left.
func (s *Scheduler) nextPrompt() (next *Sequence) {
	for _, q := range s.running {
		if q.ready(prefilling) && (next == nil || q.share.promptBefore(next.share)) {
			next = q
		}
	}
	return next
}
