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
	tiles := (rows + m.tile - 1) / m.tile
	products := between(m.prompts, float64(rows)/float64(tiles)) * (1 + 0.85*float64(tiles-1))
	return time.Duration(products*1e6 + m.attention*float64(before(&b.Step)))
}

// clocked is a scheduler whose steps take the time of a machine. The step after the one that runs is formed when the
// one before has ended or, with early, 2 ms before the one that runs ends.
type clocked struct {
	t       *testing.T
	s       *Scheduler
	machine machine
	noise   *rand.Rand // of up to a 20th of a step, or nil
	late    bool       // the next step is formed shortly before its begin
	now     time.Duration
	arrive  []arrival // in order of time
	tokens  map[*Sequence][]time.Duration
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
	o := Options{MaxBatch: 64, MaxQueue: 1000, Chunk: 512, Context: 4096, PageTokens: 16, Pages: 64 * 256, InFlight: 2, Gap: gap}
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
// the times to the prompts' first tokens.
func besides(t *testing.T, m machine, gap time.Duration, length int) (gaps, first []time.Duration) {
	c := newClocked(t, m, gap)
	c.noise = rand.New(rand.NewPCG(1, 2))
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

func TestPromptsHoldUpOthersTokensForTheGap(t *testing.T) {
	for _, gap := range []time.Duration{0, 8 * time.Millisecond, 10 * time.Millisecond, 12 * time.Millisecond, 15 * time.Millisecond} {
		gaps, first := besides(t, h200, gap, 2000)
		t.Logf("%v: ITL P50 %v, P99 %v, max %v; TTFT P50 %v, max %v", gap, quantile(gaps, 0.5), quantile(gaps, 0.99),
			gaps[len(gaps)-1], quantile(first, 0.5), first[len(first)-1])
	}
	faster := h200
	faster.decodes = [][2]float64{{1, 3.2}, {16, 4.0}, {24, 4.6}}
	faster.prompts = [][2]float64{{1, 3.5}, {100, 3.7}, {208, 4.6}}
	for _, gap := range []time.Duration{0, 9 * time.Millisecond, 10 * time.Millisecond} {
		gaps, first := besides(t, faster, gap, 2000)
		t.Logf("faster, %v: ITL P50 %v, P99 %v, max %v; TTFT P50 %v, max %v", gap, quantile(gaps, 0.5), quantile(gaps, 0.99),
			gaps[len(gaps)-1], quantile(first, 0.5), first[len(first)-1])
	}
}

// burst has n prompts arrive within a millisecond, and returns the times to their first tokens.
func burst(t *testing.T, m machine, gap time.Duration, n, length int) (first []time.Duration) {
	c := newClocked(t, m, gap)
	for range 3 { // once to learn
		c.now += time.Second
		var all []*Sequence
		begin := c.now
		for i := range n {
			q := &Sequence{Prompt: prompt(length), MaxTokens: 32}
			all = append(all, q)
			c.arrive = append(c.arrive, arrival{begin + time.Duration(i)*15*time.Microsecond, q})
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

func TestABurst(t *testing.T) {
	for _, length := range []int{16, 400} {
		for _, gap := range []time.Duration{0, 10 * time.Millisecond} {
			first := burst(t, h200, gap, 64, length)
			t.Logf("%v: 64 of %d: P50 %v, last %v", gap, length, quantile(first, 0.5), first[len(first)-1])
		}
	}
}
