package bench

import (
	"context"
	"fmt"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// LoadOptions describe the loads of [MeasureThroughput]: closed loops with Concurrency
// clients, and open loops with Rates requests per second.
type LoadOptions struct {
	Concurrency []int
	Rates       []float64
	Warmup      time.Duration // before each level; not part of the measurement
	Duration    time.Duration // of each level
	Drain       time.Duration // for requests that have begun; slower ones are cut off
	Workload    Workload
	SLO         SLO // zero: no goodput is measured
	Seed        uint64
	Progress    Progress
}

// Throughput is the result of [MeasureThroughput]: a row for each level and target.
type Throughput struct {
	Head
	DurationS float64   `json:"duration_s"` // of each level
	Prompt    string    `json:"prompt_tokens"`
	Output    string    `json:"output_tokens"`
	SLO       string    `json:"slo,omitempty"`
	Rows      []LoadRow `json:"rows"`
	Memory    Memory    `json:"memory"`
}

// LoadRow is the result of one level of load on one target.
type LoadRow struct {
	Target      string  `json:"target"`
	Concurrency int     `json:"concurrency,omitempty"` // of a closed loop
	Rate        float64 `json:"rate,omitempty"`        // of an open loop, requests per second

	Requests     int            `json:"requests"` // due in the measured time
	Failed       int            `json:"failed"`
	Failures     map[string]int `json:"failures,omitempty"` // by error
	Warmups      int            `json:"warmup_requests"`
	WarmupS      float64        `json:"warmup_s"`
	TokensPerS   float64        `json:"tokens_per_s"`   // of completions
	RequestsPerS float64        `json:"requests_per_s"` // that ended
	GoodputPerS  *float64       `json:"goodput_per_s,omitempty"`
	// Good is how many of Requests kept every bound of the SLO; GoodOnAverage, how many did if itl bounds the mean of a
	// request's gaps in place of each.
	Good          int `json:"good,omitempty"`
	GoodOnAverage int `json:"good_on_average,omitempty"`

	TTFT         Summary         `json:"ttft_ms"`
	TPOT         Summary         `json:"tpot_ms"` // a request's mean time per token after the first
	ITL          Summary         `json:"itl_ms"`
	E2E          Summary         `json:"e2e_ms"`
	Graphs       protocol.Graphs `json:"graphs"`
	CachedTokens int             `json:"cached_tokens,omitempty"` // of prompts, that the server had cached
	Slices       []Slice         `json:"slices"`
}

// Slice is a part of a level's time, to judge noise by.
type Slice struct {
	TokensPerS float64 `json:"tokens_per_s"`
	TTFTP50    float64 `json:"ttft_p50_ms"`
}

// MeasureThroughput puts each level of load on each target, one after the other. limits are
// those of the first target. Errors are ErrOptions and ctx's; failed requests are counted.
func MeasureThroughput(
	ctx context.Context, targets []Target, limits client.Limits, o LoadOptions,
) (*Throughput, error) {
	if err := o.check(limits); err != nil {
		return nil, err
	}
	report := &Throughput{
		Head: Head{Kind: "throughput"}, DurationS: o.Duration.Seconds(), SLO: o.SLO.String(),
	}
	report.Prompt, report.Output = o.Workload.lengths()
	seen := make([]bursts, len(targets))
	levels := o.levels()
	for i, level := range levels {
		rows := make([]LoadRow, len(targets))
		for k := range targets {
			at := (i + k) % len(targets)
			rows[at] = o.level(ctx, targets[at], limits.Vocab, level, &seen[at])
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if o.Progress != nil {
				o.Progress(i*len(targets)+k+1, len(levels)*len(targets))
			}
		}
		report.Rows = append(report.Rows, rows...)
	}
	report.notePeers(targets)
	for i := range targets {
		report.warn(seen[i].verdict(targets[i].Name()))
	}
	report.warnOfFailures()
	report.warnOfCache()
	return report, nil
}

func (o *LoadOptions) check(limits client.Limits) error {
	for _, n := range o.Concurrency {
		if n < 1 {
			return fmt.Errorf("%w: a concurrency of %d: it must be at least 1", ErrOptions, n)
		}
	}
	for _, r := range o.Rates {
		if !(r > 0) {
			return fmt.Errorf("%w: a rate of %g requests a second: it must be more than 0", ErrOptions, r)
		}
	}
	if len(o.Concurrency)+len(o.Rates) == 0 || o.Duration <= 0 || o.Warmup < 0 || o.Drain < 0 {
		return fmt.Errorf("%w: give a concurrency or a rate, and a duration", ErrOptions)
	}
	return o.Workload.check(limits)
}

// level is one concurrency or, if that is 0, one rate.
type level struct {
	concurrency int
	rate        float64
}

func (o *LoadOptions) levels() (all []level) {
	for _, n := range o.Concurrency {
		all = append(all, level{concurrency: n})
	}
	for _, r := range o.Rates {
		all = append(all, level{rate: r})
	}
	return all
}

// level measures one level on one target. Each target gets the same requests.
func (o *LoadOptions) level(ctx context.Context, t Target, vocab int, at level, seen *bursts) LoadRow {
	l := newLoad(t, newWorkSource(o.Workload, vocab, o.Seed), o)
	if at.concurrency > 0 {
		l.closed(ctx, at.concurrency)
	} else {
		l.open(ctx, at.rate, o.Seed)
	}
	for i := range l.all {
		// In a batch several tokens of one step belong to different requests, so they
		// don't count as a burst.
		seen.add(&l.all[i])
	}
	row := l.row(o.SLO)
	row.Concurrency, row.Rate = at.concurrency, at.rate
	return row
}

// warnOfFailures adds a warning for each row with failures.
func (t *Throughput) warnOfFailures() {
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Failed > 0 {
			t.warn(fmt.Sprintf("%s: %d of %d requests failed: %v", r.label(), r.Failed, r.Requests, r.Failures))
		}
	}
}

