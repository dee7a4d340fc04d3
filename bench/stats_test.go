package bench

import (
	"testing"
	"time"
)

// upTo returns n, n-1, …, 1 milliseconds.
func upTo(n int) []time.Duration {
	var samples []time.Duration
	for i := n; i > 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	return samples
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		samples []time.Duration
		want    Summary
	}{
		{nil, Summary{}},
		{upTo(1), Summary{1, 1, 1, 1, 1}},
		{upTo(2), Summary{1, 1, 2, 2, 2}},
		{upTo(5), Summary{1, 3, 5, 5, 5}},
		{upTo(100), Summary{1, 50, 99, 100, 100}},
		{upTo(101), Summary{1, 51, 100, 101, 101}},
		{upTo(200), Summary{1, 100, 198, 200, 200}},
		{[]time.Duration{1500 * time.Microsecond}, Summary{1.5, 1.5, 1.5, 1.5, 1}},
	} {
		if got := Summarize(c.samples); got != c.want {
			t.Errorf("%d samples: %+v, want %+v", len(c.samples), got, c.want)
		}
	}
}

func TestSummarizeLeavesSamplesInOrder(t *testing.T) {
	samples := upTo(3)
	Summarize(samples)
	if samples[0] != 3*time.Millisecond {
		t.Errorf("sorted in place: %v", samples)
	}
}
