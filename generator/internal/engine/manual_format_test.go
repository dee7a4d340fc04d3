package engine

import (
	"sync"
	"testing"
	"time"

	"reel.internal/reel/kernels"
)

// manual is a format whose masks the test makes.
type manual struct {
	mu     sync.Mutex
	calls  chan func(Mask) // of Next
	closed int
	tokens []int32 // given to Next
	drafts []int   // of each call
}

func newManual() *manual { return &manual{calls: make(chan func(Mask), 100)} }

func (f *manual) Next(drawn []int32, drafts int, done func(Mask)) {
	f.mu.Lock()
	f.tokens, f.drafts = append(f.tokens, drawn...), append(f.drafts, drafts)
	f.mu.Unlock()
	f.calls <- done
}

func (f *manual) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
}

// asked waits until the next mask is asked for, and returns the function to give it to.
func (f *manual) asked(t testing.TB) func(Mask) {
	t.Helper()
	select {
	case done := <-f.calls:
		return done
	case <-time.After(patience):
		t.Fatal("no mask is asked for")
		return nil
	}
}

// mustBeClosed checks that the format was closed once, and no mask asked for that was not made.
func (f *manual) mustBeClosed(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != 1 || len(f.calls) > 0 {
		t.Errorf("closed %d times, %d masks asked for", f.closed, len(f.calls))
	}
}

// allowing returns a mask over a vocabulary that allows these tokens.
func allowing(vocab int, tokens ...int32) Mask {
	m := Mask{Words: make([]uint32, kernels.MaskWords(vocab))}
	for _, token := range tokens {
		m.Words[token/32] |= 1 << (token % 32)
	}
	return m
}

// idleThread waits until the engine's thread sleeps.
func (b *testEngine) idleThread() {
	b.t.Helper()
	b.eventually("the engine sleeps", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.wakeup.sleeping
	})
}

// idle waits until the engine's thread sleeps and has nothing to do.
func (b *testEngine) idle() {
	b.t.Helper()
	b.eventually("the engine sleeps", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.wakeup.sleeping && len(b.inbox) == 0
	})
}
