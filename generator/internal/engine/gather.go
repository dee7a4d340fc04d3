package engine

import (
	"runtime"
	"sync/atomic"
	"time"
)

// The requests of a burst do not come at the same time. Without more, the first one would have an idle engine's next
// step for itself, and all others would wait for its end. So the engine waits a moment for those that are on their way:
// for clients whose requests are being read, and if its last work began with a burst, for others too. A request that
// comes alone waits for nobody, but for one after a burst.

const (
	// gatherTime is how long a request waits at most for others. A step of it alone takes ten times as long.
	gatherTime = 300 * time.Microsecond
	// lingerPart is the part of gatherTime without another request after which a burst has come.
	lingerPart = 3
	// leastBurst is the number of requests that make a burst.
	leastBurst = 4
)

// coming is what is known of requests on their way.
type coming struct {
	reading  atomic.Int32 // clients whose requests are being read
	requests atomic.Int32 // that came since the engine was idle
	tokens   atomic.Int64 // of their prompts

	// Of the engine's thread alone.
	first  bool // no step has ended since the engine was idle
	bursts bool // many had come when the first one ended
}

// came notes a request.
func (c *coming) came(tokens int) {
	c.requests.Add(1)
	c.tokens.Add(int64(tokens))
}

// idle notes that there is no work, and no request.
func (c *coming) idle() {
	c.requests.Store(0)
	c.tokens.Store(0)
	c.first = true
}

// stepEnded notes whether a burst came before the end of the first step; a heartbeat's is none.
func (c *coming) stepEnded() {
	if n := c.requests.Load(); c.first && n > 0 {
		c.first, c.bursts = false, n >= leastBurst
	}
}

// Expect says that a client's requests are being read, until EndExpect. It wakes an idle engine's thread, which wakes
// up while the caller decodes the first request, and rereads nothing for a moment.
func (e *Engine) Expect() {
	e.coming.reading.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rereads.pause = time.Now().Add(expectTime)
	if e.wakeup.sleeping && runtime.GOMAXPROCS(0) > 1 { // a single processor is the caller's
		e.wakeup.expected = true
		e.wakeup.signal()
	}
}

// EndExpect ends an Expect: the client's requests that have come are submitted or refused.
func (e *Engine) EndExpect() { e.coming.reading.Add(-1) }

// gather lets the first request after an idle time wait for those that are on their way, until they fill half a step,
// and reports whether any came. Half a step takes little longer than the first request alone: either reads all weights.
// A single processor is the readers'.
func (e *Engine) gather() bool {
	c := &e.coming
	seen := c.tokens.Load()
	if !c.first || len(e.inFlight) > 0 || seen == 0 || runtime.GOMAXPROCS(0) == 1 {
		return false
	}
	most, linger := e.opts.gatherTime(), time.Duration(0)
	if c.bursts {
		linger = most / lingerPart
	}
	begun := time.Now()
	tokens, last := seen, begun
	for now := begun; tokens < int64(e.opts.Chunk/2) && now.Sub(begun) < most; now = time.Now() {
		if n := c.tokens.Load(); n != tokens {
			tokens, last = n, now
		} else if c.reading.Load() == 0 && now.Sub(last) >= linger {
			break
		}
	}
	return c.tokens.Load() != seen
}

// gatherTime returns gatherTime, or in tests another time.
func (o Options) gatherTime() time.Duration {
	if o.gather > 0 {
		return o.gather
	}
	return gatherTime
}
