package server

import (
	"sync"

	"reel/generator/internal/engine"
)

// mailbox is what the engine's thread leaves to a request's goroutine. The thread
// appends and signals; it never waits. The goroutine takes all that is there at once.
type mailbox struct {
	mu     sync.Mutex
	full   delivery
	spare  delivery      // what the taker gave back, to be filled again
	signal chan struct{} // holds one: there is something to take
}

// delivery is what a mailbox held at one moment, in order.
type delivery struct {
	tokens []engine.Token
	tops   []engine.TopToken // backs the tokens' Top
	finish *engine.Finish
}

func newMailbox() *mailbox {
	return &mailbox{signal: make(chan struct{}, 1)}
}

// Token appends t. Top is copied: the engine may use its array again.
func (m *mailbox) Token(t engine.Token) {
	m.mu.Lock()
	if len(t.Top) > 0 {
		start := len(m.full.tops)
		m.full.tops = append(m.full.tops, t.Top...)
		t.Top = m.full.tops[start:]
	}
	m.full.tokens = append(m.full.tokens, t)
	m.mu.Unlock()
	m.notify()
}

// Finish records the end of the request.
func (m *mailbox) Finish(f engine.Finish) {
	m.mu.Lock()
	m.full.finish = &f
	m.mu.Unlock()
	m.notify()
}

func (m *mailbox) notify() {
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// empty tells whether nothing is there.
func (m *mailbox) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.full.tokens) == 0 && m.full.finish == nil
}

// await waits until there may be something.
func (m *mailbox) await() { <-m.signal }

// take returns all that is there. It is valid until the next take.
func (m *mailbox) take() delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.full
	m.full, m.spare = delivery{tokens: m.spare.tokens[:0], tops: m.spare.tops[:0]}, got
	return got
}
