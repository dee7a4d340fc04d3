package gateway

import (
	"context"
	"net/http"
	"slices"
	"sync"
)

// places bounds the requests that the generators of a model have from this gateway. Further requests
// wait: those of a user in order, and of several users the one that has the fewest places goes first. A
// user holds no more places than it leaves free, so that another one finds one at once.
type places struct {
	waits *shares // the bound on waiting requests, over all models

	mu      sync.Mutex
	offered int // by all generators
	total   int
	used    int
	held    map[string]int
	waiting []*waiter // oldest first
}

// waiter is a waiting request.
type waiter struct {
	user  string
	ready chan struct{} // closed when it has its place
}

// errQueue refuses a request for which there is no room to wait.
var errQueue = &apiError{status: http.StatusTooManyRequests, code: "queue_full", retry: 1,
	message: "too many requests wait already (ask again in a moment)"}

func newPlaces(waits *shares) *places { return &places{waits: waits, total: 1, held: map[string]int{}} }

// grow changes the number of places by what a generator offers more or less.
func (p *places) grow(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offered += by
	p.total = max(p.offered, 1) // while no generator answers, requests find that out one by one
	p.grant()
}

// take waits for a place. It fails if too many requests wait, or with ctx.
func (p *places) take(ctx context.Context, user string) error {
	p.mu.Lock()
	if p.free(user) {
		p.hold(user)
		p.mu.Unlock()
		return nil
	}
	if !p.waits.take(user, 1) {
		p.mu.Unlock()
		return errQueue
	}
	defer p.waits.give(user, 1)
	w := &waiter{user, make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return p.leave(w, ctx.Err())
	}
}

// leave takes a waiter out of the queue. If it has got its place meanwhile, the next one has it.
func (p *places) leave(w *waiter, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return cause
	}
	p.release(w.user)
	return cause
}

// queued returns the number of waiting requests.
func (p *places) queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// give returns a place.
func (p *places) give(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(user)
}

func (p *places) release(user string) {
	p.used--
	if p.held[user]--; p.held[user] == 0 {
		delete(p.held, user)
	}
	p.grant()
}

// free reports whether a user may have a further place now. The first is given while there is any.
func (p *places) free(user string) bool {
	left := p.total - p.used
	return left > 0 && p.held[user] < max(left, 1)
}

func (p *places) hold(user string) {
	p.used++
	p.held[user]++
}

// grant gives free places to those who wait.
func (p *places) grant() {
	for {
		next := -1
		for i, w := range p.waiting {
			if p.free(w.user) && (next < 0 || p.held[w.user] < p.held[p.waiting[next].user]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.hold(w.user)
		close(w.ready)
	}
}
