package engine

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pending reports whether a signal waits to be read.
func (w *wakeup) pending(t *testing.T) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// A signal that comes before a sleeping thread waits still wakes it. A signal to a working thread makes no system
// call.
func TestWakeup(t *testing.T) {
	var w wakeup
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	if w.signal(); w.pending(t) {
		t.Error("a working thread was signalled through the kernel")
	}
	w.sleeping = true
	w.signal()
	w.signal()
	if !w.pending(t) || w.sleeping {
		t.Fatal("a sleeping thread was not signalled")
	}
	if w.wait(0); w.pending(t) {
		t.Error("two signals woke the thread twice")
	}
	if err := w.close(); err != nil || w.fd != -1 {
		t.Errorf("%v, descriptor %d", err, w.fd)
	}
}

// A spinning thread returns at the signal, and without one after spinTime.
func TestWakeupSpin(t *testing.T) {
	var w wakeup
	begun := time.Now()
	if w.spin(0); time.Since(begun) < spinTime {
		t.Error("it did not spin")
	}
	go w.signal()
	for w.signals.Load() == 0 {
		w.spin(0)
	}
}

// waitIdle waits until the engine's thread sleeps.
func (b *testEngine) waitIdle() {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		b.mu.Lock()
		sleeping := b.wakeup.sleeping
		b.mu.Unlock()
		if sleeping {
			return
		}
		if time.Now().After(end) {
			b.t.Fatal("the engine's thread does not sleep")
		}
	}
}

// An engine that expects a request wakes up, and sleeps again if none comes.
func TestExpect(t *testing.T) {
	b := start(t, defaults(), nil)
	b.waitIdle()
	b.Expect()
	b.mu.Lock()
	signals := b.wakeup.signals.Load()
	b.mu.Unlock()
	if signals == 0 {
		t.Error("the thread was not woken")
	}
	b.waitIdle()
	b.EndExpect()
	for i := range 200 { // no signal is lost at any moment
		if i%2 == 0 {
			b.Expect()
		}
		time.Sleep(time.Duration(i) * 3 * time.Microsecond)
		s := newSink()
		if _, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1, IgnoreEOS: true, Sink: s}); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			b.EndExpect()
		}
		select {
		case <-s.ended:
		case <-time.After(patience):
			t.Fatalf("request %d is not served", i)
		}
	}
}
