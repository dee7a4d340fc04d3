package engine

import (
	"testing"

	"reel.internal/reel/protocol"
)

// Three prompts with one beginning, of users 1, 2 and 1, find each other's pages by the scope, and Stats counts
// them. A request with CacheOff finds nothing and does not count.
func TestScopesAndCounts(t *testing.T) {
	prompt := tokens(seeded(t), 20)
	for _, c := range []struct {
		scope CacheScope
		found [3]int
		want  protocol.Cache
	}{
		{ScopeUser, [3]int{0, 0, 16}, protocol.Cache{Scope: "user", Requests: 3, Hits: 1, PromptTokens: 60, CachedTokens: 16}},
		{ScopeAll, [3]int{0, 16, 16}, protocol.Cache{Scope: "all", Requests: 3, Hits: 2, PromptTokens: 60, CachedTokens: 32}},
		{ScopeOff, [3]int{}, protocol.Cache{Scope: "off"}},
	} {
		o := defaults()
		o.CacheScope = c.scope
		b := start(t, o, nil)
		var found [3]int
		for i, user := range []uint32{1, 2, 1} {
			found[i] = b.complete(Request{Tokens: prompt, MaxTokens: 1, User: User{UID: user}}).finish.Usage.CachedTokens
		}
		if got := b.complete(Request{Tokens: prompt, MaxTokens: 1, User: User{UID: 1}, Cache: CacheOff}); got.finish.Usage.CachedTokens != 0 {
			t.Errorf("%v: CacheOff found %d tokens", c.scope, got.finish.Usage.CachedTokens)
		}
		if got := b.Stats().Cache; found != c.found || got != c.want {
			t.Errorf("%v: found %v, want %v; counted %+v, want %+v", c.scope, found, c.found, got, c.want)
		}
	}
}
