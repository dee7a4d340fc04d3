package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// machine has the step times of a device, in nanoseconds. Those of h200 were measured with Llama-2-7B's shape.
type machine struct {
	decodes, prompts [][2]float64 // rows and milliseconds
	tile             int          // rows above which a prefill pass reads the weights again
	attention        float64      // of a row and a position before it
	mixed            float64      // the part of a decode step that generated rows add to a prefill step
}

var h200 = machine{
	decodes: [][2]float64{{1, 3.2}, {8, 3.65}, {12, 4.86}, {16, 5.25}, {24, 6.1}, {32, 6.38}, {48, 6.83}, {64, 7.33}},
	prompts: [][2]float64{{1, 3.5}, {50, 3.65}, {100, 4.0}, {208, 5.2}}, tile: 208, attention: 1.64,
}

// between returns the value at x on the lines through points.
func between(points [][2]float64, x float64) float64 {
	for i, p := range points {
		switch {
		case x <= p[0] && i == 0:
			return p[1]
		case x <= p[0]:
			o := points[i-1]
			return o[1] + (p[1]-o[1])*(x-o[0])/(p[0]-o[0])
		}
	}
	return points[len(points)-1][1]
}

// took returns how long a step takes.
func (m machine) took(b *Batch) time.Duration {
	rows := len(b.Step.Rows)
	if !b.Prefill {
		return time.Duration(between(m.decodes, float64(rows)) * 1e6)
	}
	generated := 0.0
	if rows -= b.Generated; b.Generated > 0 {
		generated = m.mixed * between(m.decodes, float64(b.Generated))
	}
	tiles := (rows + m.tile - 1) / m.tile
	products := between(m.prompts, float64(rows)/float64(tiles)) * (1 + 0.85*float64(tiles-1))
	return time.Duration((products+generated)*1e6 + m.attention*float64(before(&b.Step)))
}

// clocked is a scheduler whose steps take the time of a machine. The step after the one that runs is formed when the
// one before has ended or, with early, 2 ms before the one that runs ends.
type clocked struct {
	t       *testing.T
	s       *Scheduler
	machine machine
	noise   *rand.Rand // of up to a 20th of a step, or nil
	late    bool       // the next step is formed shortly before its begin
	formed  func(*Batch)
	now     time.Duration
	arrive  []arrival // in order of time
	tokens  map[*Sequence][]time.Duration

	burstBegan uint64 // the step that was next when the last burst began
}

type arrival struct {
	at time.Duration
	q  *Sequence
}

// run runs steps until all that arrives has ended, or until a time.
func (c *clocked) run(until time.Duration) {
	type running struct {
		b    *Batch
		ends time.Duration
	}
	var flight []running
	for {
		for len(flight) < 2 {
			at := c.now
			if len(flight) == 1 && c.late && c.s.Expected(flight[0].b) > 0 {
				at = max(at, flight[0].ends-2*time.Millisecond)
			}
			for len(c.arrive) > 0 && c.arrive[0].at <= at {
				if err := c.s.Add(c.arrive[0].q); err != nil {
					c.t.Fatal(err)
				}
				c.arrive = c.arrive[1:]
			}
			b := c.s.Next()
			if b == nil {
				break
			}
			if c.formed != nil {
				c.formed(b)
			}
			begins := at
			if len(flight) == 1 {
				begins = flight[0].ends
			}
			flight = append(flight, running{b, begins + c.took(b)})
		}
		if len(flight) == 0 {
			if len(c.arrive) == 0 || c.arrive[0].at > until {
				return
			}
			c.now = c.arrive[0].at
			continue
		}
		last := c.now
		c.now = flight[0].ends
		c.s.Took(flight[0].b, c.now-last)
		for _, q := range flight[0].b.Sampled {
			c.tokens[q] = append(c.tokens[q], c.now)
			if len(c.tokens[q]) == q.MaxTokens {
				c.s.Remove(q)
			}
		}
		c.s.Complete(flight[0].b.Step.Number)
		flight = flight[1:]
	}
}

func (c *clocked) took(b *Batch) time.Duration {
	t := float64(c.machine.took(b))
	if c.noise != nil {
		t *= 0.98 + 0.05*c.noise.Float64()
	}
	return time.Duration(t)
}

