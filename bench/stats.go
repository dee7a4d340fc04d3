package bench

import (
	"math"
	"slices"
	"time"
)

// Summary describes samples of a duration, in milliseconds.
type Summary struct {
	Min     float64 `json:"min"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
	Samples int     `json:"samples"`
}

// Summarize describes samples; the zero Summary where there are none.
func Summarize(samples []time.Duration) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	return Summary{
		Min:     milliseconds(sorted[0]),
		P50:     milliseconds(percentile(sorted, 50)),
		P99:     milliseconds(percentile(sorted, 99)),
		Max:     milliseconds(sorted[len(sorted)-1]),
		Samples: len(sorted),
	}
}

// percentile returns the p-th percentile, 0 < p <= 100, of sorted by nearest
// rank: the least sample such that p% of all are not above it. So it is always
// a sample, and P99 of fewer than 100 samples is the greatest.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p * float64(len(sorted)) / 100))
	return sorted[rank-1]
}

func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}
