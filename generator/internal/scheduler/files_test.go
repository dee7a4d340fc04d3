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
