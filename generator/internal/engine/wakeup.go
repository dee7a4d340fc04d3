package engine

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// spinTime is how long the engine's thread spins at most for a request that is being read. Decoding and
// tokenizing most prompts takes less.
const spinTime = 300 * time.Microsecond

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
	if len(e.inbox) == 0 && len(e.sequences) == 0 {
		e.coming.none()
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
