package bench

import (
	"encoding/json"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/protocol"
)

// resultsOf writes results into a machine's directory, and returns the README and the
// directory of all results.
func resultsOf(t *testing.T, results map[string]Result) (readme, dir string) {
	t.Helper()
	root := t.TempDir()
	readme, dir = filepath.Join(root, "README.md"), filepath.Join(root, "results")
	write := func(path string, content []byte) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(readme, []byte("before\n"+reportBegin+"\nold\n"+reportEnd+"\nafter\n"))
	for name, r := range results {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(dir, name), b)
	}
	return readme, dir
}

func measuredLatency() *Latency {
	return &Latency{
		Head: Head{Kind: "latency", Provenance: Provenance{
			Model: "7b", Shape: protocol.Shape{WeightBytes: 13.21e9}, GPU: "NVIDIA H200", Driver: "580",
			Commit: "abc", Date: "2026-11-21T10:00:00Z",
		}},
		Rows: []LatencyRow{
			{Target: "reel", PromptTokens: 10, TTFT: Summary{P50: 3.25, P99: 4}, ITL: Summary{P50: 2.5}},
			{Target: "reel", PromptTokens: 400, TTFT: Summary{P50: 9.75, P99: 11}, ITL: Summary{P50: 2.75}},
		},
		Averages: []Average{{Target: "reel", TTFT: 6.5, ITLP50: 2.625, ITLP99: 3, TokensPerS: 381}, documents},
		Memory:   Memory{Used: 15.5e9},
	}
}

