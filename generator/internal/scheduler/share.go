package scheduler

import "slices"

// share is one party's share of the engine: a user (a uid) among all users, a name among its user's, or a connection
// among its name's. Shares form a tree of these levels under Scheduler.root, with one policy at every level. A free
// slot goes to the child that runs the fewest sequences, and prompt tokens go to the child that was served least.
// Equals are ordered by the other of the two measures, then by arrival. A share exists while a sequence of it waits,
// runs or leaves.
type share struct {
	parent   *share // nil for the root
	children []*share
	key      key
	user     *share // the user's, to which it belongs; nil for the root

	// Only in leaves, which are connections.
	waiting []*Sequence // in order of arrival
	members int         // sequences that wait, run or leave

	// Only in names, while a step is formed: sequences that wait for their first token, those of them that are in the
	// burst, and sequences that wait for their next token.
	awaitFirst, burst, awaitNext int

	// Of this share and those below it.
	queued  int    // sequences that wait
	prompts int    // sequences with prompt tokens left, without those that wait for their first mask
	asking  int    // children that have some
	running int    // sequences that run
	slots   int    // slots held, those of leaving sequences included
	pages   int    // only in users: KV pages that no other user holds, likewise
	away    int    // only in users: sequences that moved out, or are on their way
	served  uint64 // rows of steps. Not counted in the root
	// virtual is how many rows each child with prompts would have been served by now, had all such shared alike (the virtual
	// time of fair queueing). A child without prompts that was served less begins its next prompt there. So idle time earns no
	// credit, and newcomers do not pass a waiting prompt for ever.
	virtual float64
}

// serve counts rows of a connection's sequence in its shares, and advances the virtual times of their parents. It runs for
// each row.
func (a *share) serve(rows int) {
	for ; a.parent != nil; a = a.parent {
		if a.served += uint64(rows); a.prompts > 0 {
			a.parent.virtual += float64(rows) / float64(a.parent.asking)
		}
	}
}

// key tells a share from its siblings: a user's or a connection's number, or a name.
type key struct {
	number uint64
	name   string
}

// enqueue puts q at the end of its connection's queue.
func (s *Scheduler) enqueue(q *Sequence) {
	name := s.child(s.child(&s.root, key{number: uint64(q.User.UID)}), key{name: q.User.Name})
	q.share = s.child(name, key{number: q.Connection})
	q.arrival = s.arrivals
	s.arrivals++
	q.share.waiting = append(q.share.waiting, q)
	q.share.members++
	for a := q.share; a != nil; a = a.parent {
		a.queued++
	}
	if !q.Sampling.Masked || q.allowed {
		q.beginPrompt()
	}
}

// beginPrompt counts q's prompt in its shares, once. One that waits for a mask is counted from the mask on: the time before
// earns no credit.
func (q *Sequence) beginPrompt() {
	if q.asks || q.share == nil || q.promptLeft() == 0 {
		return
	}
	q.asks = true
	for a := q.share; a != nil; a = a.parent {
		if a.parent != nil && a.prompts == 0 {
			a.served = max(a.served, uint64(a.parent.virtual))
			a.parent.asking++
		}
		a.prompts++
	}
}

// endPrompt notes that no token of q's prompt is left to compute, or that q leaves.
func (q *Sequence) endPrompt() {
	if !q.asks {
		return
	}
	q.asks = false
	for a := q.share; a != nil; a = a.parent {
		if a.prompts--; a.parent != nil && a.prompts == 0 {
			a.parent.asking--
		}
	}
}

// child returns the child with this key, and adds it if there is none.
func (s *Scheduler) child(parent *share, key key) *share {
	for _, c := range parent.children {
		if c.key == key {
			return c
		}
	}
	c := s.blankShare()
	c.parent, c.key, c.served, c.user = parent, key, parent.leastServed(), parent.user
	if parent == &s.root {
		c.user = c
	}
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

// leastServed returns the smallest served of the children; 0 without children. No new child starts below it.
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
	q.endPrompt()
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

// promptBefore reports whether q's prompt is prefilled before r's, of another connection. It is if, served alone, its
// share would sooner have been served all of it: what the share was served, and the tokens that are left of the prompt
// (fair queueing by virtual times of finish: Demers, Keshav and Shenker, 1989). So a short prompt goes before a long
// one, and of two as long ones the first is not held up by the second. Among equals it is if its share runs fewer
// sequences.
// Connections of different users compare as their users do, and of different names of a user as these.
func (q *Sequence) promptBefore(r *Sequence) bool {
	a, b := q.share, r.share
	if a == b {
		return false // in the order in which they joined
	}
	for a.parent != b.parent {
		a, b = a.parent, b.parent
	}
	if x, y := a.served+q.promptLeft(), b.served+r.promptLeft(); x != y {
		return x < y
	}
	return a.running < b.running
}

// promptLeft returns how many tokens of its prompt are not computed.
func (q *Sequence) promptLeft() uint64 { return uint64(len(q.Prompt) - q.prefilled) }

// nextPrompt returns the running sequence that is prefilled next; nil if no prompt is left. Others' long prompts delay
// a short one by about one chunk.
func (s *Scheduler) nextPrompt() (next *Sequence) {
	for _, q := range s.running {
		if s.ready(q, prefilling) && q.heldBack != s.rounds && (next == nil || q.promptBefore(next)) {
			next = q
		}
	}
	return next
}
