package kv

import "testing"

// publish takes a page for each run of tokens, publishes them as one prompt of the user, and releases them.
func publish(t *testing.T, p *Pool, user uint64, runs ...int32) {
	t.Helper()
	scope := string(rune('a' + user))
	parent, pages := p.Root(scope), []int32{}
	for _, token := range runs {
		page, ok := p.Take(1)
		if !ok {
			t.Fatal("no page is free")
		}
		parent = p.Publish(parent, []int32{token}, page[0], 0, user)
		pages = append(pages, page[0])
	}
	for i := range pages {
		p.Release(pages[len(pages)-1-i])
	}
}

// Spare pages are free ones and the user's own cached ones, its least recently used first, but never another's.
func TestSparePagesAreNobodyElses(t *testing.T) {
	p := New(6, 1)
	publish(t, p, 1, 10, 11)
	publish(t, p, 2, 20, 21)
	publish(t, p, 1, 12)
	taken := p.TakeSpare(9, Owner{1, "b"})
	if len(taken) != 4 {
		t.Fatalf("took %d pages, wants the free one and the user's three", len(taken))
	}
	other := p.Root("c")
	if n := p.Find(other, []int32{20}); n == nil || p.Find(n, []int32{21}) == nil {
		t.Error("another user's pages gave way")
	}
	if p.TakeSpare(1, Owner{3, "d"}) != nil {
		t.Error("a user without pages took another's")
	}
	for _, page := range taken {
		p.Release(page)
	}
	if p.Free() != 6 {
		t.Errorf("%d pages of 6 are free", p.Free())
	}
}

// A user's recently used pages stay while older ones can give way.
func TestSparePagesAreTheOldest(t *testing.T) {
	p := New(3, 1)
	publish(t, p, 1, 10)
	publish(t, p, 1, 11)
	publish(t, p, 1, 12)
	p.TakeSpare(2, Owner{1, "b"})
	root := p.Root("b")
	if p.Find(root, []int32{12}) == nil || p.Find(root, []int32{10}) != nil || p.Find(root, []int32{11}) != nil {
		t.Error("a recently used page gave way before an older one")
	}
}
