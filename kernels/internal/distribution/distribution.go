// Package distribution holds the exact distribution of a sampled token, and a test of draws
// from it. The tests of every device compare with it.
package distribution

import (
	"math"
	"slices"
	"sort"
	"testing"
)

// Filters are the settings of kernels.Sampling that form the distribution.
type Filters struct {
	Temperature, TopP, MinP, RepeatPenalty float32
	TopK                                   int32

	PresencePenalty, FrequencyPenalty float32
	Bias                              map[int32]float32
	Allowed                           []int32 // by the mask; nil: all
}

// Exact returns the probabilities after the filters, by token id. It is written for clarity:
// a map of probabilities that each filter thins out. Tokens of window get the repeat penalty, those
// of completion the presence and the frequency penalty.
func Exact(logits []float32, f Filters, window, completion []int32) map[int]float64 {
	l := scaled(logits, f, window, completion)
	var order []int
	for i := range l {
		if f.Allowed == nil || slices.Contains(f.Allowed, int32(i)) {
			order = append(order, i)
		}
	}
	sort.SliceStable(order, func(a, b int) bool { return l[order[a]] > l[order[b]] })
	if f.TopK > 0 {
		order = order[:min(int(f.TopK), len(order))]
	}
	p := softmax(l, order)
	if f.TopP < 1 {
		var sum float64
		for i, id := range order {
			if sum += p[id]; sum >= float64(f.TopP) {
				order = order[:i+1]
				break
			}
		}
	}
	p = softmax(l, order)
	keep := order[:0:0]
	for _, id := range order {
		if p[id] >= float64(f.MinP)*p[order[0]] {
			keep = append(keep, id)
		}
	}
	return softmax(l, keep)
}

// scaled returns the logits after penalties, biases and temperature.
func scaled(logits []float32, f Filters, window, completion []int32) []float64 {
	l := make([]float64, len(logits))
	for i, v := range logits {
		l[i] = float64(v)
		if slices.Contains(window, int32(i)) {
			if v > 0 {
				l[i] /= float64(f.RepeatPenalty)
			} else {
				l[i] *= float64(f.RepeatPenalty)
			}
		}
		for n, id := range completion {
			if id == int32(i) {
				l[i] -= float64(f.FrequencyPenalty)
				if slices.Index(completion, id) == n {
					l[i] -= float64(f.PresencePenalty)
				}
			}
		}
		l[i] = (l[i] + float64(f.Bias[int32(i)])) / float64(f.Temperature)
	}
	return l
}

func softmax(l []float64, ids []int) map[int]float64 {
	p, sum := map[int]float64{}, 0.0
	for _, id := range ids {
		p[id] = math.Exp(l[id])
		sum += p[id]
	}
	for id := range p {
		p[id] /= sum
	}
	return p
}

// Check fails if counts of draws differ from the probabilities in want by a chi-square test at
// 99.99%, or if a token without probability was drawn. Tokens of which fewer than five draws are
// expected count as one.
func Check(t *testing.T, name string, counts map[int]int, want map[int]float64, draws float64) {
	t.Helper()
	var chi float64
	for id, n := range counts {
		if want[id] == 0 {
			t.Fatalf("%s: token %d was drawn %d times and has no probability", name, id, n)
		}
	}
	cells, rare, rareDrawn := 0.0, 0.0, 0.0
	for id, p := range want {
		if draws*p < 5 {
			rare, rareDrawn = rare+draws*p, rareDrawn+float64(counts[id])
			continue
		}
		chi += math.Pow(float64(counts[id])-draws*p, 2) / (draws * p)
		cells++
	}
	if rare > 0 {
		chi += math.Pow(rareDrawn-rare, 2) / max(rare, 1)
		cells++
	}
	if cells < 2 {
		return // only one outcome is possible
	}
	// Wilson and Hilferty's approximation of the 99.99% quantile.
	free := cells - 1
	if limit := free * math.Pow(1-2/(9*free)+3.72*math.Sqrt(2/(9*free)), 3); chi > limit {
		t.Errorf("%s: chi-square %.1f over %.0f degrees of freedom, wants at most %.1f", name, chi, free, limit)
	}
}