func TestReport(t *testing.T) {
	readme, dir := resultsOf(t, map[string]Result{
		"h200/latency.json": measuredLatency(),
		"h200/startup.json": &Startup{Head: Head{Kind: "startup", Provenance: Provenance{Model: "7b"}},
			Welcome: Summary{P50: 1500}, Token: Summary{P50: 1750}},
		"h200/other.json": &Reported{Head: Head{Kind: "reported", Provenance: Provenance{Model: "7b"}}, System: "other",
			Source: "Told by others.", TTFT: []ReportedTTFT{{10, 6.5}}, TokensPerS: 200},
		"h200/load.json": &Throughput{Head: Head{Kind: "throughput"}, Rows: []LoadRow{
			{Target: "reel", Concurrency: 1, TokensPerS: 300}, {Target: "reel", Concurrency: 8, TokensPerS: 2100}}},
		"small/latency.json": measuredLatency(),
		"small/good.json": &Throughput{Head: Head{Kind: "throughput"}, DurationS: 10, SLO: "ttft=200ms", Rows: []LoadRow{
			{Target: "reel", Rate: 4, Requests: 40, Good: 39, GoodputPerS: new(3.9)},
			{Target: "reel", Rate: 8, Requests: 80, Good: 72, GoodputPerS: new(7.2)},
			{Target: "reel", Rate: 16, Requests: 160, Good: 143, GoodputPerS: new(14.3)}}},
	})
	r, err := MakeReport(readme, dir)
	if err != nil {
		t.Fatal(err)
	}
	if svg := string(r[filepath.Join(dir, "small", "good.svg")]); !strings.Contains(svg, "Goodput (ttft=200ms)") {
		t.Errorf("no curve: %.100q", svg)
	}
	if err := r.Check(); !errors.Is(err, ErrStale) {
		t.Errorf("before it is written: %v", err)
	}
	if err := r.Write(); err != nil {
		t.Fatal(err)
	}
	text, page := string(r[readme]), string(r[filepath.Join(dir, "README.md")])
	for want, in := range map[string]string{
		"before\n" + reportBegin + "\n": text, reportEnd + "\nafter\n": text,
		"| Reel: 7b, h200 | 3.25 | - | - | - | 9.75 | 381.0 |":                                       text,
		"| other: 7b, h200 | 6.50 | - | - | - | - | 200.0 |":                                         text,
		"| the prototype: its own report, another GPU | 20.77 | 145.7 | 120.4 | 125.9 | 149.1 | - |": text,
		"(results/latency.svg)":                                       text,
		"[its curve](small/good.svg): ":                               page,
		"nine in ten requests within ttft=200ms up to 8 requests/s. ": page,
		"(h200/latency.json): Reel: ITL P50 2.62 ms and P99 3.00 ms, 13.21 GB of weights, 15.50 GB in use. 7b; " +
			"NVIDIA H200; driver 580; commit abc; 2026-11-21\n": page,
		"up to 2100 tok/s (reel, 8 clients":                      page,
		"1.50 s from exec to welcome, 1.75 s to the first token": page,
		"(h200/other.json): Told by others.\n":                   page,
		"\n## small\n":                                           page,
	} {
		if !strings.Contains(in, want) {
			t.Errorf("no %q in\n%s", want, in)
		}
	}
	if strings.Contains(text, "old") || len(r) != 4 {
		t.Errorf("the old part is still there:\n%s", text)
	}
	again, err := MakeReport(readme, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Check(); err != nil {
		t.Errorf("written, and made again: %v", err)
	}
}

// TestHeadlineCharts: the plot is of the machine for which other systems' figures are reported.
func TestHeadlineCharts(t *testing.T) {
	all := []foundResult{
		{"small", "latency.json", &Latency{Rows: []LatencyRow{{Target: "reel", PromptTokens: 10}},
			Averages: []Average{{Target: "reel", TokensPerS: 7}, documents}}},
		{"big", "latency.json", measuredLatency()},
		{"big", "other.json", &Reported{System: "other", TTFT: []ReportedTTFT{{10, 6.5}}, TokensPerS: 200}},
	}
	charts := headlineCharts(all)
	want := []Bar{{"Reel", 381}, {"other", 200}}
	if got := charts[1].Bars; !slices.Equal(got, want) {
		t.Errorf("bars %v, want %v", got, want)
	}
	ttft := charts[0].Series
	if len(ttft) != 2 || !slices.Equal(ttft[0].Y, []float64{3.25, 9.75}) || !slices.Equal(ttft[1].Y, []float64{6.5}) {
		t.Errorf("series %v", ttft)
	}
	if got := headlineCharts(all[:2])[1].Bars; !slices.Equal(got, []Bar{{"Reel", 7}}) {
		t.Errorf("without reported figures: bars %v", got)
	}
	svg, err := render("svg", charts)
	if err != nil || !strings.Contains(string(svg), ">381</text>") || !strings.Contains(string(svg), fontFamily) {
		t.Errorf("%v, no value or font in %s", err, svg)
	}
}

// TestReportChangedByHand: Check notices a figure changed by hand, in text or plot.
func TestReportChangedByHand(t *testing.T) {
	readme, dir := resultsOf(t, map[string]Result{"h200/latency.json": measuredLatency()})
	r, err := MakeReport(readme, dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range r {
		if err := r.Write(); err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(content), "3.25", "3.24", 1)
		if path != readme {
			changed = string(content) + " "
		}
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if again, err := MakeReport(readme, dir); err != nil || !errors.Is(again.Check(), ErrStale) {
			t.Errorf("Check did not notice a change of %s (%v)", path, err)
		}
	}
}

func TestReportFails(t *testing.T) {
	readme, dir := resultsOf(t, map[string]Result{"h200/latency.json": measuredLatency()})
	if _, err := MakeReport(readme, dir+"/h200"); !errors.Is(err, ErrOptions) {
		t.Errorf("no results: %v", err)
	}
	if err := os.WriteFile(readme, []byte(reportBegin), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeReport(readme, dir); !errors.Is(err, ErrOptions) {
		t.Errorf("no end: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "h200", "x.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeReport(readme, dir); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "x.json") {
		t.Errorf("no result: %v", err)
	}
}

// TestREADMEIsUpToDate: this repository's README agrees with its results.
func TestREADMEIsUpToDate(t *testing.T) {
	r, err := MakeReport("../README.md", "results")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

func TestDraw(t *testing.T) {
	dir, l := t.TempDir(), measuredLatency()
	for _, name := range []string{"a.svg", "b.svg", "c.png"} {
		if err := Draw(filepath.Join(dir, name), l.Charts()); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := os.ReadFile(filepath.Join(dir, "a.svg"))
	b, _ := os.ReadFile(filepath.Join(dir, "b.svg"))
	if string(a) != string(b) || !strings.Contains(string(a), "<svg") ||
		!strings.Contains(string(a), "Time to first token") {
		t.Error("the same figures give another drawing, or none")
	}
	f, err := os.Open(filepath.Join(dir, "c.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 300 {
		t.Errorf("%v", err)
	}
	for path, charts := range map[string][]Chart{"x.gif": l.Charts(), "x.svg": nil} {
		if err := Draw(filepath.Join(dir, path), charts); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTableForms(t *testing.T) {
	tables := []Table{
		{Title: "t", Columns: []string{"a", "b"}, Rows: [][]string{{"x|y", "1.00"}, {"z, w", "-"}},
			Notes: []string{"n"}},
		{Title: "u", Columns: []string{"c", "d"}},
	}
	for want, write := range map[string]func(*strings.Builder) error{
		"t\n     a     b\n   x|y  1.00\n  z, w     -\nn\n\nu\n  c  d\n": func(b *strings.Builder) error {
			return Text(b, tables)
		},
		"t\n\n| a | b |\n| --- | ---: |\n| x\\|y | 1.00 |\n| z, w | - |\n\nn\n\n" +
			"u\n\n| c | d |\n| --- | ---: |\n": func(b *strings.Builder) error { return Markdown(b, tables) },
		"a,b\nx|y,1.00\n\"z, w\",-\n\nc,d\n": func(b *strings.Builder) error { return CSV(b, tables) },
	} {
		var b strings.Builder
		if err := write(&b); err != nil || b.String() != want {
			t.Errorf("%v, got\n%q, want\n%q", err, b.String(), want)
		}
	}
}
