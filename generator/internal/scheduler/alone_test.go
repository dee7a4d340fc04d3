package scheduler

import (
	"slices"
	"testing"
	"time"
)

// h100 has how long a prefill step of so many rows takes, by kernels/notes/stream_k.md, in a row.
func h100(rows int) time.Duration {
	times := [][2]float64{{1, 4.6}, {208, 5.9}, {416, 10.5}, {768, 18.1}, {1000, 26}, {1536, 33.9}}
	return milli(between(times, float64(rows)))
}

// withLongSteps returns a scheduler of steps with up to 416 prompt tokens, or 1,536 of a prompt that is alone.
func withLongSteps(t *testing.T, gap time.Duration, change func(*Options)) *Scheduler {
	o := Options{MaxBatch: 64, MaxQueue: 1000, Chunk: 416, LongChunk: 1536, Context: 8192, PageTokens: 16, Pages: 64 * 256,
		InFlight: 2, Gap: gap}
	if change != nil {
		change(&o)
	}
	return mustNew(t, o)
}

// prefill runs steps until q has its first token, and returns the rows of those with prompt tokens.
func prefill(s *Scheduler, q *Sequence) (rows []int) {
	for q.sampled == 0 {
		b := s.Next()
		if b.Prefill {
			rows = append(rows, len(b.Step.Rows))
			s.Took(b, h100(len(b.Step.Rows)))
		} else {
			s.Took(b, milli(5))
		}
		s.Complete(b.Step.Number)
	}
	return rows
}

// alone runs four prompts of one scope and of so many tokens each, one after another. It returns the rows of each step of
// the last one.
func alone(t *testing.T, gap time.Duration, tokens int, scope string) (rows []int) {
	s := withLongSteps(t, gap, nil)
	for range 4 { // to learn
		q := &Sequence{Prompt: prompt(tokens), MaxTokens: 1, ReadOnly: true, Scope: scope}
		if err := s.Add(q); err != nil {
			t.Fatal(err)
		}
		rows = prefill(s, q)
		s.Remove(q)
	}
	return rows
}

// A prompt that is alone has long steps of whole tiles, if they are expected to end within two gaps. What is left of it is
// one step. It has no small last step where that takes longer.
func TestAPromptAloneHasLongSteps(t *testing.T) {
	for _, c := range []struct {
		tokens int
		gap    float64
		want   []int
	}{{4000, 0, []int{1536, 1536, 768, 160}}, {4000, 20, []int{1536, 1536, 512, 416}},
		{4000, 10, []int{768, 768, 768, 768, 512, 416}}, {4000, 6, []int{416, 416, 416, 416, 416, 416, 416, 416, 416, 256}},
		{2000, 0, []int{1536, 464}}, {2000, 20, []int{1536, 464}}, {2000, 10, []int{768, 768, 464}},
		{1552, 20, []int{1536, 16}}, {1300, 20, []int{768, 532}}, {1184, 20, []int{768, 416}}, {1100, 20, []int{768, 332}},
		{930, 20, []int{528, 402}}, {833, 20, []int{432, 401}}, {832, 20, []int{416, 416}}, {800, 20, []int{416, 384}},
		{768, 20, []int{768}}, {767, 20, []int{767}}, {500, 20, []int{500}}, {500, 6, []int{416, 84}},
		{417, 20, []int{417}}, {416, 20, []int{416}}} {
		for _, scope := range []string{"", "a"} { // with one, steps end with whole pages
			if got := alone(t, milli(c.gap), c.tokens, scope); !slices.Equal(got, c.want) {
				t.Errorf("%d tokens, a gap of %v ms, scope %q: steps of %v rows, wants %v", c.tokens, c.gap, scope, got, c.want)
			}
		}
	}
}

// A step whose time cannot be told is not tried: its device may be slow.
func TestALongStepIsExpectedFirst(t *testing.T) {
	s := withLongSteps(t, milli(20), nil)
	q := &Sequence{Prompt: prompt(4000), MaxTokens: 1}
	if err := s.Add(q); err != nil {
		t.Fatal(err)
	}
	if got := prefill(s, q); got[0] != 416 || slices.Max(got) != 1536 {
		t.Errorf("the first prompt has steps of %v rows, wants 416 before longer ones", got)
	}
}

// The last row of a prompt, which is sampled, waits for its mask in a long step too.
func TestALongStepWaitsForTheMask(t *testing.T) {
	for _, tokens := range []int{768, 1536, 1537, 2304} {
		s := withLongSteps(t, 0, nil)
		q := &Sequence{Prompt: prompt(tokens), MaxTokens: 1}
		q.Sampling.Masked = true
		if err := s.Add(q); err != nil {
			t.Fatal(err)
		}
		for b := s.Next(); b != nil; b = s.Next() {
			if len(b.Sampled) > 0 {
				t.Fatalf("a prompt of %d tokens is sampled without a mask, in a step of %d rows", tokens, len(b.Step.Rows))
			}
			s.Complete(b.Step.Number)
		}
		if q.Allow(nil); len(prefill(s, q)) != 1 {
			t.Errorf("a prompt of %d tokens does not end in one step once the mask is there", tokens)
		}
	}
}

