package server

import "sync"

// turns lets so many do something at once, and shares that out among users: who
// holds fewest turns is next, of equals who had one longest ago, and of one user's
// the first that came.
type turns struct {
	mu      sync.Mutex
	free    int
	number  uint64
	waiting []turn
	held    map[uint32]int
	last    map[uint32]uint64 // number of each user's last turn, while anybody has or awaits one
}

// turn is one that waits.
type turn struct {
	user  uint32
	given chan struct{}
}

func newTurns(n int) *turns {
	return &turns{free: n, held: map[uint32]int{}, last: map[uint32]uint64{}}
}

// take waits for a turn; give ends it.
func (t *turns) take(user uint32) {
	t.mu.Lock()
	mine := turn{user, make(chan struct{})}
	t.waiting = append(t.waiting, mine)
	t.hand()
	t.mu.Unlock()
	<-mine.given
}

func (t *turns) give(user uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.held[user]--; t.held[user] == 0 {
		delete(t.held, user)
	}
	t.hand()
}

// hand gives free turns to those that wait.
func (t *turns) hand() {
	for t.free > 0 && len(t.waiting) > 0 {
		i := t.next()
		w := t.waiting[i]
		t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
		t.free--
		t.number++
		t.held[w.user]++
		t.last[w.user] = t.number
		close(w.given)
	}
	if len(t.waiting)+len(t.held) == 0 {
		clear(t.last)
	}
}

// next is the place of the one that is next.
func (t *turns) next() (best int) {
	for i, w := range t.waiting {
		b := t.waiting[best]
		if t.held[w.user] < t.held[b.user] || t.held[w.user] == t.held[b.user] && t.last[w.user] < t.last[b.user] {
			best = i
		}
	}
	return best
}
