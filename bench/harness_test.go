package bench

import (
	"testing"
	"time"

	"reel.internal/reel/bench/internal/stub"
	"reel.internal/reel/client"
)

// BenchmarkHarness measures the cost of measuring a token: a generator that computes
// nothing sends as fast as it can. P50-µs/token includes the generator's writes.
func BenchmarkHarness(b *testing.B) {
	c, err := client.Dial(b.Context(), client.Options{Socket: (&stub.Generator{}).Listen(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	target, itl := NewReel(c), NewRecorder()
	w := Work{Tokens: []int32{1, 2, 3}, MaxTokens: 200}
	tokens := 0
	for b.Loop() {
		done := measure(b.Context(), target, w, time.Now())
		if err := done.short(w); err != nil {
			b.Fatal(err)
		}
		for _, gap := range done.Gaps() {
			itl.Add(gap)
		}
		tokens += done.Tokens
	}
	s := itl.Summary()
	b.ReportMetric(1000*s.P50, "P50-µs/token")
	b.ReportMetric(1000*s.P99, "P99-µs/token")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(tokens), "mean-µs/token")
}
