package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// spinTime is how long the engine's thread spins at most for a request that is being read. Decoding and
	// tokenizing most prompts takes less.
	spinTime = 300 * time.Microsecond
	// gatherTime is how long an idle engine that has a request waits at most for others that are being read. A step of
	// the first request alone takes ten times as long, and all others would wait for its end.
	gatherTime = 300 * time.Microsecond
)

// one adds 1 to an eventfd. The kernel reads a number in the machine's byte order; any positive number will do.
var one = [8]byte{1}

// wakeup wakes the engine's thread while that waits in the kernel.
//
// A sync.Cond would wake it through Go's scheduler: the goroutine is queued on the caller's processor, another
// thread wakes up to take it from there, and since the goroutine is locked to its own thread, that one is woken
// last. The median was 90 µs; an eventfd takes 12.
type wakeup struct {
	fd      int           // an eventfd
	signals atomic.Uint32 // number of calls of signal, for a thread that spins
	reading atomic.Int32  // clients whose requests are being read: of Expect and EndExpect
	arrived atomic.Int64  // tokens of the prompts that came since the engine was idle

	// Guarded by the engine's mu.
	sleeping bool // the thread waits, or is about to
	expected bool // the thread is to spin for a moment before it sleeps
}

// open makes the eventfd.
func (w *wakeup) open() (err error) {
	w.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	return err
}

// close closes the eventfd. The engine's thread must have ended; signal then makes no call.
func (w *wakeup) close() error {
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}

// signal wakes the thread. The caller holds the engine's mu.
func (w *wakeup) signal() {
	w.signals.Add(1)
	if w.sleeping {
		w.sleeping = false
		_, _ = unix.Write(w.fd, one[:]) // fails only near 2^64 unread signals
	}
}

// wait blocks until a signal after the thread has set sleeping, or for the time most unless it is 0. It may return
// early.
func (w *wakeup) wait(most time.Duration) {
	if most > 0 {
		poll := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		limit := unix.NsecToTimespec(int64(most))
		if n, _ := unix.Ppoll(poll, &limit, nil); n < 1 {
			return
		}
	}
	var count [8]byte
	_, _ = unix.Read(w.fd, count[:])
}

// spin waits without sleeping for a signal after the seen-th, for spinTime at most.
func (w *wakeup) spin(seen uint32) {
	for end := time.Now().Add(spinTime); w.signals.Load() == seen && time.Now().Before(end); {
	}
}

// Expect says that a client's requests are being read, until EndExpect. It wakes an idle engine's thread, which wakes
// up while the caller decodes the first request, and rereads nothing for a moment. An idle engine's next step waits for
// requests that are being read, so that those of a burst come together (gather).
func (e *Engine) Expect() {
	e.wakeup.reading.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rereads.pause = time.Now().Add(expectTime)
	if e.wakeup.sleeping && runtime.GOMAXPROCS(0) > 1 { // a single processor is the caller's
		e.wakeup.expected = true
		e.wakeup.signal()
	}
}

// EndExpect ends an Expect: the client's requests that have come are submitted or refused.
func (e *Engine) EndExpect() { e.wakeup.reading.Add(-1) }

// gather waits for requests that are being read if the device is idle, until their prompts fill a step or for
// gatherTime at most, and reports whether it waited. A single processor is the readers'.
func (e *Engine) gather() (waited bool) {
	if len(e.inFlight) > 0 || !e.wakeup.mayGather(e.opts.Chunk) || runtime.GOMAXPROCS(0) == 1 {
		return false
	}
	for end := time.Now().Add(e.opts.gathers()); e.wakeup.mayGather(e.opts.Chunk) && time.Now().Before(end); {
	}
	return true
}

// mayGather reports whether requests are being read that may join those that came, in a step of `most` tokens.
func (w *wakeup) mayGather(most int) bool {
	return w.reading.Load() > 0 && w.arrived.Load() < int64(most)
}

// gathers returns gatherTime, or in tests another time.
func (o Options) gathers() time.Duration {
	if o.gather > 0 {
		return o.gather
	}
	return gatherTime
}

// waitForWork blocks until there is something to do: an idle engine uses no processor. While pages are copied it waits
// for the oldest copy only.
func (e *Engine) waitForWork() error {
	if len(e.moves) > 0 {
		return e.moves[0].done.Synchronize()
	}
	if len(e.host.begun) > 0 {
		return e.host.begun[0].done.Synchronize()
	}
	if e.files.copying {
		return e.files.copied.Synchronize()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.inbox) == 0 {
		e.wakeup.arrived.Store(0)
	}
	for len(e.inbox) == 0 && len(e.heartbeats) == 0 && !e.stopping && !e.maintain && e.lost == nil {
		pause, any := e.rereads.pending()
		if any && pause <= 0 && e.sched.MayReread() {
			return nil
		}
		expected, seen := e.wakeup.expected, e.wakeup.signals.Load()
		e.wakeup.expected, e.wakeup.sleeping = false, !expected
		e.mu.Unlock()
		if expected {
			e.wakeup.spin(seen)
		} else {
			e.wakeup.wait(max(0, pause))
		}
		e.mu.Lock()
		e.wakeup.sleeping = false
	}
	return nil
}
