package bench

import "fmt"

// Tables returns a table for each target.
func (c *Chat) Tables() []Table {
	var tables []Table
	for i := 0; i < len(c.Rows); i += c.Turns {
		t := Table{
			Title: fmt.Sprintf("%s, %s: TTFT by turn, %d conversations, %d words a message, %d tokens an answer, "+
				"pauses of %g ms; milliseconds at the client", c.Provenance.Model, c.Rows[i].Target, c.Conversations,
				c.Words, c.MaxTokens, c.PauseMS),
			Columns: []string{"turn", "prompt", "cached", "TTFT min", "P50", "P99", "alone P50", "P50 / alone"},
		}
		for _, r := range c.Rows[i:min(i+c.Turns, len(c.Rows))] {
			t.row(r.Turn, r.PromptTokens, r.CachedTokens, r.TTFT.Min, r.TTFT.P50, r.TTFT.P99, r.Alone.P50, r.Ratio)
		}
		tables = append(tables, t)
	}
	if n := len(tables); n > 0 {
		note := "alone: the turn's message as a conversation of its own, without a cache; " +
			"P50 / alone: the median of a turn's time to the first token by that"
		tables[n-1].Notes = append([]string{note}, c.notes()...)
	}
	return tables
}

// Metrics returns the TTFT of each row.
func (c *Chat) Metrics() []Metric {
	var all []Metric
	for _, r := range c.Rows {
		name := fmt.Sprintf("chat/%s/turn=%d/ttft", r.Target, r.Turn)
		all = append(all, Metric{Name: name, Unit: "ms", Values: r.Runs})
	}
	return all
}

// Charts returns a chart of TTFT by turn.
func (c *Chat) Charts() []Chart {
	chart := Chart{Title: "Time to first token in a conversation", X: "turn", Y: "ms"}
	for _, r := range c.Rows {
		if r.Turn == 1 {
			chart.Series = append(chart.Series, Series{Name: r.Target + " P50"})
		}
		s := &chart.Series[len(chart.Series)-1]
		s.X, s.Y = append(s.X, float64(r.Turn)), append(s.Y, r.TTFT.P50)
	}
	return []Chart{chart}
}
