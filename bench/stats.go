package bench

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Summary describes samples of a duration, in milliseconds. Percentiles come from an HDR
// histogram, exact to 0.1%. P99 of fewer than 50 samples is the greatest.
type Summary struct {
	Min     float64 `json:"min"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
	Mean    float64 `json:"mean"`
	Samples int     `json:"samples"`
}

// maxDuration is the longest duration that is recorded exactly.
const maxDuration = time.Hour

// Recorder counts durations in a histogram of microseconds, so its memory does not grow
// with the samples. Only one goroutine at a time may use it.
type Recorder struct{ h *hdrhistogram.Histogram }

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	return &Recorder{hdrhistogram.New(1, maxDuration.Microseconds(), 3)}
}

// Add counts d, rounded to a microsecond.
func (r *Recorder) Add(d time.Duration) {
	d = min(max(d, 0), maxDuration).Round(time.Microsecond)
	if err := r.h.RecordValue(d.Microseconds()); err != nil {
		panic(err) // d is within the histogram's range
	}
}

// Summary describes the recorded durations; it is zero if there are none.
func (r *Recorder) Summary() Summary {
	n := r.h.TotalCount()
	if n == 0 {
		return Summary{}
	}
	at := r.h.ValueAtPercentiles([]float64{50, 90, 99})
	return Summary{
		Min: ms(r.h.Min()), P50: ms(at[50]), P90: ms(at[90]), P99: ms(at[99]), Max: ms(r.h.Max()),
		Mean: r.h.Mean() / 1000, Samples: int(n),
	}
}

// ms converts microseconds to milliseconds.
func ms(microseconds int64) float64 { return float64(microseconds) / 1000 }

// Summarize describes samples.
func Summarize(samples []time.Duration) Summary {
	r := NewRecorder()
	for _, d := range samples {
		r.Add(d)
	}
	return r.Summary()
}

func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}

// median returns the median of values, or 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// mean returns the mean of values, or 0 if there are none.
func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}
