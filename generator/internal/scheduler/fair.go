package scheduler

// account is what a user's sequences take, while there are any.
type account struct {
	user      uint32
	sequences int    // waiting and running
	running   int    // that hold a slot
	served    uint64 // rows of steps, from what the least served user had when this one came
}

// open adds q to its user's account.
func (s *Scheduler) open(q *Sequence) {
	a := s.accounts[q.User]
	if a == nil {
		a = &account{user: q.User, served: s.leastServed()}
		s.accounts[q.User] = a
	}
	a.sequences++
	q.account = a
}

// leastServed is the rows of the user who got the fewest. Who comes starts there:
// time without requests is not saved up.
func (s *Scheduler) leastServed() (rows uint64) {
	first := true
	for _, a := range s.accounts {
		if first || a.served < rows {
			first, rows = false, a.served
		}
	}
	return rows
}

// leave takes a sequence out of its user's account.
func (s *Scheduler) leave(a *account) {
	if a.sequences--; a.sequences == 0 {
		delete(s.accounts, a.user)
	}
}

// before tells whether a user comes before another: who holds fewer slots, and of
// equals who was served less.
func (a *account) before(other *account) bool {
	if a.running != other.running {
		return a.running < other.running
	}
	return a.served < other.served
}

// nextWaiting is the sequence that gets the next free slot: the oldest of the user
// whose turn it is. Nil where none waits.
func (s *Scheduler) nextWaiting() (next *Sequence) {
	for _, q := range s.queue {
		if next == nil || q.account.before(next.account) {
			next = q
		}
	}
	return next
}

// nextPrompt is the sequence whose prompt goes on next: that of the user who was
// served least, and of one user's the one that joined first. So a user with many
// long prompts delays another's by about one chunk. Nil where none is left.
func (s *Scheduler) nextPrompt() (next *Sequence) {
	for _, q := range s.running {
		if q.ready(prefilling) && (next == nil || q.account.served < next.account.served) {
			next = q
		}
	}
	return next
}
