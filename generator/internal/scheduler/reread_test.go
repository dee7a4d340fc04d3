package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// rereadAll forms and completes the steps that reread q, and returns the tokens of each.
func rereadAll(t *testing.T, s *Scheduler, q *Sequence) (steps []int) {
	t.Helper()
	for s.MayReread() {
		b := s.Reread(q)
		if b == nil {
			return steps
		}
		if len(b.Step.Samples) != 0 || len(b.Served) != 0 || !b.Prefill {
			t.Fatalf("a step that rereads samples %d rows and serves %d sequences", len(b.Step.Samples), len(b.Served))
		}
		steps = append(steps, len(b.Step.Rows))
		s.Complete(b.Step.Number)
	}
	t.Fatal("it may not reread")
	return nil
}

// numbered returns n tokens, the numbers from first on.
func numbered(first, n int) (p []int32) {
	for i := range n {
		p = append(p, int32(first+i))
	}
	return p
}

// serve runs a request alone to its end, with all copies between the tiers.
func serve(s *Scheduler, q *Sequence) {
	_ = s.Add(q)
	for tokens := map[*Sequence]int{}; q.state != gone; copyAll(s) {
		if b := s.Next(); b != nil {
			finish(s, b, tokens)
		}
	}
}

// copyAll makes all copies between the tiers that are due.
func copyAll(s *Scheduler) {
	for list := s.Transfers(9); len(list) > 0; list = s.Transfers(9) {
		for _, c := range list {
			s.FinishTransfer(c)
		}
	}
}

// A prompt finds all full pages of a text that was reread, which took the pages that were missing alone.
func TestRereadLeavesPagesForTheNextPrompt(t *testing.T) {
	o := small()
	o.Chunk, o.Context, o.Pages = 100, 400, 200
	s := mustNew(t, o)
	text := numbered(0, 205)
	serve(s, &Sequence{Prompt: text[:30], MaxTokens: 3, Scope: "a"})
	steps := rereadAll(t, s, &Sequence{Prompt: text, Scope: "a"})
	if !slices.Equal(steps, []int{64, 64, 48}) { // of 204 tokens 28 were there
		t.Errorf("steps of %v tokens", steps)
	}
	next := &Sequence{Prompt: append(text, 1000), MaxTokens: 1, Scope: "a"}
	if serve(s, next); next.Cached() != 204 {
		t.Errorf("the next prompt found %d tokens, wants 204", next.Cached())
	}
	if s.FreePages() != s.Pages || len(s.freeSlots) != s.MaxBatch {
		t.Errorf("%d pages and %d slots are free", s.FreePages(), len(s.freeSlots))
	}
}

// The next prompt goes on within the last page of a text that was reread, up to where it differs, or up to its last
// token. A second prompt does not, and none that may leave no pages.
func TestRereadLeavesAPartialPage(t *testing.T) {
	o := small()
	o.Chunk, o.Context, o.Pages = 100, 400, 200
	text := numbered(0, 30) // 7 pages and 2 tokens
	for name, c := range map[string]struct {
		prompt   []int32
		readOnly bool
		want     int
	}{
		"goes on":             {append(slices.Clone(text), 1000, 1001), false, 30},
		"differs in the part": {append(slices.Clone(text[:29]), 1000, 1001), false, 29},
		"differs before it":   {append(slices.Clone(text[:28]), 1000, 1001), false, 28},
		"ends with the text":  {text, false, 29},
		"ends before it":      {text[:29], false, 28},
		"only reads":          {append(slices.Clone(text), 1000, 1001), true, 28},
	} {
		s := mustNew(t, o)
		again := &Sequence{Prompt: append(slices.Clone(text), 0), Scope: "a"}
		if steps := rereadAll(t, s, again); !slices.Equal(steps, []int{30}) {
			t.Errorf("steps of %v tokens", steps)
		}
		for i, want := range []int{c.want, 28} {
			next := &Sequence{Prompt: c.prompt, MaxTokens: 1, Scope: "a", ReadOnly: c.readOnly}
			if serve(s, next); next.Cached() != want {
				t.Errorf("%s: prompt %d found %d tokens, wants %d", name, i, next.Cached(), want)
			}
		}
		if s.FreePages() != s.Pages {
			t.Errorf("%s: %d pages are free", name, s.FreePages())
		}
	}
}

