package bench

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// This file compares the results of tools/limit_gpu.sh with the limits of one H200: the
// rate of reading memory (readLimit) bounds decode, and the tensor cores' rate bounds the
// products of long prompts. "Must" and "aim" are Reel's own goals.

// readLimit is the rate of reading memory on one H200, in GB/s.
const readLimit = 4600

// familyShare is the share of readLimit that every model above familyBytes (1B parameters
// in bfloat16) must reach.
const (
	familyShare = 0.75
	familyBytes = 2e9
)

// Limits are the results in one directory, by the names that tools/limit_gpu.sh gives them.
type Limits map[string]Result

// ReadLimits reads the results *.json of a directory. Errors are those of [ReadResult], and
// ErrOptions if there are none.
func ReadLimits(dir string) (Limits, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	l := Limits{}
	for _, path := range paths {
		r, err := ReadResult(path)
		if err != nil {
			return nil, err
		}
		l[strings.TrimSuffix(filepath.Base(path), ".json")] = r
	}
	if len(l) == 0 {
		return nil, fmt.Errorf("%w: no results in %s: run bench/tools/limit_gpu.sh", ErrOptions, dir)
	}
	return l, nil
}

// goal is a figure and its goals. limit is 0 if no physical limit is known.
type goal struct {
	name             string
	limit, must, aim float64
	higher           bool // is better
	of               func(Limits) (float64, bool)
}

// verdict compares a figure with its goals.
func (g *goal) verdict(v float64) string {
	reached := func(bound float64) bool {
		if g.higher {
			return v >= bound
		}
		return v <= bound
	}
	switch {
	case reached(g.aim):
		return "aim"
	case reached(g.must):
		return "met"
	}
	return "MISSED"
}

// goals returns the goals for one H200 with models in bfloat16, measured through the socket.
func goals() []goal {
	all := []goal{
		{"7B decode, first 256 tokens, tok/s", 352, 295, 317, true,
			rowOf("decode-7b", 10, func(r *LatencyRow) float64 { return r.TokensPerS })},
		{"1B decode, ms a token", 0.531, 0.76, 0.65, false,
			rowOf("decode-1b", 10, func(r *LatencyRow) float64 { return 1000 / r.TokensPerS })},
	}
	for _, t := range []struct {
		prompt           int
		limit, must, aim float64
	}{
		{10, 2.8, 4.2, 3.6}, {50, 2.8, 4.3, 3.7}, {100, 2.8, 4.6, 4.1}, {200, 3.4, 5.6, 5}, {400, 6.8, 9.5, 8.3},
	} {
		all = append(all, goal{fmt.Sprintf("7B TTFT P50, %d tokens, ms", t.prompt), t.limit, t.must, t.aim, false,
			rowOf("ttft-7b", t.prompt, func(r *LatencyRow) float64 { return r.TTFT.P50 })})
	}
	return append(all,
		goal{"7B TTFT P99 over P50, worst prompt", 0, 1.25, 1.1, false, worstTail},
		goal{"7B TTFT more, graph missing, padded, ms", 0, 1.5, 1, false, excessTTFT("padded-7b")},
		goal{"7B TTFT more, graph missing, eager, ms", 0, 1.5, 1, false, excessTTFT("eager-7b")},
		goal{"7B ITL P99 over P50, one stream", 0, 1.08, 1.02, false,
			rowOf("decode-7b", 10, func(r *LatencyRow) float64 { return r.ITL.P99 / r.ITL.P50 })},
		goal{"7B ITL P99 over P50, the roller works", 0, 1.15, 1.05, false, whileRolling},
		goal{"7B 256 graphs ready, s", 0, 0.8, 0.5, false, captured},
		goal{"7B exec to first token, s", 0.3, 2.5, 1, false, firstToken},
		goal{"7B decode, 16k of context, GB/s", readLimit, 3600, 4000, true,
			rowOf("context-7b", longContext, func(r *LatencyRow) float64 { return r.GBPerS })},
		goal{"7B decode, 8 rows, ms a step", 2.9, 3.7, 3.3, false, batched})
}

// longContext is the prompt length of the row with 16k tokens of context.
const longContext = 16000

// rowOf returns a function for one figure of a latency result, at that prompt length.
func rowOf(name string, prompt int, of func(*LatencyRow) float64) func(Limits) (float64, bool) {
	return func(l Limits) (float64, bool) {
		r, _ := l[name].(*Latency)
		row := r.row(prompt)
		if row == nil {
			return 0, false
		}
		return of(row), true
	}
}

