package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
)

// The requests of a burst do not come at the same time. Without more, the first one would have an idle engine's next
// step for itself, and all others would wait for its end. So the engine waits a moment: until the requests that are being
// read have come. If the last requests before the idle time were a burst, it waits for a pause between requests too. A
// request that comes alone does not wait, except the first one after a burst.

const (
	// gatherTime is how long a request waits at most for others, also if one of these takes long to read. A step of it
	// alone takes ten times as long with a 7B model on an H200.
	gatherTime = 300 * time.Microsecond
	// lingerPart is the part of gatherTime that makes a pause: nobody else of the burst is on the way.
	lingerPart = 3
)

// coming counts the requests that have come since there were none, and the clients of whom more may come.
type coming struct {
	reading  atomic.Int32 // clients whose requests are being read
	requests atomic.Int32
	tokens   atomic.Int64 // of the requests' prompts, cached ones too

	// Of the engine's thread alone.
	gathered bool // since there were no requests
	stepped  bool // a step has ended since the first request
	bursts   bool // many requests had come when such a step ended last
}

// came notes a request. The caller holds the engine's mu.
func (c *coming) came(tokens int) {
	c.requests.Add(1)
	c.tokens.Add(int64(tokens))
}

// none notes that there are no requests. The caller holds the engine's mu.
func (c *coming) none() {
	c.requests.Store(0)
	c.tokens.Store(0)
	c.gathered, c.stepped = false, false
}

// more reports whether more requests of a burst may be on their way: while the first step runs, if some are being read, or
// if the last ones before the idle time were a burst.
func (c *coming) more() bool { return !c.stepped && (c.bursts || c.reading.Load() > 0) }

// stepEnded notes whether a burst came before the first step ended.
func (c *coming) stepEnded() {
	if n := c.requests.Load(); n > 0 && !c.stepped {
		c.stepped, c.bursts = true, n >= scheduler.LeastBurst
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

// gather lets the first request after an idle time wait for those that are on their way, until all fill half a step. It
// reports whether any may have come. Half a step takes little longer than the first request alone: either reads all
// weights. A single processor is the readers'.
func (e *Engine) gather() bool {
	c := &e.coming
	tokens := c.tokens.Load()
	if c.gathered || tokens == 0 || len(e.inFlight) > 0 || runtime.GOMAXPROCS(0) == 1 {
		return false
	}
	c.gathered = true
	most, linger := e.opts.gatherTime(), time.Duration(0)
	if c.bursts {
		linger = most / lingerPart
	}
	begun := time.Now()
	last := begun // when the last one came
	for now := begun; tokens < int64(e.opts.Chunk/2) && now.Sub(begun) < most; now = time.Now() {
		if n := c.tokens.Load(); n != tokens {
			tokens, last = n, now
		} else if c.reading.Load() == 0 && now.Sub(last) >= linger {
			break
		}
	}
	return true
}

// gatherTime returns gatherTime, or in tests another time.
func (o Options) gatherTime() time.Duration {
	if o.gather > 0 {
		return o.gather
	}
	return gatherTime
}
