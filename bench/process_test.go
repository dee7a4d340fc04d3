package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"reel.internal/reel/bench/internal/stub"
	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// TestMain lets this program act as a generator if stubVariable is set.
func TestMain(m *testing.M) {
	if mode := os.Getenv(stubVariable); mode != "" {
		os.Exit(actAsGenerator(mode))
	}
	os.Exit(m.Run())
}

const stubVariable = "STUB_OF_A_GENERATOR"

// actAsGenerator serves a stub until SIGTERM, or fails.
func actAsGenerator(mode string) int {
	setting := func(v string) bool { return strings.HasPrefix(v, "REEL_") }
	if mode == "fails" || slices.ContainsFunc(os.Environ(), setting) {
		fmt.Fprintln(os.Stderr, "no such model")
		return 78
	}
	if os.Args[1] == "ops" {
		fmt.Println(opsJSON)
		return 0
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	l, err := net.Listen("unix", flag("--socket"))
	if err != nil {
		return 1
	}
	g := &stub.Generator{Loading: 3, Rolls: flag("--roller") == "on", Graphs: protocol.GraphPool{
		Precaptured: 50, CaptureS: 0.25, CaptureMedianMS: 4, GraphBytes: 2048, MaxGraphs: 12,
		Roller: flag("--max-graphs") + flag("--precapture"),
	}}
	go g.Accept(l)
	<-stop
	return 0
}

// flag returns the value of a flag of this process.
func flag(name string) string {
	if i := slices.Index(os.Args, name); i >= 0 {
		return os.Args[i+1]
	}
	return ""
}

// stubLaunch returns a Launch that starts this program as a generator.
func stubLaunch(t *testing.T, mode string, args ...string) Launch {
	t.Setenv(stubVariable, mode)
	t.Setenv("REEL_MODEL", "/not/passed/on")
	return Launch{Path: os.Args[0], Args: args}
}

func described(s *client.Status) Provenance { return Describe(s, "v", []string{"reel-bench", "x"}) }

func TestStartup(t *testing.T) {
	steps := 0
	l := stubLaunch(t, "serves", "--max-batch", "3")
	got, err := MeasureStartup(t.Context(), l, 2, described, func(done, of int) {
		if steps++; done != steps || of != 3 {
			t.Errorf("progress %d of %d", done, of)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Runs) != 2 || got.Welcome.Samples != 2 || got.WarmupMS <= 0 {
		t.Errorf("got %+v", got)
	}
	for _, r := range got.Runs {
		if r.WelcomeMS <= 0 || r.TokenMS < r.WelcomeMS || r.Graphs != 50 || r.CaptureMS != 250 ||
			r.GraphsPerS != 200 || r.MSPerGraph != 4 || r.BytesByGraph != 2048 {
			t.Errorf("got %+v", r)
		}
	}
	p := got.Provenance
	if !strings.HasSuffix(p.Generator, "--max-batch 3") || p.Command != "reel-bench x" || p.Model != "stub" {
		t.Errorf("provenance %+v", p)
	}
	if rows := got.Tables()[0].Rows; len(rows) != 3 || rows[2][0] != "P50" || len(got.Metrics()) != 3 {
		t.Errorf("got %q", rows)
	}
}

func TestRoll(t *testing.T) {
	o := RollOptions{Phases: 2, Lengths: 3, Requests: 4, Longest: 40, MaxTokens: 5, MaxGraphs: 7, Captured: "9",
		Seed: 1}
	got, err := MeasureRoll(t.Context(), stubLaunch(t, "serves"), o, described)
	if err != nil {
		t.Fatal(err)
	}
	on, off := got.Rows[0], got.Rows[1]
	if on.Roller != "on" || off.Roller != "off" || on.Pool.Rolled != 9 || off.Pool.Rolled != 0 ||
		on.Pool.Roller != "79" || on.TTFT.Samples != 8 || on.ITL.Samples != 32 || on.WarmupMS <= 0 {
		t.Errorf("got %+v\n%+v", on, off)
	}
	if on.Missing.Samples != 8 || on.Live.Samples != 0 || on.Rolling.Samples != 32 || off.Rolling.Samples != 0 {
		t.Errorf("all steps are eager, and each request rolls: %+v\n%+v", on, off)
	}
	lengths := map[int]bool{}
	for i := range on.Points {
		a, b := on.Points[i], off.Points[i]
		if a.PromptTokens != b.PromptTokens || a.Rolled != uint64(i+2) || b.Rolled != 0 ||
			i > 0 && a.AtS <= on.Points[i-1].AtS {
			t.Errorf("request %d: %+v, %+v", i, a, b)
		}
		lengths[a.PromptTokens] = true
	}
	if len(lengths) < 4 || len(got.Warnings) != 0 {
		t.Errorf("lengths %v, warnings %q", lengths, got.Warnings)
	}
	if rows := got.Tables()[0].Rows; fmt.Sprint(rows[12]) != "[graphs rolled 9 0]" {
		t.Errorf("got %q", rows[12])
	}
	if c := got.Charts(); len(c) != 4 || len(c[0].Marks) != 8 || len(c[2].Marks) != 0 || len(c[0].Series) != 2 {
		t.Errorf("got %+v", c)
	}
}

func TestRollRefuses(t *testing.T) {
	good := RollOptions{Phases: 1, Lengths: 1, Requests: 1, Longest: 1, MaxTokens: 2, MaxGraphs: 1}
	for _, change := range []func(*RollOptions){
		func(o *RollOptions) { o.Phases = 0 },
		func(o *RollOptions) { o.Lengths = 2 },
		func(o *RollOptions) { o.Requests = 0 },
		func(o *RollOptions) { o.MaxTokens = 1 },
		func(o *RollOptions) { o.MaxGraphs = 0 },
		func(o *RollOptions) { o.Lengths, o.Longest, o.MaxTokens = 9, 9, 510 },
	} {
		o := good
		change(&o)
		if _, err := MeasureRoll(t.Context(), stubLaunch(t, "serves"), o, described); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

const opsJSON = `{"model":"m","device":"cuda","version":"abc",
"machine":{"name":"NVIDIA H200","driver":"1","memory_used":1,"memory_total":2},
"shape":{"layers":2,"hidden":64,"inner":1,"heads":1,"kv_heads":1,"head_dim":1,"weight_bytes":1},"read_gbs":4000,
"rows":[{"kernel":"head","phase":"decode","rows":1,"context":256,"launches":1,
"us":100,"times_us":[99,100,101],"bytes":200000000,"flops":1000000},
{"kernel":"gateup","phase":"prefill","rows":400,"context":400,"launches":2,
"us":100,"times_us":[100],"bytes":40000000,"flops":39500000000}]}`

func TestOps(t *testing.T) {
	describe := func(r *OpsReport) Provenance { return r.Describe(described(&client.Status{})) }
	got, err := MeasureOps(t.Context(), stubLaunch(t, "serves", "--gpu", "1"), describe)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Provenance; p.GPU != "NVIDIA H200" || p.Driver != "1" || p.Commit != "abc" ||
		!strings.HasSuffix(p.Generator, "ops --json --gpu 1") || p.Shape.Layers != 2 {
		t.Errorf("provenance %+v", p)
	}
	rows := got.Tables()[0].Rows
	if fmt.Sprint(rows[0]) != "[head decode 1 256 1 100.0 99.00 2000 0.01 50%]" {
		t.Errorf("half of the memory's rate: %q", rows[0])
	}
	if fmt.Sprint(rows[1]) != "[gateup prefill 400 400 2 100.0 100.0 400.0 395.0 50%]" {
		t.Errorf("half of the tensor rate: %q", rows[1])
	}
	if m := got.Metrics(); len(m) != 2 || m[0].Name != "ops/decode-1/head" || len(m[0].Values) != 3 {
		t.Errorf("got %+v", m)
	}
}

// TestGeneratorThatFails: the error contains the generator's messages.
func TestGeneratorThatFails(t *testing.T) {
	l := stubLaunch(t, "fails")
	_, err := MeasureStartup(t.Context(), l, 1, described, nil)
	if !errors.Is(err, ErrGenerator) || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("startup: %v", err)
	}
	_, err = MeasureOps(t.Context(), l, nil)
	if !errors.Is(err, ErrGenerator) || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("ops: %v", err)
	}
	if _, err := (Launch{Path: "./none"}).Start(t.Context()); !errors.Is(err, ErrOptions) {
		t.Errorf("none: %v", err)
	}
}

// TestGeneratorEndsWithItsMeasurement: at the end of the context a started generator ends
// and leaves nothing behind.
func TestGeneratorEndsWithItsMeasurement(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := stubLaunch(t, "serves").Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	cancel()
	<-p.exited
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it was not asked to stop: exit %d", code)
	}
	p.Stop()
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory still exists: %v", err)
	}
}

// TestResultsAreReadAgain: the JSON of each kind of result can be read again.
func TestResultsAreReadAgain(t *testing.T) {
	for kind, make := range kinds {
		r := make()
		r.Header().Kind, r.Header().Provenance.Commit = kind, "abc"
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		path := t.TempDir() + "/r.json"
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := ReadResult(path)
		if err != nil || again.Header().Kind != kind || again.Header().Provenance.Commit != "abc" {
			t.Errorf("%s: %+v, %v", kind, again, err)
		}
	}
}
