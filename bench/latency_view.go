package bench

import "fmt"

// latencyColumns are the columns of a latency table.
var latencyColumns = []string{
	"prompt", "TTFT min", "P50", "P99", "ITL P50", "P90", "P99", "max", "samples", "tok/s", "GB/s",
	"precaptured", "rolled", "padded", "eager",
}

// Tables returns a table of each target's rows, and one of averages beside the documents'.
func (l *Latency) Tables() []Table {
	t := Table{
		Title: fmt.Sprintf("%s: %d runs, %d tokens each, greedy; milliseconds at the client, steps by launch",
			l.Provenance.Model, l.Runs, l.MaxTokens),
		Columns: latencyColumns,
	}
	for _, r := range l.Rows {
		g := r.Graphs
		t.row(l.label(r.Target, fmt.Sprint(r.PromptTokens)),
			r.TTFT.Min, r.TTFT.P50, r.TTFT.P99, r.ITL.P50, r.ITL.P90, r.ITL.P99, r.ITL.Max,
			r.Samples, r.TokensPerS, orDash(r.GBPerS), g.Precaptured, g.Rolled, g.Padded, g.Eager)
	}
	averages := Table{
		Title: "Averages of the rows, and those of the documents that Reel set out from " +
			"(prompts of 10 to 400 tokens, a PyTorch prototype on another GPU)",
		Columns: []string{"", "TTFT P50 ms", "ITL P50 ms", "ITL P99 ms", "tok/s", "memory GB"}, Notes: l.notes(),
	}
	for _, a := range l.Averages {
		averages.row(a.Target, a.TTFT, orDash(a.ITLP50), a.ITLP99, orDash(a.TokensPerS), orDash(a.MemoryGB))
	}
	return []Table{t, averages}
}

// label returns the row's name, with its target if there are several.
func (l *Latency) label(target, row string) string {
	if len(l.Averages) > 2 {
		return target + " " + row
	}
	return row
}

// notes returns the notes below a result's last table.
func (h *Head) notes() []string {
	return append([]string{h.Provenance.line()}, h.Warnings...)
}

// Metrics returns TTFT, ITL and rate of each row.
func (l *Latency) Metrics() []Metric {
	var all []Metric
	for _, r := range l.Rows {
		name := fmt.Sprintf("latency/%s/prompt=%d/", r.Target, r.PromptTokens)
		ttft, p50 := Metric{Name: name + "ttft", Unit: "ms"}, Metric{Name: name + "itl-p50", Unit: "ms"}
		rate := Metric{Name: name + "rate", Unit: "tok/s", Higher: true}
		for _, run := range r.Runs {
			ttft.Values, p50.Values = append(ttft.Values, run.TTFT), append(p50.Values, run.ITLP50)
			rate.Values = append(rate.Values, run.TokensPerS)
		}
		all = append(all, ttft, p50, rate)
	}
	return all
}

// Charts returns charts of TTFT and ITL against the prompt's length.
func (l *Latency) Charts() []Chart {
	ttft := Chart{Title: "Time to first token", X: "prompt, tokens", Y: "ms"}
	itl := Chart{Title: "Time between tokens", X: "prompt, tokens", Y: "ms"}
	for _, a := range l.Averages[:max(0, len(l.Averages)-1)] {
		for _, s := range []struct {
			chart *Chart
			name  string
			of    func(r *LatencyRow) float64
		}{
			{&ttft, "P50", func(r *LatencyRow) float64 { return r.TTFT.P50 }},
			{&ttft, "P99", func(r *LatencyRow) float64 { return r.TTFT.P99 }},
			{&itl, "P50", func(r *LatencyRow) float64 { return r.ITL.P50 }},
			{&itl, "P99", func(r *LatencyRow) float64 { return r.ITL.P99 }},
		} {
			s.chart.Series = append(s.chart.Series, l.series(a.Target, l.label(a.Target, s.name), s.of))
		}
	}
	return []Chart{ttft, itl}
}

// series returns one figure of a target's rows against the prompt's length.
func (l *Latency) series(target, name string, of func(*LatencyRow) float64) Series {
	s := Series{Name: name}
	for i := range l.Rows {
		if r := &l.Rows[i]; r.Target == target {
			s.X, s.Y = append(s.X, float64(r.PromptTokens)), append(s.Y, of(r))
		}
	}
	return s
}
