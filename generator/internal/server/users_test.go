package server

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// as gives later connections the user id that uid has when they are accepted.
func (f *fixture) as(uid *atomic.Uint32) {
	f.identify = func(*net.UnixConn) (peer, error) { return peer{uid: uid.Load(), pid: 1}, nil }
}

// readyAs starts a server in the ready state. The test sets the uid of later connections.
func readyAs(t *testing.T, change func(*bounds)) (*fixture, *atomic.Uint32) {
	uid := new(atomic.Uint32)
	f := newFixture(t, change)
	f.as(uid)
	f.serve()
	f.SetReady(f.model())
	return f, uid
}

// A user with as many connections as one may have leaves some to other users.
func TestConnectionsAreOfAUser(t *testing.T) {
	f, uid := readyAs(t, func(b *bounds) { b.connections = 4 })
	for _, u := range []struct {
		uid   uint32
		conns int
	}{{1, 4}, {2, 2}, {3, 1}} {
		uid.Store(u.uid)
		for range u.conns {
			f.client()
		}
		if code := f.dial().closedAfter(); code != protocol.CodeTooManyConnections {
			t.Errorf("user %d, after %d connections: %q", u.uid, u.conns, code)
		}
	}
	uid.Store(4)
	f.works()
	eventually(t, "its connection is gone", func() bool { return f.Status().Connections == 7 })
}

func TestEngineIsToldTheUser(t *testing.T) {
	f, uid := readyAs(t, nil)
	uid.Store(7)
	f.works()
	if got := f.engine.asker(); got != (engine.User{UID: 7}) {
		t.Errorf("the engine was told of %v", got)
	}
	c := f.client()
	for name, want := range map[string]string{"": "", "key": "key", strings.Repeat("x", 64): strings.Repeat("x", 64)} {
		m := generate(1, "a", 1)
		m.User = &name
		if got := c.ask(m); got.done == nil || f.engine.asker() != (engine.User{UID: 7, Name: want}) {
			t.Errorf("%q: %v, the engine was told of %v", name, got.err, f.engine.asker())
		}
	}
}