// warnOfCache adds a warning for each row with cached prompt tokens.
func (t *Throughput) warnOfCache() {
	for i := range t.Rows {
		if r := &t.Rows[i]; r.CachedTokens > 0 {
			t.warn(fmt.Sprintf("%s: %d prompt tokens came from the server's cache", r.label(), r.CachedTokens))
		}
	}
}

// label returns the row's name.
func (r *LoadRow) label() string {
	if r.Concurrency > 0 {
		return fmt.Sprintf("%s, %d clients", r.Target, r.Concurrency)
	}
	return fmt.Sprintf("%s, %g/s", r.Target, r.Rate)
}

// Tables returns a table of the rates and percentiles of each level.
func (t *Throughput) Tables() []Table {
	table := Table{
		Title: fmt.Sprintf("%s: prompts of %s tokens, completions of %s; %g s each; milliseconds at the client",
			t.Provenance.Model, t.Prompt, t.Output, t.DurationS),
		Columns: []string{
			"load", "tok/s", "req/s", "goodput/s", "good", "on average", "TTFT P50", "P99", "TPOT P50", "P99", "ITL P50", "P99", "max",
			"E2E P50", "P99", "requests", "failed",
		},
		Notes: t.notes(),
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		goodput, good, average := "-", "-", "-"
		if r.GoodputPerS != nil {
			goodput, good, average = fmt.Sprintf("%.2f", *r.GoodputPerS), r.share(r.Good), r.share(r.GoodOnAverage)
		}
		table.row(r.label(), r.TokensPerS, r.RequestsPerS, goodput, good, average, r.TTFT.P50, r.TTFT.P99, r.TPOT.P50, r.TPOT.P99,
			r.ITL.P50, r.ITL.P99, r.ITL.Max, r.E2E.P50, r.E2E.P99, r.Requests, r.Failed)
	}
	return []Table{table}
}

// Metrics returns the rate and the median TTFT of each slice of a level's time.
func (t *Throughput) Metrics() []Metric {
	var all []Metric
	for i := range t.Rows {
		r := &t.Rows[i]
		name := fmt.Sprintf("throughput/%s/clients=%d/", r.Target, r.Concurrency)
		if r.Rate > 0 {
			name = fmt.Sprintf("throughput/%s/rate=%g/", r.Target, r.Rate)
		}
		rate := Metric{Name: name + "rate", Unit: "tok/s", Higher: true}
		ttft := Metric{Name: name + "ttft-p50", Unit: "ms"}
		for _, s := range r.Slices {
			rate.Values, ttft.Values = append(rate.Values, s.TokensPerS), append(ttft.Values, s.TTFTP50)
		}
		all = append(all, rate, ttft)
	}
	return all
}

// Charts returns charts of latency against throughput, with a point for each level, and before them one of goodput
// against the rate of open loops, if there are two of them and an SLO.
func (t *Throughput) Charts() []Chart {
	if c := t.goodputChart(); len(c.Series) > 0 {
		return append([]Chart{c}, t.latencyCharts()...)
	}
	return t.latencyCharts()
}

// latencyCharts draws latency against throughput.
func (t *Throughput) latencyCharts() []Chart {
	ttft := Chart{Title: "Time to first token against throughput", X: "tokens/s", Y: "TTFT, ms"}
	itl := Chart{Title: "Time between tokens against throughput", X: "tokens/s", Y: "ITL, ms"}
	for _, kind := range []string{"closed", "open"} {
		for _, target := range t.targets() {
			ttft.add(t.curve(target, kind, "P50", func(r *LoadRow) float64 { return r.TTFT.P50 }))
			ttft.add(t.curve(target, kind, "P99", func(r *LoadRow) float64 { return r.TTFT.P99 }))
			itl.add(t.curve(target, kind, "P50", func(r *LoadRow) float64 { return r.ITL.P50 }))
			itl.add(t.curve(target, kind, "P99", func(r *LoadRow) float64 { return r.ITL.P99 }))
		}
	}
	return []Chart{ttft, itl}
}

// targets returns the names of the targets, in the order of their first rows.
func (t *Throughput) targets() (names []string) {
	seen := map[string]bool{}
	for _, r := range t.Rows {
		if !seen[r.Target] {
			seen[r.Target] = true
			names = append(names, r.Target)
		}
	}
	return names
}

// curve returns one figure of a target's closed or open loops against their rate.
func (t *Throughput) curve(target, kind, name string, of func(*LoadRow) float64) Series {
	s := Series{Name: target + ", " + kind + " loop, " + name}
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Target == target && (r.Concurrency > 0) == (kind == "closed") {
			s.X, s.Y = append(s.X, r.TokensPerS), append(s.Y, of(r))
		}
	}
	return s
}
