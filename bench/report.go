package bench

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The part of README between these lines is written from the results.
const (
	reportBegin = "<!-- bench: written by make bench-report -->"
	reportEnd   = "<!-- bench: end -->"
)

// ErrStale means that a report differs from the results.
var ErrStale = errors.New("the report is out of date: run make bench-report")

// Report has the contents of the files to write, by path.
type Report map[string][]byte

// MakeReport reads the results *.json in the subdirectories of results, one per machine, and
// makes README's part and its plot, results/latency.svg. Errors are those of the files, and
// ErrOptions for a file that is no result.
func MakeReport(readme, results string) (Report, error) {
	all, err := readResults(results)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return nil, err
	}
	before, rest, ok := bytes.Cut(text, []byte(reportBegin))
	_, after, end := bytes.Cut(rest, []byte(reportEnd))
	if !ok || !end {
		return nil, fmt.Errorf("%w: %s has no lines %q and %q", ErrOptions, readme, reportBegin, reportEnd)
	}
	plot := filepath.Join(results, "latency.svg")
	svg, err := render("svg", latencyChart(all))
	if err != nil {
		return nil, err
	}
	link, err := relative(filepath.Dir(readme), plot)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(before)
	fmt.Fprintln(&b, reportBegin)
	if err := writeReport(&b, all, link); err != nil {
		return nil, err
	}
	b.WriteString(reportEnd)
	b.Write(after)
	return Report{readme: b.Bytes(), plot: svg}, nil
}

// relative returns path as a link from a file in dir.
func relative(dir, path string) (string, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	link, err := filepath.Rel(from, to)
	return filepath.ToSlash(link), err
}

