package kv

import "testing"

// chain publishes n pages in a row of one user, held.
func chain(t *testing.T, p *Pool, scope string, user uint64, first int32, n int) (pages []int32) {
	t.Helper()
	pages, ok := p.Take(n)
	if !ok {
		t.Fatal("no pages")
	}
	parent := p.Root(scope)
	for i, page := range pages {
		parent = p.Publish(parent, []int32{first, int32(i)}, page, 1, user)
	}
	return pages
}

// owned returns the pages of a user on the device.
func owned(p *Pool, user uint64) int {
	n, _ := p.Owned(user)
	return n
}

func release(p *Pool, pages []int32) {
	for i := len(pages) - 1; i >= 0; i-- {
		p.Release(pages[i])
	}
}

// DropOwned frees the cached pages of one user, neither those that a sequence holds nor those of another user.
func TestDropOwned(t *testing.T) {
	p := New(20, 2)
	mine, held, theirs := chain(t, p, "a", 1, 0, 5), chain(t, p, "a", 1, 9, 3), chain(t, p, "b", 2, 0, 4)
	release(p, mine)
	release(p, theirs)
	if owned(p, 1) != 8 || owned(p, 2) != 4 || owned(p, 3) != 0 {
		t.Fatalf("%d, %d and %d pages", owned(p, 1), owned(p, 2), owned(p, 3))
	}
	if n := p.DropOwned(1); n != 5 || owned(p, 1) != 3 || owned(p, 2) != 4 || p.Stats().Cached != 4 {
		t.Errorf("dropped %d, left %d of 1 and %d of 2, %d cached", n, owned(p, 1), owned(p, 2), p.Stats().Cached)
	}
	if p.Find(p.Root("a"), []int32{0, 0}) != nil || p.Find(p.Root("b"), []int32{0, 0}) == nil {
		t.Error("a dropped page is found, or another user's is not")
	}
	release(p, held)
	if n := p.DropOwned(1); n != 3 || p.DropOwned(1) != 0 || owned(p, 1) != 0 || p.Free() != 20 || p.Stats().Evicted != 0 {
		t.Errorf("dropped %d, left %d, %d free, %d evicted", n, owned(p, 1), p.Free(), p.Stats().Evicted)
	}
}
