package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/bench"
	"reel.internal/reel/bench/internal/stub"
	"reel.internal/reel/protocol"
)

// reelBench runs the command.
func reelBench(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), code
}

// paced returns a stub that sends tokens so slowly that they don't look like bursts.
func paced() *stub.Generator { return &stub.Generator{First: 2e6, Each: 1e6} }

func TestChatJSON(t *testing.T) {
	socket := (&stub.Generator{}).Listen(t)
	out, errs, code := reelBench(t, "chat", "--socket", socket, "--json", "--conversations", "2", "--turns", "3",
		"--max-tokens", "2", "--pause", "0")
	var report bench.Chat
	if err := json.Unmarshal([]byte(out), &report); code != 0 || errs != "" || err != nil {
		t.Fatalf("exit %d: %s: %v", code, errs, err)
	}
	if r := report.Rows; len(r) != 6 || r[2].Turn != 3 || r[2].TTFT.Samples != 2 || len(r[2].Runs) != 2 ||
		r[3].Target != "reel, cache off" || report.Provenance.Flags["turns"] != "3" {
		t.Errorf("got %s", out)
	}
}

func TestLatencyJSON(t *testing.T) {
	socket := (&stub.Generator{}).Listen(t)
	out, errs, code := reelBench(t, "latency", "--socket", socket, "--json", "--runs", "2", "--max-tokens", "4")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var report bench.Latency
	if err := json.Unmarshal([]byte(out), &report); err != nil || strings.Count(out, "\n") != 1 {
		t.Fatalf("no JSON object on one line: %v: %s", err, out)
	}
	if len(report.Rows) != 9 {
		t.Fatalf("got %s", out)
	}
	row := report.Rows[8]
	if row.PromptTokens != 400 || row.TTFT.Samples != 2 || row.ITL.Samples != 6 || row.Samples != 6 ||
		row.Graphs.Eager != 8 || row.TTFT.Min <= 0 {
		t.Errorf("got %+v", row)
	}
	for _, field := range []string{
		`"rows":[{"target":"reel","prompt_tokens":10,"ttft_ms":{"min":`, `"itl_ms":{"min":`,
		`"p50":`, `"p90":`, `"p99":`, `"max":`, `"samples":6`,
		`"graphs":{"precaptured":0,"rolled":0,"padded":0,"eager":8}`,
		`"memory":{"used":2000000000,"total":8000000000,`,
	} {
		if !strings.Contains(out, field) {
			t.Errorf("no %s in %s", field, out)
		}
	}
	p := report.Provenance
	if p.Commit != "1234567" || p.Model != "stub" || p.Shape.Layers != 2 || p.CPU == "" || p.Cores < 1 ||
		p.Date == "" || !strings.HasPrefix(p.Command, "reel-bench ") || p.Generator == "" ||
		p.Flags["runs"] != "2" || p.Flags["seed"] != "1" {
		t.Errorf("provenance %+v", p)
	}
}

func TestLatencyTableAndLeftOutPrompts(t *testing.T) {
	out, errs, code := reelBench(t, "latency", "--socket", (&stub.Generator{Context: 100}).Listen(t), "--runs", "1")
	if code != 0 || !strings.Contains(errs, "prompts of [100 150 200 250 300 350 400] tokens") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if !strings.Contains(out, "TTFT min") || !strings.Contains(out, "documents") ||
		!strings.Contains(out, "commit 1234567") {
		t.Errorf("got\n%s", out)
	}
}

func TestOtherForms(t *testing.T) {
	socket := (&stub.Generator{}).Listen(t)
	for flag, want := range map[string]string{"--md": "| prompt | TTFT min |", "--csv": "prompt,TTFT min,P50"} {
		out, errs, code := reelBench(t, "latency", "--socket", socket,
			"--runs", "1", "--prompts", "10", "--max-tokens", "4", flag)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s\n%s", flag, code, errs, out)
		}
	}
}