// Write writes the files.
func (r Report) Write() error {
	for path, content := range r {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Check compares the files on disk with the report. ErrStale names one that differs.
func (r Report) Check() error {
	for path, want := range r {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%w: %s", ErrStale, path)
		}
	}
	return nil
}

// foundResult is a result with the machine and file that it was read from.
type foundResult struct {
	machine string // the directory
	file    string
	Result
}

// readResults reads all results, ordered by path.
func readResults(dir string) ([]foundResult, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var all []foundResult
	for _, path := range paths {
		r, err := ReadResult(path)
		if err != nil {
			return nil, err
		}
		all = append(all, foundResult{filepath.Base(filepath.Dir(path)), filepath.Base(path), r})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no results in %s", ErrOptions, dir)
	}
	return all, nil
}

// latencyChart draws the median TTFT and ITL of every latency result against the prompt's
// length, beside the documents' TTFT.
func latencyChart(all []foundResult) []Chart {
	ttft := Chart{Title: "Time to first token, P50", X: "prompt, tokens", Y: "ms"}
	itl := Chart{Title: "Time between tokens, P50", X: "prompt, tokens", Y: "ms"}
	for _, f := range all {
		l, ok := f.Result.(*Latency)
		if !ok {
			continue
		}
		for _, a := range l.Averages[:max(0, len(l.Averages)-1)] {
			name := l.Provenance.Model + " on " + f.machine
			if a.Target != "reel" {
				name = a.Target + ", " + name
			}
			ttft.add(l.series(a.Target, name, func(r *LatencyRow) float64 { return r.TTFT.P50 }))
			itl.add(l.series(a.Target, name, func(r *LatencyRow) float64 { return r.ITL.P50 }))
		}
	}
	theirs := Series{Name: "the documents, PyTorch", Y: documentsTTFT}
	for _, n := range DefaultPrompts {
		theirs.X = append(theirs.X, float64(n))
	}
	ttft.add(theirs)
	return []Chart{ttft, itl}
}

// headline has the prompt lengths in README's table.
var headline = []int{10, 50, 100, 200, 400}

// writeReport writes the table of latencies, a line for each other result, and the sources
// of all figures.
func writeReport(b *bytes.Buffer, all []foundResult, plot string) error {
	t := Table{
		Title: "One request at a time, milliseconds as the client sees them (P50; ITL P99 over all rows), " +
			"beside the documents that Reel set out from " +
			"(a prototype in PyTorch with a graph for each length; GPU and model size as they do not say):",
		Columns: []string{"model and machine", "weights GB"},
	}
	for _, n := range headline {
		t.Columns = append(t.Columns, fmt.Sprintf("TTFT %d", n))
	}
	t.Columns = append(t.Columns, "ITL P50", "ITL P99", "tok/s", "memory GB")
	for _, f := range all {
		if l, ok := f.Result.(*Latency); ok {
			l.headlines(&t, f.machine)
		}
	}
	t.row(documentsRow()...)
	if err := Markdown(b, []Table{t}); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n![Time to first token and between tokens against the prompt's length](%s)\n", plot)
	writeOthers(b, all)
	fmt.Fprintf(b, "\nEach figure comes from a file under [bench/results](bench/results), "+
		"which names commit, flags and command:\n\n")
	for _, f := range all {
		p := f.Header().Provenance
		fmt.Fprintf(b, "- `%s/%s`: %s\n", f.machine, f.file, p.line())
	}
	return nil
}

// documentsRow returns the documents' figures for the headline's lengths.
func documentsRow() []any {
	cells := []any{"the documents, PyTorch", ""}
	for _, n := range headline {
		cells = append(cells, documentsTTFT[slices.Index(DefaultPrompts, n)])
	}
	return append(cells, "", documents.ITLP99, "", documents.MemoryGB)
}

// headlines adds a row for each target.
func (l *Latency) headlines(t *Table, machine string) {
	for _, a := range l.Averages[:max(0, len(l.Averages)-1)] {
		name := l.Provenance.Model + ", " + machine
		if a.Target != "reel" {
			name = a.Target + ": " + name
		}
		cells := []any{name, fmt.Sprintf("%.3g", float64(l.Provenance.Shape.WeightBytes)/1e9)}
		for _, n := range headline {
			cells = append(cells, orDash(l.ttft(a.Target, n)))
		}
		t.row(append(cells, a.ITLP50, a.ITLP99, a.TokensPerS, float64(l.Memory.Used)/1e9)...)
	}
}

// ttft returns the median TTFT of a target's row, or 0 if there is no such row.
func (l *Latency) ttft(target string, prompt int) float64 {
	for _, r := range l.Rows {
		if r.Target == target && r.PromptTokens == prompt {
			return r.TTFT.P50
		}
	}
	return 0
}

// writeOthers writes a line for each result that is not of latency.
func writeOthers(b *bytes.Buffer, all []foundResult) {
	var lines []string
	for _, f := range all {
		model := fmt.Sprintf("%s on %s: ", f.Header().Provenance.Model, f.machine)
		switch r := f.Result.(type) {
		case *Throughput:
			best := slices.MaxFunc(r.Rows, func(a, b LoadRow) int { return cmp.Compare(a.TokensPerS, b.TokensPerS) })
			lines = append(lines, fmt.Sprintf("%sup to %.0f tok/s (%s; TTFT P99 %.1f ms, ITL P99 %.1f ms)",
				model, best.TokensPerS, best.label(), best.TTFT.P99, best.ITL.P99))
		case *Startup:
			lines = append(lines, fmt.Sprintf("%s%.2f s from exec to welcome, %.2f s to the first token",
				model, r.Welcome.P50/1000, r.Token.P50/1000))
		case *Roll:
			lines = append(lines, fmt.Sprintf("%sprompts that outgrow %d graphs: "+
				"TTFT P50 %.2f ms and ITL P99 %.2f ms with the roller, %.2f and %.2f without", model, r.MaxGraphs,
				r.Rows[0].TTFT.P50, r.Rows[0].ITL.P99, r.Rows[1].TTFT.P50, r.Rows[1].ITL.P99))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n- %s\n", strings.Join(lines, "\n- "))
	}
}
