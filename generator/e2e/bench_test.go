//go:build linux

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/bench"
	"reel.internal/reel/protocol"
)

// measured runs reel-bench with a generator of its own and parses its result.
func measured[T any](t *testing.T, args ...string) (result T) {
	t.Helper()
	p := prepare(t, "reel-bench", args...).start()
	if code := p.wait(); code != 0 {
		t.Fatalf("reel-bench %q: exit %d: %s", args, code, p.stderr)
	}
	if err := json.Unmarshal([]byte(p.stdout.String()), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// Each command of reel-bench starts and measures a real generator, and reports its provenance.
func TestBench(t *testing.T) {
	t.Parallel()
	t.Run("latency", func(t *testing.T) {
		got := measured[bench.Latency](t, "latency", "--json", "--start", "--prompts", "1,70", "--runs", "2",
			"--max-tokens", "8", "--", "--max-seq-len", "128", "--precapture", "1-3")
		row := got.Rows[1]
		steps := row.Graphs.Precaptured + row.Graphs.Rolled + row.Graphs.Padded + row.Graphs.Eager
		if len(got.Rows) != 2 || row.Samples != 14 || !(row.TTFT.P50 > 0) || steps < 18 || got.Memory.Used < 1<<20 {
			t.Errorf("got %+v", got)
		}
		p := got.Provenance
		if p.Model != "reel-tiny" || p.Shape.Layers != 4 || p.Device != "host" || p.Commit == "" ||
			!strings.Contains(p.Generator, "--max-seq-len 128 --precapture 1-3") {
			t.Errorf("provenance %+v", p)
		}
	})
	t.Run("throughput", func(t *testing.T) {
		got := measured[bench.Throughput](t, "throughput", "--json", "--device", "host", "--prompt-tokens", "4-9",
			"--output-tokens", "5", "--concurrency", "3", "--rate", "10", "--duration", "500ms", "--warmup", "100ms")
		if r := got.Rows; len(r) != 2 || r[0].Requests == 0 || r[0].Failed+r[1].Failed != 0 || !(r[0].TokensPerS > 0) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("goodput", func(t *testing.T) {
		got := measured[bench.Throughput](t, "goodput", "--json", "--device", "host", "--lossless", "--rate", "10,20",
			"--duration", "500ms", "--warmup", "100ms", "--drain", "2m", "--slo", "ttft=2m,itl=2m", "--scale", "0.05",
			"--context", "200", "--users", "3")
		r := got.Rows
		if len(r) != 2 || r[0].Good != r[0].Requests || r[1].Good != r[1].Requests || r[0].Requests+r[1].Requests == 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("arrivals", func(t *testing.T) {
		got := measured[bench.Arrivals](t, "arrivals", "--json", "--device", "host", "--streams", "2", "--prompt-tokens", "90",
			"--rate", "20", "--burst", "5x16", "--runs", "2", "--duration", "500ms", "--warmup", "100ms")
		if r, b := got.Streams, got.Bursts; len(r) != 2 || r[0].ITL.Samples == 0 || r[1].TTFT.Samples == 0 ||
			r[1].Failed != 0 || len(b) != 1 || len(b[0].Last) != 2 || !(b[0].Last[1] >= b[0].P50[1]) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("chat", func(t *testing.T) {
		got := measured[bench.Chat](t, "chat", "--json", "--device", "host", "--conversations", "1", "--turns", "4",
			"--words", "30", "--max-tokens", "8", "--pause", "0")
		on, off := got.Rows[3], got.Rows[7]
		if on.CachedTokens < 3*30 || on.CachedTokens >= on.PromptTokens || off.CachedTokens != 0 ||
			on.PromptTokens != off.PromptTokens || !(on.TTFT.P50 > 0) || len(got.Warnings) != 0 {
			t.Errorf("with the cache %+v\nwithout %+v\n%v", on, off, got.Warnings)
		}
	})
	t.Run("speculate", func(t *testing.T) {
		got := measured[bench.Speculate](t, "speculate", "--json", "--device", "host", "--prompts", "1", "--rounds", "1",
			"--prompt-tokens", "20", "--max-tokens", "24", "--acceptance", "1", "--draft", "3", "--",
			"--max-seq-len", "64", "--precapture", "1-3", "--max-batch", "2")
		if r := got.Rows; len(r) != 1 || r[0].Differing != 0 || r[0].Drafted == 0 || r[0].Accepted != r[0].Drafted ||
			got.Drafter != protocol.DrafterGiven || !(r[0].TokensStep > 2) || !(r[0].Speed > 0) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("startup", func(t *testing.T) {
		got := measured[bench.Startup](t, "startup", "--json", "--runs", "1",
			"--", "--precapture", "1-3", "--max-batch", "2", "--device", "host")
		if r := got.Runs; len(r) != 1 || r[0].Graphs != 12 || !(r[0].GraphsPerS > 0) || r[0].TokenMS < r[0].WelcomeMS {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("roll", func(t *testing.T) {
		got := measured[bench.Roll](t, "roll", "--json", "--phases", "2", "--lengths", "2", "--requests", "12",
			"--longest", "30", "--max-tokens", "4", "--max-graphs", "4", "--", "--max-batch", "2", "--device", "host")
		on, off := got.Rows[0], got.Rows[1]
		if on.Pool.MaxGraphs != 4 || on.Pool.Rolled == 0 || on.Pool.Live > 4 ||
			off.Pool.Rolled != 0 || off.Pool.Roller != "off" || off.Graphs.Rolled != 0 {
			t.Errorf("got %+v\n%+v", on.Pool, off.Pool)
		}
	})
	t.Run("ops", func(t *testing.T) {
		got := measured[bench.Ops](t, "ops", "--json", "--device", "host",
			"--", "--decode", "2", "--prefill", "9", "--max-seq-len", "64")
		var names []string
		for _, r := range got.Rows {
			names = append(names, r.Kernel)
		}
		if len(names) != 21 || !slices.Contains(names, "attend") || !(got.ReadGBs > 0) || !(got.Rows[2].GBs() > 0) ||
			got.Provenance.Model != "reel-tiny" {
			t.Errorf("got %+v", got)
		}
	})
}
