package server

import (
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
