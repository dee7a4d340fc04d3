package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/kernels/device"
)

// After a failure at any device call, from the first of the start to the last of the stop, nothing leaks or hangs,
// every request ends once, and the tokens it got are right. A failure of the roller's call ends no request.
func TestFailureAtEveryCall(t *testing.T) {
	p, rollerFailures := newPlays(t), 0
	everyCall(t, func(at int, k play) (*scenario, bool) {
		s := p.fail(t, at, k, false)
		if s.built {
			s.returned()
		} else if s.weights != s.h.Live() {
			t.Errorf("a start that failed left %+v on the device, before it were %+v", s.h.Live(), s.weights)
		}
		roller := s.hitRoller()
		engineFailed := errors.Is(s.ran, ErrDevice)
		if roller && engineFailed || !roller && s.ran != nil && !s.stopped && !engineFailed {
			t.Errorf("the roller met the failure: %v; Run returned %v", roller, s.ran)
		} else if roller {
			rollerFailures++
		}
		return s, t.Failed()
	})
	p.wantMoves(t)
	if rollerFailures == 0 && !testing.Short() {
		t.Error("no call of the roller failed")
	}
}

// After a device loss at any call, every request gets a typed error, and no thread that has seen the loss calls the
// device again.
func TestDeviceLostAtEveryCall(t *testing.T) {
	p := newPlays(t)
	everyCall(t, func(at int, k play) (*scenario, bool) {
		s := p.fail(t, at, k, true)
		if s.h.Faults().Calls() >= at && !errors.Is(errors.Join(s.started, s.ran), device.ErrSticky) {
			t.Errorf("the device was lost, and the start gave %v, Run %v", s.started, s.ran)
		}
		for thread, n := range s.after {
			if s.met(thread) && n > 0 || n > 1 {
				t.Errorf("a thread made %d calls after the device was lost to thread %d: %v", n, s.hit, s.afterKinds)
			}
		}
		return s, t.Failed()
	})
	p.wantMoves(t)
}

// plays are the requests of scenarios without a host tier and with one, how often the latter moved pages, and how many
// drafts there were.
type plays struct {
	bare, tiered            *asked
	stored, loaded, movedIn uint64
	drafted                 uint64
}

// newPlays makes up requests. Two of those for a host tier join a pool of 20 pages of one token, and outgrow it.
func newPlays(t *testing.T) *plays {
	r := seeded(t)
	var requests []Request
	for i, n := range []int{4, 4, 2, 6} { // the first two run beside each other
		q := Request{Tokens: make([]int32, n), MaxTokens: 8, Sampling: sampled(uint64(i))}
		for j := range q.Tokens {
			q.Tokens[j] = int32(r.IntN(16))
		}
		q.Tokens[0] = int32(i) // different, else the first two may share pages and both fit the pool
		requests = append(requests, q)
	}
	bare := ask(t, r, 4, 6, 8).requests
	for _, list := range [][]Request{bare, requests} {
		list[0].Format, list[1].Format = randomAutomaton(r, 16, false), randomAutomaton(r, 16, false)
		for i := range list {
			list[i].DraftTokens = MaxDrafts
		}
	}
	return &plays{bare: askEach(t, bare), tiered: askEach(t, requests)}
}

// play is a kind of scenario: with a host tier or without one, and with drafts or without.
type play struct{ tiered, drafted bool }

// fail runs a scenario with a failure at a call.
func (p *plays) fail(t *testing.T, at int, k play, sticky bool) *scenario {
	o := nano()
	o.MaxGraphs, o.GraphMemory, o.MaxBatch, o.Precapture = 3, 3000, 2, []int{}
	if k.drafted {
		o.Draft, o.DraftTokens, o.planDrafts = DraftLookup, 3, inTurn()
	}
	if !k.tiered {
		s := p.bare.fail(t, o, at, sticky)
		p.count(s)
		return s
	}
	o.Context, o.PageTokens, o.Pages = 16, 1, 20
	o.HostCache, o.slabPages = 70*nanoPage/4, 24
	s := p.tiered.fail(t, o, at, sticky)
	p.count(s)
	return s
}

