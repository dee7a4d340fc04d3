package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable prints l for people, a line for each prompt length.
func (l *Latency) WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("prompt\tTTFT min\tP50\tP99\tITL min\tP50\tP99\tmax\tprecaptured\trolled\tpadded\teager\t\n")
	for _, r := range l.Rows {
		fmt.Fprintf(&b, "%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t\n", r.PromptTokens,
			r.TTFT.Min, r.TTFT.P50, r.TTFT.P99, r.ITL.Min, r.ITL.P50, r.ITL.P99, r.ITL.Max,
			r.Graphs.Precaptured, r.Graphs.Rolled, r.Graphs.Padded, r.Graphs.Eager)
	}
	_, err := fmt.Fprintf(w, "%s: %d runs, %d tokens each, greedy; milliseconds at the client, steps by launch\n", l.Model, l.Runs, l.MaxTokens)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := t.Write([]byte(b.String())); err != nil {
		return err
	}
	return t.Flush()
}
