package scheduler

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"reel.internal/reel/kernels"
)

// rowsAt returns a prefill step of rows of one prompt from a position on.
func rowsAt(rows, position int) *Batch {
	b := &Batch{Prefill: true}
	for i := range rows {
		b.Step.Rows = append(b.Step.Rows, kernels.Row{Position: int32(position + i)})
	}
	return b
}

func decodeOf(sequences int) *Batch {
	return &Batch{Step: kernels.Step{Rows: make([]kernels.Row, sequences)}, Served: make([]*Sequence, sequences)}
}

// paced returns a scheduler with a gap.
func paced(t *testing.T, gap time.Duration) *Scheduler {
	return mustNew(t, Options{MaxBatch: 64, MaxQueue: 100, Chunk: 512, Context: 20_000, PageTokens: 16, Pages: 5000, InFlight: 2,
		Gap: gap})
}

// After some steps the times of others are known, at all positions.
func TestCostsFollowTheDevice(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s := paced(t, milli(10))
	step := func() *Batch { return rowsAt(16*(1+r.IntN(32)), r.IntN(1+r.IntN(16_000))) }
	for range 2000 {
		b := step()
		s.Took(b, h200.took(b))
	}
	worst := 0.0
	for range 200 {
		b := step()
		worst = max(worst, math.Abs(float64(s.Expected(b))/float64(h200.took(b))-1))
	}
	if worst > 0.12 {
		t.Errorf("a time is wrong by %.0f%%", 100*worst)
	}
}

// Costs that are known of small steps alone, or of very large ones too, keep no prompt to small ones.
func TestLargerChunksAreTried(t *testing.T) {
	for _, known := range [][]int{{16}, {16, 512}, {512}, {192, 224}} {
		s := paced(t, milli(10))
		s.Took(decodeOf(4), milli(3.4))
		for _, rows := range known {
			s.Took(rowsAt(rows, 0), h200.took(rowsAt(rows, 0)))
		}
		d := demand{prompts: 1, tokens: 100_000, decodes: 4, next: 4}
		for range 30 {
			b := rowsAt(s.chunk(d), 0)
			s.Took(b, h200.took(b))
		}
		if rows := s.chunk(d); rows != 208 {
			t.Errorf("after %d: %d rows, where 208 end in time and more do not", known, rows)
		}
	}
}

// One step that was held up says little, and nothing after a while.
func TestABadMeasurementIsForgotten(t *testing.T) {
	s := paced(t, milli(10))
	small, large := rowsAt(16, 0), rowsAt(208, 0)
	s.Took(small, milli(3.5))
	s.Took(large, milli(5))
	s.Took(large, milli(500))
	if got := s.Expected(large); got > milli(6.5) {
		t.Errorf("a step of 5 ms is expected to take %v after one of 500", got)
	}
	s.Took(decodeOf(3), milli(4))
	s.Took(decodeOf(3), milli(400))
	if got := s.Expected(decodeOf(3)); got > milli(5) {
		t.Errorf("a step of 4 ms is expected to take %v after one of 400", got)
	}
	s = paced(t, milli(10))
	s.Took(large, milli(500))
	for range remembered {
		s.Took(small, milli(3.5))
	}
	if got := s.Expected(large); got == 0 {
		t.Error("it is forgotten too soon")
	}
	s.Took(small, milli(3.5))
	if got := s.Expected(large); got != milli(3.5) {
		t.Errorf("%v is expected, as of one step long ago", got)
	}
	if rows := s.chunk(demand{prompts: 1, tokens: 10_000, decodes: 1, next: 1}); rows < 32 {
		t.Errorf("larger steps than of %d rows are not tried again", rows)
	}
}

// A step of a size that was never measured takes no less than a smaller one.
func TestASmallerStepIsALeastTime(t *testing.T) {
	s := paced(t, milli(10))
	s.Took(rowsAt(208, 0), milli(5))
	if got := s.Expected(rowsAt(192, 0)); got != 0 {
		t.Errorf("%v is expected of the smallest step", got)
	}
	s.Took(rowsAt(64, 0), milli(4))
	for rows, want := range map[int]time.Duration{48: 0, 64: milli(4), 192: milli(4), 208: milli(5), 400: milli(5)} {
		if got := s.Expected(rowsAt(rows, 0)); got != want {
			t.Errorf("%d rows: %v, not %v", rows, got, want)
		}
	}
}

// A prompt is divided into steps of one size, not into full ones and a rest.
func TestPromptsAreDividedEvenly(t *testing.T) {
	s := paced(t, milli(10))
	s.Took(decodeOf(16), milli(4.6))
	for _, rows := range []int{16, 112, 208, 224} {
		s.Took(rowsAt(rows, 0), h200.took(rowsAt(rows, 0)))
	}
	for tokens, want := range map[int]int{1: 16, 100: 112, 160: 160, 161: 96, 384: 128, 400: 144} {
		if rows := s.chunk(demand{prompts: 1, tokens: tokens, decodes: 16, next: 16}); rows != want {
			t.Errorf("%d tokens: %d rows, not %d", tokens, rows, want)
		}
	}
}

// Without a gap, or of a step without rows, nothing is expected.
func TestNothingIsExpectedUnasked(t *testing.T) {
	s := paced(t, 0)
	s.Took(decodeOf(1), milli(3))
	if got := s.Expected(decodeOf(1)); got != 0 {
		t.Errorf("%v", got)
	}
	s = paced(t, milli(10))
	s.Took(decodeOf(0), milli(3))
	s.Took(decodeOf(2), -1)
	if got := s.Expected(decodeOf(2)) + s.Expected(decodeOf(0)) + s.Expected(rowsAt(5, 0)); got != 0 {
		t.Errorf("%v", got)
	}
}