// count counts what happened in a scenario.
func (p *plays) count(s *scenario) {
	if s.built {
		stats := s.Stats()
		kv := stats.KV
		p.stored, p.loaded, p.movedIn = p.stored+kv.Stored, p.loaded+kv.Loaded, p.movedIn+kv.MovedIn
		p.drafted += stats.Drafts.Total().Drafted
	}
}

// wantMoves checks that the scenarios with a host tier used it.
func (p *plays) wantMoves(t *testing.T) {
	t.Helper()
	if p.stored == 0 || p.loaded == 0 || p.movedIn == 0 || p.drafted == 0 {
		t.Errorf("%d pages stored, %d loaded, %d sequences moved in, %d drafts", p.stored, p.loaded, p.movedIn, p.drafted)
	}
}

// sometimes returns 20 µs in one of 30 calls, else 0.
func sometimes() time.Duration { return time.Duration(rand.IntN(30)/29) * 20 * time.Microsecond }

// everyCall runs a scenario with a failure at call 1, 2, … until the scenario makes fewer calls.
// Half of the scenarios have a host tier, and half of these and of the others drafts; those that fail in the start, which
// is short, run in all four ways.
func everyCall(t *testing.T, run func(at int, k play) (*scenario, bool)) {
	t.Helper()
	kinds, places, unmet, stride := map[device.CallKind]int{}, map[place]int{}, 0, 1
	if testing.Short() {
		stride = 5
	}
	try := func(at int, k play) (built bool) {
		s, failed := run(at, k)
		for kind, n := range s.places {
			places[place{kind, k}] = n
		}
		switch {
		case failed:
			t.Fatalf("failure at call %d of %d, %s", at, s.h.Faults().Calls(), s.kind)
		case s.h.Faults().Calls() < at:
			unmet++
		default:
			unmet = 0
			kinds[s.kind]++
		}
		return s.built
	}
	last := 1
	for ; unmet < 5; last += stride { // a scenario's number of calls depends on the roller's timing
		k := play{tiered: last%2 == 0, drafted: last/4%2 == 1} // four calls with drafts, four without
		if !try(last, k) {
			for _, other := range []play{{!k.tiered, k.drafted}, {k.tiered, !k.drafted}, {!k.tiered, !k.drafted}} {
				try(last, other)
			}
		}
	}
	for tries := 0; stride == 1 && len(neverFailed(kinds)) > 0 && tries < 400; tries++ {
		// A roller's call is rare, and comes at about the same place in scenarios that have it.
		at, k := 1+rand.IntN(last), play{tiered: tries%2 == 0, drafted: tries/2%2 == 0}
		if n := places[place{neverFailed(kinds)[0], k}]; n > 0 {
			at = max(1, n+rand.IntN(7)-3)
		}
		try(at, k)
	}
	t.Logf("failed at %v", kinds)
	if list := neverFailed(kinds); len(list) > 0 && stride == 1 {
		t.Errorf("none of these failed: %v", list)
	}
}

// place names the calls of a kind in a kind of scenario.
type place struct {
	kind device.CallKind
	in   play
}

// neverFailed returns the kinds of calls that the engine makes in each scenario and that kinds lacks.
func neverFailed(kinds map[device.CallKind]int) (list []device.CallKind) {
	for kind := device.CallLaunch; kind <= device.CallQuery; kind++ {
		if kinds[kind] == 0 && !slices.Contains(notCalled, kind) {
			list = append(list, kind)
		}
	}
	return list
}

// notCalled are the calls that the engine never makes, or, for those of page moves, not in each scenario.
var notCalled = []device.CallKind{device.CallDeviceSynchronize, device.CallRead, device.CallHostRead,
	device.CallWait, device.CallQuery}

// scenario is an engine's life with one failure.
type scenario struct {
	*testEngine
	at      int
	started error // of New
	ran     error // of Run
	built   bool
	stopped bool // all requests were served before the stop

	mu         sync.Mutex
	hit        int // the thread that met the failure
	kind       device.CallKind
	hits       map[int]bool
	threads    map[int]map[device.CallKind]int
	places     map[device.CallKind]int // number of the last call of a kind before the failure
	after      map[int]int             // calls after the failure, by thread
	afterKinds []device.CallKind
}