// Where others run, or without a gap wait, no step is longer than usual.
func TestNoLongStepsBesideOthers(t *testing.T) {
	runs := func(s *Scheduler, masked bool) {
		q := &Sequence{Prompt: prompt(16), MaxTokens: 1000}
		q.Sampling.Masked = masked
		s.Add(q)
		q.Allow(nil)
		prefill(s, q)
	}
	both, none := []float64{0, 20}, []float64{0} // with a gap, prompts that wait together may have long steps
	for name, c := range map[string]struct {
		gaps []float64
		add  func(s *Scheduler, q *Sequence)
	}{
		"a sequence that runs":               {both, func(s *Scheduler, q *Sequence) { runs(s, false); s.Add(q) }},
		"a sequence that waits for its mask": {both, func(s *Scheduler, q *Sequence) { runs(s, true); s.Add(q) }},
		"another prompt": {none, func(s *Scheduler, q *Sequence) {
			s.Add(&Sequence{Prompt: prompt(6000), MaxTokens: 8})
			s.Add(q)
		}},
		"a prompt in the queue": {none, func(s *Scheduler, q *Sequence) {
			s.MaxBatch, s.freeSlots = 1, s.freeSlots[:1]
			s.Add(q)
			s.Add(&Sequence{Prompt: prompt(6000), MaxTokens: 8})
		}},
	} {
		for _, gap := range c.gaps {
			s := withLongSteps(t, milli(gap), nil)
			for _, rows := range []int{16, 416, 768, 1536} { // their times are known
				s.costs.tookPrompt(&s.costs.prompts, rows, rows*rows/2, float64(h100(rows)))
			}
			q := &Sequence{Prompt: prompt(4000), MaxTokens: 8}
			c.add(s, q)
			if got := prefill(s, q); len(got) == 0 || slices.Max(got) > 416 {
				t.Errorf("%s, a gap of %v: steps of %v rows", name, gap, got)
			}
		}
	}
}

// Whoever comes while a long step runs waits for its end, and the rest of the long prompt holds up nobody longer than the
// gap allows.
func TestALongStepHoldsUpWhoComesForTwoGaps(t *testing.T) {
	const gap = 20
	c := newClocked(t, h200, milli(gap))
	c.s = withLongSteps(t, milli(gap), nil)
	var short []arrival
	for i := range 40 {
		at := milli(1000 * float64(i))
		c.arrive = append(c.arrive, arrival{at, &Sequence{Prompt: prompt(7000), MaxTokens: 2, ReadOnly: true}})
		short = append(short, arrival{at + milli(5+3.1*float64(i)),
			&Sequence{Prompt: prompt(16), MaxTokens: 20, ReadOnly: true, Connection: 1}})
		c.arrive = append(c.arrive, short[i])
	}
	c.run(time.Hour)
	var waits []time.Duration
	for _, a := range short[3:] { // by then the times of steps are known
		waits = append(waits, c.tokens[a.q][0]-a.at)
		if gaps := c.gaps([]*Sequence{a.q}); gaps[len(gaps)-1] > milli(gap+1) {
			t.Errorf("it waits for %v between two tokens", gaps[len(gaps)-1])
		}
	}
	slices.Sort(waits)
	worst, least := waits[len(waits)-1], waits[0]
	t.Logf("short prompts have their first tokens after %v to %v, P50 %v", least, worst, quantile(waits, 0.5))
	// The step that runs, the time before its end at which the next one is formed, and a chunk with the prompt in it.
	if worst > milli(aloneGaps*gap+2+13) || worst < milli(gap) {
		t.Errorf("a short prompt waits for %v", worst)
	}
}

// Long steps make bursts at most as much slower as one of them takes, and bursts of short prompts have none once long
// steps were tried.
func TestLongStepsSlowNoBurst(t *testing.T) {
	for _, length := range []int{16, 400, 1000} {
		steps := 0 // long ones
		times := func(long int) []time.Duration {
			c := newClocked(t, h200, milli(20))
			c.s = withLongSteps(t, milli(20), func(o *Options) { o.LongChunk = long })
			sequence := func(int) *Sequence { return &Sequence{Prompt: prompt(length), MaxTokens: 8, ReadOnly: true} }
			c.bursts(2, 64, sequence)
			c.formed = func(b *Batch) {
				if b.Prompts() > c.s.Chunk {
					steps++
				}
			}
			return c.bursts(1, 64, sequence)
		}
		long, short := times(1536), times(0)
		for _, part := range []float64{0.5, 1} {
			// The first of them is alone for a moment.
			if a, b := quantile(long, part), quantile(short, part); a > b+milli(aloneGaps*20) {
				t.Errorf("64 prompts of %d: %v of them have their first tokens after %v, without long steps %v", length,
					part, a, b)
			}
		}
		if length == 16 && steps > 0 || length > 16 && steps == 0 {
			t.Errorf("64 prompts of %d have %d long steps", length, steps)
		}
	}
}
