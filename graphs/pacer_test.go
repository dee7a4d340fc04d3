package graphs

import (
	"testing"
	"time"
)

// While sequences run, the roller makes at most one call between two steps, and
// rests for longer than it worked.
func TestRollerIsPaced(t *testing.T) {
	var p pacer
	now := time.Now()
	for step := range uint64(100) {
		now = now.Add(time.Millisecond)
		p.maintained(step, true, now)
	}
	if !p.allows() {
		t.Fatal("not allowed before its first call")
	}
	p.took(10 * time.Millisecond)
	rest := 0
	for step := uint64(100); !p.allows(); step++ {
		now = now.Add(time.Millisecond)
		p.maintained(step, true, now)
		rest++
	}
	if rest < 40 || rest > 42 {
		t.Errorf("after a call as long as ten steps it rested for %d, wants about %d", rest, 10*restShare)
	}
	p.took(time.Nanosecond)
	if p.allows() {
		t.Error("a second call is allowed before the next step")
	}
	p.maintained(1000, false, now)
	if !p.allows() {
		t.Error("an idle engine holds the roller up")
	}
}
