package logging

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Bounds on the lines of one message.
const (
	rateBurst = 200 // lines at once
	rateLines = 50  // lines a second after a burst
)

// rateLimit is a hook that keeps clients from filling the log. Each message has a token
// bucket of its own, so that many lines of one message do not suppress another message. The
// next line that passes has the number of its message's dropped lines in left_out.
type rateLimit struct {
	now  func() time.Time
	full func() bool // the queue would drop the line, and its left_out with it

	mu      sync.Mutex
	buckets map[string]*bucket // by message; messages are a few dozen constants
}

// bucket is one message's token bucket.
type bucket struct {
	lines   float64   // lines that may pass
	at      time.Time // of the last line
	leftOut uint64    // dropped lines that are not reported yet
}

func newRateLimit(full func() bool) *rateLimit {
	return &rateLimit{now: time.Now, full: full, buckets: map[string]*bucket{}}
}

// Run discards an event beyond the limit. To an event that passes it adds the number of
// events dropped before it.
func (r *rateLimit) Run(e *zerolog.Event, _ zerolog.Level, msg string) {
	if !e.Enabled() {
		return // another hook discarded it
	}
	leftOut, passes := r.take(msg)
	switch {
	case !passes:
		e.Discard()
	case leftOut > 0:
		e.Uint64("left_out", leftOut)
	}
}

// take reports whether a line passes, and returns the number of lines dropped before it.
func (r *rateLimit) take(msg string) (leftOut uint64, passes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, b := r.now(), r.buckets[msg]
	if b == nil {
		b = &bucket{lines: rateBurst, at: now}
		r.buckets[msg] = b
	}
	b.lines = min(rateBurst, b.lines+rateLines*now.Sub(b.at).Seconds())
	b.at = now
	if b.lines < 1 {
		b.leftOut++
		return 0, false
	}
	b.lines--
	if b.leftOut > 0 && !r.full() {
		leftOut, b.leftOut = b.leftOut, 0
	}
	return leftOut, true
}
