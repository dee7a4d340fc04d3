package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
)

// reserve is a test's claim: further users, up to this number of slots, find a slot and this number of pages each.
type reserve struct{ slots, pages int }

// randomReserve returns random options and the claim that their reserve makes.
func randomReserve(r *rand.Rand) (Options, reserve) {
	o := Options{MaxBatch: 1 + r.IntN(8), Reserve: 1 + r.IntN(4), MaxQueue: 300, Chunk: 1 + r.IntN(20), Context: 40,
		PageTokens: 1 + r.IntN(8), InFlight: 1 + r.IntN(3)}
	longest := pagesFor(o.Context, o.PageTokens)
	o.ReservePages = r.IntN(longest + 1)
	o.Pages = longest + o.Reserve*o.ReservePages + r.IntN(4*longest)
	return o, reserve{o.Reserve, o.ReservePages}
}

// load adds random requests to a scheduler and ends them, with steps in flight.
type load struct {
	t        *testing.T
	r        *rand.Rand
	s        *Scheduler
	claim    reserve
	tokens   map[*Sequence]int
	inFlight []stepInFlight
	missed   int // requests of further users for which the claim did not hold
}

// step adds some requests, forms a step, and ends sequences that have all their tokens. Users come and go; their
// number may be up to twice that of the claim.
func (l *load) step() {
	r, s := l.r, l.s
	for range r.IntN(4) {
		user := uint32(r.IntN((l.claim.slots + 1) * (1 + r.IntN(2))))
		if r.IntN(3) > 0 {
			user = 0 // has most of the requests
		}
		_ = s.Add(&Sequence{Prompt: prompt(1 + r.IntN(39)), MaxTokens: 1 + r.IntN(39),
			User: User{user, []string{"", "a", "b"}[r.IntN(3)]}, Connection: uint64(r.IntN(3))})
	}
	due := l.due()
	if s.rereading != nil {
		due = nil // they wait for one step
	}
	if b := s.Next(); b != nil {
		l.inFlight = append(l.inFlight, stepInFlight{b.Step.Number, slices.Clone(b.Sampled)})
	}
	for _, q := range due {
		if !q.Running() {
			l.missed++
		}
	}
	l.whole()
	if len(l.inFlight) > 0 && (len(l.inFlight) == s.InFlight || r.IntN(2) == 0) {
		f := l.inFlight[0]
		l.inFlight = l.inFlight[1:]
		finish(s, &Batch{Step: kernels.Step{Number: f.number}, Sampled: f.sampled}, l.tokens)
	}
	sequences(s, func(q *Sequence) {
		if r.IntN(60) == 0 {
			s.Remove(q)
		}
	})
}

// due returns the requests that have to join at the next step by the claim.
func (l *load) due() (due []*Sequence) {
	if len(l.s.root.children) > l.claim.slots+1 {
		return nil
	}
	for _, user := range l.s.root.children {
		if user.queued == 0 || user.slots > 0 {
			continue
		}
		if q := user.first(); l.s.need(q) <= l.claim.pages {
			due = append(due, q)
		}
	}
	return due
}

// whole compares the scheduler's sums with the slots and pages that its sequences hold, and checks the invariant.
func (l *load) whole() {
	s, pages, slots := l.s, map[uint32]int{}, map[uint32]int{}
	for _, q := range slices.Concat(s.running, s.leaving) {
		pages[q.User.UID] += len(q.pages)
		slots[q.User.UID]++
	}
	free, all, within := s.Pages, 0, 0
	for user, n := range pages {
		free, all, within = free-n, all+slots[user], within+min(n, s.ReservePages)
	}
	if s.rereading != nil {
		free -= len(s.rereading.pages)
	}
	if free != s.FreePages() || within != s.withinShares || len(slots) != s.slotUsers || all != s.root.slots {
		l.t.Fatalf("pages free and within shares, users with slots, slots: %d %d %d %d; counted %d %d %d %d",
			free, within, len(slots), all, s.FreePages(), s.withinShares, s.slotUsers, s.root.slots)
	}
	most := s.MaxBatch + min(s.Reserve, max(0, len(slots)-1))
	if s.rereading == nil && free+within < (s.Reserve+1)*s.ReservePages || all > most {
		l.t.Fatalf("%+v: %d pages free, %d within shares, %d users in %d slots",
			s.Options, free, within, len(slots), all)
	}
}

