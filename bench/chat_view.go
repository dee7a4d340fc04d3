package bench

import (
	"cmp"
	"fmt"
	"slices"
)

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
		notes := append([]string{"alone: the turn's message as a conversation of its own, without a cache, after the " +
			"same pause; P50 / alone: the median of a turn's time to the first token by that"}, c.ratioNotes()...)
		if c.AsText {
			notes = append(notes, "the model has no chat template: a conversation is one text, whose answers are read again "+
				"with --reread all alone")
		}
		tables[n-1].Notes = append(notes, c.notes()...)
	}
	return tables
}

// chatRatio is the limit for a turn's time to the first token, as a multiple of that of its message alone.
const chatRatio = 1.5

// ratioNotes returns a line for each target, which says whether its turns are within chatRatio.
func (c *Chat) ratioNotes() (notes []string) {
	for i := 0; i < len(c.Rows); i += c.Turns {
		rows := c.Rows[i:min(i+c.Turns, len(c.Rows))]
		most := slices.MaxFunc(rows, func(a, b ChatRow) int { return cmp.Compare(a.Ratio, b.Ratio) })
		verdict := fmt.Sprintf("all within %g", chatRatio)
		over := slices.DeleteFunc(slices.Clone(rows), func(r ChatRow) bool { return r.Ratio <= chatRatio })
		if len(over) > 0 {
			verdict = fmt.Sprintf("%d of %d turns over %g", len(over), len(rows), chatRatio)
		}
		notes = append(notes, fmt.Sprintf("%s: P50 / alone is at most %.2f, in turn %d: %s", rows[0].Target, most.Ratio,
			most.Turn, verdict))
	}
	return notes
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
