package engine

import (
	"reflect"
	"slices"
	"testing"

	"reel.internal/reel/graphs"
)

// A prompt that is alone has long steps, for which there is memory but no graph at start: the roller captures them when
// they come again. Its tokens are those of short steps.
func TestAPromptAloneHasTheTokensOfShortSteps(t *testing.T) {
	o := defaults()
	o.MaxQueue, o.Gap = 8, 0
	q := Request{Tokens: tokens(seeded(t), 200), MaxTokens: 12, Sampling: sampled(7), Cache: CacheOff}
	short := start(t, o, nil)
	s, _ := short.submit(q)
	want := s.must(t).tokens
	o.LongChunk = 4 * o.Chunk
	isLong := func(k graphs.Key) bool { return k.Class == graphs.PrefillClass && k.Tokens() > o.Chunk }
	if slices.ContainsFunc(o.Lattice(), isLong) {
		t.Error("graphs of long steps are captured at start")
	}
	long := start(t, o, nil)
	for range 6 {
		s, _ := long.submit(q)
		if got := s.must(t).tokens; !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, wants %v", got, want)
		}
	}
	long.eventually("a long step's graph is rolled", func() bool { return long.Stats().Graphs.Rolled > 0 })
	if a, b := short.Stats().Steps, long.Stats().Steps; 6*a.Prefill <= b.Prefill {
		t.Errorf("%d prefill steps for six prompts, and %d for one without long steps", b.Prefill, a.Prefill)
	}
}
