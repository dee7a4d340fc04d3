package server

import (
	"sync"

	"reel.internal/reel/generator/internal/engine"
)

// mailbox passes tokens from the engine's thread to a request's goroutine. The thread
// appends and signals without waiting; the goroutine takes everything at once.
type mailbox struct {
	mu     sync.Mutex
	filled delivery
	spare  delivery      // buffers of the delivery before, to be filled again
	signal chan struct{} // capacity 1: there may be something to take
}

// delivery is the content of a mailbox at one moment, in order.
type delivery struct {
	tokens []engine.Token
	tops   []engine.TopToken // backs the tokens' Top
	finish *engine.Finish    // nil: the request runs
}

func newMailbox() *mailbox {
	return &mailbox{signal: make(chan struct{}, 1)}
}

// Token appends t and wakes the goroutine that awaits. It copies Top, since the engine reuses that array.
func (m *mailbox) Token(t engine.Token) {
	m.put(t)
	m.notify()
}

// put is Token without the wakeup.
func (m *mailbox) put(t engine.Token) {
	m.mu.Lock()
	if len(t.Top) > 0 {
		start := len(m.filled.tops)
		m.filled.tops = append(m.filled.tops, t.Top...)
		t.Top = m.filled.tops[start:]
	}
	m.filled.tokens = append(m.filled.tokens, t)
	m.mu.Unlock()
}

// Finish adds the end of the request.
func (m *mailbox) Finish(f engine.Finish) {
	m.mu.Lock()
	m.filled.finish = &f
	m.mu.Unlock()
	m.notify()
}

func (m *mailbox) notify() {
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// empty reports whether there is nothing to take.
func (m *mailbox) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.filled.tokens) == 0 && m.filled.finish == nil
}

// await waits until there may be something to take.
func (m *mailbox) await() { <-m.signal }

// take returns the content and empties the mailbox. The result is valid until the next
// call of take.
func (m *mailbox) take() delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.filled
	m.filled, m.spare = delivery{tokens: m.spare.tokens[:0], tops: m.spare.tops[:0]}, got
	return got
}

// takeTokens is take without the finish, which stays.
func (m *mailbox) takeTokens() []engine.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.filled
	m.filled = delivery{tokens: m.spare.tokens[:0], tops: m.spare.tops[:0], finish: got.finish}
	got.finish, m.spare = nil, got
	return got.tokens
}
