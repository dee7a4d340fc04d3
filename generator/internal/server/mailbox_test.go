package server

import (
	"testing"

	"reel.internal/reel/generator/internal/engine"
)

// The tokens come out complete and in order.
func TestMailbox(t *testing.T) {
	const n = 10_000
	m := newMailbox()
	go func() {
		top := make([]engine.TopToken, 2) // reused for each token, as an engine may
		for i := range n {
			top[0].ID, top[1].ID = int32(i), int32(-i)
			m.Token(engine.Token{Index: i, Top: top})
		}
		m.Finish(engine.Finish{Reason: "length"})
	}()
	for next := 0; ; {
		m.await()
		got := m.take()
		for _, token := range got.tokens {
			if token.Index != next || token.Top[0].ID != int32(next) || token.Top[1].ID != int32(-next) {
				t.Fatalf("want token %d, got %+v", next, token)
			}
			next++
		}
		if got.finish != nil {
			if next != n || got.finish.Reason != "length" {
				t.Fatalf("finished after %d: %+v", next, got.finish)
			}
			return
		}
	}
}

// In the steady state a token does not allocate.
func TestMailboxDoesNotAllocate(t *testing.T) {
	m := newMailbox()
	token := engine.Token{Top: make([]engine.TopToken, 20)}
	if n := testing.AllocsPerRun(1000, func() { m.Token(token); m.take() }); n > 0 {
		t.Errorf("%v allocations a token", n)
	}
}
