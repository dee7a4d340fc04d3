package engine

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/kernels"
)

// automaton is the table of a format for tests. As the Format of a request of testEngine.submit it stands for a walk
// through it.
type automaton struct {
	Format              // none
	next   [][]int32    // by state and token: the state after it; -1: the token is not allowed
	eos    map[int]bool // states in which eosToken is allowed, which next does not have
}

// eosToken is the end-of-sequence token of models that have one, in tests of formats.
const eosToken = 3

// randomAutomaton returns an automaton over a vocabulary. In some states one token is allowed, in some few, in some
// nearly all. If it ends, some states have none, which ends the text.
func randomAutomaton(r *rand.Rand, vocab int, ends bool) *automaton {
	a := &automaton{next: make([][]int32, 6+r.IntN(20)), eos: map[int]bool{}}
	for state := range a.next {
		a.next[state] = make([]int32, vocab)
		share, last := 1+r.IntN(10), ends && state > 0 && r.IntN(12) == 0
		forced := r.IntN(3) == 0
		for token := range vocab {
			a.next[state][token] = -1
			if !last && (!forced && r.IntN(share) == 0 || token == state%vocab) {
				a.next[state][token] = int32(r.IntN(len(a.next)))
			}
		}
	}
	return a
}

// accepts reports whether tokens are the begin of a text of the automaton, and whether nothing may follow them.
func (a *automaton) accepts(tokens []Token) (begins, ended bool) {
	state := 0
	for _, t := range tokens {
		if a.next[state][t.ID] < 0 {
			return false, false
		}
		state = int(a.next[state][t.ID])
	}
	return true, !a.mask(state, make([]uint32, kernels.MaskWords(len(a.next[0]))))
}

// mask writes the mask of a state to words, and reports whether it allows a token.
func (a *automaton) mask(state int, words []uint32) (any bool) {
	clear(words)
	for token, next := range a.next[state] {
		if next >= 0 || token == eosToken && a.eos[state] {
			words[token/32] |= 1 << (token % 32)
			any = true
		}
	}
	return any
}

// walk is the format of one request. It makes masks within Next or on goroutines, at once or after a while, and checks
// how the engine calls it. Its drafts are allowed or not.
type walk struct {
	*automaton
	t     testing.TB
	delay func() time.Duration // below 0: within Next

	mu     sync.Mutex
	state  int
	making bool
	closed int
	words  []uint32 // of the last masks; overwritten by Next
	drafts []int32  // that came with them, too
	r      *rand.Rand
}

// begun returns a walk through f if that is an automaton, else f. The test fails if it is not closed once in the end.
func begun(t testing.TB, f Format) Format {
	a, ok := f.(*automaton)
	if !ok {
		return f
	}
	w := &walk{automaton: a, t: t, delay: randomDelay, r: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed != 1 {
			t.Errorf("a format was closed %d times", w.closed)
		}
	})
	return w
}

// randomDelay is the delay of a mask: some come within Next, most after few steps of the nano model, some after many.
func randomDelay() time.Duration {
	return []time.Duration{-1, -1, 0, 0, 10 * time.Microsecond, time.Millisecond}[rand.IntN(6)]
}

// closeRefused closes the format of a request that Submit did not take, as its caller does.
func closeRefused(r *Request) {
	if r.Format != nil {
		r.Format.Close()
	}
}

func (w *walk) Next(drawn []int32, drafts int, done func(Mask)) {
	w.mu.Lock()
	if w.closed > 0 || w.making {
		w.t.Errorf("Next was called after %d calls of Close; a mask was being made: %v", w.closed, w.making)
	}
	w.making = true
	for _, token := range drawn {
		if w.next[w.state][token] < 0 {
			w.t.Errorf("token %d is not allowed in state %d", token, w.state)
			token = int32(w.state % len(w.next[0]))
		}
		w.state = max(0, int(w.next[w.state][token]))
	}
	clear(w.words) // whoever still uses the last masks draws what is not allowed
	clear(w.drafts)
	w.mu.Unlock()
	switch delay := w.delay(); {
	case delay < 0:
		w.make(drafts, done)
	default:
		time.AfterFunc(delay, func() { w.make(drafts, done) })
	}
}

// make makes a mask and those after drafts. It may be too late: a done that races with Close is ignored.
func (w *walk) make(drafts int, done func(Mask)) {
	w.mu.Lock()
	w.words, w.drafts = w.words[:0], w.drafts[:0]
	m, state := Mask{Ended: true}, w.state
	if w.making = false; w.addMask(state) {
		for range w.r.IntN(1 + drafts) {
			state = w.draft(state)
		}
		m = Mask{Words: w.words, Drafts: w.drafts}
	}
	w.mu.Unlock()
	done(m)
}

// addMask adds the mask of a state, and reports whether it allows a token.
func (w *walk) addMask(state int) (any bool) {
	words := make([]uint32, kernels.MaskWords(len(w.next[0])))
	any = w.mask(state, words)
	w.words = append(w.words, words...)
	return any
}

// draft adds a draft in a state, and the mask after it. It returns the state after it: of one that is not allowed, a
// random one. What is drawn within its mask would be refused.
func (w *walk) draft(state int) int {
	vocab := len(w.next[0])
	draft, next := int32(w.r.IntN(vocab+2)-1), int32(-1)
	for i := int32(w.r.IntN(vocab)); w.r.IntN(8) > 0; i = (i + 1) % int32(vocab) {
		if w.next[state][i] >= 0 {
			draft = i
			break
		}
	}
	if draft >= 0 && int(draft) < vocab {
		next = w.next[state][draft]
	}
	if next < 0 {
		next = int32(w.r.IntN(len(w.next)))
	}
	w.addMask(int(next))
	w.drafts = append(w.drafts, draft)
	return int(next)
}

func (w *walk) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
}
