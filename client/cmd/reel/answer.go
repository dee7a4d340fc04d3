package main

import (
	"context"
	"sync"
)

// answer is the answer being printed, which Ctrl-C ends.
type answer struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil while none is being printed
	ended  bool               // by Ctrl-C
}

// begin returns a context that stop ends. Call end afterwards.
func (a *answer) begin(ctx context.Context) (answering context.Context, end func()) {
	answering, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel, a.ended = cancel, false
	return answering, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.cancel = nil
		cancel()
	}
}

// stop ends the answer. It returns false if there is none or it was ended already.
func (a *answer) stop() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel == nil || a.ended {
		return false
	}
	a.ended = true
	a.cancel()
	return true
}

func (a *answer) stopped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}