// back checks that all pages, slots and shares are free.
func (l *load) back() {
	s, root := l.s, l.s.root
	left := len(root.children) + root.queued + root.running
	if s.FreePages() != s.Pages || len(s.freeSlots) != s.MaxBatch+s.Reserve || left != 0 {
		l.t.Fatalf("%d of %d pages and %d of %d slots came back, %d users still have a share",
			s.FreePages(), s.Pages, len(s.freeSlots), s.MaxBatch+s.Reserve, len(root.children))
	}
}

// A further user finds a slot and pages at the very next step, under any load of others. Without a reserve, with
// the same number of slots and pages, it does not.
func TestReserveHoldsForFurtherUsers(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 4))
	for _, guarded := range []bool{true, false} {
		missed := 0
		for range 60 {
			o, claim := randomReserve(r)
			if !guarded {
				o.MaxBatch, o.Reserve, o.ReservePages = o.MaxBatch+o.Reserve, 0, 0
			}
			l := &load{t: t, r: r, s: mustNew(t, o), claim: claim, tokens: map[*Sequence]int{}}
			for range 300 {
				l.step()
			}
			missed += l.missed
			sequences(l.s, l.s.Remove)
			l.s.Complete(l.s.number)
			l.back()
		}
		if (missed == 0) != guarded {
			t.Errorf("reserve %v: %d further users found no slot or no pages", guarded, missed)
		}
	}
}

// One user may take every slot of the batch and every page except the reserve's, but no more.
func TestOneUserTakesAllButTheReserve(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 5))
	for range 50 {
		o, _ := randomReserve(r)
		s := mustNew(t, o)
		for range o.MaxBatch + 1 {
			_ = s.Add(&Sequence{Prompt: prompt(1), MaxTokens: 1})
		}
		s.admit()
		if most := min(o.MaxBatch, o.Pages-o.Reserve*o.ReservePages); s.Running() != most {
			t.Errorf("%+v: one user has %d slots, wants %d", o, s.Running(), most)
		}
		o.MaxBatch = o.Pages
		s = mustNew(t, o)
		for range o.Pages {
			_ = s.Add(&Sequence{Prompt: prompt(1), MaxTokens: 1})
		}
		s.admit()
		if s.FreePages() != o.Reserve*o.ReservePages {
			t.Errorf("%+v: one user leaves %d pages", o, s.FreePages())
		}
	}
}

// A request that waits for pages blocks all requests behind it, except a further user's that fits the reserve.
func TestRequestThatWaitsForPagesBlocksNoFurtherUser(t *testing.T) {
	for name, c := range map[string]struct {
		behind []*Sequence
		joins  int // number of behind that join before the large one
	}{
		"a further user's":        {[]*Sequence{{Prompt: prompt(16), User: User{UID: 3}}}, 1},
		"past the share":          {[]*Sequence{{Prompt: prompt(20), User: User{UID: 3}}}, 0},
		"a user's that runs":      {[]*Sequence{{Prompt: prompt(4), User: User{UID: 1}}}, 0},
		"the same user's":         {[]*Sequence{{Prompt: prompt(4), User: User{UID: 2}, Connection: 1}}, 0},
		"one more further user's": {[]*Sequence{{Prompt: prompt(4), User: User{UID: 3}}, {Prompt: prompt(4), User: User{UID: 4}}}, 1},
	} {
		s := mustNew(t, Options{MaxBatch: 8, Reserve: 2, MaxQueue: 9, Chunk: 64, Context: 64, PageTokens: 4, Pages: 24,
			ReservePages: 4, InFlight: 1})
		hog := &Sequence{Prompt: prompt(48), MaxTokens: 1, User: User{UID: 1}} // takes 12 of 16 pages
		large := &Sequence{Prompt: prompt(40), MaxTokens: 1, User: User{UID: 2}}
		for _, q := range append([]*Sequence{hog, large}, c.behind...) {
			q.MaxTokens = 1
			_ = s.Add(q)
		}
		b := s.Next()
		if large.Running() || s.Running() != 1+c.joins {
			t.Errorf("%s: %d run, the large one %v, wants %d without it", name, s.Running(), large.Running(), 1+c.joins)
		}
		s.Remove(hog)
		s.Complete(b.Step.Number)
		if s.Next(); s.root.queued != 0 {
			t.Errorf("%s: %d still wait when pages are free", name, s.root.queued)
		}
	}
}

