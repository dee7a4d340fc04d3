package server

import (
	"net"
	"os"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// The field cache reaches the engine, and done and the log say how many prompt tokens were cached.
func TestCacheOfRequests(t *testing.T) {
	f := ready(t, nil)
	f.engine.cached = 2
	c := f.client()
	for i, want := range []struct {
		use  *string
		mode engine.CacheMode
	}{
		{nil, engine.CacheOn}, {new(protocol.CacheOn), engine.CacheOn},
		{new(protocol.CacheRead), engine.CacheRead}, {new(protocol.CacheOff), engine.CacheOff},
	} {
		g := generate(uint64(i), "abc", 1)
		g.Cache = want.use
		done := c.ask(g).done
		f.engine.mu.Lock()
		mode := f.engine.cache
		f.engine.mu.Unlock()
		if mode != want.mode || done.Usage.CachedTokens != 2 {
			t.Errorf("request %d: the engine got mode %d, done has %+v", i, mode, done.Usage)
		}
	}
	g := generate(9, "abc", 1)
	g.Cache = new("some")
	c.send(g)
	if e := c.wantError(protocol.CodeBadRequest); !strings.Contains(e.Message, "on, read or off") {
		t.Errorf("%+v", e)
	}
	f.stop()
	if n := strings.Count(f.log.String(), `"n_cached":2,`); n != 4 {
		t.Errorf("%d log lines with n_cached, want 4: %s", n, f.log.String())
	}
}

// cache lists the pages of the connection's user, and drops them if asked to.
func TestCachedPages(t *testing.T) {
	f := ready(t, nil)
	f.engine.scope = protocol.ScopeUser
	c := f.client()
	c.send(&protocol.CacheRequest{})
	if m := expect[protocol.Cached](c); m.Dropped != 0 || m.Tiers[0].Pages != 5 || f.engine.dropped() != 0 {
		t.Errorf("%+v, %d drops", m, f.engine.dropped())
	}
	c.send(&protocol.CacheRequest{Drop: true})
	if m := expect[protocol.Cached](c); m.Dropped != 4 || f.engine.dropped() != 1 || int(f.engine.asker().UID) != os.Getuid() {
		t.Errorf("%+v, %d drops of user %v", m, f.engine.dropped(), f.engine.asker())
	}
	c.send(&protocol.CacheRequest{User: "key"})
	expect[protocol.Cached](c)
	if user := f.engine.asker(); user.Name != "key" || int(user.UID) != os.Getuid() {
		t.Errorf("asked of %v", user)
	}
	c.send(&protocol.CacheRequest{User: strings.Repeat("x", protocol.MaxUserBytes+1)})
	c.wantError(protocol.CodeBadRequest)
	f.engine.mu.Lock()
	f.engine.refuse = engine.ErrDraining
	f.engine.mu.Unlock()
	c.send(&protocol.CacheRequest{Drop: true})
	c.wantError(protocol.CodeDraining)
}

// Pages that all users share are dropped by root and by the generator's user alone. The connection stays.
func TestSharedCacheIsNotEverybodysToDrop(t *testing.T) {
	for _, c := range []struct {
		uid     int
		scope   string
		refused bool
	}{
		{os.Getuid(), protocol.ScopeAll, false}, {0, protocol.ScopeAll, false},
		{os.Getuid() + 1, protocol.ScopeAll, true}, {os.Getuid() + 1, protocol.ScopeUser, false},
	} {
		f := newFixture(t, nil)
		f.identify = func(*net.UnixConn) (peer, error) { return peer{uid: uint32(c.uid)}, nil }
		f.engine.scope = c.scope
		f.serve()
		f.SetReady(f.model())
		client := f.client()
		client.send(&protocol.CacheRequest{Drop: true})
		if c.refused {
			client.wantError(protocol.CodeForbidden)
		} else {
			expect[protocol.Cached](client)
		}
		client.send(&protocol.CacheRequest{})
		expect[protocol.Cached](client)
		if dropped := f.engine.dropped() > 0; dropped == c.refused {
			t.Errorf("user %d, scope %s: dropped %t", c.uid, c.scope, dropped)
		}
	}
}