// row returns Reel's row for a prompt length, or nil.
func (l *Latency) row(prompt int) *LatencyRow {
	if l == nil {
		return nil
	}
	is := func(r LatencyRow) bool { return r.Target == "reel" && r.PromptTokens == prompt }
	i := slices.IndexFunc(l.Rows, is)
	if i < 0 {
		return nil
	}
	return &l.Rows[i]
}

// worstTail returns the greatest ratio of TTFT P99 to P50.
func worstTail(l Limits) (worst float64, ok bool) {
	r, ok := l["ttft-7b"].(*Latency)
	if !ok {
		return 0, false
	}
	for _, row := range r.Rows {
		worst = max(worst, row.TTFT.P99/row.TTFT.P50)
	}
	return worst, true
}

// excessTTFT returns a function for the largest excess of a result's TTFT P50 over the result
// with graphs, over all prompt lengths.
func excessTTFT(name string) func(Limits) (float64, bool) {
	return func(l Limits) (worst float64, ok bool) {
		live, _ := l["ttft-7b"].(*Latency)
		missing, _ := l[name].(*Latency)
		if missing == nil {
			return 0, false
		}
		for i := range missing.Rows {
			row := &missing.Rows[i]
			if base := live.row(row.PromptTokens); base != nil {
				by := row.TTFT.P50 - base.TTFT.P50
				if !ok || by > worst {
					worst, ok = by, true
				}
			}
		}
		return worst, ok
	}
}

// whileRolling returns P99 over P50 of ITL for requests during which a graph was rolled.
func whileRolling(l Limits) (float64, bool) {
	r, _ := l["roll-7b"].(*Roll)
	if r == nil || len(r.Rows) == 0 || r.Rows[0].Rolling.P50 == 0 {
		return 0, false
	}
	return r.Rows[0].Rolling.P99 / r.Rows[0].Rolling.P50, true
}

// captured returns the seconds in which 256 graphs were captured.
func captured(l Limits) (float64, bool) {
	r, _ := l["graphs-7b"].(*Startup)
	if r == nil || len(r.Runs) == 0 || r.Runs[0].Graphs != 256 {
		return 0, false
	}
	var all []float64
	for _, s := range r.Runs {
		all = append(all, s.CaptureMS/1000)
	}
	return median(all), true
}

func firstToken(l Limits) (float64, bool) {
	r, _ := l["start-7b"].(*Startup)
	if r == nil {
		return 0, false
	}
	return r.Token.P50 / 1000, true
}

// batched returns the ITL of one of 8 sequences, which is the time of a step.
func batched(l Limits) (float64, bool) {
	r, _ := l["batch-7b"].(*Throughput)
	if r == nil {
		return 0, false
	}
	for _, row := range r.Rows {
		if row.Concurrency == 8 && row.Failed == 0 {
			return row.ITL.P50, true
		}
	}
	return 0, false
}

// Tables returns a table of the goals, and one of other models if they were measured.
func (l Limits) Tables() []Table {
	t := Table{
		Title:   "One H200, bfloat16, through the socket",
		Columns: []string{"", "limit", "must", "aim", "measured", ""},
	}
	for _, g := range goals() {
		if v, ok := g.of(l); ok {
			t.row(g.name, orDash(g.limit), g.must, g.aim, v, g.verdict(v))
		} else {
			t.row(g.name, orDash(g.limit), g.must, g.aim, "-", "not measured")
		}
	}
	if families := l.families(); len(families.Rows) > 0 {
		return []Table{t, families}
	}
	return []Table{t}
}

// families returns a table of the results family-*: each model's rate beside the rate at
// which its weights can be read.
func (l Limits) families() Table {
	t := Table{
		Title: fmt.Sprintf("Other shapes: decode of the first 256 tokens, and its share of %d GB/s "+
			"(must: %.0f%% above 1B)", readLimit, 100*familyShare),
		Columns: []string{"", "GB a step", "limit tok/s", "tok/s", "share", ""},
	}
	for _, name := range l.named("family-") {
		r, _ := l[name].(*Latency)
		row := r.row(10)
		if row == nil || r.Provenance.Shape.StepBytes == 0 {
			continue
		}
		bytes := float64(r.Provenance.Shape.StepBytes)
		limit := readLimit * 1e9 / bytes
		share, verdict := row.TokensPerS/limit, "no bound"
		if bytes > familyBytes {
			verdict = (&goal{must: familyShare, aim: 1, higher: true}).verdict(share)
		}
		t.row(strings.TrimPrefix(name, "family-"), bytes/1e9, limit, row.TokensPerS, share, verdict)
	}
	return t
}

// named returns the names of results with a prefix, in order.
func (l Limits) named(prefix string) (names []string) {
	for name := range l {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
