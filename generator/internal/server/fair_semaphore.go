package server

import (
	"math"
	"sync"
)

// fairSemaphore has a number of permits; a user may hold perUser of them. A free permit
// goes to the waiting user that holds the fewest; among equals, to the one that got its
// last permit longest ago. A user's own calls are served in order.
type fairSemaphore struct {
	permits, perUser int

	mu      sync.Mutex
	free    int
	count   uint64 // permits granted so far
	waiting []waiter
	held    map[uint32]int
	last    map[uint32]uint64 // count at each user's last permit; cleared when no permit is held or awaited
}

// waiter is a call of acquire that waits.
type waiter struct {
	user    uint32
	granted chan struct{}
}

// nobody is the user of acquireSpare: (uid_t)-1, which no process has.
const nobody = math.MaxUint32

func newFairSemaphore(permits, perUser int) *fairSemaphore {
	return &fairSemaphore{permits: permits, perUser: perUser, free: permits,
		held: map[uint32]int{}, last: map[uint32]uint64{}}
}

// acquire waits for a permit; release returns it. A free permit costs about 100 ns.
func (s *fairSemaphore) acquire(user uint32) {
	s.mu.Lock()
	if s.available(user) { // then no waiter could take it: grant has served those
		s.take(user)
		s.mu.Unlock()
		return
	}
	w := waiter{user, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	<-w.granted
}

// acquireSpare waits until no user holds or wants a permit, and takes one. release(nobody)
// returns it.
func (s *fairSemaphore) acquireSpare() { s.acquire(nobody) }

func (s *fairSemaphore) release(user uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[user]--; s.held[user] == 0 {
		delete(s.held, user)
	}
	s.grant()
}

// grant gives free permits to waiters.
func (s *fairSemaphore) grant() {
	for i := s.next(); i >= 0; i = s.next() {
		w := s.waiting[i]
		s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
		s.take(w.user)
		close(w.granted)
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

// available reports whether the user may take a permit now.
func (s *fairSemaphore) available(user uint32) bool {
	if user == nobody {
		return s.free == s.permits
	}
	return s.free > 0 && s.held[user] < s.perUser
}

// next returns the index of the waiter that gets the next permit, or -1.
func (s *fairSemaphore) next() int {
	best := -1
	for i, w := range s.waiting {
		if s.available(w.user) && (best < 0 || s.before(w.user, s.waiting[best].user)) {
			best = i
		}
	}
	return best
}

// before reports whether user a gets a permit before user b.
func (s *fairSemaphore) before(a, b uint32) bool {
	if a == nobody || b == nobody {
		return b == nobody
	}
	if s.held[a] != s.held[b] {
		return s.held[a] < s.held[b]
	}
	return s.last[a] < s.last[b]
}
