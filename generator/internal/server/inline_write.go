package server

import "reel.internal/reel/generator/internal/engine"

// inlineRequests is the largest number of running requests with inline writes. An inline
// write takes 10 to 15 µs of the engine's thread; the step in flight takes 500 µs or more.
const inlineRequests = 8

// Token implements [engine.Sink]. While few requests run, the engine's thread writes the
// token to the socket itself, if it need not wait. Otherwise it leaves the token to the
// request's goroutine.
//
// Waking that goroutine takes 40 µs at the median and 330 µs at the 99th percentile (16
// cores of a virtual machine): an idle processor has to wake up, and Go's scheduler sleeps
// before it steals a goroutine that is next in a busy processor's queue. Then the writer's
// goroutine would have to be woken, too.
func (r *request) Token(t engine.Token) {
	if !r.writeInline(&t) {
		r.mailbox.put(t)
		if !r.plain() || !r.c.outbox.add(r) {
			r.mailbox.notify()
		}
	}
}

// plain reports whether a token of the request needs no more work than its text.
func (r *request) plain() bool { return !r.params.HasLogprobs && !r.mayStop() }

// Finish implements [engine.Sink]. It leaves the end to the request's goroutine, which
// also counts and logs it.
func (r *request) Finish(f engine.Finish) { r.mailbox.Finish(f) }

// mayStop reports whether the text may end the request: the engine's thread cannot cancel it.
func (r *request) mayStop() bool { return len(r.params.Stop) > 0 || r.text.read.mayStop() }

// writeInline sends a token on the engine's thread. It never waits. It returns false, and
// does nothing, if the request's goroutine is sending, if earlier tokens or frames are
// unsent, or if the request needs more work than a token and its text.
func (r *request) writeInline(t *engine.Token) bool {
	if !r.plain() || r.c.server.running.Load() > inlineRequests {
		return false
	}
	if !r.sending.TryLock() {
		return false
	}
	defer r.sending.Unlock()
	if !r.mailbox.empty() || len(r.frames) > 0 || !r.c.writes.empty() {
		return false
	}
	r.observe(1)
	r.addToken(t)
	if !r.c.writes.add(r.frames) {
		// After an overflow, caused by another request meanwhile, the frames stay: the
		// request's goroutine queues them and cuts the client.
		r.frames = r.frames[:0]
	}
	return true
}
