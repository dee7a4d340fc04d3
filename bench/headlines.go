package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// headline has the prompt lengths in README's table.
var headline = []int{10, 50, 100, 200, 400}

// compared returns the results that README's plot shows: those of the first machine for which
// other systems' figures are reported, else of the first machine.
func compared(all []foundResult) (list []foundResult) {
	first := max(0, slices.IndexFunc(all, func(f foundResult) bool {
		_, ok := f.Result.(*Reported)
		return ok
	}))
	for _, f := range all {
		if f.machine == all[first].machine {
			list = append(list, f)
		}
	}
	return list
}

// headlineCharts draws the median TTFT against the prompt's length and the rate of one stream,
// of each latency result and beside it the reported systems.
func headlineCharts(all []foundResult) []Chart {
	ttft := Chart{X: "prompt, tokens", Y: "ms", Log: true}
	rate := Chart{Y: "tok/s"}
	for _, f := range compared(all) {
		switch r := f.Result.(type) {
		case *Latency:
			for _, a := range r.targets() {
				on := r.Provenance.Model + " on " + f.machine
				ttft.Title, rate.Title = "Time to first token, P50, "+on, "Tokens per second, one request, "+on
				ttft.add(r.series(a.Target, a.label(), func(r *LatencyRow) float64 { return r.TTFT.P50 }))
				rate.Bars = append(rate.Bars, Bar{a.label(), a.TokensPerS})
			}
		case *Reported:
			ttft.add(r.series())
			rate.Bars = append(rate.Bars, Bar{r.System, r.TokensPerS})
		}
	}
	return []Chart{ttft, rate}
}

// targets returns the averages of the servers measured, without the documents'.
func (l *Latency) targets() []Average { return l.Averages[:max(0, len(l.Averages)-1)] }

// label returns the target's name in a report.
func (a *Average) label() string {
	if a.Target == "reel" {
		return "Reel"
	}
	return a.Target
}

// writeHeadlines writes README's table and its plot.
func writeHeadlines(b *bytes.Buffer, all []foundResult, plot string) error {
	t := Table{
		Title:   "One request at a time: P50 of the time to the first token (TTFT) in milliseconds, by prompt length.",
		Columns: []string{""},
	}
	for _, n := range headline {
		t.Columns = append(t.Columns, fmt.Sprintf("%d tokens", n))
	}
	t.Columns = append(t.Columns, "tok/s")
	for _, f := range all {
		switch r := f.Result.(type) {
		case *Latency:
			for _, a := range r.targets() {
				name := fmt.Sprintf("%s: %s, %s", a.label(), r.Provenance.Model, f.machine)
				t.headline(name, func(n int) float64 { return r.ttft(a.Target, n) }, a.TokensPerS)
			}
		case *Reported:
			t.headline(fmt.Sprintf("%s: %s, %s", r.System, r.Provenance.Model, f.machine), r.ttft, r.TokensPerS)
		}
	}
	t.headline("the prototype: its own report, another GPU", documentsOf, 0)
	if err := Markdown(b, []Table{t}); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n![Time to first token by prompt length, and tokens per second](%s)\n", plot)
	return nil
}

// headline adds a row with the TTFT for each of the headline's lengths and a rate; 0 is "-".
func (t *Table) headline(name string, ttft func(prompt int) float64, rate float64) {
	cells := []any{name}
	for _, n := range headline {
		cells = append(cells, orDash(ttft(n)))
	}
	t.row(append(cells, orDash(rate))...)
}

// documentsOf returns the documents' TTFT after a prompt, one of the headline's lengths.
func documentsOf(prompt int) float64 { return documentsTTFT[slices.Index(DefaultPrompts, prompt)] }

// ttft returns the median TTFT of a target's row, or 0 if there is no such row.
func (l *Latency) ttft(target string, prompt int) float64 {
	for _, r := range l.Rows {
		if r.Target == target && r.PromptTokens == prompt {
			return r.TTFT.P50
		}
	}
	return 0
}

// sourcesPage returns a page with a line for each result: its main figures, and their source.
func sourcesPage(all []foundResult) []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, "# Results\n\nWritten by `make bench-report` from the files in the folders, one for each machine. "+
		"A file names commit, flags and command. `reel-bench show FILE` prints one.\n")
	machine := ""
	for _, f := range all {
		if f.machine != machine {
			machine = f.machine
			fmt.Fprintf(&b, "\n## %s\n\n", machine)
		}
		fmt.Fprintf(&b, "- [`%s`](%s/%s): ", f.file, f.machine, f.file)
		if r, ok := f.Result.(*Reported); ok {
			fmt.Fprintln(&b, r.Source)
			continue
		}
		p := f.Header().Provenance
		if f.hasCurve() {
			fmt.Fprintf(&b, "[its curve](%s/%s): ", f.machine, f.curve())
		}
		fmt.Fprintf(&b, "%s%s; %s\n", summary(f.Result), p.Model, p.line())
	}
	return b.Bytes()
}

// summary returns the main figures of a result, followed by ". ", or nothing.
func summary(r Result) string {
	var parts []string
	switch r := r.(type) {
	case *Latency:
		for _, a := range r.targets() {
			parts = append(parts, fmt.Sprintf("%s: ITL P50 %.2f ms and P99 %.2f ms, %.2f GB of weights, %.2f GB in use",
				a.label(), a.ITLP50, a.ITLP99, float64(r.Provenance.Shape.WeightBytes)/1e9, float64(r.Memory.Used)/1e9))
		}
	case *Throughput:
		best := slices.MaxFunc(r.Rows, func(a, b LoadRow) int { return cmp.Compare(a.TokensPerS, b.TokensPerS) })
		parts = append(parts, fmt.Sprintf("up to %.0f tok/s (%s; TTFT P99 %.1f ms, ITL P99 %.1f ms)",
			best.TokensPerS, best.label(), best.TTFT.P99, best.ITL.P99))
		parts = append(parts, r.goodSummary()...)
	case *Startup:
		parts = append(parts, fmt.Sprintf("%.2f s from exec to welcome, %.2f s to the first token",
			r.Welcome.P50/1000, r.Token.P50/1000))
	case *Speculate:
		for i := range r.Rows {
			row := &r.Rows[i]
			parts = append(parts, fmt.Sprintf("%s: %.2f tokens a step, %.3f times the speed without drafts",
				r.label(row), row.TokensStep, row.Speed))
		}
	case *Roll:
		parts = append(parts, fmt.Sprintf("prompts that outgrow %d graphs: TTFT P50 %.2f ms and ITL P99 %.2f ms "+
			"with the roller, %.2f and %.2f without", r.MaxGraphs,
			r.Rows[0].TTFT.P50, r.Rows[0].ITL.P99, r.Rows[1].TTFT.P50, r.Rows[1].ITL.P99))
	}
	if parts == nil {
		return ""
	}
	return strings.Join(parts, "; ") + ". "
}
