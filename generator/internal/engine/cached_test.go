package engine

import (
	"errors"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// cachedPages asks for the pages on the device that a user's prompts can find.
func (b *testEngine) cachedPages(user User, drop bool) (pages, dropped int) {
	b.t.Helper()
	c, err := b.Cached(user, drop)
	if err != nil || len(c.Tiers) == 0 || c.Tiers[0].Tokens != c.Tiers[0].Pages*c.PageTokens {
		b.t.Fatalf("%+v, %v", c, err)
	}
	if tier := c.Tiers[0]; tier.Bytes*int64(b.opts.Pages+1) != int64(tier.Pages)*b.Stats().KV.Bytes {
		b.t.Errorf("%d pages have %d bytes, all %d have %d", tier.Pages, tier.Bytes, b.opts.Pages+1, b.Stats().KV.Bytes)
	}
	return c.Tiers[0].Pages, c.Dropped
}

// A user sees and drops the pages of its own prompts, or of all with ScopeAll, beside requests that run. After that
// a prompt finds nothing. Pages that a request holds stay until it ends.
func TestCachedPagesAreListedAndDropped(t *testing.T) {
	r := seeded(t)
	for scope, want := range map[CacheScope]struct{ listed, dropped, othersAfter int }{
		ScopeUser: {4, 2, 5}, ScopeAll: {9, 7, 2}, ScopeOff: {0, 0, 0},
	} {
		o := defaults()
		o.CacheScope = scope
		b := start(t, o, nil)
		mine, running := tokens(r, 20), tokens(r, 17)
		b.complete(Request{Tokens: mine, MaxTokens: 1, User: User{UID: 1}})
		b.complete(Request{Tokens: tokens(r, 41), MaxTokens: 1, User: User{UID: 2}})
		s, h := b.submit(Request{Tokens: running, MaxTokens: 400, User: User{UID: 1}, IgnoreEOS: true})
		<-s.first
		listed, none := b.cachedPages(User{UID: 1}, false)
		left, dropped := b.cachedPages(User{UID: 1}, true)
		others, _ := b.cachedPages(User{UID: 2}, false)
		if listed != want.listed || none != 0 || dropped != want.dropped || left != listed-dropped ||
			others != want.othersAfter {
			t.Errorf("%v: %d listed, %d dropped, %d left, %d for another user; want %+v",
				scope, listed, dropped, left, others, want)
		}
		if n := b.complete(Request{Tokens: mine, MaxTokens: 1, User: User{UID: 1}}).finish.Usage.CachedTokens; n != 0 {
			t.Errorf("%v: %d tokens found after the drop", scope, n)
		}
		b.Cancel(h)
		<-s.ended
		b.cachedPages(User{UID: 1}, true)
		if left, _ := b.cachedPages(User{UID: 1}, false); left != 0 {
			t.Errorf("%v: %d pages left after the request has ended", scope, left)
		}
		b.Stop()
		if _, err := b.Cached(User{UID: 1}, true); !errors.Is(err, ErrDraining) {
			t.Errorf("%v: %v", scope, err)
		}
	}
}

// A name sees and drops the pages of its own prompts alone.
func TestCachedPagesOfNames(t *testing.T) {
	b := start(t, defaults(), nil)
	users := []User{{UID: 1}, nameOf(1, "a"), nameOf(1, "b"), nameOf(2, "a")}
	for i, user := range users {
		b.complete(Request{Tokens: make([]int32, 20+8*i), MaxTokens: 1, User: user})
	}
	for i, dropper := range users {
		left, dropped := b.cachedPages(dropper, true)
		if left != 0 || dropped != 2+i {
			t.Errorf("%v dropped %d pages, %d are left", dropper, dropped, left)
		}
		for k, other := range users[i+1:] {
			if n, _ := b.cachedPages(other, false); n != 2+i+1+k {
				t.Errorf("after %v: %d pages of %v", dropper, n, other)
			}
		}
	}
}

// A question that comes while the engine ends is answered.
func TestCachedPagesAreAnsweredAtTheEnd(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	answered := make(chan error, 1)
	go func() {
		_, err := b.Cached(User{UID: 1}, false)
		answered <- err
	}()
	for asked := false; !asked; {
		b.mu.Lock()
		asked = len(b.inbox) > 0
		b.mu.Unlock()
	}
	b.finishAll(ErrShutdown)
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer")
	}
	b.run()
	if err := b.wait(); err != nil {
		t.Error(err)
	}
}

// A user's pages are listed and dropped in the host tier too. What is copied at that moment stays, until the next
// drop.
func TestCachedPagesInTheHostTier(t *testing.T) {
	o := nano()
	o.Pages, o.slabPages = 32, 8
	o.HostCache = 200 * 64 * int64(o.PageTokens)
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	ask := func(user uint32, first int32) {
		prompt := make([]int32, 41)
		for i := range prompt {
			prompt[i] = (first + int32(i*i)) % 16
		}
		b.complete(Request{Tokens: prompt, MaxTokens: 1, User: User{UID: user}})
	}
	tiers := func(user uint32, drop bool) (device, host int) {
		c, err := b.Cached(User{UID: user}, drop)
		if err != nil || len(c.Tiers) != 2 || c.Tiers[1].Tier != protocol.TierHost ||
			c.Tiers[1].Tokens != c.Tiers[1].Pages*o.PageTokens {
			t.Fatalf("%+v, %v", c, err)
		}
		return c.Tiers[0].Pages, c.Tiers[1].Pages
	}
	for end := time.Now().Add(time.Minute); ; { // slabs are pinned while it serves
		for first := range int32(8) {
			ask(1+uint32(first%2), first)
		}
		if _, host := tiers(1, false); host > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing came to the host tier")
		}
	}
	_, theirs := tiers(2, false)
	for device, host := tiers(1, true); device+host > 0; device, host = tiers(1, true) {
		if s := b.Stats().KV; s.Stored == 0 {
			t.Fatalf("%d and %d pages left, %+v", device, host, s)
		}
	}
	if device, host := tiers(2, false); device+host == 0 || host < theirs {
		t.Errorf("%d and %d pages of another user are left, there were %d in the host tier", device, host, theirs)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// Pages of requests that move out count as copied, also if nothing is cached.
func TestCopiedPagesOfMovedRequestsCount(t *testing.T) {
	o := nano()
	o.Pages, o.CacheScope, o.slabPages = 18, ScopeOff, 8
	o.HostCache = 200 * 64 * int64(o.PageTokens)
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	for end := time.Now().Add(time.Minute); b.Stats().KV.MovedIn == 0; {
		var sinks []*sink
		for i := range 4 {
			s, _ := b.submit(Request{Tokens: []int32{1, 2, 3, int32(i)}, MaxTokens: 50, User: User{UID: uint32(i)}, IgnoreEOS: true})
			sinks = append(sinks, s)
		}
		for _, s := range sinks {
			<-s.ended
		}
		if time.Now().After(end) {
			t.Fatalf("no request moved: %+v", b.Stats().KV)
		}
	}
	if kv := b.Stats().KV; kv.Stored < kv.MovedOut || kv.Loaded < kv.MovedIn || kv.HostCached != 0 {
		t.Errorf("%+v", kv)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
