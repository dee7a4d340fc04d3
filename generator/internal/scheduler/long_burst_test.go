package scheduler

import (
	"testing"
	"time"
)

// inARow has an H100's step times when they come in a row, by kernels/notes/pace.md: 336 rows take as long as 416.
// In hot long steps take less time a row, as 64 prompts of 400 had them in both sizes of chunks.
var (
	inARow = machine{decodes: [][2]float64{{1, 4.6}, {16, 5}, {64, 7}}, tile: 1 << 20, attention: 1.64,
		prompts: [][2]float64{{16, 4.9}, {104, 5.4}, {208, 5.9}, {336, 10}, {416, 10.1}, {768, 19}, {1536, 37.5}}}
	hot = machine{decodes: inARow.decodes, tile: 1 << 20, attention: 1.64,
		prompts: [][2]float64{{16, 4.9}, {104, 5.4}, {208, 5.9}, {336, 10}, {416, 11.2}, {768, 19.8}, {1536, 38.8}}}
)

// longBurst returns the times to the first tokens of the last of several bursts, by users in turn, with long steps.
func longBurst(t *testing.T, m machine, n, length, users int) []time.Duration {
	c := newClocked(t, m, milli(20))
	c.s = withLongSteps(t, milli(20), nil)
	return c.bursts(4, n, func(i int) *Sequence {
		return &Sequence{Prompt: prompt(length), MaxTokens: 8, ReadOnly: true, User: User{UID: uint32(i % users)}}
	})
}

// Long steps come where they take less time a row, and many short prompts are not held up by them.
func TestABurstHasLongStepsWhereTheyPay(t *testing.T) {
	for _, c := range []struct {
		name          string
		m             machine
		length, users int
		p50, last     float64
	}{{"in a row", inARow, 16, 1, 25, 33}, {"in a row", inARow, 400, 1, 330, 660}, {"hot", hot, 16, 1, 26, 33},
		{"hot", hot, 400, 1, 355, 695}, {"hot", hot, 400, 2, 355, 705}} {
		first := longBurst(t, c.m, 64, c.length, c.users)
		p50, last := quantile(first, 0.5), first[len(first)-1]
		t.Logf("%s, 64 prompts of %d by %d: P50 %v, last %v", c.name, c.length, c.users, p50, last)
		if p50 > milli(c.p50) || last > milli(c.last) {
			t.Errorf("out of bounds: %+v", c)
		}
	}
}

// A long step ends in time, and no more prompts end in it than may.
func TestALongStepOfABurstHasBounds(t *testing.T) {
	known := func(s *Scheduler) {
		for _, p := range hot.prompts {
			s.costs.tookPrompt(&s.costs.prompts, int(p[0]), 0, p[1]*1e6)
		}
	}
	for name, c := range map[string]struct {
		d    demand
		most float64
		want int
	}{
		"many tokens":        {demand{prompts: 64, tokens: 25600}, 40e6, 1536},
		"less time":          {demand{prompts: 64, tokens: 25600}, 20e6, 768},
		"no time":            {demand{prompts: 64, tokens: 25600}, 12e6, 416},
		"the mean counts":    {demand{prompts: 64, tokens: 2000}, 40e6, 416},
		"too many would end": {demand{prompts: 1600, tokens: 25600}, 40e6, 768},
	} {
		s := withLongSteps(t, milli(20), nil)
		if got := s.burstChunk(c.d, c.most); got != 416 {
			t.Errorf("%s: %d rows before any time is known", name, got)
		}
		known(s)
		if got := s.burstChunk(c.d, c.most); got != c.want {
			t.Errorf("%s: %d rows, wants %d", name, got, c.want)
		}
	}
}

// A step that the prompts do not fill has no whole tiles, and less time is known of it than of a full one.
func TestALongStepOfABurstIsFull(t *testing.T) {
	s := withLongSteps(t, milli(20), nil)
	s.costs.tookPrompt(&s.costs.prompts, 416, 0, 10e6)
	s.costs.tookPrompt(&s.costs.prompts, 1536, 0, 12e6)
	for tokens, want := range map[int]int{1535: 768, 1536: 1536} {
		if got := s.burstChunk(demand{prompts: 2, tokens: tokens}, 40e6); got != want {
			t.Errorf("%d tokens: %d rows, wants %d", tokens, got, want)
		}
	}
}
