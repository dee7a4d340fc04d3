package bench

import "fmt"

// label returns the row's name.
func (r *StreamsRow) label() string {
	if r.Rate == 0 {
		return fmt.Sprintf("%s, %d streams alone", r.Target, r.Streams)
	}
	return fmt.Sprintf("%s, %d streams, prompts of %d, %g/s", r.Target, r.Streams, r.Prompt, r.Rate)
}

// Tables returns a table of the streams and one of the bursts.
func (a *Arrivals) Tables() []Table {
	streams := Table{
		Title: fmt.Sprintf("%s: streams while prompts arrive; %g s each; milliseconds at the client",
			a.Provenance.Model, a.DurationS),
		Columns: []string{"load", "ITL P50", "P99", "max", "prompts", "TTFT P50", "P90", "max"},
		Notes:   a.notes(),
	}
	for i := range a.Streams {
		r := &a.Streams[i]
		streams.row(r.label(), r.ITL.P50, r.ITL.P99, r.ITL.Max, r.TTFT.Samples, orDash(r.TTFT.P50), orDash(r.TTFT.P90),
			orDash(r.TTFT.Max))
	}
	bursts := Table{
		Title:   "Bursts: the time to the first token, medians of the runs",
		Columns: []string{"burst", "first", "P50", "last", "runs"},
	}
	for i := range a.Bursts {
		r := &a.Bursts[i]
		bursts.row(fmt.Sprintf("%s, %d prompts of %d", r.Target, r.Requests, r.Prompt), median(r.First), median(r.P50),
			median(r.Last), len(r.P50))
	}
	if len(a.Bursts) == 0 {
		return []Table{streams}
	}
	return []Table{streams, bursts}
}

// Metrics returns the figures of the streams, and those of the bursts by run.
func (a *Arrivals) Metrics() (all []Metric) {
	for i := range a.Streams {
		r := &a.Streams[i]
		name := fmt.Sprintf("arrivals/%s/streams=%d/rate=%g/", r.Target, r.Streams, r.Rate)
		all = append(all, Metric{Name: name + "itl-p50", Unit: "ms", Values: []float64{r.ITL.P50}},
			Metric{Name: name + "itl-p99", Unit: "ms", Values: []float64{r.ITL.P99}})
		if r.Rate > 0 {
			all = append(all, Metric{Name: name + "ttft-p50", Unit: "ms", Values: []float64{r.TTFT.P50}})
		}
	}
	for i := range a.Bursts {
		r := &a.Bursts[i]
		name := fmt.Sprintf("arrivals/%s/burst=%dx%d/", r.Target, r.Requests, r.Prompt)
		all = append(all, Metric{Name: name + "ttft-p50", Unit: "ms", Values: r.P50},
			Metric{Name: name + "ttft-last", Unit: "ms", Values: r.Last})
	}
	return all
}

// Charts returns nil.
func (a *Arrivals) Charts() []Chart { return nil }
