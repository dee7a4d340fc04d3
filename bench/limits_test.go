package bench

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// limitRow returns a row for a prompt length with these figures.
func limitRow(prompt int, ttft, ttftP99, rate float64) LatencyRow {
	return LatencyRow{Target: "reel", PromptTokens: prompt, TTFT: Summary{P50: ttft, P99: ttftP99}, TokensPerS: rate,
		ITL: Summary{P50: 1000 / rate, P99: 1100 / rate}}
}

func limitLatency(rows ...LatencyRow) *Latency {
	return &Latency{Head: Head{Kind: "latency"}, Rows: rows}
}

// everyLimit returns a result of each name, all with different figures.
func everyLimit() Limits {
	long := limitRow(longContext, 900, 900, 150)
	long.GBPerS = 3700
	family := limitLatency(limitRow(10, 2, 2, 460))
	family.Provenance.Shape.StepBytes = 8e9
	small := limitLatency(limitRow(10, 1, 1, 2000))
	small.Provenance.Shape.StepBytes = 1e9
	return Limits{
		"decode-7b": limitLatency(limitRow(10, 4, 5, 300)), "decode-1b": limitLatency(limitRow(10, 1, 1, 1250)),
		"ttft-7b":   limitLatency(limitRow(10, 4, 5.2, 300), limitRow(50, 4.1, 4.2, 300), limitRow(400, 9, 9, 300)),
		"padded-7b": limitLatency(limitRow(10, 4.5, 5, 300), limitRow(400, 11, 12, 300)),
		"eager-7b":  limitLatency(limitRow(10, 3.5, 5, 300), limitRow(400, 8.75, 12, 300)),
		"roll-7b": &Roll{Head: Head{Kind: "roll"}, Rows: []RollRow{
			{Rolling: Summary{P50: 3, P99: 3.3}}, {Rolling: Summary{P50: 1, P99: 9}}}},
		"graphs-7b": &Startup{Head: Head{Kind: "startup"}, Runs: []Start{
			{Graphs: 256, CaptureMS: 600}, {Graphs: 256, CaptureMS: 400}, {Graphs: 256, CaptureMS: 450}}},
		"start-7b":   &Startup{Head: Head{Kind: "startup"}, Token: Summary{P50: 2600}},
		"context-7b": limitLatency(long),
		"batch-7b": &Throughput{Head: Head{Kind: "throughput"}, Rows: []LoadRow{
			{Concurrency: 4, ITL: Summary{P50: 2}}, {Concurrency: 8, ITL: Summary{P50: 3.5}}}},
		"family-qwen3-4b": family, "family-qwen2.5-0.5b": small,
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	for name, r := range everyLimit() {
		b, err := json.Marshal(r)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, name+".json"), b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ReadLimits(dir)
	if err != nil {
		t.Fatal(err)
	}
	tables := l.Tables()
	want := [][]string{
		{"352.0", "295.0", "317.0", "300.0", "met"}, {"0.53", "0.76", "0.65", "0.80", "MISSED"},
		{"2.80", "4.20", "3.60", "4.00", "met"}, {"2.80", "4.30", "3.70", "4.10", "met"},
		{"2.80", "4.60", "4.10", "-", "not measured"}, {"3.40", "5.60", "5.00", "-", "not measured"},
		{"6.80", "9.50", "8.30", "9.00", "met"}, {"-", "1.25", "1.10", "1.30", "MISSED"},
		{"-", "1.50", "1.00", "2.00", "MISSED"}, {"-", "1.50", "1.00", "-0.25", "aim"},
		{"-", "1.08", "1.02", "1.10", "MISSED"}, {"-", "1.15", "1.05", "1.10", "met"},
		{"-", "0.80", "0.50", "0.45", "aim"}, {"0.30", "2.50", "1.00", "2.60", "MISSED"},
		{"4600", "3600", "4000", "3700", "met"}, {"2.90", "3.70", "3.30", "3.50", "met"},
	}
	if len(tables) != 2 || len(tables[0].Rows) != len(want) {
		t.Fatalf("got %+v", tables)
	}
	for i, row := range tables[0].Rows {
		if !slices.Equal(row[1:], want[i]) {
			t.Errorf("%s: %q, wants %q", row[0], row[1:], want[i])
		}
	}
	families := [][]string{
		{"qwen2.5-0.5b", "1.00", "4600", "2000", "0.43", "no bound"},
		{"qwen3-4b", "8.00", "575.0", "460.0", "0.80", "met"},
	}
	if !slices.EqualFunc(tables[1].Rows, families, slices.Equal) {
		t.Errorf("families: %q, wants %q", tables[1].Rows, families)
	}
}

// TestLimitsNotMeasured: missing and incomplete measurements give no figures.
func TestLimitsNotMeasured(t *testing.T) {
	l := Limits{
		"decode-7b": limitLatency(),
		"graphs-7b": &Startup{Runs: []Start{{Graphs: 255, CaptureMS: 1}}},
		"roll-7b":   &Roll{Rows: []RollRow{{}}},
		"batch-7b":  &Throughput{Rows: []LoadRow{{Concurrency: 8, Failed: 1, ITL: Summary{P50: 1}}}},
		"eager-7b":  limitLatency(limitRow(10, 1, 1, 1)),
		"start-7b":  limitLatency(),
	}
	for _, row := range l.Tables()[0].Rows {
		if row[len(row)-1] != "not measured" {
			t.Errorf("%q", row)
		}
	}
	if _, err := ReadLimits(t.TempDir()); !errors.Is(err, ErrOptions) {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestLatencyRates(t *testing.T) {
	l := &Latency{MaxTokens: 100, Rows: []LatencyRow{
		{Target: "reel", PromptTokens: 950, TokensPerS: 50}, {Target: "peer", PromptTokens: 950, TokensPerS: 50}}}
	s := &client.Status{Shape: protocol.Shape{StepBytes: 3e9}, KV: protocol.KV{Pages: 10, PageTokens: 100, Bytes: 2e9}}
	l.SetRates(s)
	if got := l.Rows[0].GBPerS; math.Abs(got-250) > 1e-9 || l.Rows[1].GBPerS != 0 {
		t.Errorf("%v and %v GB/s, wants 250 and none", got, l.Rows[1].GBPerS)
	}
	l.Rows[0].GBPerS = 0
	if l.SetRates(&client.Status{KV: s.KV}); l.Rows[0].GBPerS != 0 {
		t.Errorf("%v GB/s although the generator does not report its sizes", l.Rows[0].GBPerS)
	}
}
