package kv

import (
	"fmt"
	"slices"
	"testing"
)

// Prompts whose hashes are alike find their own pages only: the tokens and the page before are compared.
func TestPagesOfOneHashAreKeptApart(t *testing.T) {
	p := New(4, 2)
	p.hash = func(uint64, []int32) uint64 { return 1 }
	pages, _ := p.Take(3)
	root := p.Root("a")
	first := p.Publish(root, []int32{1, 2}, pages[0], 0, 1)
	if n := p.Find(root, []int32{3, 4}); n != nil {
		t.Errorf("a prompt found the page of %v", n.tokens)
	}
	if n := p.Find(first, []int32{1, 2}); n != nil {
		t.Error("a prompt found a page of another place in the chain")
	}
	if n := p.Find(p.Root("b"), []int32{1, 2}); n != nil {
		t.Error("a prompt found a page of another scope")
	}
	second, below := p.Publish(root, []int32{3, 4}, pages[1], 0, 1), p.Publish(first, []int32{1, 2}, pages[2], 0, 1)
	if p.Find(root, []int32{1, 2}) != first || p.Find(root, []int32{3, 4}) != second ||
		p.Find(first, []int32{1, 2}) != below {
		t.Error("a prompt does not find its own page")
	}
}

// flood lets a user publish prompts of 100 pages each, one after another, until it has left this number of pages. If
// the pool has a host tier, pages that leave the device are copied to it. scope returns the i-th prompt's.
func flood(t *testing.T, p *Pool, user uint64, scope func(i int) string, pages int) {
	t.Helper()
	for n := 0; n < pages; n += 100 {
		for p.Ready() < 100 {
			node, place := p.BeginStore()
			if node == nil {
				t.Fatalf("no page can be stored: %+v", p.Stats())
			}
			p.FinishStore(node, place)
		}
		release(p, chain(t, p, scope(n/100), user, int32(n), 100))
	}
}

// oneName is the scope of all prompts of a flood.
func oneName(int) string { return "flood" }

// findable returns how many pages of the chain of n pages prompts find, on any tier.
func findable(p *Pool, scope string, first int32, n int) int {
	parent := p.Root(scope)
	for i := range n {
		if parent = p.Find(parent, []int32{first, int32(i)}); parent == nil {
			return i
		}
	}
	return n
}

// A user that leaves thousands of pages does not push out another's prompt of 4,000 tokens, on the device nor in the
// host tier. Neither does a user that leaves them under many names, nor one name of a user that of another name.
// Without shares, as if all pages were one owner's, it does.
func TestFloodLeavesOthersTheirShare(t *testing.T) {
	const prompt = 4000 / 16
	many := func(i int) string { return fmt.Sprint("flood ", i%64) }
	for name, c := range map[string]struct {
		victim Owner
		scope  func(int) string
		want   int
	}{
		"another user's": {Owner{2, "victim"}, oneName, prompt}, "another user's, many names": {Owner{2, "victim"}, many, prompt},
		"another name's": {Owner{1, "victim"}, oneName, prompt}, "without shares": {Owner{1, "flood"}, oneName, 0},
	} {
		for _, places := range []int{0, 700} {
			p := New(700, 2)
			p.AddPlaces(places)
			release(p, chain(t, p, c.victim.Scope, c.victim.User, -1, prompt))
			flood(t, p, 1, c.scope, 8000)
			if n := findable(p, c.victim.Scope, -1, prompt); n != c.want {
				t.Errorf("%s, %d places: %d pages of %d are found, wants %d", name, places, n, prompt, c.want)
			}
		}
	}
}

// A user has pages of a bounded number of names. A further name takes the place of the one that left none for longest,
// but for those whose pages a sequence holds.
func TestNamesAreBounded(t *testing.T) {
	p := New(4*maxOwners, 2)
	scope := func(i int) string { return fmt.Sprint("user 1 ", i) }
	held := chain(t, p, scope(0), 1, 0, 2)
	other := chain(t, p, "user 2", 2, 0, 1)
	release(p, other)
	for i := 1; i < 2*maxOwners; i++ {
		release(p, chain(t, p, scope(i), 1, 0, 2))
		if n := len(p.accounts[1].owners); n > maxOwners+1 {
			t.Fatalf("%d owners", n)
		}
	}
	last := 2*maxOwners - 1
	if owned(p, 1, scope(last)) != 2 || owned(p, 1, scope(last-maxOwners+2)) != 2 || owned(p, 1, scope(1)) != 0 {
		t.Error("another name than the oldest gave way")
	}
	if owned(p, 1, scope(0)) != 2 || owned(p, 2, "user 2") != 1 {
		t.Error("pages that a sequence holds, or another user's, gave way")
	}
	release(p, held)
}

// On the device, too, a user below its share keeps its pages: those of a user above it are stored and leave first.
func TestUsersAboveTheirShareLeaveTheDeviceFirst(t *testing.T) {
	const prompt = 4000 / 16
	p := New(700, 2)
	p.AddPlaces(2000)
	release(p, chain(t, p, "victim", 2, 9, prompt))
	flood(t, p, 1, oneName, 8000)
	if device, _ := p.Owned(Owner{2, "victim"}); device != prompt {
		t.Errorf("%d pages of %d are still on the device", device, prompt)
	}
}

// Of a prompt the tail gives way before the head, so that all pages that are left can be found.
func TestTailsGiveWayBeforeHeads(t *testing.T) {
	for _, places := range []int{0, 30} {
		p := New(100, 2)
		p.AddPlaces(places)
		release(p, chain(t, p, "a", 1, 0, 40))
		pages := chain(t, p, "a", 1, 1, 40)
		if places == 0 { // the head first, as if it had been used longer ago
			slices.Reverse(pages)
		}
		release(p, pages)
		for range 100 {
			for p.Ready() < 1 {
				p.FinishStore(p.BeginStore())
			}
			if _, ok := p.Take(1); !ok {
				t.Fatal("no page")
			}
			left := 0
			if o := p.owners[Owner{1, "a"}]; o != nil {
				left = o.nodes
			}
			if found := findable(p, "a", 0, 40) + findable(p, "a", 1, 40); found != left {
				t.Fatalf("%d places: %d pages are left, and %d are found", places, left, found)
			}
		}
	}
}
