// Package bench measures a generator as its clients see it, through its socket,
// and other servers beside it.
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

// Progress is told how far a measurement is: done of so many steps.
type Progress func(done, of int)

// Work is one completion to make.
type Work struct {
	Tokens    []int32 // the prompt; nil where Text is the prompt
	Text      string
	MaxTokens int
}

// Ended is what a target says at a completion's end.
type Ended struct {
	PromptTokens int
	Tokens       int // of the completion
	Reason       string
	Graphs       protocol.Graphs // of a Reel generator: steps by how they were launched
}

// Target makes completions: greedy, and past the end of the sequence.
type Target interface {
	Name() string
	// Complete calls arrived, on its own goroutine, for each piece of the
	// completion that comes: one token, from a server that streams.
	Complete(ctx context.Context, w Work, arrived func()) (Ended, error)
}

// Generator is a connection to a Reel generator; *client.Client is one.
type Generator interface {
	Generate(context.Context, client.Request) iter.Seq2[client.Token, error]
}

// perConnection is how many requests a connection carries at once: a few less
// than a generator takes, so that one that was just left is not in the way.
const perConnection = protocol.MaxRequests - 4

// reel is a Reel generator, over any number of connections.
type reel struct{ places chan Generator }

// NewReel makes a Target of connections to one generator. What its connections
// can't carry at once waits for a place.
func NewReel(connections ...Generator) Target {
	r := reel{make(chan Generator, perConnection*len(connections))}
	for range perConnection {
		for _, c := range connections {
			r.places <- c
		}
	}
	return r
}

// Connections is how many NewReel needs to carry so many requests at once.
func Connections(requests int) int { return (requests + perConnection - 1) / perConnection }

// Name is "reel".
func (reel) Name() string { return "reel" }

// Complete asks the generator.
func (r reel) Complete(ctx context.Context, w Work, arrived func()) (Ended, error) {
	var g Generator
	select {
	case g = <-r.places:
	case <-ctx.Done():
		return Ended{}, ctx.Err()
	}
	defer func() { r.places <- g }()
	var done client.Done
	request := client.Request{Prompt: w.Text, Tokens: w.Tokens, MaxTokens: &w.MaxTokens, Temperature: new(0.0), IgnoreEOS: true, Done: &done}
	tokens := 0
	for _, err := range g.Generate(ctx, request) {
		if err != nil {
			return Ended{}, err
		}
		arrived()
		tokens++
	}
	return Ended{done.Usage.PromptTokens, tokens, done.FinishReason, done.Graphs}, nil
}

// Completion is one request as its client saw it.
type Completion struct {
	Ended
	Due      time.Time       // when it was to be sent
	Arrivals []time.Duration // of its pieces, from Due on
	End      time.Duration   // from Due on
	Err      error
}

// measure makes a completion that was due at due. Times count from there: what
// is sent late, because the one before it was slow, is late.
func measure(ctx context.Context, t Target, w Work, due time.Time) Completion {
	c := Completion{Due: due, Arrivals: make([]time.Duration, 0, w.MaxTokens)}
	c.Ended, c.Err = t.Complete(ctx, w, func() { c.Arrivals = append(c.Arrivals, time.Since(due)) })
	c.End = time.Since(due)
	return c
}

// TTFT is the time to the first token; to the end where none came.
func (c *Completion) TTFT() time.Duration {
	if len(c.Arrivals) == 0 {
		return c.End
	}
	return c.Arrivals[0]
}

// Gaps are the times between a piece and the next.
func (c *Completion) Gaps() []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(c.Arrivals); i++ {
		gaps = append(gaps, c.Arrivals[i]-c.Arrivals[i-1])
	}
	return gaps
}

// span is from the first piece to the last.
func (c *Completion) span() time.Duration {
	if len(c.Arrivals) == 0 {
		return 0
	}
	return c.Arrivals[len(c.Arrivals)-1] - c.Arrivals[0]
}

// TPOT is the mean time of a token after the first; 0 where there is none.
func (c *Completion) TPOT() time.Duration {
	if c.Tokens < 2 {
		return 0
	}
	return c.span() / time.Duration(c.Tokens-1)
}

// short is an error where the completion is not w.MaxTokens long: it is then no
// measurement of what was asked for.
func (c *Completion) short(w Work) error {
	if c.Err != nil {
		return c.Err
	}
	if c.Tokens != w.MaxTokens {
		return fmt.Errorf("the completion has %d tokens, not %d: it ended with %q", c.Tokens, w.MaxTokens, c.Reason)
	}
	return nil
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

// add adds more to sum.
func add(sum *protocol.Graphs, more protocol.Graphs) {
	sum.Precaptured += more.Precaptured
	sum.Rolled += more.Rolled
	sum.Padded += more.Padded
	sum.Eager += more.Eager
}
