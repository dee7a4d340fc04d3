package scheduler

import "reel.internal/reel/generator/internal/kv"

// Pages that prompts can find are written to files one by one, each after the page before it, and read again before
// the sequence that wants them is added: others join meanwhile. Package kv has their nodes.

// Found returns how many pages of q's prompt are in the chains. q is not added yet.
func (s *Scheduler) Found(q *Sequence) int {
	s.find(q)
	return len(q.found)
}

// BeginRead returns at most n places to read the next pages of q's prompt into, after those that Found found.
// FinishRead follows. While a sequence that moves out lacks places there are none.
func (s *Scheduler) BeginRead(q *Sequence, n int) (places []int32) {
	if s.lacksPlaces && len(s.moving) > 0 {
		return nil
	}
	return s.pages.BeginRead(n, q.found)
}

// FinishRead adds pages that were read into places to the chains: the pages of q's prompt from index from on. Without
// the page before it a page is not added. files names the pages that were read, the first of those to be read. It
// returns how many pages of the prompt are in the chains after that.
func (s *Scheduler) FinishRead(q *Sequence, from int, places []int32, files [][32]byte) int {
	s.find(q)
	for i, place := range places {
		if i >= len(files) || len(q.found) != from+i {
			s.pages.EndRead(place)
			continue
		}
		parent := s.pages.Root(q.Scope)
		if i += from; i > 0 {
			parent = q.found[i-1]
		}
		tokens := q.Prompt[i*s.PageTokens : (i+1)*s.PageTokens]
		q.found = append(q.found, s.pages.FinishRead(parent, tokens, place, uint64(q.User.UID), files[i-from]))
	}
	s.free() // a sequence that moves out may have waited for these places
	return s.Found(q)
}

// WriteFiles lets BeginWrite return the pages that prompts leave from now on, or ends that.
func (s *Scheduler) WriteFiles(on bool) { s.writes, s.unwritten = on, nil }

// unwrite notes that a page is to be written to a file.
func (s *Scheduler) unwrite(n *kv.Node) {
	if n == nil || !s.writes {
		return
	}
	if s.unwritten = append(s.unwritten, n); len(s.unwritten) > 2*s.Pages { // pages left the device faster
		s.unwritten = s.unwritten[len(s.unwritten)-s.Pages:]
	}
}

// Unwritten reports whether BeginWrite may return a page later.
func (s *Scheduler) Unwritten() bool { return len(s.unwritten) > 0 }

// BeginWrite returns the next page that is to be written to a file and holds it on the device until EndWrite. It
// returns nil if there is none at the moment. Pages that have left the device, or come after a page without a file,
// are not written.
func (s *Scheduler) BeginWrite() *kv.Node {
	for len(s.unwritten) > 0 {
		n := s.unwritten[0]
		if s.pages.Has(n) && n.Page() != 0 && n.MayWrite() {
			if n.Loading() || n.Step() >= s.completed || !s.mayHold(n.Page()) {
				return nil
			}
			s.unwritten = s.unwritten[1:]
			s.writtenOf = s.holders[n.Page()]
			s.written = n.Page()
			s.hold(n.Page(), nil)
			return n
		}
		s.unwritten = s.unwritten[1:]
	}
	return nil
}

// mayHold reports whether the reserve stays whole if a page is held for no user.
func (s *Scheduler) mayHold(page int32) bool {
	if !s.pages.Held(page) {
		return s.hasSparePage()
	}
	return s.holders[page] == nil || s.pages.Free()+s.withinShares-1 >= (s.Reserve+1)*s.ReservePages
}

// EndWrite lets go of a page that BeginWrite returned. If sequences of one user alone held it all the while, it counts
// for that user again.
func (s *Scheduler) EndWrite(n *kv.Node) {
	user := s.writtenOf
	s.written, s.writtenOf = 0, nil
	if s.drop(n.Page()); user != nil {
		s.charge(n.Page(), user)
	}
}
