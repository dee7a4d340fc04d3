package server

import (
	"context"
	"math"
	"slices"
	"sync"

	"reel.internal/reel/generator/internal/engine"
)

// fairSemaphore has a number of permits; a uid may hold perUser of them. A free permit
// goes to the waiting uid that holds the fewest; among equals, to the one that got its
// last permit longest ago. A uid's names take turns in the same way, but a name that
// begins to wait comes after those that wait. A name's own calls are served in order.
type fairSemaphore struct {
	permits, perUser int

	mu      sync.Mutex
	free    int
	count   uint64 // permits granted so far
	waiting []waiter
	held    map[uint32]int
	last    map[uint32]uint64 // count at each uid's last permit; cleared when no permit is held or awaited
}

// waiter is a call of acquire that waits.
type waiter struct {
	user    engine.User
	turn    uint64 // count when it began to wait, or at a later permit of the same name
	granted chan struct{}
}

// nobody is the user of acquireSpare: (uid_t)-1, which no process has.
var nobody = engine.User{UID: math.MaxUint32}

func newFairSemaphore(permits, perUser int) *fairSemaphore {
	return &fairSemaphore{permits: permits, perUser: perUser, free: permits,
		held: map[uint32]int{}, last: map[uint32]uint64{}}
}

// acquire waits for a permit; release returns it. A free permit costs about 100 ns.
func (s *fairSemaphore) acquire(user engine.User) { _ = s.acquireUntil(context.Background(), user) }

// acquireUntil is acquire until ctx ends: then it takes no permit and returns ctx's error.
func (s *fairSemaphore) acquireUntil(ctx context.Context, user engine.User) error {
	s.mu.Lock()
	if s.available(user.UID) { // then no waiter could take it: grant has served those
		s.take(user)
		s.mu.Unlock()
		return nil
	}
	w := waiter{user, s.count, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		s.leave(w)
		return ctx.Err()
	}
}

// leave takes a waiter off the queue, or returns the permit that it got meanwhile.
func (s *fairSemaphore) leave(w waiter) {
	s.mu.Lock()
	i := slices.IndexFunc(s.waiting, func(other waiter) bool { return other.granted == w.granted })
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.release(w.user)
	}
}

// acquireSpare waits until no user holds or wants a permit, and takes one. release(nobody)
// returns it.
func (s *fairSemaphore) acquireSpare() { s.acquire(nobody) }

func (s *fairSemaphore) release(user engine.User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[user.UID]--; s.held[user.UID] == 0 {
		delete(s.held, user.UID)
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

func (s *fairSemaphore) take(user engine.User) {
	s.free--
	s.count++
	s.held[user.UID]++
	s.last[user.UID] = s.count
	for i := range s.waiting {
		if s.waiting[i].user == user {
			s.waiting[i].turn = s.count
		}
	}
}

// available reports whether the uid may take a permit now.
func (s *fairSemaphore) available(uid uint32) bool {
	if uid == nobody.UID {
		return s.free == s.permits
	}
	return s.free > 0 && s.held[uid] < s.perUser
}

// next returns the index of the waiter that gets the next permit, or -1.
func (s *fairSemaphore) next() int {
	best := -1
	for i, w := range s.waiting {
		if s.available(w.user.UID) && (best < 0 || s.before(w, s.waiting[best])) {
			best = i
		}
	}
	return best
}

// before reports whether call v gets a permit before call w.
func (s *fairSemaphore) before(v, w waiter) bool {
	a, b := v.user.UID, w.user.UID
	switch {
	case a == b:
		return v.turn < w.turn
	case a == nobody.UID || b == nobody.UID:
		return b == nobody.UID
	}
	if s.held[a] != s.held[b] {
		return s.held[a] < s.held[b]
	}
	return s.last[a] < s.last[b]
}
