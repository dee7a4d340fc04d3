package client

import (
	"errors"
	"fmt"

	"reel.internal/reel/protocol"
)

const (
	// maxQueued bounds the bytes of messages that wait for their loops, over all
	// requests of a Client. A completion of 262,144 tokens, Reel's longest context,
	// takes 51 MiB if its loop reads nothing; with 20 alternatives per token 40,000
	// tokens fit.
	maxQueued = 64 << 20
	// maxTokenText bounds the bytes of text in one token's message, alternatives
	// included. The longest tokens of real vocabularies have a few hundred bytes.
	maxTokenText = 64 << 10
)

// Heap bytes of a message without its text: the struct, its small strings, and its
// entry in a queue that grows by doubling.
const (
	messageBytes     = 200
	alternativeBytes = 48
)

// bounds holds a Client's bounds. Tests lift them one at a time.
type bounds struct {
	queued    int64 // maxQueued
	text      int   // maxTokenText
	allowance bool  // refuse more tokens or alternatives than a request asked for
}

var allBounds = bounds{queued: maxQueued, text: maxTokenText, allowance: true}

// allowance is the number of tokens that may still come for a request.
type allowance struct {
	tokens       int
	alternatives int // per token
}

// allowanceFor returns the tokens that m asks for: max_tokens, plus a whole context for echo.
func allowanceFor(m *protocol.Generate, l Limits) allowance {
	p := m.Params()
	a := allowance{tokens: p.MaxTokens, alternatives: p.Logprobs}
	if p.Echo {
		a.tokens += max(l.Context, protocol.MaxElements)
	}
	return a
}

// errNotAsked means that the generator broke the protocol by sending too much.
var errNotAsked = errors.New("the generator sent more than it was asked for")

// take counts t, and returns an error if t was not asked for.
func (a *allowance) take(t *Token, b bounds) error {
	a.tokens--
	switch {
	case b.allowance && a.tokens < 0:
		return fmt.Errorf("%w: request %d has got all its tokens", errNotAsked, t.ID)
	case b.allowance && len(t.Top) > a.alternatives:
		return fmt.Errorf("%w: %d alternatives with a token of request %d, in place of %d",
			errNotAsked, len(t.Top), t.ID, a.alternatives)
	case textOf(t) > b.text:
		return fmt.Errorf("%w: a token of request %d has %d bytes of text, more than %d",
			errNotAsked, t.ID, textOf(t), b.text)
	}
	return nil
}

// textOf returns the bytes of text in t, alternatives included.
func textOf(t *Token) int {
	n := len(t.Text) + len(t.Reasoning)
	for i := range t.Calls {
		n += len(t.Calls[i].ID) + len(t.Calls[i].Name) + len(t.Calls[i].Arguments)
	}
	for i := range t.Top {
		n += len(t.Top[i].Text)
	}
	return n
}

// sizeOf returns the bytes of memory that a waiting message takes.
func sizeOf(message any) int64 {
	n := messageBytes
	switch m := message.(type) {
	case *Token:
		n += textOf(m) + alternativeBytes*(len(m.Top)+2*len(m.Calls))
	case *Error:
		n += len(m.Code) + len(m.Message) + len(m.Hint)
	case *Embedding:
		n += 4 * len(m.Vector)
	case *Done:
		n += len(m.FinishReason)
	}
	return int64(n)
}

// dropLongest drops the longest queues until the waiting bytes are within the bound. The loops
// of dropped queues end with ErrSlowLoop and cancel their requests; others lose nothing.
func (c *Client) dropLongest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.queued.Load() > c.bounds.queued {
		var longest *stream
		for _, s := range c.streams {
			if longest == nil || s.size() > longest.size() {
				longest = s
			}
		}
		if longest == nil || longest.size() == 0 {
			return // the loops have taken the messages meanwhile
		}
		longest.close(ErrSlowLoop)
	}
}