// No step rereads while a sequence waits, runs or leaves, while another such step is in flight, or in the last slot.
func TestRereadWaitsForEverybody(t *testing.T) {
	text := &Sequence{Prompt: numbered(0, 41), Scope: "a"}
	request := func() *Sequence { return &Sequence{Prompt: prompt(4), MaxTokens: 2} }
	for name, c := range map[string]struct {
		slots int
		begin func(*Scheduler)
		may   bool
	}{
		"idle":      {2, func(*Scheduler) {}, true},
		"last slot": {1, func(*Scheduler) {}, false},
		"waiting":   {2, func(s *Scheduler) { _ = s.Add(request()) }, false},
		"running":   {2, func(s *Scheduler) { _ = s.Add(request()); s.Complete(s.Next().Step.Number) }, false},
		"leaving":   {3, func(s *Scheduler) { q := request(); _ = s.Add(q); s.Next(); s.Remove(q) }, false},
		"in flight": {3, func(s *Scheduler) { s.Reread(text) }, false},
		"completed": {2, func(s *Scheduler) { s.Complete(s.Reread(text).Step.Number) }, true},
	} {
		o := small()
		o.MaxBatch = c.slots
		s := mustNew(t, o)
		if c.begin(s); s.MayReread() != c.may {
			t.Errorf("%s: may reread %v, wants %v", name, s.MayReread(), c.may)
		}
	}
}

// A request that comes during a step that rereads is in the very next step, although both need most of the pages. No
// request joins during the step, so none holds a page together with it.
func TestRequestIsServedAfterOneStepOfRereading(t *testing.T) {
	for _, n := range []int{1, 60} {
		o := small()
		o.Pages, o.Chunk = 16, 64
		s := mustNew(t, o)
		b := s.Reread(&Sequence{Prompt: numbered(0, 61), Scope: "a"})
		q := &Sequence{Prompt: numbered(100, n), MaxTokens: 4, User: User{UID: 1}}
		_ = s.Add(q)
		if s.Next() != nil || q.Running() {
			t.Errorf("a request of %d tokens joined during the step", n)
		}
		s.Complete(b.Step.Number)
		if b := s.Next(); b == nil || len(s.Joined()) != 1 || !q.Running() {
			t.Errorf("a request of %d tokens is not in the next step", n)
		}
	}
}

// Rereading takes free pages and the user's own cached ones. Another user's stay.
func TestRereadTakesNoPageOfOthers(t *testing.T) {
	o := small()
	o.Pages = 16
	s := mustNew(t, o)
	serve(s, &Sequence{Prompt: numbered(0, 40), MaxTokens: 1, User: User{UID: 1}, Scope: "1"})
	text := &Sequence{Prompt: numbered(100, 61), User: User{UID: 2}, Scope: "2"}
	if steps := rereadAll(t, s, text); !slices.Equal(steps, []int{16, 8}) { // Chunk is 16
		t.Errorf("steps of %v tokens, wants the 6 pages that were free", steps)
	}
	if again := rereadAll(t, s, text); again != nil {
		t.Errorf("steps of %v tokens, though no page is free", again)
	}
	q := &Sequence{Prompt: numbered(0, 41), MaxTokens: 1, User: User{UID: 1}, Scope: "1"}
	if serve(s, q); q.Cached() != 40 {
		t.Errorf("another user's prompt found %d tokens, wants 40", q.Cached())
	}
}

