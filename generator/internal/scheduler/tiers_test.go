package scheduler

import (
	"math/rand/v2"
	"testing"

	"reel.internal/reel/generator/internal/kv"
)

// tiersLoad drives a scheduler with a host tier as an engine does, with steps and copies that take random times.
type tiersLoad struct {
	t       *testing.T
	r       *rand.Rand
	s       *Scheduler
	flying  []stepInFlight
	copies  []Transfer
	all     []*Sequence
	sampled map[*Sequence]int
	reads   []readUnderWay // oldest first
	writing *kv.Node
	idle    int // rounds without progress
}

// readUnderWay reads pages for a sequence that is added then.
type readUnderWay struct {
	q      *Sequence
	from   int
	places []int32
}

// add reads pages of q's prompt first, if it can.
func (l *tiersLoad) add(q *Sequence) {
	if from := l.s.Found(q); q.Scope != "" && l.r.IntN(2) == 0 {
		if places := l.s.BeginRead(q, min(3, (len(q.Prompt)-1)/l.s.PageTokens-from)); len(places) > 0 {
			l.reads = append(l.reads, readUnderWay{q, from, places})
			return
		}
	}
	_ = l.s.Add(q)
}

// files goes on with reads and writes. It reports whether one ended.
func (l *tiersLoad) files() (ended bool) {
	if l.writing != nil && l.r.IntN(3) == 0 {
		l.writing.SetFile([32]byte{1})
		l.s.EndWrite(l.writing)
		l.writing, ended = nil, true
	}
	if l.writing == nil {
		l.writing = l.s.BeginWrite()
	}
	if len(l.reads) > 0 && l.r.IntN(6) == 0 {
		read := l.reads[0]
		l.reads, ended = l.reads[1:], true
		l.s.FinishRead(read.q, read.from, read.places, make([][32]byte, l.r.IntN(len(read.places)+1)))
		l.add(read.q)
	}
	return ended
}

// round forms, completes and copies at random.
func (l *tiersLoad) round() {
	moved := l.files()
	if len(l.flying) < l.s.InFlight {
		if b := l.s.Next(); b != nil {
			l.flying = append(l.flying, stepInFlight{b.Step.Number, append([]*Sequence(nil), b.Sampled...)})
			moved = true
		}
		l.s.Joined()
	}
	begun := l.s.Transfers(1 + l.r.IntN(4))
	l.copies, moved = append(l.copies, begun...), moved || len(begun) > 0
	if len(l.copies) > 0 && (l.r.IntN(3) == 0 || len(l.flying) == 0) {
		l.s.FinishTransfer(l.copies[0])
		l.copies, moved = l.copies[1:], true
	}
	if len(l.flying) > 0 && l.r.IntN(2) == 0 {
		l.complete()
		moved = true
	}
	if l.idle++; moved || len(l.flying)+len(l.reads) > 0 || l.writing != nil {
		l.idle = 0
	}
}

// complete ends the oldest step: it delivers tokens, and removes sequences that have all of theirs.
func (l *tiersLoad) complete() {
	step := l.flying[0]
	l.flying = l.flying[1:]
	for _, q := range step.sampled {
		if !q.Running() {
			continue
		}
		if q.Promised() {
			q.Sampled = append(q.Sampled, int32(l.sampled[q]))
		}
		if l.sampled[q]++; l.sampled[q] == q.MaxTokens {
			l.s.Remove(q)
		}
	}
	l.s.Complete(step.number)
}

