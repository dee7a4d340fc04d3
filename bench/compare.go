package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/aclements/go-moremath/stats"
)

// Verdicts of a comparison.
const (
	Better       = "better"
	Worse        = "worse"
	Same         = "within the noise"
	TooFew       = "too few runs"
	minRuns      = 4    // runs on each side that the test below needs
	significance = 0.01 // share of comparisons of equal sides in which it sees a difference
)

// Difference is one metric of two results.
type Difference struct {
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	A       float64 `json:"a"` // median
	B       float64 `json:"b"`
	Ratio   float64 `json:"ratio"`   // b/a
	P       float64 `json:"p"`       // probability of such a difference between equal sides
	Verdict string  `json:"verdict"` // on b
}

// Comparison is two results' metrics side by side.
type Comparison struct {
	Differences []Difference `json:"differences"`
	OnlyA       []string     `json:"only_a,omitempty"` // metrics that B lacks
	OnlyB       []string     `json:"only_b,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"` // other differences
}

// Compare compares the metrics that a and b have in common. A Mann-Whitney U test of the
// runs decides if a difference is more than noise: it does not assume a distribution. The
// error is ErrOptions if there is no common metric.
func Compare(a, b Result) (*Comparison, error) {
	c := &Comparison{Warnings: provenanceWarnings(&a.Header().Provenance, &b.Header().Provenance)}
	inB := map[string]Metric{}
	for _, m := range b.Metrics() {
		inB[m.Name] = m
		c.OnlyB = append(c.OnlyB, m.Name)
	}
	for _, m := range a.Metrics() {
		other, ok := inB[m.Name]
		if !ok {
			c.OnlyA = append(c.OnlyA, m.Name)
			continue
		}
		c.OnlyB = without(c.OnlyB, m.Name)
		c.Differences = append(c.Differences, difference(m, other))
	}
	if len(c.Differences) == 0 {
		return nil, fmt.Errorf("%w: the results have nothing in common: %s and %s",
			ErrOptions, a.Header().Kind, b.Header().Kind)
	}
	return c, nil
}

func without(names []string, name string) (rest []string) {
	for _, n := range names {
		if n != name {
			rest = append(rest, n)
		}
	}
	return rest
}

// difference compares one metric.
func difference(a, b Metric) Difference {
	d := Difference{Name: a.Name, Unit: a.Unit, A: median(a.Values), B: median(b.Values), P: 1, Verdict: Same}
	if d.A != 0 {
		d.Ratio = d.B / d.A
	}
	if min(len(a.Values), len(b.Values)) < minRuns {
		d.Verdict = TooFew
		return d
	}
	test, err := stats.MannWhitneyUTest(a.Values, b.Values, stats.LocationDiffers)
	if err != nil { // stats.ErrSamplesEqual: all values are the same
		return d
	}
	if d.P = test.P; d.P >= significance || d.A == d.B {
		return d
	}
	d.Verdict = Worse
	if (d.B > d.A) == a.Higher {
		d.Verdict = Better
	}
	return d
}

// provenanceWarnings returns a warning for each property in which the measurements differ.
func provenanceWarnings(a, b *Provenance) (warnings []string) {
	for _, w := range []struct{ property, a, b string }{
		{"machine", a.Machine(), b.Machine()}, {"driver", a.Driver, b.Driver}, {"model", a.Model, b.Model},
		{"shape", fmt.Sprint(a.Shape), fmt.Sprint(b.Shape)}, {"device", a.Device, b.Device},
	} {
		if w.a != w.b {
			warnings = append(warnings, fmt.Sprintf("not the same %s: %q and %q", w.property, w.a, w.b))
		}
	}
	return warnings
}

// Tables returns a table with a row for each metric.
func (c *Comparison) Tables() []Table {
	t := Table{
		Title: fmt.Sprintf("B against A: medians, and a verdict if the runs differ beyond their noise "+
			"(Mann-Whitney, p < %g)", significance),
		Columns: []string{"metric", "unit", "A", "B", "B/A", "p", "verdict on B"}, Notes: c.Warnings,
	}
	for _, d := range c.Differences {
		t.row(d.Name, d.Unit, d.A, d.B, fmt.Sprintf("%.3f", d.Ratio), fmt.Sprintf("%.3f", d.P), d.Verdict)
	}
	for _, only := range []struct {
		name  string
		names []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		if len(only.names) > 0 {
			t.Notes = append(t.Notes, "only in "+only.name+": "+strings.Join(only.names, ", "))
		}
	}
	return []Table{t}
}

// Benchstat writes results in the format of Go's benchmarks, one line per run, for tools
// like benchstat.
func Benchstat(w io.Writer, results ...Result) error {
	var b strings.Builder
	for _, r := range results {
		p := r.Header().Provenance
		for _, kv := range [][2]string{
			{"pkg", "reel/bench"}, {"cpu", p.CPU}, {"gpu", p.GPU}, {"driver", p.Driver},
			{"model", p.Model}, {"commit", p.Commit}, {"date", p.Date},
		} {
			if kv[1] != "" {
				fmt.Fprintf(&b, "%s: %s\n", kv[0], kv[1])
			}
		}
		for _, m := range r.Metrics() {
			m.benchstat(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// benchstat writes a line for each value. The format requires a capital at the beginning of
// the name. benchstat takes less as better, except for units of x/s.
func (m *Metric) benchstat(b *strings.Builder) {
	name := strings.ToUpper(m.Name[:1]) + strings.ReplaceAll(m.Name[1:], " ", "_")
	for _, v := range m.Values {
		fmt.Fprintf(b, "Benchmark%s 1 %g %s\n", name, v, m.Unit)
	}
}
