package bench

import "fmt"

// warnOfDifferences adds a warning for each row with tokens that drafts changed.
func (s *Speculate) warnOfDifferences() {
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Differing > 0 {
			s.warn(fmt.Sprintf("%s: %d of %d completions differ from the first one: %v", s.label(r), r.Differing,
				r.Compared, ErrTokensDiffer))
		}
	}
}

// Err returns ErrTokensDiffer if tokens or log-probabilities differed.
func (s *Speculate) Err() error {
	for i := range s.Rows {
		if s.Rows[i].Differing > 0 {
			return ErrTokensDiffer
		}
	}
	return nil
}

// label returns the row's name.
func (s *Speculate) label(r *SpeculateRow) string {
	name := fmt.Sprintf("%s, %d streams", s.Drafter, r.Streams)
	if r.Streams == 1 {
		name = s.Drafter + ", 1 stream"
	}
	if r.Acceptance != nil {
		name += fmt.Sprintf(", %g right", *r.Acceptance)
	}
	return name
}

// Tables returns a table of the times without drafts and with.
func (s *Speculate) Tables() []Table {
	t := Table{
		Title: fmt.Sprintf("%s: prompts of %s tokens, completions of %d, temperature %g, --draft %s; medians of "+
			"milliseconds at the client", s.Provenance.Model, s.Prompt, s.MaxTokens, s.Temperature, s.Draft),
		Columns: []string{"drafter", "tok/s off", "tok/s on", "speed", "ms/token off", "on", "tokens/step", "ms/step",
			"drafted", "accepted", "share", "completions", "differ"},
		Notes: s.notes(),
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		off, on := median(r.Off), median(r.On)
		rate := func(ms float64) float64 { return 1000 * float64(r.Streams) / ms }
		t.row(s.label(r), rate(off), rate(on), fmt.Sprintf("%.3f", r.Speed), off, on, r.TokensStep, on*r.TokensStep,
			r.Drafted, r.Accepted, fmt.Sprintf("%.3f", float64(r.Accepted)/float64(max(1, r.Drafted))), len(r.On),
			r.Differing)
	}
	return []Table{t}
}

// Metrics returns the times of a token, of each completion.
func (s *Speculate) Metrics() []Metric {
	var all []Metric
	for i := range s.Rows {
		r := &s.Rows[i]
		name := fmt.Sprintf("speculate/%s/streams=%d", s.Drafter, r.Streams)
		if r.Acceptance != nil {
			name += fmt.Sprintf("/acceptance=%g", *r.Acceptance)
		}
		all = append(all, Metric{Name: name + "/off", Unit: "ms", Values: r.Off},
			Metric{Name: name + "/on", Unit: "ms", Values: r.On})
	}
	return all
}

// Charts returns a chart of an oracle's speed by its acceptance, or none.
func (s *Speculate) Charts() []Chart {
	by := map[int]*Series{}
	chart := Chart{Title: "Speed with drafts against without, by acceptance", X: "acceptance", Y: "speed"}
	var order []int
	for _, r := range s.Rows {
		if r.Acceptance == nil {
			return nil
		}
		if by[r.Streams] == nil {
			by[r.Streams] = &Series{Name: fmt.Sprintf("%d streams", r.Streams)}
			order = append(order, r.Streams)
		}
		line := by[r.Streams]
		line.X, line.Y = append(line.X, *r.Acceptance), append(line.Y, r.Speed)
	}
	for _, streams := range order {
		chart.add(*by[streams])
	}
	return []Chart{chart}
}