// fail runs a scenario with a failure at a call: start, prefill, decode, roll, evict, relocate, cancel, stop.
func (a *asked) fail(t *testing.T, o Options, at int, sticky bool) *scenario {
	s := &scenario{at: at, hits: map[int]bool{}, threads: map[int]map[device.CallKind]int{},
		places: map[device.CallKind]int{}, after: map[int]int{}}
	s.testEngine, s.started = tryBuild(t, device.HostOptions{Delay: sometimes}, o, func(d device.Device) device.Device {
		h := d.(*device.Host)
		h.Trace(func(c device.Call) { s.see(h, c) })
		h.Faults().FailAt(at, sticky)
		return h
	})
	if s.started != nil {
		return s
	}
	s.built = true
	s.mu.Lock()
	s.threads = map[int]map[device.CallKind]int{} // from now on, those of the engine and the roller
	s.mu.Unlock()
	s.run()
	sinks := s.serve(a)
	s.Stop() // while a request runs
	s.ran = s.wait()
	for i, k := range sinks {
		k.must(t)
		whole := k.finish.Err == nil && k.finish.Reason != "cancelled"
		if k.finish.Err != nil && !errors.Is(k.finish.Err, ErrDevice) && !errors.Is(k.finish.Err, ErrShutdown) {
			t.Errorf("request %d ended with %v", i, k.finish.Err)
		}
		err := k.finish.Err
		if sticky && err != nil && !errors.Is(err, ErrShutdown) && !errors.Is(err, device.ErrSticky) {
			t.Errorf("request %d ended with %v, wants ErrSticky", i, err)
		}
		a.check(t, i%len(a.requests), k, whole)
	}
	return s
}

// serve submits requests until the roller has captured and evicted, or the engine has ended.
func (s *scenario) serve(a *asked) (sinks []*sink) {
	submit := func() (*sink, Handle) {
		k := newSink()
		r := a.requests[len(sinks)%len(a.requests)]
		r.Sink, r.Format = k, begun(s.t, r.Format)
		h, err := s.Submit(&r)
		if err != nil {
			closeRefused(&r)
			return nil, 0
		}
		sinks = append(sinks, k)
		return k, h
	}
	for round := range 8 {
		one, first := submit()
		two, second := submit()
		if two == nil {
			return sinks
		}
		select {
		case <-one.first:
		case <-one.ended:
		}
		s.Relocate(first, 0)
		s.Relocate(second, 0)
		if round%2 == 1 || s.opts.HostCache == 0 {
			s.Cancel(second)
		}
		one.must(s.t)
		two.must(s.t)
		if g := s.Stats().Graphs; g.Rolled > 0 && g.Evicted > 0 {
			break
		}
	}
	if last, _ := submit(); last != nil {
		select {
		case <-last.first:
		case <-last.ended:
		}
	}
	s.stopped = true
	return sinks
}

// see records a device call, its thread, and whether it is the failing one.
func (s *scenario) see(h *device.Host, c device.Call) {
	if c.Kind == device.CallHostRead {
		return // a read of host memory is no device call
	}
	thread, made := unix.Gettid(), h.Faults().Calls()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.threads[thread] == nil {
		s.threads[thread] = map[device.CallKind]int{}
	}
	s.threads[thread][c.Kind]++
	switch {
	case made < s.at-1:
		s.places[c.Kind] = made + 1
	case made == s.at-1:
		s.hits[thread], s.hit, s.kind = true, thread, c.Kind
	case made >= s.at:
		s.after[thread]++
		s.afterKinds = append(s.afterKinds, c.Kind)
	}
}

// met reports whether thread, and certainly no other, met the failure.
func (s *scenario) met(thread int) bool { return len(s.hits) == 1 && s.hits[thread] }

// hitRoller reports whether the roller alone met the failure. The roller makes a stream and never runs a step.
func (s *scenario) hitRoller() bool {
	kinds := s.threads[s.hit]
	steps := kinds[device.CallRecord] + kinds[device.CallReplay] + kinds[device.CallSynchronize]
	return s.met(s.hit) && kinds[device.CallNew] > 0 && steps == 0
}
