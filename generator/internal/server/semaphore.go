package server

import "sync"

// fairSemaphore has a number of places, of which a user may hold some at once. A free
// place goes to the user who holds the fewest; among equals to the one whose last place
// is longest ago; and of one user's to the first that came.
type fairSemaphore struct {
	perUser int

	mu      sync.Mutex
	free    int
	count   uint64 // places given so far
	waiting []waiter
	held    map[uint32]int
	last    map[uint32]uint64 // count at each user's last place, while anybody holds or awaits one
}

// waiter is a caller of acquire that waits.
type waiter struct {
	user  uint32
	given chan struct{}
}

func newFairSemaphore(places, perUser int) *fairSemaphore {
	return &fairSemaphore{perUser: perUser, free: places, held: map[uint32]int{}, last: map[uint32]uint64{}}
}

// acquire waits for a place; release gives it back. A free one costs about 100 ns.
func (s *fairSemaphore) acquire(user uint32) {
	s.mu.Lock()
	if s.mayTake(user) { // then nobody who waits may: grant has served them
		s.take(user)
		s.mu.Unlock()
		return
	}
	w := waiter{user, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	<-w.given
}

func (s *fairSemaphore) release(user uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[user]--; s.held[user] == 0 {
		delete(s.held, user)
	}
	s.grant()
}

// grant gives free places to those that wait.
func (s *fairSemaphore) grant() {
	for i := s.next(); i >= 0; i = s.next() {
		w := s.waiting[i]
		s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
		s.take(w.user)
		close(w.given)
	}
	if len(s.waiting)+len(s.held) == 0 {
		clear(s.last)
	}
}

func (s *fairSemaphore) take(user uint32) {
	s.free--
	s.count++
	s.held[user]++
	s.last[user] = s.count
}

func (s *fairSemaphore) mayTake(user uint32) bool { return s.free > 0 && s.held[user] < s.perUser }

// next is the index of the waiter that gets the next place, or -1.
func (s *fairSemaphore) next() int {
	best := -1
	for i, w := range s.waiting {
		if s.mayTake(w.user) && (best < 0 || s.before(w.user, s.waiting[best].user)) {
			best = i
		}
	}
	return best
}

// before reports whether user a gets a place before user b.
func (s *fairSemaphore) before(a, b uint32) bool {
	if s.held[a] != s.held[b] {
		return s.held[a] < s.held[b]
	}
	return s.last[a] < s.last[b]
}
