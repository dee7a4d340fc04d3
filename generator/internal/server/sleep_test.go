package server

import (
	"net"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// A server sleeps only if it was idle. hello, status and connections are not work.
func TestSleep(t *testing.T) {
	const after = 50 * time.Millisecond
	f := start(t, nil)
	if f.Idle() != 0 {
		t.Error("idle while it loads")
	}
	f.SetReady(f.model())
	f.engine.allow(1)
	c := f.client()
	c.send(generate(1, "ab", 3))
	expect[protocol.Token](c)
	time.Sleep(after)
	if f.Idle() != 0 || f.Sleep(after) {
		t.Error("it sleeps with a request running")
	}
	f.engine.allow(-1)
	eventually(t, "the request ends", func() bool { return f.Idle() > 0 })
	if f.Sleep(time.Hour) {
		t.Error("it sleeps early")
	}
	f.works() // accepts again
	time.Sleep(after)
	watcher := f.dial()
	watcher.send(&protocol.Hello{Version: 1})
	expect[protocol.Welcome](watcher)
	if f.Sleep(after) {
		t.Error("it sleeps although a connection has just said hello")
	}
	watcher.send(&protocol.StatusRequest{})
	expect[protocol.Status](watcher)
	eventually(t, "status is no work", func() bool { return f.Idle() >= after })
	if !f.Sleep(after) {
		t.Fatalf("it does not sleep after %v", f.Idle())
	}
	watcher.wantError(protocol.CodeDraining)
	f.stop()
	watcher.wantClosed()
}

// A connection that was accepted, and is not served yet, keeps the server awake.
func TestSleepLosesNoConnection(t *testing.T) {
	f := newFixture(t, nil)
	must(t, f.Listen())
	accept, accepted := f.accept, make(chan struct{}, 1)
	f.accept = func() (*net.UnixConn, error) {
		sock, err := accept()
		if err == nil {
			accepted <- struct{}{}
			time.Sleep(50 * time.Millisecond) // Sleep begins meanwhile
		}
		return sock, err
	}
	go func() { f.served <- f.Serve() }()
	t.Cleanup(f.stop)
	f.SetReady(f.model())
	c := f.dial()
	<-accepted
	if f.Sleep(time.Nanosecond) {
		t.Error("it sleeps")
	}
	c.send(&protocol.Hello{Version: 1})
	expect[protocol.Welcome](c)
}

// Sleep returns if the server closes meanwhile.
func TestSleepWhileClosing(t *testing.T) {
	f := ready(t, nil)
	f.stop()
	if f.Sleep(0) {
		t.Error("a closed server sleeps")
	}
}
