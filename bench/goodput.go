package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// ErrLost means that requests failed.
var ErrLost = errors.New("requests failed")

// Lossless returns ErrLost with the first row whose requests did not all end well.
func (t *Throughput) Lossless() error {
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Failed > 0 || r.Requests == 0 {
			return fmt.Errorf("%w: %s: %d of %d: %v", ErrLost, r.label(), r.Failed, r.Requests, r.Failures)
		}
	}
	return nil
}

// share returns a part of the row's requests as text.
func (r *LoadRow) share(n int) string {
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(1, r.Requests)))
}

// goodSummary says up to which rate nine in ten requests of Reel's open loops were good; nothing without an SLO.
func (t *Throughput) goodSummary() []string {
	most := 0.0
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Target == "reel" && r.GoodputPerS != nil && 10*r.Good >= 9*r.Requests && r.Requests > 0 {
			most = max(most, r.Rate)
		}
	}
	if most == 0 {
		return nil
	}
	return []string{fmt.Sprintf("nine in ten requests within %s up to %g requests/s", t.SLO, most)}
}

// goodputChart draws the rate of good requests against that of all.
func (t *Throughput) goodputChart() Chart {
	c := Chart{Title: "Goodput (" + t.SLO + ")", X: "requests/s, open loop", Y: "good requests/s"}
	for _, target := range t.targets() {
		each, average := Series{Name: target + ", every gap"}, Series{Name: target + ", gaps on average"}
		for i := range t.Rows {
			r := &t.Rows[i]
			if r.Target != target || r.Rate == 0 || r.GoodputPerS == nil {
				continue
			}
			each.X, each.Y = append(each.X, r.Rate), append(each.Y, *r.GoodputPerS)
			average.X, average.Y = each.X, append(average.Y, float64(r.GoodOnAverage)/t.DurationS)
		}
		if len(each.X) > 1 {
			c.add(each)
			c.add(average)
		}
	}
	return c
}

// curves returns the image of each result's goodput against the rate, by path: beside the result, with its name.
func curves(dir string, all []foundResult) (map[string][]byte, error) {
	images := map[string][]byte{}
	for _, f := range all {
		if !f.hasCurve() {
			continue
		}
		svg, err := render("svg", []Chart{f.Result.(*Throughput).goodputChart()})
		if err != nil {
			return nil, err
		}
		images[filepath.Join(dir, f.machine, f.curve())] = svg
	}
	return images, nil
}

// curve returns the name of the image of a result's goodput.
func (f *foundResult) curve() string { return strings.TrimSuffix(f.file, ".json") + ".svg" }

// hasCurve reports whether a result has goodput at several rates.
func (f *foundResult) hasCurve() bool {
	t, ok := f.Result.(*Throughput)
	return ok && len(t.goodputChart().Series) > 0
}
