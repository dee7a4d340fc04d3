package scheduler

import "testing"

// filed returns a scheduler that writes files, after a prompt of 5 pages that ended.
func filed(t *testing.T) *Scheduler {
	t.Helper()
	o := small()
	o.Chunk, o.Context, o.Pages, o.Reserve, o.ReservePages = 100, 400, 200, 1, 4
	s := mustNew(t, o)
	s.WriteFiles(true)
	serve(s, &Sequence{Prompt: numbered(0, 5*o.PageTokens+1), MaxTokens: 2, Scope: "a"})
	return s
}

// Pages are written from the first to the last. After one that could not be written no further one is.
func TestPagesAreWrittenAfterTheirParents(t *testing.T) {
	for fails := range 6 {
		s := filed(t)
		free, parent := s.FreePages(), s.pages.Root("a")
		for i := range 5 {
			n := s.BeginWrite()
			if i > fails {
				if n != nil {
					t.Errorf("page %d failed, and page %d is written", fails, i)
				}
				break
			}
			if n == nil || n.Parent() != parent || n.Scope() != "a" || n.Tokens()[0] != int32(i*s.PageTokens) {
				t.Fatalf("%+v is written, not page %d", n, i)
			}
			if i < fails {
				n.SetFile([32]byte{1})
			}
			s.EndWrite(n)
			parent = n
		}
		if s.BeginWrite() != nil || s.FreePages() != free {
			t.Errorf("%d free pages at the end, wants %d", s.FreePages(), free)
		}
	}
}

// A page that is being copied to a file does not give way to a sequence. The reserve stays whole.
func TestAPageBeingWrittenStays(t *testing.T) {
	s := filed(t)
	n := s.BeginWrite()
	page := n.Page()
	taken, _ := s.pages.Take(s.FreePages())
	if len(taken) != s.Pages-1 {
		t.Errorf("%d pages are free beside the one that is written", len(taken))
	}
	for _, other := range taken {
		if other == page {
			t.Error("the page gave way while it was written")
		}
	}
	s.EndWrite(n)
	for _, other := range taken[1:] {
		s.pages.Release(other)
	}
	if s.FreePages() != s.Pages-1 {
		t.Errorf("%d pages are free after the write", s.FreePages())
	}
	s = filed(t)
	taken, _ = s.pages.Take(s.FreePages() - (s.Reserve+1)*s.ReservePages)
	if s.BeginWrite() != nil {
		t.Error("a page of the reserve is held for a write")
	}
	s.pages.Release(taken[0])
	if s.BeginWrite() == nil {
		t.Error("no page is written though one is spare")
	}
}

// A sequence that moves out waits for places that pages are read into, and goes on when they are read. Nothing else
// need happen meanwhile. Until then no further page is read.
func TestAReadLetsASequenceMoveOut(t *testing.T) {
	s := mustNew(t, small())
	s.AddPlaces(5)
	q := &Sequence{Prompt: prompt(10), MaxTokens: 8}
	_ = s.Add(q)
	s.Complete(s.Next().Step.Number)
	reader := &Sequence{Prompt: numbered(0, 30), MaxTokens: 1, Scope: "a"}
	places := s.BeginRead(reader, 3)
	s.moveOne()
	if q.state != movingOut || len(s.Transfers(9)) > 0 {
		t.Fatal("the sequence found places in spite of the reads")
	}
	if more := s.BeginRead(reader, 1); len(more) > 0 {
		t.Error("another page is read while a sequence waits for places")
	}
	s.FinishRead(reader, 0, places, make([][32]byte, 3))
	if n := len(s.Transfers(9)); n != 3 {
		t.Errorf("%d of 3 pages move out after the read", n)
	}
	if len(s.BeginRead(reader, 1)) != 1 {
		t.Error("no page is read after the sequence had its places")
	}
}

// While a page is written, and after that, it counts for the user whose sequence alone holds it, as before; unless
// another user has come to hold it.
func TestAWriteLeavesTheAccountOfUsers(t *testing.T) {
	for _, others := range []bool{false, true} {
		o := small()
		o.Chunk, o.Context, o.Pages, o.Reserve, o.ReservePages = 100, 400, 200, 1, 4
		s := mustNew(t, o)
		s.WriteFiles(true)
		add := func(user uint32) *share {
			q := &Sequence{Prompt: numbered(0, 5*o.PageTokens+1), MaxTokens: 20, Scope: "a", User: User{UID: user}}
			_ = s.Add(q)
			s.Complete(s.Next().Step.Number)
			return q.share.user
		}
		user := add(1)
		before, within := user.pages, s.withinShares
		n := s.BeginWrite()
		if n == nil {
			t.Fatal("no page is written")
		}
		if others {
			add(2)
			before, within = user.pages, s.withinShares
		}
		s.EndWrite(n)
		if charged := s.holders[n.Page()] == user; charged == others {
			t.Errorf("others hold it %v: the page counts for the user: %v", others, charged)
		}
		if !others && (user.pages != before || s.withinShares != within) {
			t.Errorf("%d pages of the user, %d within shares after a write; %d and %d before", user.pages,
				s.withinShares, before, within)
		}
	}
}

// A page does not count for a user that has left while it was written, also if something else holds it then.
func TestAWriteForgetsAUserThatLeft(t *testing.T) {
	o := small()
	o.Chunk, o.Context, o.Pages, o.Reserve, o.ReservePages = 100, 400, 200, 1, 4
	s := mustNew(t, o)
	s.WriteFiles(true)
	q := &Sequence{Prompt: numbered(0, 5*o.PageTokens+1), MaxTokens: 20, Scope: "a"}
	_ = s.Add(q)
	s.Complete(s.Next().Step.Number)
	n := s.BeginWrite()
	s.Remove(q)
	s.pages.Retain(n.Page()) // as Reread does
	s.EndWrite(n)
	if s.holders[n.Page()] != nil || s.withinShares != 0 {
		t.Errorf("a page counts for a user that left: %d pages within shares", s.withinShares)
	}
}
