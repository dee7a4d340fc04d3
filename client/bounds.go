package client

import (
	"errors"
	"fmt"

	"reel/protocol"
)

const (
	// maxQueued bounds the bytes of messages that wait for their loops, over all
	// requests of a Client. A completion of 262,144 tokens, the longest context that
	// Reel takes, waits in 51 MiB where its loop reads nothing; with 20 alternatives
	// each, 40,000 tokens do.
	maxQueued = 64 << 20
	// maxTokenText bounds the bytes of text in a token's message, its alternatives'
	// included. The longest tokens of vocabularies have some hundred bytes.
	maxTokenText = 64 << 10
)

// What a message takes of the heap beside its text, in bytes: the struct, its
// small strings, and its place in a queue that grows by doubling.
const (
	messageBytes     = 200
	alternativeBytes = 48
)

// bounds are those of a Client. A test lifts them one at a time.
type bounds struct {
	queued int64 // maxQueued
	text   int   // maxTokenText
	asked  bool  // no more tokens and alternatives than a request asked for
}

var allBounds = bounds{queued: maxQueued, text: maxTokenText, asked: true}

// asked is what may still come for a request.
type asked struct {
	tokens       int
	alternatives int // with each token
}

// askedFor is what m asks for: max_tokens, and with echo as many as the context holds.
func askedFor(m *protocol.Generate, l Limits) asked {
	p := m.Params()
	a := asked{tokens: p.MaxTokens, alternatives: p.Logprobs}
	if p.Echo {
		a.tokens += max(l.Context, protocol.MaxElements)
	}
	return a
}

// errUnasked is a generator that sends what the protocol does not let it send.
var errUnasked = errors.New("the generator sent more than it was asked for")

// take counts t, and returns an error where it is more than was asked for.
func (a *asked) take(t *Token, b bounds) error {
	a.tokens--
	switch {
	case b.asked && a.tokens < 0:
		return fmt.Errorf("%w: request %d has got all its tokens", errUnasked, t.ID)
	case b.asked && len(t.Top) > a.alternatives:
		return fmt.Errorf("%w: %d alternatives with a token of request %d, in place of %d",
			errUnasked, len(t.Top), t.ID, a.alternatives)
	case textOf(t) > b.text:
		return fmt.Errorf("%w: a token of request %d has %d bytes of text, more than %d",
			errUnasked, t.ID, textOf(t), b.text)
	}
	return nil
}

// textOf is the bytes of text in t.
func textOf(t *Token) int {
	n := len(t.Text)
	for i := range t.Top {
		n += len(t.Top[i].Text)
	}
	return n
}

// sizeOf is how many bytes a message takes while it waits.
func sizeOf(message any) int64 {
	n := messageBytes
	switch m := message.(type) {
	case *Token:
		n += textOf(m) + alternativeBytes*len(m.Top)
	case *Error:
		n += len(m.Code) + len(m.Message) + len(m.Hint)
	case *Done:
		n += len(m.FinishReason)
	}
	return int64(n)
}

// shed drops the longest queues until what waits is within the bound. Their loops
// end with ErrSlowLoop, which cancels their requests; no other loop loses anything.
func (c *Client) shed() {
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
			return // loops have taken it meanwhile
		}
		longest.close(ErrSlowLoop)
	}
}
