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

// owned returns the pages of an owner on the device.
func owned(p *Pool, user uint64, scope string) int {
	n, _ := p.Owned(Owner{user, scope})
	return n
}

func release(p *Pool, pages []int32) {
	for i := len(pages) - 1; i >= 0; i-- {
		p.Release(pages[i])
	}
}

// DropOwned frees the cached pages of one owner, neither those that a sequence holds, nor those of another user or of
// another scope of the same user.
func TestDropOwned(t *testing.T) {
	p, mine := New(23, 2), Owner{1, "a"}
	cached, held := chain(t, p, "a", 1, 0, 5), chain(t, p, "a", 1, 9, 3)
	release(p, cached)
	release(p, chain(t, p, "b", 2, 0, 4))
	release(p, chain(t, p, "a key", 1, 0, 3))
	others := func() bool { return owned(p, 2, "b") == 4 && owned(p, 1, "a key") == 3 && owned(p, 3, "a") == 0 }
	if owned(p, 1, "a") != 8 || !others() {
		t.Fatalf("%d pages", owned(p, 1, "a"))
	}
	if n := p.DropOwned(mine); n != 5 || owned(p, 1, "a") != 3 || !others() || p.Stats().Cached != 7 {
		t.Errorf("dropped %d, left %d, %d cached", n, owned(p, 1, "a"), p.Stats().Cached)
	}
	if p.Find(p.Root("a"), []int32{0, 0}) != nil || p.Find(p.Root("b"), []int32{0, 0}) == nil ||
		p.Find(p.Root("a key"), []int32{0, 0}) == nil {
		t.Error("a dropped page is found, or another owner's is not")
	}
	release(p, held)
	if n := p.DropOwned(mine); n != 3 || p.DropOwned(mine) != 0 || owned(p, 1, "a") != 0 || p.Free() != 23 ||
		p.Stats().Evicted != 0 || !others() {
		t.Errorf("dropped %d, left %d, %d free, %d evicted", n, owned(p, 1, "a"), p.Free(), p.Stats().Evicted)
	}
}
