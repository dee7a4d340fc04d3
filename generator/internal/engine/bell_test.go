package engine

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waits tells whether a ring waits to be heard.
func (b *bell) waits(t *testing.T) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// A thread that rests hears the ring that came before it waits; for one that works
// no call of the system is made.
func TestBell(t *testing.T) {
	var b bell
	if err := b.hang(); err != nil {
		t.Fatal(err)
	}
	if b.ring(); b.waits(t) {
		t.Error("it rang for nobody")
	}
	b.resting = true
	b.ring()
	b.ring()
	if !b.waits(t) || b.resting {
		t.Fatal("it did not ring")
	}
	if b.wait(); b.waits(t) {
		t.Error("it rang twice")
	}
	if err := b.takeDown(); err != nil || b.fd != -1 {
		t.Errorf("%v, descriptor %d", err, b.fd)
	}
}

// A thread that stays awake goes on at the ring, and without one after a moment.
func TestBellStay(t *testing.T) {
	var b bell
	begun := time.Now()
	if b.stay(0); time.Since(begun) < expectTime {
		t.Error("it did not stay")
	}
	go b.ring()
	for b.rung.Load() == 0 {
		b.stay(0)
	}
}

// idle waits until the engine's thread rests.
func (b *bench) idle() {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		b.mu.Lock()
		resting := b.bell.resting
		b.mu.Unlock()
		if resting {
			return
		}
		if time.Now().After(end) {
			b.t.Fatal("the engine's thread does not rest")
		}
	}
}

// An engine that expects a request gets up for it, and rests again where none comes.
func TestExpect(t *testing.T) {
	b := start(t, defaults(), nil)
	b.idle()
	b.Expect()
	b.mu.Lock()
	rung := b.bell.rung.Load()
	b.mu.Unlock()
	if rung == 0 {
		t.Error("nobody was woken")
	}
	b.idle()
	for i := range 200 { // no ring is lost, whatever the thread is about
		if i%2 == 0 {
			b.Expect()
		}
		time.Sleep(time.Duration(i) * 3 * time.Microsecond)
		s := newSink()
		if _, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1, IgnoreEOS: true, Sink: s}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.ended:
		case <-time.After(patience):
			t.Fatalf("request %d is not served", i)
		}
	}
}
