package server

import (
	"slices"
	"testing"
)

// waiters returns the number of waiting calls.
func (s *fairSemaphore) waiters() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// holders returns the number of users that hold permits.
func (s *fairSemaphore) holders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Permits alternate between a user with many calls and one with few.
func TestPermitsAreShared(t *testing.T) {
	s := newFairSemaphore(1, 1)
	s.acquire(1)
	order := make(chan uint32)
	for i, user := range []uint32{1, 1, 1, 1, 1, 2, 2} {
		go func() {
			s.acquire(user)
			order <- user
		}()
		eventually(t, "it waits", func() bool { return s.waiters() == i+1 })
	}
	s.release(1)
	var got []uint32
	for range 7 {
		user := <-order
		got = append(got, user)
		s.release(user)
	}
	if want := []uint32{2, 1, 2, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("permits went to %v, want %v", got, want)
	}
	if len(s.held)+len(s.last) != 0 || s.free != 1 {
		t.Errorf("left: %+v", s)
	}
}

// A user gets no more permits than one may hold, though others are free for other users.
func TestPermitsOfAUser(t *testing.T) {
	s := newFairSemaphore(3, 1)
	s.acquire(1)
	got := make(chan bool)
	for range 2 {
		go func() {
			s.acquire(1)
			got <- true
		}()
	}
	eventually(t, "they wait", func() bool { return s.waiters() == 2 })
	s.acquire(2)
	s.release(2)
	if s.waiters() != 2 {
		t.Error("another user's permit went to a user who holds one")
	}
	for range 2 {
		s.release(1)
		<-got
	}
	s.release(1)
	if len(s.held)+len(s.last)+s.waiters() != 0 || s.free != 3 {
		t.Errorf("left: %+v", s)
	}
}

// BenchmarkAcquire measures a text's cost of acquiring a free permit.
func BenchmarkAcquire(b *testing.B) {
	s := newFairSemaphore(2, 1)
	b.ReportAllocs()
	for b.Loop() {
		s.acquire(1)
		s.release(1)
	}
}
