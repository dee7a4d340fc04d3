//go:build linux

package e2e

import (
	"os"
	"testing"

	"reel.internal/reel/protocol"
)

// cachedPages asks for the pages that p's user can find; drop drops them first.
func (p *peer) cachedPages(drop bool) (pages, dropped int) {
	p.send(&protocol.CacheRequest{Drop: drop})
	c := expect[*protocol.Cached](p)
	return c.Tiers[0].Pages, c.Dropped
}

// found asks for a prompt of 100 tokens and returns how many of them were cached.
func (p *peer) found(id uint64) int { return p.foundAs(id, "") }

// foundAs is found for requests with this name.
func (p *peer) foundAs(id uint64, name string) int {
	prompt := make([]int32, 100)
	for i := range prompt {
		prompt[i] = int32(500 + i)
	}
	p.send(&protocol.Generate{ID: id, Tokens: prompt, MaxTokens: new(1), User: &name})
	return until(p, func(*protocol.Done) bool { return true }).Usage.CachedTokens
}

// A name finds, sees and drops pages of its own prompts alone, and the requests without a name theirs.
func TestCacheOfNames(t *testing.T) {
	t.Parallel()
	g := serve(t)
	p := g.peer()
	names := []string{"", "key-1", "key-2"}
	for id, name := range names {
		if n := p.foundAs(uint64(id), name); n != 0 {
			t.Errorf("%q found %d tokens of another name", name, n)
		}
	}
	p.send(&protocol.CacheRequest{User: "key-1", Drop: true})
	if c := expect[*protocol.Cached](p); c.Dropped != 6 || c.Tiers[0].Pages != 0 {
		t.Errorf("%+v", c)
	}
	for id, want := range []int{96, 0, 96} {
		if n := p.foundAs(uint64(id), names[id]); n != want {
			t.Errorf("%q found %d tokens after a drop, wants %d", names[id], n, want)
		}
	}
}

// By default a user finds, sees and drops pages of its own prompts alone. With --cache-scope all users share them,
// and only the generator's user and root drop them. Users are peers' uids, so this needs root.
func TestCacheOfUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to connect as another user")
	}
	for scope, want := range map[string]struct{ theirs, listed, dropped int }{
		"user": {0, 6, 6}, "all": {96, 6, 0}, "off": {0, 0, 0},
	} {
		g := serve(t, "--cache-scope", scope)
		must(t, os.Chmod(g.socket, 0o666))
		if c := g.status().Cache; c.Scope != scope || c.Requests != 0 {
			t.Errorf("%s: before any request %+v", scope, c)
		}
		mine := g.peer()
		var other *peer
		as(t, nobody, func() { other = g.peer() })
		mine.found(1)
		if n := other.found(1); n != want.theirs {
			t.Errorf("%s: another user's prompt found %d tokens, want %d", scope, n, want.theirs)
		}
		if pages, _ := other.cachedPages(false); pages != want.listed {
			t.Errorf("%s: another user sees %d pages, want %d", scope, pages, want.listed)
		}
		other.send(&protocol.CacheRequest{Drop: true})
		switch m, err := other.read(); m := m.(type) {
		case *protocol.Cached:
			if scope == "all" || m.Dropped != want.dropped {
				t.Errorf("%s: another user dropped %d pages, want %d", scope, m.Dropped, want.dropped)
			}
		case *protocol.Error:
			if scope != "all" || m.Code != protocol.CodeForbidden {
				t.Errorf("%s: %+v", scope, m)
			}
		default:
			t.Fatalf("%s: %v, %v", scope, m, err)
		}
		if n := mine.found(2); (n > 0) != (scope != "off") {
			t.Errorf("%s: after another user's drop %d tokens are found", scope, n)
		}
		mine.cachedPages(true)
		if n := mine.found(3); n != 0 {
			t.Errorf("%s: after the drop %d tokens are found", scope, n)
		}
	}
}
