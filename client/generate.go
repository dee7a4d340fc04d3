package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"reel/protocol"
)

// cancelTime bounds how long a cancelled request waits for its done. The
// generator ends it between two steps, which take milliseconds.
const cancelTime = 500 * time.Millisecond

// Request is one completion to make. Prompt, Tokens or Messages is given; a field
// that is nil has the default of PROTOCOL.md, which also states the bounds. A value
// other than the default is written with new: Temperature: new(0.7).
type Request struct {
	Prompt        string
	Tokens        []int32   // the prompt as token ids, where Prompt is empty
	Messages      []Message // a conversation to answer, where Prompt is empty
	MaxTokens     *int
	Temperature   *float64 // 0 is greedy
	TopK          *int
	TopP          *float64
	MinP          *float64
	RepeatPenalty *float64
	Seed          *uint64
	Stop          []string // strings that end the completion and are not part of it
	Logprobs      *int     // alternatives to report for each token
	Echo          bool     // the prompt's tokens come first, with negative indices
	IgnoreEOS     bool

	// Done, unless nil, is filled in when the generator has said how the
	// completion ended: before the loop over its tokens ends without an error,
	// and mostly when ctx ended it. FinishReason stays empty where it has not.
	Done *Done
}

// message returns r as the protocol has it.
func (r *Request) message(id uint64) *protocol.Generate {
	m := &protocol.Generate{
		ID: id, Tokens: r.Tokens, Messages: r.Messages,
		MaxTokens: r.MaxTokens, Temperature: r.Temperature,
		TopK: r.TopK, TopP: r.TopP, MinP: r.MinP,
		RepeatPenalty: r.RepeatPenalty, Seed: r.Seed,
		Stop: r.Stop, Logprobs: r.Logprobs, Echo: r.Echo, IgnoreEOS: r.IgnoreEOS,
	}
	if r.Prompt != "" || len(r.Tokens) == 0 && len(r.Messages) == 0 {
		m.Prompt = &r.Prompt
	}
	return m
}

// check refuses what would cost the connection.
func (r *Request) check() error {
	for _, stop := range r.Stop {
		if err := checkText("a stop string", stop); err != nil {
			return err
		}
	}
	for i, m := range r.Messages {
		if err := checkText(fmt.Sprintf("message %d", i), m.Role+m.Content); err != nil {
			return err
		}
	}
	return checkText("the prompt", r.Prompt)
}

// Generate asks for a completion when the loop over it begins, and yields each
// token as it comes. At most one error is yielded, last: the generator's
// *Error, ErrConnectionLost, ErrSlowLoop, ErrClosed, or ctx's error. Ending ctx or leaving
// the loop cancels the request on the generator. A loop that is slow holds up
// no other.
func (c *Client) Generate(ctx context.Context, req Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s, err := c.start(ctx, &req)
		if err != nil {
			yield(Token{}, err)
			return
		}
		defer c.release(s)
		// At once, also while the body of the loop stands still.
		stop := context.AfterFunc(ctx, func() { c.cancel(s.id) })
		defer stop()
		for {
			message, err := s.next(ctx, c.lost)
			if err != nil {
				if !errors.Is(err, ErrSlowLoop) {
					c.abort(s, req.Done)
				}
				yield(Token{}, err)
				return
			}
			if token, ok := message.(*Token); ok {
				if !yield(*token, nil) {
					return
				}
				continue
			}
			if err := c.finish(message, req.Done); err != nil {
				yield(Token{}, err)
			}
			return
		}
	}
}

// start books an id and sends the request.
func (c *Client) start(ctx context.Context, req *Request) (*stream, error) {
	if err := cmp.Or(ctx.Err(), req.check()); err != nil {
		return nil, err
	}
	s := newStream(&c.queued)
	c.mu.Lock()
	c.nextID++
	s.id = c.nextID
	c.mu.Unlock()
	message := req.message(s.id)
	s.asked = askedFor(message, c.welcome.Limits)
	err := c.write(message, func() { c.streams[s.id] = s })
	if err != nil {
		c.forget(s)
		return nil, err
	}
	return s, nil
}

// forget drops s, and reports whether it was still running.
func (c *Client) forget(s *stream) bool {
	c.mu.Lock()
	_, booked := c.streams[s.id]
	delete(c.streams, s.id)
	ended := s.ended
	c.mu.Unlock()
	s.close(nil)
	return booked && !ended
}

// release cancels the request of s, unless it has ended. What still comes for
// it is dropped.
func (c *Client) release(s *stream) {
	if c.forget(s) {
		c.cancel(s.id)
	}
}

// cancel tells the generator to end the request id. Where that fails the
// connection is over, and the request with it.
func (c *Client) cancel(id uint64) {
	_ = c.write(&protocol.Cancel{ID: id}, func() {})
}

// abort gives the done of s, which is cancelled, a moment to come.
func (c *Client) abort(s *stream, done *Done) {
	defer c.forget(s)
	ctx, stop := context.WithTimeout(context.Background(), cancelTime)
	defer stop()
	for {
		message, err := s.next(ctx, c.lost)
		if _, ok := message.(*Token); ok {
			continue
		}
		if err == nil {
			_ = c.finish(message, done)
		}
		return
	}
}

// finish takes a request's last message: done, an error, or nil where the
// connection ended first.
func (c *Client) finish(message any, done *Done) error {
	switch message := message.(type) {
	case *Done:
		if done != nil {
			*done = *message
		}
		return nil
	case *Error:
		return message
	}
	return c.why
}
