package server

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"reel.internal/reel/protocol"
)

// frameBudget bounds the memory of frames above 4 KiB while they are received, decoded and
// tokenized. A user holds at most share bytes; frames in reception hold at most total
// bytes together. A frame that finds too few free bytes waits; free bytes go to the waiting
// frame of the user that holds the fewest. Each frame that it waits for must be complete
// within the time contended, or it loses its bytes. So another user's unfinished frames
// delay a frame by about that time, and never cause its refusal.
type frameBudget struct {
	share, total int
	contended    time.Duration
	patience     time.Duration // a frame waits at most this long

	mu       sync.Mutex
	received int            // bytes of frames in reception
	held     map[uint32]int // bytes by user, including decoded messages
	holders  map[*reservation]struct{}
	waiting  []*reservation // oldest first
	timer    *time.Timer
}

func newFrameBudget(b bounds) *frameBudget {
	return &frameBudget{
		share: b.undecoded, total: 2 * b.undecoded, contended: b.contendedFrameTimeout, patience: b.budgetTimeout,
		held: map[uint32]int{}, holders: map[*reservation]struct{}{},
	}
}

// reservation is one connection's part of the budget: a frame that holds bytes or waits
// for them. Only the goroutine of the connection's reader calls acquire and release.
type reservation struct {
	budget *frameBudget
	user   uint32
	// interrupt ends the reader's wait for the rest of the frame. It is called with
	// budget.mu held, and only while the frame holds bytes.
	interrupt func()

	bytes   int
	since   time.Time     // of the grant
	granted chan struct{} // closed by the grant
	lost    bool          // interrupt was called
	decoded bool          // the frame has become a message
}

// acquire takes n bytes and reports whether it waited for them. Errors wrap
// [protocol.ErrOverloaded].
func (r *reservation) acquire(n int) (waited bool, err error) {
	b := r.budget
	b.mu.Lock()
	r.bytes, r.lost, r.decoded, r.granted = n, false, false, make(chan struct{})
	b.waiting = append(b.waiting, r)
	b.grant()
	_, got := b.holders[r]
	b.mu.Unlock()
	if got {
		return false, nil
	}
	patience := time.NewTimer(b.patience)
	defer patience.Stop()
	select {
	case <-r.granted:
		return true, nil
	case <-patience.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, got := b.holders[r]; got {
		return true, nil
	}
	b.waiting = without(b.waiting, r)
	b.grant() // a waiting frame behind this one may fit
	return true, fmt.Errorf("%w: no %d bytes were free for %v", protocol.ErrOverloaded, n, b.patience)
}

// markDecoded notes that the frame has become a message, which holds about as many bytes
// until release. From now on they count in the user's share only, so that no frame of
// another user waits for a text to be tokenized.
func (r *reservation) markDecoded() {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, got := b.holders[r]; !got || r.decoded {
		return
	}
	r.decoded = true
	b.received -= r.bytes
	b.grant()
}

// hand returns a reservation that holds r's bytes in its place, for a message that outlives its handling by the
// reader. Any goroutine may release it.
func (r *reservation) hand() *reservation {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &reservation{budget: b, user: r.user, bytes: r.bytes, decoded: true}
	if _, got := b.holders[r]; got {
		delete(b.holders, r)
		b.holders[h] = struct{}{}
	}
	return h
}

// release returns the bytes, if the reservation holds any.
func (r *reservation) release() {
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, got := b.holders[r]; !got {
		return
	}
	delete(b.holders, r)
	if !r.decoded {
		b.received -= r.bytes
	}
	if b.held[r.user] -= r.bytes; b.held[r.user] == 0 {
		delete(b.held, r.user)
	}
	b.grant()
}

// interrupted reports whether the frame lost its bytes to another frame.
func (r *reservation) interrupted() bool {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return r.lost
}

// grant gives free bytes to waiting frames; b.mu is held.
func (b *frameBudget) grant() {
	for r := b.next(); r != nil && b.received+r.bytes <= b.total; r = b.next() {
		b.waiting = without(b.waiting, r)
		b.holders[r] = struct{}{}
		b.received += r.bytes
		b.held[r.user] += r.bytes
		r.since = time.Now()
		close(r.granted)
	}
	b.schedule()
}

// next returns the waiting frame that comes first, or nil: of the frames that fit into
// their user's share, the one whose user holds the fewest bytes.
func (b *frameBudget) next() (first *reservation) {
	for _, r := range b.waiting {
		if b.held[r.user]+r.bytes > b.share {
			continue
		}
		if first == nil || b.held[r.user] < b.held[first.user] {
			first = r
		}
	}
	return first
}

// schedule sets the timer for the next frame that loses its bytes, while a frame waits.
func (b *frameBudget) schedule() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if len(b.waiting) == 0 {
		return
	}
	wait := b.contended
	for r := range b.holders {
		if b.mayLose(r) {
			wait = min(wait, b.contended-time.Since(r.since))
		}
	}
	b.timer = time.AfterFunc(max(wait, time.Millisecond), b.reclaim)
}

// reclaim interrupts the frames that were not complete in time.
func (b *frameBudget) reclaim() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.holders {
		if time.Since(r.since) >= b.contended && b.mayLose(r) {
			r.lost = true
			r.interrupt()
		}
	}
	b.schedule()
}

// mayLose reports whether r is incomplete and a frame waits for its bytes: one of the
// same user, or one that the total has no room for.
func (b *frameBudget) mayLose(r *reservation) bool {
	if r.lost || r.decoded {
		return false
	}
	for _, w := range b.waiting {
		if w.user == r.user || b.received+w.bytes > b.total {
			return true
		}
	}
	return false
}

// without removes r from list in place.
func without(list []*reservation, r *reservation) []*reservation {
	if i := slices.Index(list, r); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
