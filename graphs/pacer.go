package graphs

import "time"

// pacer limits the roller's device calls to the gaps between steps. While sequences
// run, a call that took d is followed by a rest of one step plus restShare times d,
// counted in steps. It is data alone; the pool's lock guards it.
type pacer struct {
	step     uint64 // launched last
	next     uint64 // first step at which the next call is allowed
	running  bool   // sequences run
	seen     time.Time
	stepTime time.Duration // moving average
}

// restShare is the ratio of the roller's rest to its work while sequences run.
const restShare = 4

// allows reports whether the roller may make a device call now.
func (c *pacer) allows() bool { return !c.running || c.step >= c.next }

// maintained records that the engine has launched step and updates the average step time.
func (c *pacer) maintained(step uint64, running bool, now time.Time) {
	if n := step - c.step; running && c.running && n > 0 {
		each := now.Sub(c.seen) / time.Duration(n)
		c.stepTime += (each - c.stepTime) / 8
	}
	if step != c.step || running != c.running {
		c.step, c.running, c.seen = step, running, now
	}
}

// took records that a device call took d and sets the step of the next one.
func (c *pacer) took(d time.Duration) {
	c.next = c.step + 1
	if c.stepTime > 0 {
		c.next += uint64(restShare * d / c.stepTime)
	}
}