// The longest request joins after a while, although small requests that fit the reserve never stop coming.
func TestNoRequestStarves(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 6))
	for range 40 {
		o, claim := randomReserve(r)
		s := mustNew(t, o)
		small := func() {
			_ = s.Add(&Sequence{Prompt: prompt(1 + r.IntN(8)), MaxTokens: 1 + r.IntN(8),
				User: User{UID: uint32(r.IntN(2*claim.slots + 2))}, Connection: uint64(r.IntN(3))})
		}
		for range 20 {
			small()
		}
		large := &Sequence{Prompt: prompt(39), MaxTokens: 1, User: User{UID: uint32(r.IntN(3))}, Connection: uint64(r.IntN(4))}
		_ = s.Add(large)
		tokens, steps := map[*Sequence]int{}, 0
		for ; !large.Running(); steps++ {
			if steps > 5000 {
				t.Fatalf("%+v: the longest request still waits after %d steps", o, steps)
			}
			for s.root.queued < 20 {
				small()
			}
			for _, q := range finish(s, s.Next(), tokens) {
				delete(tokens, q)
			}
		}
	}
}

// A move takes no page of the reserve.
func TestMovesLeaveTheReserve(t *testing.T) {
	o := small()
	o.Reserve, o.ReservePages, o.Pages = 1, 4, 20
	s := mustNew(t, o)
	q := &Sequence{Prompt: prompt(60), MaxTokens: 4}
	_ = s.Add(q)
	for q.published == 0 {
		s.Complete(s.Next().Step.Number)
	}
	if _, ok := s.Relocate(q, 0); ok || s.FreePages() != 4 {
		t.Errorf("a page moved to a page of the reserve: %d pages are free", s.FreePages())
	}
}

// A prefill step samples at most MaxBatch rows, even if more prompts could end in it.
func TestPrefillSamplesNoMoreThanTheBatch(t *testing.T) {
	o := small()
	o.MaxBatch, o.Reserve = 2, 3
	s := mustNew(t, o)
	for user := range uint32(5) {
		_ = s.Add(&Sequence{Prompt: prompt(1), MaxTokens: 9, User: User{UID: user}})
	}
	b, joined := s.Next(), len(s.Joined())
	if joined != 5 || len(b.Sampled) != 2 {
		t.Errorf("%d joined, %d are sampled, wants 5 and 2", joined, len(b.Sampled))
	}
}

// A prompt does not go on from a page of another user if the reserve would not be whole then: it computes the page.
func TestASharedPageLeavesTheReserveWhole(t *testing.T) {
	for _, spare := range []int{0, 1} {
		o := small()
		o.Reserve, o.ReservePages, o.Pages = 1, 4, 20+spare
		s := mustNew(t, o)
		_ = s.Add(&Sequence{Prompt: prompt(1), MaxTokens: 63})
		finish(s, s.Next(), map[*Sequence]int{})
		for user := range uint32(2) {
			_ = s.Add(&Sequence{Prompt: numbered(0, 5), MaxTokens: 4, User: User{UID: 1 + user}, Scope: "all"})
		}
		tokens := map[*Sequence]int{}
		for s.root.queued+len(s.running) > 1 {
			finish(s, s.Next(), tokens)
			if whole := s.pages.Free() + s.withinShares; whole < (o.Reserve+1)*o.ReservePages {
				t.Fatalf("%d spare: the sum of free pages and shares is %d", spare, whole)
			}
		}
		found := 0
		for q := range tokens {
			found += q.Cached()
		}
		if found != spare*o.PageTokens {
			t.Errorf("%d spare: %d tokens were found", spare, found)
		}
	}
}
