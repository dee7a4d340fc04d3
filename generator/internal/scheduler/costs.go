package scheduler

import (
	"time"

	"reel.internal/reel/kernels"
)

const (
	// grain is the step of prefill rows in costs, and of chunks beside running sequences: graphs have this grain.
	grain = 16
	// settle is the weight of a step's time in the time that is expected of the next one like it.
	settle = 0.25
	// hiccup bounds a step's time by that many times the expected one: something else may have held it up.
	hiccup = 2
	// remembered is how many steps of its kind later the time of a step with prompts is forgotten, so that one bad
	// measurement ends.
	remembered = 512
	// far is the mean position from which on a wrong guess of a chunk's time is laid to attention rather than products.
	far = 1024
)

// costs is what steps took, in nanoseconds, so that the time of the next ones can be told. It has no clock: Took has
// the times.
type costs struct {
	decodes []float64 // by sequences of a decode or verify step; 0: never measured
	prompts promptTimes
	// mixed are those of mixed steps, whatever the generated rows: their number changes slowly.
	mixed promptTimes
	// attention is how much longer a row of a prompt takes for each position before it.
	attention float64
}

// promptTimes is what steps with prompts took, of one kind.
type promptTimes struct {
	by    []cost // by rows of prompts in grains, at position 0
	steps int64  // measured so far
}

type cost struct {
	time float64 // 0: never measured
	at   int64   // promptTimes.steps when it was measured last
}

func newCosts(rows, sequences int) costs {
	times := func() promptTimes { return promptTimes{by: make([]cost, grains(rows)+1)} }
	return costs{decodes: make([]float64, sequences+1), prompts: times(), mixed: times()}
}

// of returns the times of steps like b, which has prompts.
func (c *costs) of(b *Batch) *promptTimes {
	if b.Generated > 0 {
		return &c.mixed
	}
	return &c.prompts
}

func grains(rows int) int { return (rows + grain - 1) / grain }

// towards moves an expectation towards a measured time.
func towards(expected, measured float64) float64 {
	if expected == 0 {
		return measured
	}
	return expected + settle*(min(measured, hiccup*expected)-expected)
}

// tookDecode notes the time of a step of so many sequences.
func (c *costs) tookDecode(sequences int, t float64) {
	if sequences < len(c.decodes) {
		c.decodes[sequences] = towards(c.decodes[sequences], t)
	}
}

// decode returns the time expected of a decode step: that of the nearest number of sequences that was measured; 0
// before the first.
func (c *costs) decode(sequences int) float64 {
	for d := range c.decodes {
		for _, n := range [2]int{sequences - d, sequences + d} {
			if n >= 0 && n < len(c.decodes) && c.decodes[n] > 0 {
				return c.decodes[n]
			}
		}
	}
	return 0
}

// tookPrompt notes the time of a step with prompts, whose rows have so many positions before them altogether. What differs
// from the expected time is laid to the products, or with the mean position more and more to attention: a normalised
// step of least mean squares.
func (c *costs) tookPrompt(times *promptTimes, rows, before int, t float64) {
	times.steps++
	at := min(grains(rows), len(times.by)-1)
	base, attention := times.known(at), c.attention*float64(before)
	b := &times.by[at]
	b.at = times.steps
	if base == 0 {
		b.time = max(t-attention, t/2)
		return
	}
	wrong := settle * (min(t, hiccup*(base+attention)) - base - attention)
	x := float64(before) / float64(rows) / far
	b.time = max(b.time+wrong/(1+x*x), 1)
	if before > 0 {
		c.attention = max(c.attention+wrong*x*x/(1+x*x)/float64(before), 0)
	}
}

// known returns what was measured for a number of rows in grains, unless that is too long ago.
func (t *promptTimes) known(at int) float64 {
	if b := t.by[at]; b.time > 0 && t.steps-b.at <= remembered {
		return b.time
	}
	return 0
}

// measured returns the largest number of rows in grains, up to this one, of which the time is known; 0: there is none.
func (t *promptTimes) measured(rows int) int {
	at := min(grains(rows), len(t.by)-1)
	for at > 0 && t.known(at) == 0 {
		at--
	}
	return at
}

// prompt returns the time expected of a prefill step; 0 before the first.
func (c *costs) prompt(rows, before int) float64 {
	time, ok := c.prompts.expected(rows, 0)
	if !ok {
		return 0
	}
	return time + c.attention*float64(before)
}

// mix returns the time expected of a mixed step of so many sequences and rows of prompts. Before the first it is that of
// two steps. Above the largest that was measured it grows as that of prefill steps does: only what these do not tell is
// tried, so that nobody waits for longer than the gap.
func (c *costs) mix(sequences, rows, before int) float64 {
	decode := c.decode(sequences)
	time, ok := c.mixed.expected(rows, decode)
	if !ok {
		return c.prompt(rows, before) + decode
	}
	if most := c.mixed.measured(grain * len(c.mixed.by)); grains(rows) > most {
		time = max(time, c.mixed.known(most)+c.prompt(rows, 0)-c.prompt(grain*most, 0))
	}
	return time + c.attention*float64(before)
}

// expected returns the time expected of a step with so many rows of prompts at position 0, if one without takes the time
// none; false before the first. Between two numbers of rows that were measured it is on the line between them, as it is
// below the smallest. A grain above one that was measured, and above the largest up to twice as many rows, it is the
// same: so they are tried.
func (t *promptTimes) expected(rows int, none float64) (time float64, ok bool) {
	at := min(grains(rows), len(t.by)-1)
	below, above := t.measured(rows), at
	for above < len(t.by) && t.known(above) == 0 {
		above++
	}
	low := none
	if below > 0 {
		low = t.known(below)
	}
	switch {
	case above == len(t.by) && below == 0:
		return 0, false
	case above == len(t.by):
		return low * max(1, float64(at)/float64(2*below)), true
	case at-below <= 1:
		return low, true
	}
	high := t.known(above)
	return low + (high-low)*float64(at-below)/float64(above-below), true
}

// before returns how many positions the rows of prompts in a step have before them, altogether.
func before(step *kernels.Step) (n int) {
	for _, r := range step.Rows {
		n += int(max(0, r.Position))
	}
	return n
}

// Passed notes that time passed in steps of which nothing else is to be learned.
func (s *Scheduler) Passed(t time.Duration) { s.elapsed += float64(max(0, t)) }

// Took notes how long a step took, from the end of the step before it or, if that was later, from when it was enqueued.
// b is still valid.
func (s *Scheduler) Took(b *Batch, t time.Duration) {
	s.Passed(t)
	switch {
	case s.Gap == 0 || len(b.Step.Rows) == 0 || t <= 0:
	case b.Prefill:
		s.costs.tookPrompt(s.costs.of(b), b.Prompts(), before(&b.Step), float64(t))
	default:
		s.costs.tookDecode(len(b.Served), float64(t))
	}
}

// Expected returns how long b will take, if steps of its shape were measured lately. A step with prompts takes no less
// than one of fewer rows of them: of the next smaller number that was measured. It returns 0 if there is none.
func (s *Scheduler) Expected(b *Batch) time.Duration {
	c := &s.costs
	switch {
	case s.Gap == 0 || len(b.Step.Rows) == 0:
		return 0
	case !b.Prefill:
		return time.Duration(c.decodes[min(len(b.Served), len(c.decodes)-1)])
	}
	times := c.of(b)
	at := times.measured(b.Prompts())
	if at == 0 {
		return 0
	}
	return time.Duration(times.known(at) + c.attention*float64(before(&b.Step)))
}
