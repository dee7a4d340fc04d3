package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
// makes README's part, its plot results/latency.svg, and the page results/README.md with the
// sources of all figures, and beside each result with goodput its curve. Errors are those of the files, and ErrOptions for a file that is no
// result.
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
	plot, page := filepath.Join(results, "latency.svg"), filepath.Join(results, "README.md")
	svg, err := render("svg", headlineCharts(all))
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
	if err := writeHeadlines(&b, all, link); err != nil {
		return nil, err
	}
	b.WriteString(reportEnd)
	b.Write(after)
	report, err := curves(results, all)
	if err != nil {
		return nil, err
	}
	report[readme], report[plot], report[page] = b.Bytes(), svg, sourcesPage(all)
	return report, nil
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
