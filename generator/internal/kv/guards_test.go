package kv

import (
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
// the pool has a host tier, pages that leave the device are copied to it.
func flood(t *testing.T, p *Pool, user uint64, pages int) {
	t.Helper()
	for n := 0; n < pages; n += 100 {
		for p.Ready() < 100 {
			node, place := p.BeginStore()
			if node == nil {
				t.Fatalf("no page can be stored: %+v", p.Stats())
			}
			p.FinishStore(node, place)
		}
		release(p, chain(t, p, "flood", user, int32(n), 100))
	}
}

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
// host tier. Without shares, as if all pages were one user's, it does.
func TestFloodLeavesOthersTheirShare(t *testing.T) {
	const prompt = 4000 / 16
	for name, c := range map[string]struct {
		places int
		victim uint64
		want   int
	}{
		"device": {0, 2, prompt}, "host tier": {700, 2, prompt},
		"device without shares": {0, 1, 0}, "host tier without shares": {700, 1, 0},
	} {
		p := New(700, 2)
		p.AddPlaces(c.places)
		release(p, chain(t, p, "victim", c.victim, 9, prompt))
		flood(t, p, 1, 8000)
		if n := findable(p, "victim", 9, prompt); n != c.want {
			t.Errorf("%s: %d pages of %d are found, wants %d", name, n, prompt, c.want)
		}
	}
}

// On the device, too, a user below its share keeps its pages: those of a user above it are stored and leave first.
func TestUsersAboveTheirShareLeaveTheDeviceFirst(t *testing.T) {
	const prompt = 4000 / 16
	p := New(700, 2)
	p.AddPlaces(2000)
	release(p, chain(t, p, "victim", 2, 9, prompt))
	flood(t, p, 1, 8000)
	if device, _ := p.Owned(2); device != prompt {
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
			if o := p.owners[1]; o != nil {
				left = o.nodes
			}
			if found := findable(p, "a", 0, 40) + findable(p, "a", 1, 40); found != left {
				t.Fatalf("%d places: %d pages are left, and %d are found", places, left, found)
			}
		}
	}
}