func TestThroughput(t *testing.T) {
	dir := t.TempDir()
	out, errs, code := reelBench(t, "throughput", "--socket", paced().Listen(t), "--json",
		"--concurrency", "1,70", "--rate", "50", "--duration", "300ms", "--warmup", "50ms",
		"--output-tokens", "4-9", "--prompt-tokens", "16", "--slo", "ttft=1h,itl=1h",
		"--plot", filepath.Join(dir, "plot.svg"))
	var report bench.Throughput
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
		t.Fatalf("exit %d: %s, %v", code, errs, err)
	}
	if len(report.Rows) != 3 || report.Rows[1].Concurrency != 70 || report.Rows[2].Rate != 50 ||
		report.SLO != "ttft=1h0m0s,itl=1h0m0s" {
		t.Errorf("got %s", out)
	}
	for _, r := range report.Rows {
		if r.Failed != 0 || r.Requests == 0 || r.TokensPerS <= 0 || r.GoodputPerS == nil || *r.GoodputPerS <= 0 ||
			r.E2E.P50 < r.TTFT.P50 {
			t.Errorf("got %+v", r)
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "plot.svg"))
	if err != nil || !strings.Contains(string(svg), "against throughput") {
		t.Errorf("the plot: %v", err)
	}
}

func TestCompare(t *testing.T) {
	dir, socket := t.TempDir(), (&stub.Generator{}).Listen(t)
	path := filepath.Join(dir, "a.json")
	out, _, _ := reelBench(t, "latency", "--socket", socket, "--json", "--prompts", "10,20", "--max-tokens", "4")
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := reelBench(t, "compare", path, path)
	if code != 0 || strings.Count(out, bench.Same) != 6 || !strings.Contains(out, "1.000") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	out, errs, code = reelBench(t, "show", path, "--plot", filepath.Join(dir, "a.png"))
	_, err := os.Stat(filepath.Join(dir, "a.png"))
	if code != 0 || err != nil || strings.Count(out, "commit 1234567") != 1 || !strings.Contains(out, "TTFT min") {
		t.Errorf("exit %d, %s, %v\n%s", code, errs, err, out)
	}
	out, errs, code = reelBench(t, "compare", "--benchstat", path)
	if code != 0 || strings.Count(out, "BenchmarkLatency/reel/prompt=10/ttft 1 ") != 10 ||
		!strings.Contains(out, "commit: 1234567\n") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if _, errs, code = reelBench(t, "compare", path, "main.go"); code != 64 ||
		!strings.Contains(errs, "main.go is no result") {
		t.Errorf("no result: exit %d, %s", code, errs)
	}
}

func TestExitCodes(t *testing.T) {
	socket := (&stub.Generator{Context: 100}).Listen(t)
	refused := (&stub.Generator{Error: protocol.Errorf(protocol.CodeBusy, "", "full")}).Listen(t)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, "the context holds 100", []string{"latency", "--socket", socket, "--prompts", "10,400"}},
		{64, "at least 1 run", []string{"latency", "--socket", socket, "--runs", "0"}},
		{64, "unknown flag", []string{"latency", "--bogus"}},
		{64, `"--prompts" flag: want whole numbers with commas between them, and "a" is none`,
			[]string{"latency", "--prompts", "a"}},
		{64, "no words", []string{"latency", "word"}},
		{64, "no words", []string{"latecy"}},
		{64, "a plot is .svg or .png",
			[]string{"latency", "--socket", socket, "--runs", "1", "--prompts", "10", "--plot", "x.gif"}},
		{64, "one of them", []string{"latency", "--json", "--md"}},
		{64, "no generator to start", []string{"latency", "--generator", "./none"}},
		{64, "the context holds 100", []string{"throughput", "--socket", socket}},
		{64, "neither a length such as", []string{"throughput", "--prompt-tokens", "9-3"}},
		{64, "no bound such as", []string{"throughput", "--slo", "ttft"}},
		{64, "no burst such as", []string{"arrivals", "--burst", "64"}},
		{64, "the context holds 100", []string{"arrivals", "--socket", socket}},
		{64, "at least 1 is needed", []string{"startup", "--runs", "0"}},
		{64, "completions of 2 tokens", []string{"roll", "--max-tokens", "1"}},
		{64, "on, read or off", []string{"latency", "--socket", socket, "--cache", "some"}},
		{64, "on, read or off", []string{"throughput", "--socket", socket, "--cache", "some"}},
		{64, "must be 1 or more", []string{"chat", "--socket", socket, "--turns", "0"}},
		{64, "has no chat template", []string{"chat", "--socket", socket, "--peer", "it=http://127.0.0.1:9#m"}},
		{64, "guesses nothing: start it with --draft", []string{"speculate", "--socket", socket, "--prompt-tokens", "9",
			"--max-tokens", "9"}},
		{64, "must be on, or 1 to 7", []string{"speculate", "--socket", socket, "--draft", "lookup"}},
		{64, "show takes one file", []string{"show"}},
		{64, "compare takes two files", []string{"compare", "a.json"}},
		{64, "no such file", []string{"compare", "none.json", "none.json"}},
		{64, "does not describe a peer", []string{"latency", "--socket", socket, "--peer", "x"}},
		{78, "another kind of file", []string{"latency", "--socket", "main.go"}},
		{69, "no such directory", []string{"latency", "--socket", "none/generator.sock"}},
		{1, "full", []string{"latency", "--socket", refused, "--runs", "1"}},
		{1, "the generator failed", []string{"latency", "--generator", "/bin/false"}},
		{1, "the generator failed", []string{"ops", "--generator", "/bin/false"}},
	} {
		_, errs, code := reelBench(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%q: exit %d, %s", c.args, code, errs)
		}
	}
}

