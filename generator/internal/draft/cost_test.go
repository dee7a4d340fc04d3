package draft

import (
	"math"
	"testing"
	"time"
)

// meter plays steps of which the real times are known.
type meter struct {
	*costs
	t *testing.T
}

func newMeter(t *testing.T) meter {
	c := newCosts(32)
	return meter{&c, t}
}

// steps reports some plain steps or verify steps of one sequence.
func (m meter) steps(n, queries int, ms float64) {
	for range n {
		m.took(1, queries, ms*float64(time.Millisecond))
	}
}

// is checks a cost to 2%.
func (m meter) is(name string, got, want float64) {
	m.t.Helper()
	if math.Abs(got/want-1) > 0.02 {
		m.t.Errorf("%s: %.3f, not %.3f", name, got, want)
	}
}

func TestCostsAreLearnt(t *testing.T) {
	m := newMeter(t)
	m.is("before anything, as on a GPU", m.expected(1, 8), 1.042)
	m.is("before anything, at worst", m.worst(1, 8), 8)
	m.steps(1, 1, 3)
	m.steps(1, 4, 3.3)
	m.is("measured", m.expected(1, 4), 1.1)
	m.is("measured, at worst", m.worst(1, 4), 1.1)
	m.is("beside it", m.expected(1, 5), 1.1)
	m.is("beside it, at worst", m.worst(1, 5), 1.1*5/4)
	m.is("of others, corrected", m.expected(2, 4), assumed(2, 4)*1.1)
	m.steps(1, 8, 6)
	m.is("between two", m.expected(1, 6), (1.1+2)/2)
}

// TestRowsThatCost: one measurement tells a device whose time grows with the rows.
func TestRowsThatCost(t *testing.T) {
	m := newMeter(t)
	m.steps(1, 1, 3)
	m.steps(1, 2, 5.7)
	m.is("eight rows", m.expected(1, 8), (1+7*0.89)*assumed(1, 8))
}

// TestDisturbances: one long step, the first of its kind or a later one, changes nothing for long.
func TestDisturbances(t *testing.T) {
	m := newMeter(t)
	m.steps(1, 1, 30)
	m.steps(2, 1, 3)
	m.is("a long first plain step", m.plain[1].time, 3e6)
	m.steps(1, 8, 60)
	m.is("a long first verify step, bounded", m.expected(1, 8), 8*1.2)
	m.steps(1, 8, 3.6)
	m.is("the second", m.expected(1, 8), 1.2)
	m.steps(6, 8, 3.6)
	m.steps(1, 8, 36)
	m.is("a later one", m.expected(1, 8), 1.2)
	m.steps(1, 1, 30)
	m.is("a later plain step", m.plain[1].time, 3.05e6)
	m.steps(1, 8, 3.6)
	m.is("after a long plain step", m.expected(1, 8), 1.2)
}

// TestCostsAreTriedAgain: a single measurement of a dear step is not believed for ever.
func TestCostsAreTriedAgain(t *testing.T) {
	m := newMeter(t)
	m.steps(1, 1, 3)
	m.steps(1, 8, 12)
	m.is("measured", m.expected(1, 8), 4)
	m.steps(trusted, 1, 3)
	m.is("trusted", m.expected(1, 8), 4)
	m.steps(10*trusted, 1, 3)
	if got := m.expected(1, 8); got > 1.5 {
		t.Errorf("%.3f, after a long time", got)
	}
	m.is("at worst", m.worst(1, 8), 4)
}

// TestLongerContexts: plain and verify steps become slower together, and the ratio stays.
func TestLongerContexts(t *testing.T) {
	m := newMeter(t)
	m.steps(3, 1, 3)
	m.steps(9, 8, 3.3)
	for i := range 4000 { // no plain step among them
		m.steps(1, 8, 3.3*(1+float64(i)/4000))
	}
	m.is("the ratio", m.expected(1, 8), 1.1)
	m.is("the plain step", m.plain[1].time, 6e6)
	m.steps(recent+1, 2, 1) // of a cost that is not known: it tells nothing
	m.is("beside another", m.plain[1].time, 6e6)
	m.steps(1, 1, 3) // a new sequence
	m.is("the next plain step", m.plain[1].time, 3e6)
}

// TestOneTrial: a step whose cost is not known is planned beside a fresh plain step, one at a time.
func TestOneTrial(t *testing.T) {
	m := newMeter(t)
	if m.try(1, 8) {
		t.Error("before any plain step")
	}
	m.steps(1, 1, 3)
	if !m.try(1, 8) || m.try(1, 8) {
		t.Error("not once")
	}
	m.steps(between, 1, 3)
	if !m.try(1, 8) {
		t.Error("not again, after its measurement was lost")
	}
	for range recent + 1 {
		m.took(2, 1, 1)
	}
	if m.try(1, 8) {
		t.Error("long after a plain step")
	}
}

// TestCareful: for a sequence that gains nothing, a step that may be short enough is measured again, and one that is
// far too long is not.
func TestCareful(t *testing.T) {
	m := newMeter(t)
	m.steps(1, 1, 3)
	m.steps(1, 2, 3.3)
	m.is("longer ones", m.careful(1, 4), 1.3)
	m.steps(trusted*10, 1, 3)
	if got := m.careful(1, 2); got > patience {
		t.Errorf("%.3f, a long time after one measurement", got)
	}
	m.steps(2, 2, 9)
	m.steps(trusted*64, 1, 3)
	if got := m.careful(1, 2); got < unclear {
		t.Errorf("%.3f, measured as far too long", got)
	}
	m.took(2, 1, 3e6)
	m.took(2, 4, 3.02e6)
	if got := m.careful(2, 5); got < patience {
		t.Errorf("%.3f, for ten rows where eight are cheap", got)
	}
}
