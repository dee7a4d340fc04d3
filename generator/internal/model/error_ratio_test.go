package model_test

import (
	"fmt"
	"math"
	"testing"
)

// squares are the sums of the squared errors of a quantised model's logits, and of those of its control.
type squares struct{ quantised, control float64 }

// errorRatio is the root mean square of the errors of quantised models, of that of their controls.
type errorRatio struct{ value, deviation float64 }

// ratioOf returns the ratio over all models, and its standard error by a jackknife that leaves out each model in turn.
// Logits of one model have errors in common, those of two have none.
func ratioOf(models []squares) (r errorRatio) {
	all := sumOf(models)
	r.value = math.Sqrt(all.quantised / all.control)
	var mean, spread float64
	without := make([]float64, len(models))
	for i, m := range models {
		without[i] = math.Sqrt((all.quantised - m.quantised) / (all.control - m.control))
		mean += without[i] / float64(len(models))
	}
	for _, v := range without {
		spread += (v - mean) * (v - mean)
	}
	r.deviation = math.Sqrt(spread * float64(len(models)-1) / float64(len(models)))
	return r
}

func sumOf(models []squares) (all squares) {
	for _, m := range models {
		all.quantised, all.control = all.quantised+m.quantised, all.control+m.control
	}
	return all
}

const (
	mostRatio     = 1.1  // of errors
	mostDeviation = 0.03 // with more, a ratio near the limit says too little
)

// above reports whether a ratio is further above the limit than its standard error explains.
func (r errorRatio) above() bool { return !(r.value <= mostRatio+2*r.deviation) }

// verdict returns what is wrong with a ratio: it is above the limit, or so near that its standard error is too large to
// tell.
func (r errorRatio) verdict() error {
	switch {
	case !(r.deviation <= mostDeviation) && !(r.value+3*r.deviation <= mostRatio):
		return fmt.Errorf("the ratio of errors, %.3f, has a standard error of %.3f: it says too little", r.value, r.deviation)
	case r.above():
		return fmt.Errorf("the error is %.3f ± %.3f of the control's, wants at most %.1f", r.value, r.deviation, mostRatio)
	}
	return nil
}

// A ratio is judged with its standard error.
func TestErrorRatio(t *testing.T) {
	for _, test := range []struct {
		name   string
		models []squares
		want   errorRatio
		fails  bool
	}{
		{"equal", []squares{{4, 4}, {9, 9}, {1, 1}}, errorRatio{1, 0}, false},
		{"above the limit", []squares{{1.22, 1}, {1.22, 1}, {1.22, 1}}, errorRatio{math.Sqrt(1.22), 0}, true},
		{"above the limit, as scatter explains", []squares{{1.25, 1}, {1.2, 1}, {1.23, 1}}, errorRatio{1.1076, 0.0065}, false},
		{"as much scatter, far below the limit", []squares{{0.36, 1}, {0.56, 1}, {0.16, 1}}, errorRatio{0.6, 0.097}, false},
		{"too much scatter", []squares{{1, 1}, {1.2, 1}, {0.8, 1}}, errorRatio{1, 0.058}, true},
		{"not a number", []squares{{math.NaN(), 1}, {1, 1}}, errorRatio{math.NaN(), math.NaN()}, true},
		{"one model", []squares{{1, 1}}, errorRatio{1, math.NaN()}, true},
	} {
		got := ratioOf(test.models)
		if !nearly(got.value, test.want.value) || !nearly(got.deviation, test.want.deviation) {
			t.Errorf("%s: %v, wants %v", test.name, got, test.want)
		}
		if err := got.verdict(); (err != nil) != test.fails {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func nearly(a, b float64) bool { return math.Abs(a-b) < 1e-3 || math.IsNaN(a) && math.IsNaN(b) }
