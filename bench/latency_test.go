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

	"reel/client"
	"reel/protocol"
)

// scripted is a generator whose first token takes 10 ms and a ms for each token
// of the prompt, and each further token 1 ms more than the one before.
type scripted struct {
	context  int
	short    int   // tokens by which each completion falls short
	err      error // ends each completion, where set
	requests []client.Request
}

func (g *scripted) Model() string         { return "scripted" }
func (g *scripted) Limits() client.Limits { return client.Limits{Context: g.context, Vocab: 1000} }

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
			time.Sleep(pause) // of synctest's clock
			if !yield(client.Token{Index: i}, nil) {
				return
			}
		}
		*r.Done = client.Done{FinishReason: protocol.FinishLength, Graphs: protocol.Graphs{Precaptured: 1, Rolled: 2, Padded: 3, Eager: 4}}
	}
}

func TestMeasureLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &scripted{context: 512}
		got, err := MeasureLatency(t.Context(), g, LatencyOptions{MaxTokens: 5, Runs: 3, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range DefaultPrompts {
			ttft := float64(10 + n)
			want := LatencyRow{n, Summary{ttft, ttft, ttft, ttft, 3}, Summary{1, 2, 4, 4, 12}, protocol.Graphs{Precaptured: 3, Rolled: 6, Padded: 9, Eager: 12}}
			if got.Rows[i] != want {
				t.Errorf("got %+v, want %+v", got.Rows[i], want)
			}
		}
		if len(g.requests) != 4*len(DefaultPrompts) {
			t.Errorf("%d requests for %d lengths, 3 runs and a warm-up", len(g.requests), len(DefaultPrompts))
		}
	})
}

func TestPromptsAreExactAndRepeatable(t *testing.T) {
	measure := func(seed uint64) []client.Request {
		var g scripted
		synctest.Test(t, func(t *testing.T) {
			g.context = 512
			if _, err := MeasureLatency(t.Context(), &g, LatencyOptions{Prompts: []int{7}, MaxTokens: 2, Runs: 1, Seed: seed}); err != nil {
				t.Fatal(err)
			}
		})
		return g.requests
	}
	first, again, other := measure(1), measure(1), measure(2)
	tokens := first[1].Tokens
	if len(tokens) != 7 || slices.Min(tokens) < 250 || slices.Max(tokens) >= 750 {
		t.Errorf("a prompt of 7 from the middle of 1000 ids: %v", tokens)
	}
	if !slices.Equal(tokens, again[1].Tokens) || slices.Equal(tokens, other[1].Tokens) || slices.Equal(tokens, first[0].Tokens) {
		t.Errorf("the seed alone makes the prompts, each its own: %v, %v, %v", tokens, again[1].Tokens, other[1].Tokens)
	}
	if r := first[0]; *r.Temperature != 0 || !r.IgnoreEOS || *r.MaxTokens != 2 {
		t.Errorf("not greedy, or not all tokens: %+v", r)
	}
}

func TestLengthsBeyondTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &scripted{context: 202}
		got, err := MeasureLatency(t.Context(), g, LatencyOptions{MaxTokens: 2, Runs: 1})
		if err != nil || len(got.Rows) != 4 || !slices.Equal(got.LeftOut, []int{400}) {
			t.Errorf("default lengths: %+v, %v", got, err)
		}
		for _, o := range []LatencyOptions{
			{Prompts: []int{10, 201}, MaxTokens: 2, Runs: 1},
			{Prompts: []int{0}, MaxTokens: 2, Runs: 1},
			{MaxTokens: 200, Runs: 1},
			{MaxTokens: 1, Runs: 1},
			{MaxTokens: 2, Runs: 0},
		} {
			if _, err := MeasureLatency(t.Context(), g, o); !errors.Is(err, ErrOptions) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}

func TestShortCompletionIsNoMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := MeasureLatency(t.Context(), &scripted{context: 512, short: 1}, LatencyOptions{MaxTokens: 5, Runs: 1})
		if err == nil || !strings.Contains(err.Error(), "4 tokens, not 5") {
			t.Errorf("got %v", err)
		}
	})
}

func TestGeneratorsErrorEndsTheMeasurement(t *testing.T) {
	failed := errors.New("failed")
	_, err := MeasureLatency(t.Context(), &scripted{context: 512, err: failed}, LatencyOptions{MaxTokens: 5, Runs: 1})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

func TestWriteTable(t *testing.T) {
	l := &Latency{Model: "m", MaxTokens: 32, Runs: 5, Rows: []LatencyRow{
		{10, Summary{1, 2, 3, 4, 5}, Summary{0.5, 0.6, 0.7, 0.8, 155}, protocol.Graphs{Precaptured: 1, Rolled: 2, Padded: 3, Eager: 4}},
	}}
	var b strings.Builder
	if err := l.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if got, want := fmt.Sprint(strings.Fields(lines[2])), "[10 1.00 2.00 3.00 0.50 0.60 0.70 0.80 1 2 3 4]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