// TestFlagsOfTheGenerator: flags after -- are those of the generator that is started.
func TestFlagsOfTheGenerator(t *testing.T) {
	s := source{model: "/m", device: "cuda", args: []string{"--max-batch", "3"}}
	want := []string{"--log-level", "warn", "--model", "/m", "--device", "cuda", "--max-batch", "3"}
	if !slices.Equal(s.launch().Args, want) {
		t.Errorf("got %q", s.launch().Args)
	}
	for _, s := range []source{{start: true}, {model: "m"}, {device: "host"}, {path: "g"},
		{args: []string{"--gpu", "1"}}} {
		if !s.own() {
			t.Errorf("%+v starts no generator", s)
		}
	}
	if (&source{}).own() {
		t.Error("a generator is started although no flag asks for it")
	}
}

// TestHelpShowsNoEmptyDefaults: a default that depends on the model is described in words only.
func TestHelpShowsNoEmptyDefaults(t *testing.T) {
	out, _, code := reelBench(t, "latency", "--help")
	empty := strings.Contains(out, "(default )") || strings.Contains(out, "[]")
	if code != 0 || empty || !strings.Contains(out, "--prompts lengths") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// TestGoodput: the curve of a workload that the command makes, and the workload as a file; a generator that refuses
// requests fails a run that must be lossless.
func TestGoodput(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "curve.svg")
	args := []string{"goodput", "--json", "--rate", "40,80", "--duration", "300ms", "--warmup", "50ms", "--requests", "50",
		"--context", "200", "--scale", "0.05", "--slo", "ttft=1h,itl=1h", "--lossless", "--plot", plot, "--socket"}
	out, errs, code := reelBench(t, append(args, paced().Listen(t))...)
	var report bench.Throughput
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || len(report.Rows) != 2 {
		t.Fatalf("exit %d: %s, %v", code, errs, err)
	}
	for _, r := range report.Rows {
		if r.Good != r.Requests || r.GoodOnAverage != r.Requests || r.Requests == 0 {
			t.Errorf("got %+v", r)
		}
	}
	if svg, err := os.ReadFile(plot); err != nil || !strings.Contains(string(svg), "Goodput (") {
		t.Errorf("the plot: %v", err)
	}
	refuses := (&stub.Generator{Error: protocol.Errorf(protocol.CodeBusy, "", "full")}).Listen(t)
	if _, errs, code := reelBench(t, append(args, refuses)...); code != 1 || !strings.Contains(errs, "requests failed") {
		t.Errorf("a generator that refuses: exit %d, %s", code, errs)
	}
	file, errs, code := reelBench(t, "workload", "--requests", "30", "--users", "2")
	if code != 0 || strings.Count(file, "\n") != 30 || !strings.Contains(file, `"user":"user-2"`) {
		t.Errorf("exit %d: %s\n%s", code, errs, file)
	}
}
