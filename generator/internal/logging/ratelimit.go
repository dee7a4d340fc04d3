package logging

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Lines of one message that may come at once, and lines a second after these.
const (
	rateBurst = 200
	rateLines = 50
)

// rateLimit is a hook that keeps clients from filling the log. Each message has a
// token bucket of its own, so that a flood of one message hides no other. The next
// line of a message that passes has the number of dropped ones in left_out.
type rateLimit struct {
	now  func() time.Time
	full func() bool // the queue would drop the line, and its left_out with it

	mu      sync.Mutex
	buckets map[string]*bucket // by message: constants of the program, a few dozen
}

// bucket is a token bucket for one message.
type bucket struct {
	lines   float64 // that may come
	at      time.Time
	leftOut uint64
}

func newRateLimit(full func() bool) *rateLimit {
	return &rateLimit{now: time.Now, full: full, buckets: map[string]*bucket{}}
}

// Run discards an event that comes too soon. To one that passes it adds how many
// were dropped before it.
func (r *rateLimit) Run(e *zerolog.Event, _ zerolog.Level, msg string) {
	if !e.Enabled() {
		return // discarded already
	}
	leftOut, passes := r.take(msg)
	switch {
	case !passes:
		e.Discard()
	case leftOut > 0:
		e.Uint64("left_out", leftOut)
	}
}

// take reports whether a line passes, and how many were dropped before it.
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
