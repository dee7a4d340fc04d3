package draft

import (
	"math"
	"testing"
	"time"
)

// begun returns a sequence alone on a device of which plain steps have been measured.
func begun() (*Policy, *Sequence) {
	p, s := New(Options{Most: Longest, Rows: 64}), &Sequence{}
	p.Took(1, 1, 3*time.Millisecond)
	p.Took(1, 1, 3*time.Millisecond)
	s.Begin(p, nil, Longest)
	return p, s
}

func (p *Policy) planOne(s *Sequence) (drafts int) {
	return p.Plan([]*Sequence{s}, []int{Longest}, []int{0})
}

// TestASequencePaysWhatAStepCost: first the worst, as long as the cost is not known, then what was measured.
func TestASequencePaysWhatAStepCost(t *testing.T) {
	p, s := begun()
	k := p.planOne(s)
	if want := firstSavings - float64(k); k == 0 || s.credit != want {
		t.Fatalf("%v left with %d drafts of unknown cost, not %v", s.credit, k, want)
	}
	p.Took(1, k+1, 3300*time.Microsecond)
	s.Result(k, 0)
	if want := firstSavings - 0.1; math.Abs(s.credit-want) > 1e-9 {
		t.Errorf("%v left after a failure, not %v", s.credit, want)
	}
	for range 10 {
		s.Token(1)
	}
	if want := firstSavings - 0.1 + 10*income; math.Abs(s.credit-want) > 1e-9 {
		t.Errorf("%v left after ten tokens, not %v", s.credit, want)
	}
}

// TestSuccessEndsTheWait: a draft that stands has the next probes come as soon as the first ones.
func TestSuccessEndsTheWait(t *testing.T) {
	p, s := begun()
	s.wait, s.pause = longestWait, longestWait
	k := p.planOne(s)
	s.Result(k, 0)
	if s.wait != longestWait || s.pause != longestWait {
		t.Errorf("a wait of %d, then %d, after a failure", s.wait, s.pause)
	}
	p.Took(1, k+1, 3*time.Millisecond)
	s.Result(p.planOne(s), 1)
	if s.wait != firstWait || s.pause != firstWait {
		t.Errorf("a wait of %d, then %d, after a success", s.wait, s.pause)
	}
}

// TestAProbeThatFails has the next one come later, and only once.
func TestAProbeThatFails(t *testing.T) {
	p, s := begun()
	p.Took(1, 2, 3*time.Millisecond)
	s.rates[unseen] = acceptance{rate{0, 20}, rate{0, 20}}
	for _, want := range []int{firstWait, 2 * firstWait, 4 * firstWait, longestWait, longestWait} {
		for range s.wait {
			if p.planOne(s) > 0 {
				t.Fatal("a probe before its time")
			}
			s.Token(1)
		}
		for range between { // until its cost may be measured again
			p.Took(1, 1, 3*time.Millisecond)
		}
		if p.planOne(s) == 0 {
			t.Fatal("no probe")
		}
		if s.wait != want {
			t.Errorf("the next wait is %d, not %d", s.wait, want)
		}
		s.Result(1, 0)
	}
}

// TestNoResultOfNoDrafts: a step that had no drafts after all says nothing about them.
func TestNoResultOfNoDrafts(t *testing.T) {
	p, s := begun()
	p.planOne(s)
	before := s.rates
	s.Result(0, 0)
	if s.rates != before || s.flying.count != 0 {
		t.Error("it counts")
	}
}

// TestForcedDraftsAreExpectedToStand: they are worth a step that takes much longer, without a match and without a
// history, until they fall.
func TestForcedDraftsAreExpectedToStand(t *testing.T) {
	p, s := New(Options{Most: Longest, Rows: 64, Lookup: true}), &Sequence{}
	plan := func() int {
		p.Took(1, 1, 3*time.Millisecond)
		return p.Plan([]*Sequence{s}, []int{2}, []int{0})
	}
	p.Took(1, 1, 3*time.Millisecond)
	for _, queries := range []int{2, 3} {
		p.Took(1, queries, 5*time.Millisecond)
	}
	s.Begin(p, nil, Longest)
	if k := plan(); k != 0 {
		t.Errorf("%d drafts without a match", k)
	}
	s.BeginForced(p, 0)
	if k := plan(); k != 0 {
		t.Errorf("%d drafts for a sequence that wants none", k)
	}
	s = &Sequence{}
	s.BeginForced(p, Longest)
	for range 3 {
		if k := plan(); k != 2 {
			t.Errorf("%d drafts of what is forced", k)
		}
		s.Result(2, 2)
		s.Token(1)
	}
	if s.history.table != nil {
		t.Error("it has a history")
	}
	fell := 0
	for k := plan(); k > 0; k = plan() {
		s.Result(k, 0)
		fell++
	}
	if fell == 0 || fell > 8 {
		t.Errorf("%d times drafts fell before there were none", fell)
	}
}
