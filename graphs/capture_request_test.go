package graphs

import "testing"

// missTimes records n misses of k that a graph would have saved rows token rows each.
func missTimes(p *capturePolicy, k Key, n, rows int) {
	for range n {
		p.miss(k, rows)
	}
}

func TestPolicyAdmitsTheLargestGain(t *testing.T) {
	p := newCapturePolicy()
	missTimes(&p, Decode(8), 9, 1)
	missTimes(&p, Decode(6), 3, 2)
	missTimes(&p, Decode(4), 2, eagerRows)
	for _, want := range []Key{Decode(4), Decode(6)} { // decode 8 saves no more than an eighth
		r := p.admit()
		if r == nil || r.key != want {
			t.Fatalf("admitted %+v, wants %s", r, want)
		}
		p.remove(r.key)
	}
	if r := p.admit(); r != nil {
		t.Errorf("admitted %+v, wants none", r)
	}
}

func TestPolicyAsksForTheRollerOnce(t *testing.T) {
	p := newCapturePolicy()
	for n := 1; n <= 5; n++ {
		if ready := p.miss(Decode(2), eagerRows); ready != (n == admitAfter) {
			t.Errorf("miss %d: ready is %v", n, ready)
		}
	}
}

func TestPolicyRefusesShapesThatFail(t *testing.T) {
	p := newCapturePolicy()
	for range maxFailures {
		missTimes(&p, Decode(2), admitAfter, eagerRows)
		p.fail(Decode(2))
	}
	missTimes(&p, Decode(2), admitAfter, eagerRows)
	if r := p.admit(); r != nil || p.refused() != 1 || len(p.requests) != 0 {
		t.Errorf("admitted %+v, %d refused", r, p.refused())
	}
}

// A request that the roller waits for stays, even with no misses left.
func TestPolicyDecayKeepsTheWaitingRequest(t *testing.T) {
	p := newCapturePolicy()
	missTimes(&p, Decode(2), 1, eagerRows)
	missTimes(&p, Decode(3), 1, eagerRows)
	missTimes(&p, Decode(4), 2, eagerRows)
	p.decay(p.requests[Decode(3)])
	if p.requests[Decode(2)] != nil || p.requests[Decode(3)] == nil || p.requests[Decode(4)].misses != 1 {
		t.Errorf("left: %+v", p.requests)
	}
}

func TestPolicyEvictsIdleOrRarerGraphs(t *testing.T) {
	r := &captureRequest{misses: 10}
	for name, c := range map[string]struct {
		use  use
		want bool
	}{
		"recent and busy": {use{lastStep: 90, replays: 10}, false},
		"recent and rare": {use{lastStep: 90, replays: 9}, true},
		"idle":            {use{lastStep: 100 - recentSteps, replays: 1000}, true},
	} {
		if got := r.mayEvict(c.use, 100); got != c.want {
			t.Errorf("%s: evicted is %v", name, got)
		}
	}
}
