package server

import (
	"net"
	"os"
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

// sleeper returns a server that may be asked to sleep, and serves the asks as the daemon's Sleeper does.
func sleeper(t *testing.T, uid uint32, change func(*Options)) *fixture {
	t.Helper()
	f := newFixture(t, nil)
	f.opts.Wakes = true
	if change != nil {
		change(&f.opts)
	}
	f.identify = func(*net.UnixConn) (peer, error) { return peer{uid: uid}, nil }
	f.serve()
	f.SetReady(f.model())
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case ask := <-f.SleepAsks():
				ask.Answer(f.Sleep(ask.After))
			case <-stop:
				return
			}
		}
	}()
	return f
}

// An idle server sleeps when its own user, root or an allowed user asks: the asker is told, then all are.
func TestSleepIsAsked(t *testing.T) {
	own := uint32(os.Getuid())
	for name, c := range map[string]struct {
		uid    uint32
		change func(*Options)
		code   string // "": it sleeps
	}{
		"own user":          {uid: own},
		"root":              {uid: 0},
		"another user":      {uid: own + 1, code: protocol.CodeForbidden},
		"an allowed user":   {uid: own + 1, change: func(o *Options) { o.AllowSleep = []uint32{own + 2, own + 1} }},
		"nothing wakes it":  {uid: own, change: func(o *Options) { o.Wakes = false }, code: protocol.CodeNotActivated},
		"neither of them":   {uid: own + 1, change: func(o *Options) { o.Wakes = false }, code: protocol.CodeForbidden},
		"another's allowed": {uid: own + 1, change: func(o *Options) { o.AllowSleep = []uint32{own + 2} }, code: protocol.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			f := sleeper(t, c.uid, c.change)
			watcher, asker := f.client(), f.client()
			watcher.send(&protocol.StatusRequest{}) // its first request is not on the way
			expect[protocol.Status](watcher)
			asker.send(&protocol.SleepRequest{})
			if c.code != "" {
				asker.wantError(c.code)
				f.works()
				return
			}
			expect[protocol.Sleeping](asker)
			asker.wantError(protocol.CodeDraining)
			watcher.wantError(protocol.CodeDraining)
		})
	}
}

// A server does not sleep while a request runs, soon after one, or before the first request of a new connection, and
// goes on to serve.
func TestSleepIsRefused(t *testing.T) {
	f := sleeper(t, uint32(os.Getuid()), nil)
	asker := f.dial()
	asker.send(&protocol.SleepRequest{})
	asker.wantError(protocol.CodeHelloRequired)
	asker.send(&protocol.Hello{Version: 1})
	expect[protocol.Welcome](asker)
	refused := func(idle float64) {
		t.Helper()
		asker.send(&protocol.SleepRequest{IdleS: idle})
		asker.wantError(protocol.CodeNotIdle)
	}
	f.engine.allow(1)
	c := f.client()
	refused(0) // c may be about to ask
	c.send(generate(1, "ab", 3))
	expect[protocol.Token](c)
	refused(0)
	if idle := f.Status().IdleS; idle != 0 {
		t.Errorf("idle for %v s during a request", idle)
	}
	f.engine.allow(-1)
	eventually(t, "the request ends", func() bool { return f.Idle() > 0 })
	refused(3600)
	if idle := f.Status().IdleS; idle <= 0 {
		t.Errorf("idle for %v s", idle)
	}
	asker.send(&protocol.SleepRequest{IdleS: -1})
	asker.wantError(protocol.CodeBadRequest)
	f.works()
}

// A request that comes while sleep is decided is served, and the asker is told.
func TestSleepLosesNoRequest(t *testing.T) {
	f := newFixture(t, nil)
	f.opts.Wakes = true
	f.serve()
	f.SetReady(f.model())
	asker := f.client()
	asker.send(&protocol.SleepRequest{})
	ask := <-f.SleepAsks()
	f.engine.allow(1)
	c := f.client()
	c.send(generate(1, "ab", 3))
	expect[protocol.Token](c)
	ask.Answer(f.Sleep(ask.After))
	asker.wantError(protocol.CodeNotIdle)
	f.engine.allow(-1)
	eventually(t, "the request ends", func() bool { return f.Idle() > 0 })
}

// An ask that nobody has taken when the server closes is refused.
func TestSleepAskedWhileClosing(t *testing.T) {
	f := newFixture(t, nil)
	f.opts.Wakes = true
	f.serve()
	f.SetReady(f.model())
	asker := f.client()
	asker.send(&protocol.SleepRequest{})
	eventually(t, "the ask waits", func() bool { return f.asking() })
	f.stop()
	asker.wantError(protocol.CodeDraining)
}

// asking reports whether a connection's ask for sleep waits.
func (f *fixture) asking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.asksSleep.Load() {
			return true
		}
	}
	return false
}

// A start that waits for a device's memory says so to those who say hello, and no longer once it goes on.
func TestWaitingIsTold(t *testing.T) {
	f := start(t, nil)
	c := f.dial()
	told := func() string {
		c.send(&protocol.Hello{Version: 1})
		return c.wantError(protocol.CodeLoading).WaitsFor
	}
	if device := told(); device != "" {
		t.Errorf("it waits for %q", device)
	}
	f.SetWaiting("cuda")
	if device := told(); device != "cuda" {
		t.Errorf("it waits for %q", device)
	}
	f.SetWaiting("")
	if device := told(); device != "" {
		t.Errorf("it waits for %q", device)
	}
}

// A start that has waited in vain says for which device; one that ends for another reason names none.
func TestWaitingInVainIsTold(t *testing.T) {
	for code, want := range map[string]string{protocol.CodeGPUBusy: "cuda", protocol.CodeOutOfMemory: ""} {
		f := start(t, nil)
		c := f.dial()
		f.SetWaiting("cuda")
		f.Fail(protocol.Errorf(code, "", "it ends"))
		c.send(&protocol.Hello{Version: 1})
		if device := c.wantError(code).WaitsFor; device != want {
			t.Errorf("%s: it waited for %q, want %q", code, device, want)
		}
	}
}
