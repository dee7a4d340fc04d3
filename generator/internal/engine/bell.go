package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// expectTime is how long the engine's thread stays awake at most for a request that
// is being read: for most prompts longer than they take to be decoded and tokenized.
const expectTime = 300 * time.Microsecond

// once adds 1 to an eventfd on a machine of either byte order: any number does.
var once = [8]byte{1}

// bell wakes the engine's thread, which waits for it in the kernel.
//
// A sync.Cond wakes it through Go's scheduler: the goroutine is put in the queue of
// the processor that calls it, another thread gets up and sleeps before it takes it
// from there, and as the goroutine is bound to its own thread that one is woken at
// last. 90 µs went by so at the median where this takes 12.
type bell struct {
	fd   int           // an eventfd
	rung atomic.Uint32 // counts, for a thread that stays awake

	// With the engine's mu held.
	resting  bool // the thread waits, or is about to
	expected bool // it is to stay awake for a moment
}

// hang makes the bell ready.
func (b *bell) hang() (err error) {
	b.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	return err
}

// takeDown ends it. Nothing rests any more, and so nothing rings.
func (b *bell) takeDown() error {
	err := unix.Close(b.fd)
	b.fd = -1
	return err
}

// ring wakes the thread. It is called with the engine's mu held.
func (b *bell) ring() {
	b.rung.Add(1)
	if b.resting {
		b.resting = false
		_, _ = unix.Write(b.fd, once[:]) // its count never gets near its limit
	}
}

// wait waits for a ring after the thread has noted that it rests. It may return without.
func (b *bell) wait() {
	var count [8]byte
	_, _ = unix.Read(b.fd, count[:])
}

// stay waits, wide awake, for a ring after the rung-th, for expectTime at most.
func (b *bell) stay(rung uint32) {
	for end := time.Now().Add(expectTime); b.rung.Load() == rung && time.Now().Before(end); {
	}
}

// Expect has an idle engine's thread get up, since a request is likely to be submitted
// in a moment: so it gets up while that is decoded.
func (e *Engine) Expect() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bell.resting && runtime.GOMAXPROCS(0) > 1 { // else it would take the only processor
		e.bell.expected = true
		e.bell.ring()
	}
}

// rest waits until there is something to do: an idle engine uses no processor.
func (e *Engine) rest() error {
	if len(e.moves) > 0 {
		return e.moves[0].done.Synchronize()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.inbox) == 0 && len(e.pulses) == 0 && !e.stopping && !e.attend && e.lost == nil {
		expected, rung := e.bell.expected, e.bell.rung.Load()
		e.bell.expected, e.bell.resting = false, !expected
		e.mu.Unlock()
		if expected {
			e.bell.stay(rung)
		} else {
			e.bell.wait()
		}
		e.mu.Lock()
		e.bell.resting = false
	}
	return nil
}
