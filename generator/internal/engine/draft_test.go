package engine

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// randomDrafts sets a random drafter, and numbers of drafts that are random or the policy's.
func randomDrafts(r *rand.Rand, o *Options) {
	o.Draft, o.DraftTokens = DraftKind(r.IntN(4)), r.IntN(1+MaxDrafts)
	o.planDrafts = nil // an earlier one may give more than so many
	if r.IntN(4) > 0 {
		o.planDrafts = randomPlan(r.Uint64(), o.DraftTokens)
	}
}

// randomPlan gives each sequence a random number of drafts that it may have, at most so many.
func randomPlan(seed uint64, most int) func([]*scheduler.Sequence) {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(ready []*scheduler.Sequence) {
		for _, q := range ready {
			q.Drafts = r.IntN(1 + min(q.MayDraft, most, q.Owner.(*sequence).request.DraftTokens))
		}
	}
}

// drafted returns request i with a random number of drafts, and a prediction of which all, some or little is right.
func (a *asked) drafted(r *rand.Rand, i int) Request {
	q := a.requests[i]
	q.DraftTokens, q.Prediction = r.IntN(1+MaxDrafts), predicted(r, a.alone[i], a.config.Vocab)
	return q
}

// What is guessed ahead changes no token: with any drafter, number of drafts, acceptance, neighbours, graph and
// schedule each request gives the tokens and log-probabilities that it gives alone without drafts.
func TestDraftsChangeNoToken(t *testing.T) {
	r := seeded(t)
	a := ask(t, r, 24, 14, 30)
	var all drafting
	var verified [3]atomic.Uint64 // the roller's captures count too
	unverified := func() bool {
		return verified[0].Load() == 0 || verified[1].Load() == 0 || verified[2].Load() == 0
	}
	// The bounds are random: in one run of 150 the first rounds have none that let three sequences be verified.
	for n := 0; n < schedules()/8 || n < schedules() && unverified(); n++ {
		o, host := randomBounds(r)
		if randomDrafts(r, &o); o.Draft == DraftOff {
			continue
		}
		drafters := draftersOf(nanoConfig())
		b, err := tryBuildPair(t, nanoConfig(), drafters[r.IntN(len(drafters))], host, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.h.Trace(func(c device.Call) {
			if op, ok := c.Op.(kernels.Accept); ok && op.Queries > 1 {
				verified[min(op.T/op.Queries, 3)-1].Add(1) // by number of sequences
			}
		})
		b.run()
		d := a.together(t, r, b)
		all.drafted, all.accepted = all.drafted+d.drafted, all.accepted+d.accepted
		if err := b.finish(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("with %+v", o)
		}
	}
	if all.accepted == 0 || all.accepted == all.drafted {
		t.Errorf("%+v", all)
	}
	for i := range verified {
		if verified[i].Load() == 0 {
			t.Errorf("no verify pass of %d sequences", i+1)
		}
	}
}

// together runs some of the requests, with drafts, and checks them. It returns what became of the drafts.
func (a *asked) together(t *testing.T, r *rand.Rand, b *testEngine) (d drafting) {
	t.Helper()
	type running struct {
		*sink
		index     int
		cancelled bool
	}
	var all []running
	for range 2 + r.IntN(8) {
		i := r.IntN(len(a.requests))
		q := a.drafted(r, i)
		q.User, q.Connection = User{UID: uint32(r.IntN(4))}, uint64(r.IntN(3))
		s, h := b.submit(q)
		all = append(all, running{s, i, r.IntN(8) == 0})
		for range r.IntN(3) {
			b.Relocate(h-Handle(r.IntN(int(h))), r.IntN(3))
		}
		if all[len(all)-1].cancelled {
			b.Cancel(h)
		}
	}
	for _, q := range all {
		a.check(t, q.index, q.must(t), !q.cancelled)
		d.drafted, d.accepted = d.drafted+q.finish.Usage.DraftedTokens, d.accepted+q.finish.Usage.AcceptedTokens
	}
	return d
}

// Drafts that are always right all stand: a request of n tokens takes as many steps as they leave.
func TestRightDraftsStand(t *testing.T) {
	r := seeded(t)
	a := ask(t, r, 1, 8, 40)
	o := nano()
	o.Draft, o.DraftTokens = DraftGiven, 3
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	q := a.requests[0]
	q.DraftTokens = 3
	for _, token := range a.alone[0] {
		q.Prediction = append(q.Prediction, token.ID)
	}
	s := b.complete(q)
	a.check(t, 0, s, true)
	// The end of a request has fewer drafts: two steps are in flight, and no row is past its last token.
	if u := s.finish.Usage; u.AcceptedTokens != u.DraftedTokens || 4*u.AcceptedTokens < 2*len(s.tokens) {
		t.Errorf("of %d tokens %d were drafted, %d accepted", len(s.tokens), u.DraftedTokens, u.AcceptedTokens)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// A generator with a drafter makes no draft for requests that want none, and one without has no verify pass.
func TestNoDraftsUnlessAsked(t *testing.T) {
	r := seeded(t)
	a := ask(t, r, 4, 8, 20)
	for _, c := range []struct {
		kind   DraftKind
		tokens int
	}{{DraftLookup, 0}, {DraftOff, 7}} {
		o := nano()
		o.Draft, o.DraftTokens = c.kind, 7
		b := built(t, device.HostOptions{}, o, nil)
		b.h.Trace(func(c device.Call) {
			if _, ok := c.Op.(kernels.Accept); ok {
				t.Error("a verify pass ran")
			}
		})
		b.run()
		for i := range a.requests {
			q := a.requests[i]
			q.DraftTokens = c.tokens
			s := b.complete(q)
			if a.check(t, i, s, true); s.finish.Usage.DraftedTokens != 0 {
				t.Errorf("%+v", s.finish.Usage)
			}
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	}
}

// Replays of verify passes, exact and padded, give the bits of the eager run, over poisoned memory.
func TestVerifyReplayEqualsEager(t *testing.T) {
	for _, kind := range []DraftKind{DraftLookup, DraftGiven, DraftModel} {
		o := nano()
		o.Chunk, o.MaxGraphs, o.GraphMemory, o.Draft, o.DraftTokens = 64, 200, 200_000, kind, MaxDrafts
		b := built(t, device.HostOptions{}, o, nil)
		keys := []graphs.Key{graphs.VerifyStep(2, 2), graphs.VerifyStep(3, 4), graphs.VerifyStep(4, 8)}
		if kind == DraftModel {
			keys = append(keys, graphs.Decode(3).Following(), graphs.Prefill(24))
		}
		if _, err := b.pool.Precapture(b.stream, keys, func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		for queries := 2; queries <= 1+MaxDrafts; queries++ {
			keys = append(keys, graphs.VerifyStep(1, queries)) // captured at start
		}
		for _, k := range keys {
			c, err := b.checkKey(k)
			if faults := c.Report.Faults(); err != nil || len(faults) > 0 {
				t.Errorf("%v, faults %v", err, faults)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		b.returned()
	}
}
