package store

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// The longest stored beginning of a prompt is found, in its scope only, and is used by that.
func TestLongest(t *testing.T) {
	r := newRig(t)
	r.o.Bytes = 4 * block
	r.reopen()
	ids := r.chain("a", 1, 0, 3)
	tick()
	other, _ := r.put(page(ID{}, "a", 1, 9))
	var prompt []int32
	for n := range int32(3) {
		prompt = append(prompt, page(ID{}, "a", 1, n).Tokens...)
	}
	edited := append([]int32{}, prompt...)
	edited[testTokens]++
	tick()
	for _, c := range []struct {
		scope  string
		prompt []int32
		want   []ID
	}{{"a", edited, ids[:1]}, {"b", prompt, nil}, {"a", prompt[:2*testTokens+1], ids[:2]}, {"a", prompt, ids},
		{"a", append(prompt, 1, 2, 3, 4), ids}, {"a", nil, nil}} {
		if got := r.Longest(c.scope, c.prompt); !slices.Equal(got, c.want) {
			t.Errorf("%d pages of %v in %q, wants %d", len(got), c.prompt, c.scope, len(c.want))
		}
	}
	r.reopen()
	if _, gone := r.put(page(ID{}, "a", 1, 10)); len(gone) != 1 || gone[0] != other {
		t.Errorf("%v gave way, not the page that was not looked up", gone)
	}
}

// The least recently used page that no other follows gives way, also after a restart.
func TestLeastRecentlyUsedGivesWay(t *testing.T) {
	r := newRig(t)
	r.o.Bytes = 6 * block
	r.reopen()
	a := r.chain("a", 1, 0, 3)
	tick()
	b := r.chain("a", 1, 10, 3)
	tick()
	if !r.served(Page{Parent: a[1], Scope: "a", User: 1, Tokens: page(a[1], "a", 1, 2).Tokens}) {
		t.Fatal("a page is not there")
	}
	tick()
	r.reopen()
	for n, want := range []ID{b[2], b[1], b[0], a[2]} {
		_, gone := r.put(page(ID{}, "c", 1, int32(n)))
		if len(gone) != 1 || gone[0] != want {
			t.Errorf("page %d: %v gave way, wants %v", n, gone, want)
		}
	}
	if pages, size := r.Usage(); pages != 6 || size != 6*block {
		t.Errorf("%d pages, %d bytes", pages, size)
	}
	r.o.Bytes = 2 * block // a lower bound holds from the start
	r.reopen()
	if pages, _ := r.Usage(); pages != 2 || len(r.found) != 2 {
		t.Errorf("%d pages, %d found", pages, len(r.found))
	}
}

// tick lets the times of files differ: the kernel's clock for them has steps of 4 or 10 ms.
func tick() { time.Sleep(12 * time.Millisecond) }

// A prompt longer than the bound keeps its beginning.
func TestAChainDoesNotEvictItself(t *testing.T) {
	r := newRig(t)
	r.o.Bytes = 3 * block
	r.reopen()
	ids := r.chain("a", 1, 0, 3)
	p := page(ids[2], "a", 1, 3)
	if _, gone, err := r.Write(p, dataOf(p)); !errors.Is(err, ErrFull) || gone != nil {
		t.Errorf("%v gave way, %v", gone, err)
	}
	r.reopen()
	if len(r.found) != 3 || r.lines != nil {
		t.Errorf("%d pages, %q", len(r.found), r.lines)
	}
}

// One user floods; another's pages stay, though they are older.
func TestEqualShares(t *testing.T) {
	r := newRig(t)
	r.o.Bytes = 10 * block
	r.reopen()
	mine := r.chain("mine", 1, 0, 4)
	for n := range int32(50) {
		r.put(page(ID{}, "flood", 2, n))
	}
	for _, id := range mine {
		if err := r.Read(id, make([]byte, testBytes)); err != nil {
			t.Errorf("a page within the share: %v", err)
		}
	}
	r.reopen()
	if pages, _ := r.Usage(); pages != 10 {
		t.Errorf("%d pages, wants 10", pages)
	}
	if _, gone := r.put(page(ID{}, "flood", 2, 99)); len(gone) != 1 || slices.Contains(mine, gone[0]) {
		t.Errorf("%v gave way after a restart", gone)
	}
}
