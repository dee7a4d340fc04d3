package server

import (
	"slices"
	"strings"
	"testing"

	"reel/protocol"
)

// waiters is how many wait.
func (t *turns) waiters() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// One user's many leave every other turn to another's few.
func TestTurnsAreShared(t *testing.T) {
	s := newTurns(1)
	s.take(1)
	order := make(chan uint32)
	for i, user := range []uint32{1, 1, 1, 1, 1, 2, 2} {
		go func() {
			s.take(user)
			order <- user
		}()
		eventually(t, "it waits", func() bool { return s.waiters() == i+1 })
	}
	s.give(1)
	var got []uint32
	for range 7 {
		user := <-order
		got = append(got, user)
		s.give(user)
	}
	if want := []uint32{2, 1, 2, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("turns went to %v, want %v", got, want)
	}
	if len(s.held)+len(s.last) != 0 || s.free != 1 {
		t.Errorf("left: %+v", s)
	}
}

// A large prompt of one user does not wait for all those of another.
func TestLargePromptsAreShared(t *testing.T) {
	f, uid := readyAs(t, func(b *bounds) { b.tokenizers, b.largeText = 1, 10 })
	f.tok.gate = make(chan struct{})
	uid.Store(1)
	text := strings.Repeat("a", 20)
	var many []*peerClient
	for range 6 {
		many = append(many, f.client())
	}
	for i, c := range many {
		c.send(&protocol.Tokenize{Text: text})
		eventually(t, "it waits, or is tokenized", func() bool { return f.turns.waiters() == i && f.tok.at.Load() == 1 })
	}
	uid.Store(2)
	other := f.client()
	other.send(&protocol.Tokenize{Text: text})
	eventually(t, "it waits too", func() bool { return f.turns.waiters() == 6 })
	f.tok.gate <- struct{}{} // the first of the one
	f.tok.gate <- struct{}{} // then the other's
	expect[protocol.Tokens](other)
	close(f.tok.gate)
	for _, c := range many {
		expect[protocol.Tokens](c)
	}
}
