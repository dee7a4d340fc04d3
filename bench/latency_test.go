package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// scripted is a generator whose first token takes 10 ms plus 1 ms per token of the prompt,
// and each further token 1 ms more than the previous one.
type scripted struct {
	short    int   // missing tokens of each completion
	err      error // ends each completion, unless nil
	requests []client.Request
}

func limits(context int) client.Limits { return client.Limits{Context: context, Vocab: 1000} }

func (g *scripted) Generate(_ context.Context, r client.Request) iter.Seq2[client.Token, error] {
	g.requests = append(g.requests, r)
	return func(yield func(client.Token, error) bool) {
		if g.err != nil {
			yield(client.Token{}, g.err)
			return
		}
		for i := range *r.MaxTokens - g.short {
			pause := time.Duration(i) * time.Millisecond
			if i == 0 {
				pause = time.Duration(10+len(r.Tokens)) * time.Millisecond
			}
			time.Sleep(pause) // by synctest's clock
			if !yield(client.Token{Index: i}, nil) {
				return
			}
		}
		*r.Done = client.Done{FinishReason: protocol.FinishLength,
			Graphs: protocol.Graphs{Precaptured: 1, Rolled: 2, Padded: 3, Eager: 4}}
	}
}

// latencyOf measures g alone.
func latencyOf(t *testing.T, g *scripted, context int, o LatencyOptions) (report *Latency, err error) {
	synctest.Test(t, func(t *testing.T) {
		report, err = MeasureLatency(t.Context(), []Target{NewReel(g)}, limits(context), o)
	})
	return report, err
}

