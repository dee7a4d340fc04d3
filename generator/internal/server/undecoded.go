package server

import (
	"fmt"
	"sync"
	"time"

	"reel/protocol"
)

// reception shares out the bytes that frames above 4 KiB hold while they are
// received, decoded and tokenized. One user holds at most share bytes, frames in
// reception together at most total. A frame that finds no room waits; of several waiting frames the
// one of the user that holds fewest bytes comes first. While a frame waits, the
// frames that keep it waiting have contended to arrive in full: one that takes
// longer loses its bytes. So another user's unfinished frames delay a frame by
// about that time, and never have it refused.
type reception struct {
	share, total int
	contended    time.Duration
	patience     time.Duration // of a waiting frame

	mu      sync.Mutex
	used    int            // bytes of frames in reception
	held    map[uint32]int // bytes, by user, of messages too
	holders map[*claim]struct{}
	waiting []*claim // oldest first
	timer   *time.Timer
}

func newReception(b bounds) *reception {
	return &reception{share: b.undecoded, total: 2 * b.undecoded, contended: b.contendedFrame, patience: b.roomForFrame,
		held: map[uint32]int{}, holders: map[*claim]struct{}{}}
}

// claim is one connection's part of a reception: a frame that holds bytes or waits
// for them. Only its reader's goroutine calls acquire and release.
type claim struct {
	of   *reception
	user uint32
	// interrupt ends the reader's wait for more of the frame. It is called with
	// of.mu held, and only while the frame holds bytes.
	interrupt func()

	bytes   int
	since   time.Time     // of the grant
	granted chan struct{} // closed by the grant
	lost    bool          // interrupt was called
	decoded bool
}

// acquire takes n bytes and reports whether it waited for them. The error wraps
// protocol.ErrOverloaded.
func (h *claim) acquire(n int) (waited bool, err error) {
	r := h.of
	r.mu.Lock()
	h.bytes, h.lost, h.decoded, h.granted = n, false, false, make(chan struct{})
	r.waiting = append(r.waiting, h)
	r.grant()
	_, got := r.holders[h]
	r.mu.Unlock()
	if got {
		return false, nil
	}
	patience := time.NewTimer(r.patience)
	defer patience.Stop()
	select {
	case <-h.granted:
		return true, nil
	case <-patience.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, got := r.holders[h]; got {
		return true, nil
	}
	r.waiting = without(r.waiting, h)
	r.grant() // it may have been before one that fits
	return true, fmt.Errorf("%w: no %d bytes were free for %v", protocol.ErrOverloaded, n, r.patience)
}

// decode says that the frame has become a message, which holds about as many bytes
// until release. They count in the user's share alone, so that no frame of another
// user waits for a text to be tokenized.
func (h *claim) decode() {
	r := h.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, got := r.holders[h]; !got || h.decoded {
		return
	}
	h.decoded = true
	r.used -= h.bytes
	r.grant()
}

// release gives the bytes back.
func (h *claim) release() {
	r := h.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, got := r.holders[h]; !got {
		return
	}
	delete(r.holders, h)
	if !h.decoded {
		r.used -= h.bytes
	}
	if r.held[h.user] -= h.bytes; r.held[h.user] == 0 {
		delete(r.held, h.user)
	}
	r.grant()
}

// interrupted reports whether the frame lost its bytes to another.
func (h *claim) interrupted() bool {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	return h.lost
}

// grant gives free bytes to waiting frames. r.mu is held.
func (r *reception) grant() {
	for h := r.next(); h != nil && r.used+h.bytes <= r.total; h = r.next() {
		r.waiting = without(r.waiting, h)
		r.holders[h] = struct{}{}
		r.used += h.bytes
		r.held[h.user] += h.bytes
		h.since = time.Now()
		close(h.granted)
	}
	r.watch()
}

// next is the waiting frame that comes first: its user's share has room, and no
// such user holds fewer bytes.
func (r *reception) next() (first *claim) {
	for _, h := range r.waiting {
		if r.held[h.user]+h.bytes > r.share {
			continue
		}
		if first == nil || r.held[h.user] < r.held[first.user] {
			first = h
		}
	}
	return first
}

// watch sets the timer for the next frame that loses its bytes, while any waits.
func (r *reception) watch() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if len(r.waiting) == 0 {
		return
	}
	wait := r.contended
	for h := range r.holders {
		if r.mayLose(h) {
			wait = min(wait, r.contended-time.Since(h.since))
		}
	}
	r.timer = time.AfterFunc(max(wait, time.Millisecond), r.reclaim)
}

// reclaim interrupts the frames that have had their time.
func (r *reception) reclaim() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := range r.holders {
		if time.Since(h.since) >= r.contended && r.mayLose(h) {
			h.lost = true
			h.interrupt()
		}
	}
	r.watch()
}

// mayLose reports whether some frame waits for the bytes of h, which is not complete:
// h is of the same user, or the total has no room.
func (r *reception) mayLose(h *claim) bool {
	if h.lost || h.decoded {
		return false
	}
	for _, w := range r.waiting {
		if w.user == h.user || r.used+w.bytes > r.total {
			return true
		}
	}
	return false
}

func without(list []*claim, h *claim) []*claim {
	for i := range list {
		if list[i] == h {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}
