// Package bench measures a generator through its socket, as its clients see it, and other
// servers beside it.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// ErrOptions means that the requested measurement is impossible.
var ErrOptions = errors.New("bad options")

// Progress is called with the number of steps done and the number of all steps.
type Progress func(done, of int)

// Work is one completion to make.
type Work struct {
	Tokens    []int32 // the prompt; nil if Text is the prompt
	Text      string
	MaxTokens int
	Cache     string // one of protocol.Cache…, the use of a prefix cache; empty: CacheOff
	User      string // the name of the sender; empty: none. Peers are not told
}

// cache returns the use of a prefix cache.
func (w *Work) cache() string { return cmp.Or(w.Cache, protocol.CacheOff) }

// CheckCache refuses a use of the prefix cache that there is not. The error is ErrOptions.
func CheckCache(use string) error {
	switch use {
	case protocol.CacheOn, protocol.CacheRead, protocol.CacheOff:
		return nil
	}
	return fmt.Errorf("%w: --cache %q: it must be on, read or off", ErrOptions, use)
}

// Ended is a target's report at the end of a completion.
type Ended struct {
	PromptTokens int
	CachedTokens int // of the prompt, as the server says; 0 if it does not
	Tokens       int // of the completion
	Accepted     int // of these that a Reel generator had guessed, so that several came at once
	Reason       string
	Graphs       protocol.Graphs // of a Reel generator: steps by launch
}

// Target makes completions: greedy, and ignoring the end of the sequence.
type Target interface {
	Name() string
	// Complete calls arrived, on its own goroutine, for each piece of the completion
	// that arrives. A server that streams sends pieces of one token.
	Complete(ctx context.Context, w Work, arrived func()) (Ended, error)
}

// Generator is a connection to a Reel generator; *client.Client is one.
type Generator interface {
	Generate(context.Context, client.Request) iter.Seq2[client.Token, error]
}

// maxPerConnection is the number of concurrent requests on a connection: slightly less than a
// generator accepts, since a request that was just left may still count.
const maxPerConnection = protocol.MaxRequests - 4

// reel is a Reel generator with any number of connections.
type reel struct{ slots chan Generator }

// NewReel returns a Target for one generator. Requests beyond the capacity of its
// connections wait.
func NewReel(connections ...Generator) Target {
	r := reel{make(chan Generator, maxPerConnection*len(connections))}
	for range maxPerConnection {
		for _, c := range connections {
			r.slots <- c
		}
	}
	return r
}

// Connections returns the number of connections that NewReel needs for that many
// concurrent requests.
func Connections(requests int) int { return (requests + maxPerConnection - 1) / maxPerConnection }

// Name returns "reel".
func (reel) Name() string { return "reel" }

// Complete makes a completion on the generator.
func (r reel) Complete(ctx context.Context, w Work, arrived func()) (Ended, error) {
	var g Generator
	select {
	case g = <-r.slots:
	case <-ctx.Done():
		return Ended{}, ctx.Err()
	}
	defer func() { r.slots <- g }()
	var done client.Done
	request := client.Request{
		Prompt: w.Text, Tokens: w.Tokens, MaxTokens: &w.MaxTokens,
		Temperature: new(0.0), IgnoreEOS: true, Cache: w.cache(), User: w.User, Done: &done,
		Draft: &client.Draft{Word: protocol.DraftOff}, // speculate measures guesses
	}
	tokens := 0
	for _, err := range g.Generate(ctx, request) {
		if err != nil {
			return Ended{}, err
		}
		arrived()
		tokens++
	}
	return Ended{PromptTokens: done.Usage.PromptTokens, CachedTokens: done.Usage.CachedTokens, Tokens: tokens,
		Accepted: done.Usage.AcceptedTokens, Reason: done.FinishReason, Graphs: done.Graphs}, nil
}

// Completion is one request as seen by its client.
type Completion struct {
	Ended
	Due      time.Time       // time at which it should be sent
	Arrivals []time.Duration // of its pieces, since Due
	End      time.Duration   // since Due
	Err      error
}

// measure makes a completion that should be sent at due. Times count from there, so a
// request sent late because the previous one was slow counts as late.
func measure(ctx context.Context, t Target, w Work, due time.Time) Completion {
	c := Completion{Due: due, Arrivals: make([]time.Duration, 0, w.MaxTokens)}
	c.Ended, c.Err = t.Complete(ctx, w, func() { c.Arrivals = append(c.Arrivals, time.Since(due)) })
	c.End = time.Since(due)
	return c
}

// TTFT returns the time to the first token, or to the end if there was none.
func (c *Completion) TTFT() time.Duration {
	if len(c.Arrivals) == 0 {
		return c.End
	}
	return c.Arrivals[0]
}

// Gaps returns the times between consecutive pieces.
func (c *Completion) Gaps() []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(c.Arrivals); i++ {
		gaps = append(gaps, c.Arrivals[i]-c.Arrivals[i-1])
	}
	return gaps
}

// span returns the time from the first piece to the last.
func (c *Completion) span() time.Duration {
	if len(c.Arrivals) == 0 {
		return 0
	}
	return c.Arrivals[len(c.Arrivals)-1] - c.Arrivals[0]
}

// TPOT returns the mean time per token after the first, or 0 if there is none.
func (c *Completion) TPOT() time.Duration {
	if c.Tokens < 2 {
		return 0
	}
	return c.span() / time.Duration(c.Tokens-1)
}

// short returns an error unless the completion has w.MaxTokens tokens; a shorter one does
// not measure what was requested.
func (c *Completion) short(w Work) error {
	if c.Err != nil {
		return c.Err
	}
	if c.Tokens != w.MaxTokens {
		return fmt.Errorf("the completion has %d tokens, not %d: it ended with %q", c.Tokens, w.MaxTokens, c.Reason)
	}
	return nil
}

// prompt returns n random token ids from the middle half of a vocabulary, since special
// tokens are at its ends.
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
