package kv

import (
	"slices"
	"testing"
)

// leavePartial publishes a page with one token of the user's, and releases a partial one with the tokens after it.
func leavePartial(t *testing.T, p *Pool, user uint64, token int32, tokens ...int32) (parent *Node, page int32) {
	t.Helper()
	publish(t, p, user, token)
	parent = p.Find(p.Root(string(rune('a'+user))), []int32{token})
	taken, ok := p.Take(1)
	if !ok {
		t.Fatal("no page is free")
	}
	p.ReleasePartial(parent, tokens, taken[0], user)
	return parent, taken[0]
}

// A partial page is found by the tokens with which it begins, and is taken once. All the while it counts as free.
func TestPartialPageIsFoundOnce(t *testing.T) {
	p := New(5, 1)
	parent, page := leavePartial(t, p, 1, 10, 20, 21, 22)
	other, _ := leavePartial(t, p, 1, 11, 30)
	for _, c := range []struct {
		tokens []int32
		want   int
	}{{nil, 0}, {[]int32{20}, 1}, {[]int32{20, 21, 22}, 3}, {[]int32{20, 21, 22, 23}, 3}, {[]int32{20, 9, 22}, 1},
		{[]int32{9, 21}, 0}, {[]int32{30}, 0}} {
		if n := p.FindPartial(parent, c.tokens); n != c.want {
			t.Errorf("%v begins with %d tokens of the partial page, wants %d", c.tokens, n, c.want)
		}
	}
	if p.Free() != 5 || p.Held(page) {
		t.Errorf("%d pages of 5 are free", p.Free())
	}
	if got := p.TakePartial(parent); got != page || !p.Held(page) || p.Free() != 4 {
		t.Errorf("took page %d, wants %d; %d are free", got, page, p.Free())
	}
	if p.FindPartial(parent, []int32{20}) != 0 || p.FindPartial(other, []int32{30}) != 1 {
		t.Error("the partial page is found again, or another is not found")
	}
	if p.Release(page); p.FindPartial(parent, []int32{20}) != 0 {
		t.Error("a page that was taken is partial again")
	}
}

// When a partial page is taken for something else, its tokens are lost for good. Other free pages are taken before it,
// then the oldest partial one.
func TestPartialPageGivesWay(t *testing.T) {
	p := New(6, 1)
	first, page := leavePartial(t, p, 1, 10, 20)
	second, last := leavePartial(t, p, 1, 11, 20)
	has := func(n *Node) bool { return p.FindPartial(n, []int32{20}) == 1 }
	taken, _ := p.Take(2)
	if !has(first) || !has(second) {
		t.Fatal("a partial page was taken although another was free")
	}
	more, _ := p.Take(1)
	if taken = append(taken, more...); has(first) || !has(second) || more[0] != page {
		t.Fatal("the oldest partial page does not give way first")
	}
	more, _ = p.Take(1)
	if taken = append(taken, more...); has(second) || more[0] != last {
		t.Fatal("a page that was taken is still found")
	}
	for _, page := range taken {
		p.Release(page)
	}
	if has(first) || has(second) || len(p.partials) != 0 {
		t.Error("a page that was taken is found again")
	}
}

// A node has one partial page, the last that was released, and none when it has left the chains or its user drops it.
func TestPartialPageIsReplacedForgottenAndDropped(t *testing.T) {
	p := New(4, 1)
	parent, _ := leavePartial(t, p, 1, 10, 20)
	page, _ := p.Take(1)
	if p.ReleasePartial(parent, []int32{30}, page[0], 1); p.FindPartial(parent, []int32{20}) != 0 ||
		p.FindPartial(parent, []int32{30}) != 1 || len(p.partials) != 1 {
		t.Error("the partial page was not replaced")
	}
	held, _ := p.Take(2)
	p.Retain(parent.page) // the page stays when its user drops what is cached
	if p.DropOwned(Owner{2, "b"}); p.FindPartial(parent, []int32{30}) != 1 {
		t.Error("another user's drop took the partial page")
	}
	if p.DropOwned(Owner{1, "b"}); p.FindPartial(parent, []int32{30}) != 0 || len(p.partials) != 0 {
		t.Error("the drop left a partial page")
	}
	p.Release(parent.page)
	page, _ = p.Take(1)
	p.ReleasePartial(parent, []int32{30}, page[0], 1)
	for _, page := range held {
		p.Release(page)
	}
	if p.evict(); p.Has(parent) || len(p.partials) != 0 {
		t.Error("a node that is forgotten has a partial page")
	}
	if page, _ = p.Take(1); !slices.Contains([]int32{1, 2, 3, 4}, page[0]) {
		t.Fatal("no page is free")
	}
	if p.ReleasePartial(parent, []int32{30}, page[0], 1); len(p.partials) != 0 || p.Free() != 4 {
		t.Error("a node that was forgotten gets a partial page")
	}
}

// A page that a sequence still holds, or that comes after a root, is released but not found.
func TestOnlyAFreePageIsPartial(t *testing.T) {
	p := New(3, 1)
	publish(t, p, 1, 10)
	parent := p.Find(p.Root("b"), []int32{10})
	page, _ := p.Take(1)
	p.Retain(page[0])
	if p.ReleasePartial(parent, []int32{20}, page[0], 1); p.FindPartial(parent, []int32{20}) != 0 || !p.Held(page[0]) {
		t.Error("a page with another reference is found")
	}
	if p.ReleasePartial(p.Root("c"), []int32{20}, page[0], 1); len(p.partials) != 0 || p.Held(page[0]) {
		t.Error("a page after a root is found, though the root may be another one the next time")
	}
}