// whole checks the accounts of pages and places.
func (l *tiersLoad) whole() {
	s := l.s
	within, free := 0, s.pages.Free()
	for _, user := range s.root.children {
		within += min(user.pages, s.ReservePages)
	}
	if within != s.withinShares || free+within < (s.Reserve+1)*s.ReservePages {
		l.t.Fatalf("%+v: %d pages free, %d within shares, counted %d", s.Options, free, within, s.withinShares)
	}
	away := 0
	for _, user := range s.root.children {
		away += user.away
	}
	if away != len(s.moving)+len(s.out) {
		l.t.Fatalf("%d sequences of users are away: %d on their way, %d out", away, len(s.moving), len(s.out))
	}
	for _, q := range l.all {
		if remembered := q.counted; q.state == waiting && q.share != nil && remembered.version == s.pages.Version() {
			if q.counted = (counted{}); s.countFound(q) != remembered {
				l.t.Fatalf("%+v: remembered %+v, now %+v", q, remembered, q.counted)
			}
		}
	}
	for _, q := range s.running {
		if q.Promised() && len(q.Sampled) > q.sampled || q.length > 0 && q.moving == 0 && len(q.pages)*s.PageTokens < q.length {
			l.t.Fatalf("%+v", q)
		}
	}
}

func (l *tiersLoad) dump() {
	s := l.s
	l.t.Logf("%+v\nfree %d ready %d wanted %d low %d within %d slots %d, kv %+v", s.Options, s.pages.Free(), s.pages.Ready(), s.wanted,
		s.lowWater(), s.withinShares, len(s.freeSlots), s.pages.Stats())
	for name, list := range map[string][]*Sequence{"running": s.running, "moving": s.moving, "out": s.out, "leaving": s.leaving} {
		for _, q := range list {
			l.t.Logf("%s: user %v state %d prompt %d most %d sampled %d length %d pages %d places %d moving %d starved %v promised %d restore %v",
				name, q.User, q.state, len(q.Prompt), q.MaxTokens, q.sampled, q.length, len(q.pages), len(q.places), q.moving,
				q.starved, q.promised, q.restore)
		}
	}
	l.t.Logf("queued %d", s.root.queued)
}

// newTiersLoad returns a random scheduler without sequences.
func newTiersLoad(t *testing.T, seed uint64) *tiersLoad {
	r := rand.New(rand.NewPCG(seed, 6))
	o := Options{MaxBatch: 1 + r.IntN(6), MaxQueue: 100, Chunk: 1 + r.IntN(12), Context: 40, PageTokens: 1 + r.IntN(6),
		Reserve: r.IntN(3), ReservePages: r.IntN(4), InFlight: 1 + r.IntN(2)}
	o.Pages = pagesFor(40, o.PageTokens) + o.Reserve*o.ReservePages + r.IntN(12)
	l := &tiersLoad{t: t, r: r, s: mustNew(t, o), sampled: map[*Sequence]int{}}
	l.s.AddPlaces(r.IntN(100))
	l.s.WriteFiles(r.IntN(2) == 0)
	return l
}

// addOf adds a random sequence of a user, of at most this many prompt tokens and as many others.
func (l *tiersLoad) addOf(user uint32, most int) {
	p := make([]int32, 1+l.r.IntN(most))
	for i := range p {
		p[i] = int32(l.r.IntN(2))
	}
	q := &Sequence{Prompt: p, MaxTokens: 1 + l.r.IntN(most), User: User{user, []string{"", "a"}[l.r.IntN(2)]},
		Scope: []string{"", "a"}[l.r.IntN(2)]}
	l.all = append(l.all, q)
	l.add(q)
}

// With a host tier of any size, every sequence ends, whatever joins, moves and is cancelled.
func TestEverySequenceEnds(t *testing.T) {
	var out, stored, loaded uint64
	for range 1000 {
		seed := rand.Uint64()
		l := newTiersLoad(t, seed)
		r, o := l.r, l.s.Options
		for range 16 {
			l.addOf(uint32(r.IntN(3)), 30)
			for range r.IntN(6) {
				l.round()
			}
		}
		for l.s.Running()+l.s.root.queued+len(l.s.leaving)+len(l.reads) > 0 || l.writing != nil {
			l.round()
			l.whole()
			if r.IntN(200) == 0 {
				l.s.Remove(l.all[r.IntN(len(l.all))])
			}
			if l.idle > 3 {
				l.dump()
				t.Fatalf("nothing goes on, seed %d", seed)
			}
		}
		st, o2, _ := l.s.Cache()
		out, stored, loaded = out+o2, stored+st.Stored, loaded+st.Loaded
		if l.s.pages.Free() != o.Pages || st.HostSequence != 0 || !l.s.pages.MayReserve(st.HostPages) {
			t.Fatalf("%d of %d pages free, %+v", l.s.pages.Free(), o.Pages, st)
		}
	}
	if t.Logf("%d moved out, %d stored, %d loaded", out, stored, loaded); min(out, stored, loaded) == 0 {
		t.Error("some event that this test needs never happened")
	}
}