func newClocked(t *testing.T, m machine, gap time.Duration) *clocked {
	o := Options{MaxBatch: 64, MaxQueue: 1000, Chunk: 416, Context: 4096, PageTokens: 16, Pages: 64 * 256, InFlight: 2, Gap: gap}
	return &clocked{t: t, s: mustNew(t, o), machine: m, late: gap > 0, tokens: map[*Sequence][]time.Duration{}}
}

// gaps returns the times between the tokens of sequences, sorted.
func (c *clocked) gaps(of []*Sequence) (all []time.Duration) {
	for _, q := range of {
		for i, at := range c.tokens[q][1:] {
			all = append(all, at-c.tokens[q][i])
		}
	}
	slices.Sort(all)
	return all
}

func quantile(sorted []time.Duration, part float64) time.Duration {
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// besides runs 16 sequences while prompts arrive twice a second, and returns the gaps between the tokens of the 16, and
// the times to the prompts' first tokens. change, if not nil, changes the scheduler.
func besides(t *testing.T, m machine, gap time.Duration, length int, change func(*clocked)) (gaps, first []time.Duration) {
	c := newClocked(t, m, gap)
	c.noise = rand.New(rand.NewPCG(1, 2))
	if change != nil {
		change(c)
	}
	var running []*Sequence
	for range 16 {
		running = append(running, &Sequence{Prompt: prompt(100), MaxTokens: 3000})
		c.arrive = append(c.arrive, arrival{0, running[len(running)-1]})
	}
	at := 500 * time.Millisecond
	var prompts []arrival
	for range 40 {
		at += time.Duration(c.noise.ExpFloat64() * 5e8)
		prompts = append(prompts, arrival{at, &Sequence{Prompt: prompt(length), MaxTokens: 8}})
	}
	c.arrive = append(c.arrive, prompts...)
	c.run(time.Minute)
	for _, p := range prompts[4:] { // by then the times of steps are known
		first = append(first, c.tokens[p.q][0]-p.at)
	}
	slices.Sort(first)
	for _, q := range running {
		i := slices.IndexFunc(c.tokens[q], func(at time.Duration) bool { return at > prompts[4].at })
		c.tokens[q] = c.tokens[q][max(i, 0):]
	}
	return c.gaps(running), first
}

// faster has the step times of h200 with decode steps of several rows that read each weight once, as predicted from an
// H100 (kernels/notes/many_rows.md).
var faster = machine{decodes: [][2]float64{{1, 3.2}, {16, 3.7}, {64, 4.3}}, prompts: h200.prompts, tile: 208,
	attention: 1.64}

// milli returns a duration of so many milliseconds.
func milli(n float64) time.Duration { return time.Duration(n * 1e6) }

// Sixteen sequences wait for the gap, or if a decode step takes more than half of it, for two such steps; without a gap
// for a whole chunk. The prompts wait for twice their own time.
func TestPromptsHoldUpOthersTokensForTheGap(t *testing.T) {
	for _, c := range []struct {
		machine          machine
		gap              float64
		most, least, ttf float64
	}{
		{h200, 0, 18, 14, 90},
		{h200, 10, 11.2, 8, 135},
		{h200, 16, 16, 12, 110},
		{faster, 0, 16, 12, 80},
		{faster, 10, 10, 8, 105},
	} {
		gaps, first := besides(t, c.machine, milli(c.gap), 2000, nil)
		p99, worst, ttft := quantile(gaps, 0.99), gaps[len(gaps)-1], quantile(first, 0.5)
		t.Logf("a gap of %v ms: ITL P50 %v, P99 %v, max %v; TTFT P50 %v, max %v", c.gap, quantile(gaps, 0.5), p99, worst,
			ttft, first[len(first)-1])
		if p99 > milli(c.most) || p99 < milli(c.least) || worst > p99*6/5 || ttft > milli(c.ttf) {
			t.Errorf("out of bounds: %+v", c)
		}
	}
}

// The next step is formed late, so a prompt waits for one step of others and not for two.
func TestLateStepsTakePromptsIn(t *testing.T) {
	wait := func(late bool) time.Duration {
		c := newClocked(t, h200, milli(10))
		c.late = late
		for range 16 {
			c.arrive = append(c.arrive, arrival{0, &Sequence{Prompt: prompt(100), MaxTokens: 1000}})
		}
		var prompts []arrival
		for i := range 50 {
			at := milli(1000 + 60.1*float64(i))
			prompts = append(prompts, arrival{at, &Sequence{Prompt: prompt(16), MaxTokens: 1}})
		}
		c.arrive = append(c.arrive, prompts...)
		c.run(time.Minute)
		var first []time.Duration
		for _, p := range prompts {
			first = append(first, c.tokens[p.q][0]-p.at)
		}
		slices.Sort(first)
		return quantile(first, 0.5)
	}
	if early, late := wait(false), wait(true); early-late < milli(2) {
		t.Errorf("a prompt waits for %v, and for %v if steps are formed early", late, early)
	}
}

// burst returns the times to the first tokens of n prompts that arrive within a millisecond.
func burst(t *testing.T, m machine, gap time.Duration, n, length int) []time.Duration {
	return newClocked(t, m, gap).bursts(3, n, func(int) *Sequence {
		return &Sequence{Prompt: prompt(length), MaxTokens: 32}
	})
}

// bursts has n sequences arrive within a millisecond, several times so that step times are learned, and returns the
// times to the first tokens of the last burst, sorted.
func (c *clocked) bursts(times, n int, sequence func(i int) *Sequence) (first []time.Duration) {
	return c.burstsAt(times, n, func(i int) time.Duration { return time.Duration(i) * 15 * time.Microsecond }, sequence)
}

// burstsAt does the same with arrivals at these times after the first.
func (c *clocked) burstsAt(times, n int, at func(i int) time.Duration, sequence func(i int) *Sequence) (first []time.Duration) {
	for range times {
		c.now += time.Second
		var all []*Sequence
		begin := c.now
		c.burstBegan = c.s.completed
		for i := range n {
			q := sequence(i)
			all = append(all, q)
			c.arrive = append(c.arrive, arrival{begin + at(i), q})
		}
		c.run(time.Hour)
		first = nil
		for _, q := range all {
			first = append(first, c.tokens[q][0]-begin)
		}
	}
	slices.Sort(first)
	return first
}

// In a burst no decode step holds up the prompts that are left, and with long prompts few do.
func TestABurstGetsItsFirstTokensSoon(t *testing.T) {
	for _, c := range []struct {
		gap    float64
		length int
		p50    float64
		least  float64
		last   float64
	}{{0, 16, 35, 36, 50}, {10, 16, 23, 0, 28}, {0, 400, 500, 900, 1000}, {10, 400, 340, 0, 680}} {
		first := burst(t, h200, milli(c.gap), 64, c.length)
		p50, last := quantile(first, 0.5), first[len(first)-1]
		t.Logf("a gap of %v ms, 64 prompts of %d: P50 %v, last %v", c.gap, c.length, p50, last)
		if p50 > milli(c.p50) || last > milli(c.last) || last < milli(c.least) {
			t.Errorf("out of bounds: %+v", c)
		}
	}
}

// stairs has an H200's times of steps of prompts of 16, by kernels/notes/pace.md.
var stairs = machine{decodes: h200.decodes, tile: 1 << 20, attention: 1.64, prompts: [][2]float64{{16, 3.7}, {80, 4.1},
	{208, 5.9}, {224, 8}, {304, 8.3}, {320, 9.7}, {416, 10.4}, {768, 18}, {1536, 37}}}

// A burst has the same steps whether all its prompts are there at first or some come a moment later: the first step is
// short, the others are full, and no decode step comes between. Where nobody says that more are coming, or prompts are not
// as short, the first step is as long as others.
func TestABurstThatIsOnItsWay(t *testing.T) {
	for _, b := range []struct {
		name      string
		n, length int
		there     int // when the first step is formed; the others come a millisecond later
		coming    bool
		p50, last float64
		leastP50  float64
	}{{"all are there", 64, 16, 64, true, 16.5, 26.8, 0}, {"a third is there", 64, 16, 20, true, 16.5, 26.8, 0},
		{"half are there", 64, 16, 32, true, 16.5, 26.8, 0}, {"half, and nobody knows", 64, 16, 32, false, 21, 26.8, 20},
		{"longer ones", 8, 80, 8, true, 10.5, 18.5, 10}} {
		c := newClocked(t, stairs, milli(20))
		c.s = withLongSteps(t, milli(20), func(o *Options) {
			o.Coming = func() bool { return b.coming && c.s.completed == c.burstBegan }
		})
		first := c.burstsAt(5, b.n, func(i int) time.Duration {
			if i < b.there {
				return 0
			}
			return time.Millisecond
		}, func(int) *Sequence { return &Sequence{Prompt: prompt(b.length), MaxTokens: 8, ReadOnly: true} })
		p50, last := quantile(first, 0.5), first[len(first)-1]
		t.Logf("%s: P50 %v, last %v", b.name, p50, last)
		if p50 > milli(b.p50) || last > milli(b.last) || p50 < milli(b.leastP50) {
			t.Errorf("out of bounds: %+v", b)
		}
	}
}

// Long prompts that come during the first step of a burst are not of it: those that have their first tokens do not wait
// for them.
func TestABurstTakesInNoLongPrompts(t *testing.T) {
	c := newClocked(t, stairs, milli(20))
	var short []*Sequence
	for round := range 3 {
		at := milli(float64(1000 * round))
		short = nil
		for range 40 {
			short = append(short, &Sequence{Prompt: prompt(16), MaxTokens: 40, ReadOnly: true})
			c.arrive = append(c.arrive, arrival{at, short[len(short)-1]})
		}
		for range 3 {
			c.arrive = append(c.arrive, arrival{at + time.Millisecond, &Sequence{Prompt: prompt(3000), MaxTokens: 2, ReadOnly: true}})
		}
	}
	c.run(time.Minute)
	gaps := c.gaps(short)
	if worst := gaps[len(gaps)-1]; worst > milli(25) {
		t.Errorf("a sequence of the burst waits for %v", worst)
	}
}

// stretched runs a sequence beside a burst of the same user and name, or another's, and returns its longest gap.
func stretched(t *testing.T, user User) time.Duration {
	c := newClocked(t, h200, milli(10))
	mine := &Sequence{Prompt: prompt(16), MaxTokens: 300, User: User{UID: 1, Name: "a"}}
	c.arrive = []arrival{{0, mine}}
	for round := range 4 {
		for range 20 {
			q := &Sequence{Prompt: prompt(200), MaxTokens: 2, User: user}
			c.arrive = append(c.arrive, arrival{milli(200 * float64(1+round)), q})
		}
	}
	c.run(time.Minute)
	gaps := c.gaps([]*Sequence{mine})
	return gaps[len(gaps)-1]
}

// A burst holds up nobody but its own user's name.
func TestABurstHoldsUpItsOwnNameAlone(t *testing.T) {
	if own := stretched(t, User{UID: 1, Name: "a"}); own < milli(20) {
		t.Errorf("beside a burst of its own a sequence waits for %v at most: there is no burst", own)
	}
	for _, other := range []User{{UID: 1, Name: "b"}, {UID: 2, Name: "a"}} {
		if gap := stretched(t, other); gap > milli(14.5) { // once there is a chunk whose time is not known
			t.Errorf("beside a burst of %+v a sequence waits for %v", other, gap)
		}
	}
}

// Whoever begins to run while another's burst goes on waits no longer than at other times.
func TestABurstHoldsUpNobodyWhoComesLater(t *testing.T) {
	c := newClocked(t, h200, milli(10))
	other := &Sequence{Prompt: prompt(16), MaxTokens: 40, User: User{UID: 2}}
	for range 60 {
		c.arrive = append(c.arrive, arrival{0, &Sequence{Prompt: prompt(400), MaxTokens: 2, User: User{UID: 1}}})
	}
	c.arrive = append(c.arrive, arrival{milli(100), other})
	c.run(time.Minute)
	gaps := c.gaps([]*Sequence{other})
	if worst := gaps[len(gaps)-1]; c.tokens[other][0] > milli(200) || worst > milli(20) {
		t.Errorf("its first token comes after %v, and it waits for %v", c.tokens[other][0], worst)
	}
}