func TestMeasureLatency(t *testing.T) {
	g := &scripted{}
	steps := 0
	got, err := latencyOf(t, g, 512, LatencyOptions{MaxTokens: 5, Runs: 3, Seed: 1, Progress: func(done, of int) {
		if steps++; done != steps || of != 4*len(DefaultPrompts) {
			t.Errorf("progress %d of %d at step %d", done, of, steps)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range DefaultPrompts {
		row, ttft := got.Rows[i], float64(10+n)
		if row.PromptTokens != n || row.Target != "reel" || row.TTFT.Samples != 3 || row.WarmupTTFT != ttft ||
			!near(row.TTFT.P50, ttft, 1e-3) || !near(row.TTFT.P99, ttft, 1e-3) {
			t.Errorf("got %+v", row)
		}
		if row.ITL.Min != 1 || row.ITL.P50 != 2 || row.Samples != 12 ||
			!near(row.ITL.P99, 4, 1e-3) || !near(row.TokensPerS, 400, 1e-9) {
			t.Errorf("got %+v", row)
		}
		graphs := protocol.Graphs{Precaptured: 3, Rolled: 6, Padded: 9, Eager: 12}
		if row.Graphs != graphs || len(row.Runs) != 3 || row.Runs[0].TTFT != ttft || row.Runs[2].ITLMax < 4 {
			t.Errorf("got %+v", row)
		}
	}
	if len(g.requests) != 4*len(DefaultPrompts) || steps != len(g.requests) {
		t.Errorf("%d requests for %d lengths, 3 runs and a warm-up", len(g.requests), len(DefaultPrompts))
	}
}

func TestAveragesBesideTheDocuments(t *testing.T) {
	got, err := latencyOf(t, &scripted{}, 512, LatencyOptions{Prompts: []int{10, 30}, MaxTokens: 5, Runs: 3})
	if err != nil {
		t.Fatal(err)
	}
	got.SetMemory(Memory{Used: 5e9})
	a := got.Averages
	if len(a) != 2 || a[0].Target != "reel" || !near(a[0].TTFT, 30, 1e-3) || a[0].ITLP50 != 2 || a[0].MemoryGB != 5 ||
		got.Memory.Used != 5e9 {
		t.Errorf("got %+v", a)
	}
	if a[1] != (Average{Target: "documents", TTFT: 121.23, ITLP99: 17.05, MemoryGB: 14.1}) {
		t.Errorf("the documents are %+v", a[1])
	}
	if !near(mean(documentsTTFT), a[1].TTFT, 1e-4) || len(documentsTTFT) != len(DefaultPrompts) {
		t.Errorf("the documents' rows have a mean of %g", mean(documentsTTFT))
	}
	table := got.Tables()[1]
	if row := table.Rows[1]; !slices.Equal(row, []string{"documents", "121.2", "-", "17.05", "-", "14.10"}) {
		t.Errorf("the table has %q", row)
	}
}

func TestPromptsAreExactAndRepeatable(t *testing.T) {
	measure := func(seed uint64) []client.Request {
		var g scripted
		if _, err := latencyOf(t, &g, 512,
			LatencyOptions{Prompts: []int{7}, MaxTokens: 2, Runs: 1, Seed: seed}); err != nil {
			t.Fatal(err)
		}
		return g.requests
	}
	first, again, other := measure(1), measure(1), measure(2)
	tokens := first[1].Tokens
	if len(tokens) != 7 || slices.Min(tokens) < 250 || slices.Max(tokens) >= 750 {
		t.Errorf("a prompt of 7 from the middle of 1000 ids: %v", tokens)
	}
	if !slices.Equal(tokens, again[1].Tokens) || slices.Equal(tokens, other[1].Tokens) ||
		slices.Equal(tokens, first[0].Tokens) {
		t.Errorf("prompts should differ, and depend on the seed alone: %v, %v, %v",
			tokens, again[1].Tokens, other[1].Tokens)
	}
	if r := first[0]; *r.Temperature != 0 || !r.IgnoreEOS || *r.MaxTokens != 2 {
		t.Errorf("not greedy, or too few tokens: %+v", r)
	}
}

func TestLengthsBeyondTheContext(t *testing.T) {
	got, err := latencyOf(t, &scripted{}, 202, LatencyOptions{MaxTokens: 2, Runs: 1})
	if err != nil || len(got.Rows) != 5 || !slices.Equal(got.LeftOut, []int{250, 300, 350, 400}) {
		t.Errorf("default lengths: %+v, %v", got, err)
	}
	for _, o := range []LatencyOptions{
		{Prompts: []int{10, 201}, MaxTokens: 2, Runs: 1},
		{Prompts: []int{0}, MaxTokens: 2, Runs: 1},
		{MaxTokens: 200, Runs: 1},
		{MaxTokens: 1, Runs: 1},
		{MaxTokens: 2, Runs: 0},
	} {
		if _, err := latencyOf(t, &scripted{}, 202, o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestShortCompletionIsAnError(t *testing.T) {
	_, err := latencyOf(t, &scripted{short: 1}, 512, LatencyOptions{MaxTokens: 5, Runs: 1})
	if err == nil || !strings.Contains(err.Error(), "4 tokens, not 5") {
		t.Errorf("got %v", err)
	}
}

func TestGeneratorsErrorEndsTheMeasurement(t *testing.T) {
	failed := errors.New("failed")
	_, err := latencyOf(t, &scripted{err: failed}, 512, LatencyOptions{MaxTokens: 5, Runs: 1})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

// paced is a target that sends tokens at fixed times.
type paced struct {
	name   string
	times  []time.Duration // of each piece, since the request
	tokens int             // per piece; 0: one
	drafts int             // tokens that had been guessed
	order  *[]string       // names of the targets asked
}

func (p *paced) Name() string { return p.name }

func (p *paced) Complete(_ context.Context, w Work, arrived func()) (Ended, error) {
	if p.order != nil {
		*p.order = append(*p.order, p.name)
	}
	begun := time.Now()
	for _, at := range p.times {
		time.Sleep(time.Until(begun.Add(at)))
		arrived()
	}
	return Ended{PromptTokens: len(w.Tokens), Tokens: len(p.times) * max(1, p.tokens), Accepted: p.drafts,
		Reason: "length"}, nil
}

// every returns n times: begin, and then every d.
func every(n int, begin, d time.Duration) (times []time.Duration) {
	for i := range n {
		times = append(times, begin+time.Duration(i)*d)
	}
	return times
}

func TestTargetsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		a := &paced{name: "a", times: every(8, 5*time.Millisecond, time.Millisecond), order: &order}
		b := &paced{name: "b", times: every(8, 50*time.Millisecond, 2*time.Millisecond), order: &order}
		o := LatencyOptions{Prompts: []int{10, 20}, MaxTokens: 8, Runs: 2}
		got, err := MeasureLatency(t.Context(), []Target{a, b}, limits(512), o)
		if err != nil {
			t.Fatal(err)
		}
		if names := strings.Join(order, ""); names != "abbaababbaab" {
			t.Errorf("asked in the order %s", names)
		}
		if len(got.Rows) != 4 || got.Rows[1].Target != "b" || !near(got.Rows[1].TTFT.P50, 50, 1e-3) ||
			!near(got.Rows[2].ITL.P50, 1, 1e-3) {
			t.Errorf("got %+v", got.Rows)
		}
		if cell := got.Tables()[0].Rows[3][0]; cell != "b 20" {
			t.Errorf("the row is called %q", cell)
		}
		if len(got.Warnings) != 0 {
			t.Errorf("warned of %q", got.Warnings)
		}
	})
}

// TestBufferingIsReported: a server that buffers is reported, and one that streams is not,
// regardless of the time to its first token.
func TestBufferingIsReported(t *testing.T) {
	const ms = time.Millisecond
	pairs := append(every(16, 10*ms, 2*ms), every(16, 10*ms+10*time.Microsecond, 2*ms)...)
	slices.Sort(pairs)
	for name, c := range map[string]struct {
		p    paced
		want bool
	}{
		"streams":                   {paced{times: every(32, 10*ms, ms)}, false},
		"streams after a long wait": {paced{times: every(32, 10*time.Second, ms)}, false},
		"delayed by others' prompts": {paced{times: slices.Concat(
			every(20, 10*ms, ms/2), every(6, 70*ms, 40*ms), every(6, 280*ms, ms/2))}, false},
		"all at the end": {paced{times: every(32, 40*ms, 0)}, true},
		"all at the end but for a pause": {paced{times: slices.Concat(
			every(16, 54*ms, 20*time.Microsecond), every(16, 56*ms, 20*time.Microsecond))}, true},
		"first, then the rest": {paced{times: append([]time.Duration{10 * ms},
			every(31, 40*ms, 5*time.Microsecond)...)}, true},
		"in twos":                  {paced{times: pairs}, true},
		"a guess in each step":     {paced{times: pairs, drafts: 16}, false},
		"a guess in one step":      {paced{times: pairs, drafts: 1}, true},
		"pieces of several tokens": {paced{times: every(8, 10*ms, 4*ms), tokens: 4}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.p.name = "it"
				o := LatencyOptions{Prompts: []int{10}, MaxTokens: 32, Runs: 3}
				got, err := MeasureLatency(t.Context(), []Target{&c.p}, limits(512), o)
				if err != nil {
					t.Fatal(err)
				}
				if warned := fmt.Sprint(got.Warnings); strings.Contains(warned, "it buffers its tokens") != c.want {
					t.Errorf("warned of %s", warned)
				}
			})
		})
	}
}