// A request that needs one page more than are ready has few pages stored, not all that are cached.
func TestOnlyWantedPagesAreStored(t *testing.T) {
	o := small()
	o.Pages, o.Context = 160, 400
	s := mustNew(t, o)
	s.AddPlaces(400)
	serve(s, &Sequence{Prompt: numbered(0, 390), MaxTokens: 1, Scope: "a"})
	cached := s.pages.Stats().Cached
	q := &Sequence{Prompt: numbered(1000, 4*(160-cached)), MaxTokens: 2, Scope: "a"}
	_ = s.Add(q)
	for i := 0; !q.HasJoined() && i < 100; i++ {
		s.Next()
		for _, transfer := range s.Transfers(1000) {
			s.FinishTransfer(transfer)
		}
	}
	if stored := s.pages.Stats().Stored; !q.HasJoined() || stored == 0 || stored > uint64(s.lowWater()+stretch) {
		t.Errorf("joined %v, %d pages of %d stored, %d are to be ready", q.HasJoined(), stored, cached, s.lowWater())
	}
}

// While further requests come all the time, large ones of one user and small ones of two others, whoever moved out
// comes back in bounded time.
func TestNobodyStaysOut(t *testing.T) {
	passed, came := 0, uint64(0)
	for range 60 {
		seed := rand.Uint64()
		l := newTiersLoad(t, seed)
		var first *Sequence
		for since, round := 0, 0; round < 6000; round++ {
			if l.s.root.queued+len(l.reads) < 6 {
				user := uint32(l.r.IntN(3))
				l.addOf(user, []int{30, 3, 3}[user])
			}
			l.round()
			if l.whole(); len(l.s.out) == 0 || l.s.out[0] != first {
				since = round
				if first = nil; len(l.s.out) > 0 {
					first = l.s.out[0]
				}
			}
			if first != nil {
				passed = max(passed, first.passed)
			}
			if round-since > 3000 {
				l.dump()
				t.Fatalf("a sequence stays out, and %d joined meanwhile, seed %d", first.passed, seed)
			}
		}
		_, _, in := l.s.Cache()
		came += in
	}
	if t.Logf("%d came back, up to %d joined before one", came, passed); came == 0 || passed == 0 {
		t.Error("some event that this test needs never happened")
	}
}

// While a user's sequence is out, others who run less join before it comes back. But they cannot keep it out, even if
// one of them runs at any time.
func TestOthersJoinWhileASequenceIsOut(t *testing.T) {
	o := small()
	o.Pages = 16
	s := mustNew(t, o)
	s.AddPlaces(100)
	large := &Sequence{Prompt: prompt(30), MaxTokens: 30}
	_ = s.Add(large)
	others, tokens, passed := [2]*Sequence{}, map[*Sequence]int{}, 0
	for step := 0; large.state != gone && step < 1000; step++ {
		for i, q := range others { // one of each other user waits at any time
			if q == nil || q.state != waiting {
				most := 8
				if q == nil && i == 0 {
					most = 4 // so that the two never end at once
				}
				others[i] = &Sequence{Prompt: prompt(1), MaxTokens: most, User: User{UID: uint32(1 + i)}}
				_ = s.Add(others[i])
			}
		}
		if b := s.Next(); b != nil {
			finish(s, b, tokens)
		}
		passed = max(passed, large.passed)
		copyAll(s)
	}
	if large.state != gone || passed != s.MaxBatch {
		t.Errorf("the sequence is in state %d, and %d joined while it was out, wants %d", large.state, passed,
			s.MaxBatch)
	}
}
