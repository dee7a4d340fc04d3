package server

import (
	"net"
	"sync/atomic"
	"testing"

	"reel/protocol"
)

// as makes those who connect from now on users of these uids, in turn.
func (f *fixture) as(uid *atomic.Uint32) {
	f.identify = func(*net.UnixConn) (peer, error) { return peer{uid: uid.Load(), pid: 1}, nil }
}

// readyAs is a server that serves, to users whose uid the test sets.
func readyAs(t *testing.T, change func(*bounds)) (*fixture, *atomic.Uint32) {
	uid := new(atomic.Uint32)
	f := newFixture(t, change)
	f.as(uid)
	f.serve()
	f.SetReady(f.model())
	return f, uid
}

// A user who has taken all their connections leaves some to others.
func TestConnectionsAreOfAUser(t *testing.T) {
	f, uid := readyAs(t, func(b *bounds) { b.connections = 4 })
	for _, u := range []struct {
		uid    uint32
		places int
	}{{1, 4}, {2, 2}, {3, 1}} {
		uid.Store(u.uid)
		for range u.places {
			f.client()
		}
		if code := f.dial().closedAfter(); code != protocol.CodeTooManyConnections {
			t.Errorf("user %d, after %d connections: %q", u.uid, u.places, code)
		}
	}
	uid.Store(4)
	f.works()
	eventually(t, "its place is free", func() bool { return f.Status().Connections == 7 })
}

func TestEngineKnowsWhoAsks(t *testing.T) {
	f, uid := readyAs(t, nil)
	uid.Store(7)
	f.works()
	f.engine.mu.Lock()
	defer f.engine.mu.Unlock()
	if f.engine.user != 7 {
		t.Errorf("the engine was told of user %d", f.engine.user)
	}
}
