// Package bench measures a generator as its clients see it.
package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"reel/client"
	"reel/protocol"
)

// ErrOptions says that what is asked for can't be measured.
var ErrOptions = errors.New("bad options")

// DefaultPrompts are the prompt lengths, in tokens, that are measured unless
// others are asked for.
var DefaultPrompts = []int{10, 50, 100, 200, 400}

// LatencyOptions says what Latency measures.
type LatencyOptions struct {
	Prompts   []int  // tokens of each prompt; nil is those of DefaultPrompts that fit
	MaxTokens int    // of each completion, at least 2
	Runs      int    // measured completions of each length, at least 1; one more warms up
	Seed      uint64 // of the prompts' random tokens
}

// Latency is what was measured.
type Latency struct {
	Model     string       `json:"model"`
	MaxTokens int          `json:"max_tokens"`
	Runs      int          `json:"runs"`
	Rows      []LatencyRow `json:"rows"`
	// LeftOut are the default prompt lengths that do not fit the context.
	LeftOut []int `json:"left_out,omitempty"`
}

// LatencyRow is what was measured for one prompt length, over all runs.
type LatencyRow struct {
	PromptTokens int             `json:"prompt_tokens"`
	TTFT         Summary         `json:"ttft_ms"` // from the request to its first token
	ITL          Summary         `json:"itl_ms"`  // between a token and the next
	Graphs       protocol.Graphs `json:"graphs"`  // steps of all runs, by how they were launched
}

// Generator is what is measured; *client.Client is one.
type Generator interface {
	Model() string
	Limits() client.Limits
	Generate(context.Context, client.Request) iter.Seq2[client.Token, error]
}

// MeasureLatency runs greedy completions one after the other and measures TTFT
// and ITL at the client. Errors: ErrOptions, and what Generate yields.
func MeasureLatency(ctx context.Context, g Generator, o LatencyOptions) (*Latency, error) {
	prompts, leftOut, err := o.fit(g.Limits())
	if err != nil {
		return nil, err
	}
	report := &Latency{Model: g.Model(), MaxTokens: o.MaxTokens, Runs: o.Runs, LeftOut: leftOut}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	for _, n := range prompts {
		row, err := o.measureLength(ctx, g, n, random)
		if err != nil {
			return nil, fmt.Errorf("prompt of %d tokens: %w", n, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

// fit returns the prompt lengths to measure, and the default ones that the
// context can't hold together with the completion.
func (o *LatencyOptions) fit(limits client.Limits) (prompts, leftOut []int, err error) {
	if o.Runs < 1 || o.MaxTokens < 2 {
		return nil, nil, fmt.Errorf("%w: %d runs of %d tokens: at least 1 run and 2 tokens are needed", ErrOptions, o.Runs, o.MaxTokens)
	}
	wanted := o.Prompts
	if wanted == nil {
		wanted = DefaultPrompts
	}
	for _, n := range wanted {
		switch {
		case n >= 1 && n+o.MaxTokens <= limits.Context:
			prompts = append(prompts, n)
		case n >= 1 && o.Prompts == nil:
			leftOut = append(leftOut, n)
		default:
			return nil, nil, fmt.Errorf("%w: a prompt of %d tokens and a completion of %d: a prompt has at least 1, and the context holds %d for both",
				ErrOptions, n, o.MaxTokens, limits.Context)
		}
	}
	if len(prompts) == 0 {
		return nil, nil, fmt.Errorf("%w: no prompt fits the context of %d tokens with a completion of %d", ErrOptions, limits.Context, o.MaxTokens)
	}
	return prompts, leftOut, nil
}

// measureLength measures prompts of n tokens. Each run has another prompt, so
// that nothing that remembers prompts makes a run faster than the first of its kind.
func (o *LatencyOptions) measureLength(ctx context.Context, g Generator, n int, random *rand.Rand) (LatencyRow, error) {
	row := LatencyRow{PromptTokens: n}
	if _, err := o.measure(ctx, g, prompt(random, n, g.Limits().Vocab)); err != nil {
		return row, err // of the run that warms up
	}
	var ttft, itl []time.Duration
	for range o.Runs {
		r, err := o.measure(ctx, g, prompt(random, n, g.Limits().Vocab))
		if err != nil {
			return row, err
		}
		ttft = append(ttft, r.ttft)
		itl = append(itl, r.itl...)
		add(&row.Graphs, r.graphs)
	}
	row.TTFT, row.ITL = Summarize(ttft), Summarize(itl)
	return row, nil
}

// prompt returns n random token ids from the middle half of a vocabulary:
// special tokens are at its ends.
func prompt(random *rand.Rand, n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(vocab/4 + random.IntN(max(1, vocab/2)))
	}
	return tokens
}

// run is what one completion took.
type run struct {
	ttft   time.Duration
	itl    []time.Duration
	graphs protocol.Graphs
}

// measure runs one completion.
func (o *LatencyOptions) measure(ctx context.Context, g Generator, tokens []int32) (run, error) {
	var r run
	var done client.Done
	request := client.Request{Tokens: tokens, MaxTokens: &o.MaxTokens, Temperature: new(0.0), IgnoreEOS: true, Done: &done}
	count := 0
	last := time.Now()
	for _, err := range g.Generate(ctx, request) {
		if err != nil {
			return r, err
		}
		now := time.Now()
		if count == 0 {
			r.ttft = now.Sub(last)
		} else {
			r.itl = append(r.itl, now.Sub(last))
		}
		count++
		last = now
	}
	if count != o.MaxTokens {
		return r, fmt.Errorf("the completion has %d tokens, not %d: it ended with %q", count, o.MaxTokens, done.FinishReason)
	}
	r.graphs = done.Graphs
	return r, nil
}

// add adds more to sum.
func add(sum *protocol.Graphs, more protocol.Graphs) {
	sum.Precaptured += more.Precaptured
	sum.Rolled += more.Rolled
	sum.Padded += more.Padded
	sum.Eager += more.Eager
}