// A text with pages that the host tier alone has is not reread: the next prompt loads them, and a step would read
// pages that are not there.
func TestRereadLeavesPagesInTheHostTier(t *testing.T) {
	o := small()
	o.Pages = 16
	s := mustNew(t, o)
	s.AddPlaces(32)
	text := &Sequence{Prompt: numbered(0, 33), Scope: "a"}
	serve(s, &Sequence{Prompt: text.Prompt[:20], MaxTokens: 1, Scope: "a"})
	serve(s, &Sequence{Prompt: numbered(100, 60), MaxTokens: 1, Scope: "a"}) // takes the device's pages
	if b := s.Reread(text); b != nil {
		t.Fatalf("a step rereads from the pages %v", text.pages)
	}
	if text.found == nil {
		t.Error("no page is in the host tier")
	}
}

// Under any load, with steps that reread in every pause, a further user finds its slot and its pages at the next
// step that serves requests, the sums and the invariant hold, and no share counts rereading.
func TestRereadLeavesTheReserve(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 7))
	reread := 0
	for range 60 {
		o, claim := randomReserve(r)
		l := &load{t: t, r: r, s: mustNew(t, o), claim: claim, tokens: map[*Sequence]int{}}
		for range 300 {
			if r.IntN(4) == 0 {
				l.pause()
			}
			if l.s.MayReread() && l.reread() {
				reread++
			}
			l.step()
		}
		if l.missed > 0 {
			t.Errorf("%+v: %d further users found no slot or no pages", o, l.missed)
		}
		l.pause()
		l.back()
	}
	if reread == 0 {
		t.Error("nothing was reread")
	}
}

// pause removes all sequences and completes all steps.
func (l *load) pause() {
	sequences(l.s, l.s.Remove)
	l.inFlight = nil
	l.s.Complete(l.s.number - 1)
}

// reread forms a step that rereads a random text. It reports whether there is one.
func (l *load) reread() bool {
	b := l.s.Reread(&Sequence{Prompt: prompt(1 + l.r.IntN(39)), User: User{UID: uint32(l.r.IntN(3))},
		Scope: string(rune('a' + l.r.IntN(3)))})
	if b == nil {
		return false
	}
	l.inFlight = append(l.inFlight, stepInFlight{number: b.Step.Number})
	if l.s.root.slots+l.s.root.running+l.s.withinShares+l.s.slotUsers != 0 {
		l.t.Fatal("a share counts rereading")
	}
	return true
}

// BenchmarkReread measures the scheduler's time for a step that rereads after 100,000 tokens.
func BenchmarkReread(b *testing.B) {
	s, err := New(Options{MaxBatch: 4, MaxQueue: 4, Chunk: 512, Context: 1 << 20, PageTokens: 16, Pages: 1 << 17,
		InFlight: 2})
	if err != nil {
		b.Fatal(err)
	}
	q := &Sequence{Prompt: numbered(0, 1<<20), Scope: "a"}
	for len(q.found) < 100_000/16 {
		s.Complete(s.Reread(q).Step.Number)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Complete(s.Reread(q).Step.Number)
	}
}

// A drop of all users' pages leaves no partial page, although its user left no other page and the page before it is
// held.
func TestDropAllForgetsPartialPages(t *testing.T) {
	o := small()
	o.Chunk, o.Context, o.Pages = 100, 400, 200
	s := mustNew(t, o)
	serve(s, &Sequence{Prompt: numbered(0, 29), MaxTokens: 1, Scope: "all", User: User{UID: 1}}) // 7 pages and a token
	rereadAll(t, s, &Sequence{Prompt: append(numbered(0, 30), 0), Scope: "all", User: User{UID: 2}})
	holder := &Sequence{Prompt: append(numbered(0, 28), 1000), MaxTokens: 10, Scope: "all", User: User{UID: 1}}
	if err := s.Add(holder); err != nil {
		t.Fatal(err)
	}
	s.Complete(s.Next().Step.Number)
	s.DropAll()
	next := &Sequence{Prompt: append(numbered(0, 30), 1000), MaxTokens: 1, Scope: "all", User: User{UID: 3}}
	if serve(s, next); next.Cached() != 28 {
		t.Errorf("a prompt found %d tokens after the drop, wants the 28 that a sequence holds", next.Cached())
	}
}
