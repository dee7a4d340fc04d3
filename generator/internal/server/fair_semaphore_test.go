package server

import (
	"context"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/engine"
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
	s.acquire(uid(1))
	order := make(chan uint32)
	for i, user := range []uint32{1, 1, 1, 1, 1, 2, 2} {
		go func() {
			s.acquire(uid(user))
			order <- user
		}()
		eventually(t, "it waits", func() bool { return s.waiters() == i+1 })
	}
	s.release(uid(1))
	var got []uint32
	for range 7 {
		user := <-order
		got = append(got, user)
		s.release(uid(user))
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
	s.acquire(uid(1))
	got := make(chan bool)
	for range 2 {
		go func() {
			s.acquire(uid(1))
			got <- true
		}()
	}
	eventually(t, "they wait", func() bool { return s.waiters() == 2 })
	s.acquire(uid(2))
	s.release(uid(2))
	if s.waiters() != 2 {
		t.Error("another user's permit went to a user who holds one")
	}
	for range 2 {
		s.release(uid(1))
		<-got
	}
	s.release(uid(1))
	if len(s.held)+len(s.last)+s.waiters() != 0 || s.free != 3 {
		t.Errorf("left: %+v", s)
	}
}

// A call that gives up leaves its place in the queue to others, and returns the permit that it gets at that moment.
func TestPermitIsGivenUp(t *testing.T) {
	s := newFairSemaphore(1, 1)
	s.acquire(uid(1))
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error)
	go func() { gaveUp <- s.acquireUntil(ctx, uid(2)) }()
	eventually(t, "it waits", func() bool { return s.waiters() == 1 })
	cancel()
	if err := <-gaveUp; err == nil || s.waiters() != 0 {
		t.Errorf("%v, %d wait", err, s.waiters())
	}
	go func() { gaveUp <- s.acquireUntil(context.Background(), uid(3)) }()
	eventually(t, "it waits", func() bool { return s.waiters() == 1 })
	granted := s.waiting[0]
	s.release(uid(1))
	if err := <-gaveUp; err != nil {
		t.Error(err)
	}
	s.leave(granted)
	if len(s.held)+len(s.last)+s.waiters() != 0 || s.free != 1 {
		t.Errorf("left: %+v", s)
	}
}

// A call gives up also after a permit for its user has changed its turn.
func TestPermitIsGivenUpAfterATurn(t *testing.T) {
	s := newFairSemaphore(1, 1)
	s.acquire(uid(1))
	ctx, cancel := context.WithCancel(context.Background())
	first, second := make(chan error), make(chan error)
	go func() { first <- s.acquireUntil(ctx, uid(1)) }()
	eventually(t, "it waits", func() bool { return s.waiters() == 1 })
	go func() { second <- s.acquireUntil(ctx, uid(1)) }()
	eventually(t, "both wait", func() bool { return s.waiters() == 2 })
	s.release(uid(1))
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	go func() { first <- s.acquireUntil(t.Context(), uid(2)) }()
	eventually(t, "another user waits", func() bool { return s.waiters() == 2 })
	cancel()
	if err := <-second; err == nil || s.waiters() != 1 || s.held[1] != 1 {
		t.Errorf("%v, %d wait, %v are held", err, s.waiters(), s.held)
	}
	s.release(uid(1))
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// BenchmarkAcquire measures a text's cost of acquiring a free permit.
func BenchmarkAcquire(b *testing.B) {
	s := newFairSemaphore(2, 1)
	b.ReportAllocs()
	for b.Loop() {
		s.acquire(uid(1))
		s.release(uid(1))
	}
}

// uid returns the user of a uid's requests without a name.
func uid(n uint32) engine.User { return engine.User{UID: n} }

// A uid's names take turns in its part of the permits. Many names get no more of them than one.
func TestPermitsAreSharedAmongNames(t *testing.T) {
	s := newFairSemaphore(1, 1)
	a, b, c, other := engine.User{UID: 1, Name: "a"}, engine.User{UID: 1, Name: "b"}, uid(1), uid(2)
	s.acquire(c)
	order := make(chan engine.User)
	for i, user := range []engine.User{a, a, a, other, b, b, other, c, other, a} {
		go func() {
			s.acquire(user)
			order <- user
		}()
		eventually(t, "it waits", func() bool { return s.waiters() == i+1 })
	}
	s.release(c)
	var got []engine.User
	for range 10 {
		user := <-order
		got = append(got, user)
		s.release(user)
	}
	if want := []engine.User{other, a, other, b, other, c, a, b, a, a}; !slices.Equal(got, want) {
		t.Errorf("permits went to %v, want %v", got, want)
	}
	if len(s.held)+len(s.last) != 0 || s.free != 1 {
		t.Errorf("left: %+v", s)
	}
}

// Names of one uid hold no more permits at once than the uid may.
func TestPermitsOfNames(t *testing.T) {
	s := newFairSemaphore(3, 1)
	s.acquire(engine.User{UID: 1, Name: "a"})
	got := make(chan bool)
	go func() {
		s.acquire(engine.User{UID: 1, Name: "b"})
		got <- true
	}()
	eventually(t, "it waits", func() bool { return s.waiters() == 1 })
	s.release(engine.User{UID: 1, Name: "a"})
	<-got
	if s.holders() != 1 || s.free != 2 {
		t.Errorf("%d uids hold permits, %d are free", s.holders(), s.free)
	}
}
