package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"reel.internal/reel/protocol"
)

// cancelTime bounds the wait for the done of a cancelled request. The generator ends
// the request between two steps, which take milliseconds.
const cancelTime = 500 * time.Millisecond

// Request describes one completion. Set one of Prompt, Tokens and Messages. A nil field
// has the default that PROTOCOL.md gives together with the bounds. Other values are
// written with new: Temperature: new(0.7).
type Request struct {
	Prompt   string
	Tokens   []int32   // the prompt as token ids; Prompt is empty then
	Messages []Message // a conversation to answer; Prompt is empty then
	// Special says how a control token that Prompt spells, such as <|im_end|>, is encoded:
	// nil or true, as that token; false, as text. Each message has a Special of its own,
	// which is false by default.
	Special *bool
	// Template sets variables of the chat template that renders Messages, as enable_thinking.
	// Values have the types nil, bool, int, int64, uint64, float64, string, []any and
	// map[string]any.
	Template      map[string]any
	MaxTokens     *int
	Temperature   *float64 // 0: greedy
	TopK          *int
	TopP          *float64
	MinP          *float64
	RepeatPenalty *float64
	Seed          *uint64
	Stop          []string // strings that end the completion; they are not part of it
	Logprobs      *int     // alternatives to report for each token
	Echo          bool     // send the prompt's tokens first, with negative indices
	IgnoreEOS     bool
	// Cache is one of protocol.CacheOn, CacheRead and CacheOff; empty: CacheOn.
	Cache string

	PresencePenalty  *float64
	FrequencyPenalty *float64
	LogitBias        []Bias // added to the logits of these tokens, each named once
	// User divides this process's uid into users of their own, for shares and for the prefix cache.
	User string
	// Format bounds the completion to texts of one form; nil: any text.
	Format *Format
	// Tools is the JSON text of the list of tools that the model may call, as in OpenAI's API.
	Tools string
	// ToolChoice is one of protocol.ToolNone, ToolAuto and ToolRequired; empty: ToolAuto.
	ToolChoice string
	ToolName   string // the tool that must be called; ToolChoice is then empty
	// ParallelToolCalls false allows one call at most; nil: any number.
	ParallelToolCalls *bool
	// Reasoning is protocol.ReasoningText or ReasoningApart; empty: ReasoningText.
	Reasoning string
	// Draft bounds how many tokens a step guesses; nil: as many as the generator does. It changes no token.
	Draft *Draft
	// Prediction is what a generator that was started with --draft given guesses, for measurements.
	Prediction []int32
	// Count asks only for the number of the prompt's tokens, which Done.Usage then has. Nothing is computed. A generator
	// that is too old to know the field completes the prompt; MaxTokens bounds that.
	Count bool

	// Done, unless nil, is filled in with the generator's last message: always before
	// a loop ends without an error, and usually also if ctx ended it. Otherwise
	// FinishReason stays empty.
	Done *Done
}

// message returns r as a message of the protocol.
func (r *Request) message(id uint64) *protocol.Generate {
	m := &protocol.Generate{
		ID: id, Tokens: r.Tokens, Messages: r.Messages, Special: r.Special, Template: r.Template,
		MaxTokens: r.MaxTokens, Temperature: r.Temperature,
		TopK: r.TopK, TopP: r.TopP, MinP: r.MinP,
		RepeatPenalty: r.RepeatPenalty, Seed: r.Seed,
		Stop: r.Stop, Logprobs: r.Logprobs, Echo: r.Echo, IgnoreEOS: r.IgnoreEOS,
	}
	if r.Prompt != "" || len(r.Tokens) == 0 && len(r.Messages) == 0 {
		m.Prompt = &r.Prompt
	}
	m.PresencePenalty, m.FrequencyPenalty, m.LogitBias = r.PresencePenalty, r.FrequencyPenalty, r.LogitBias
	m.Format, m.ParallelToolCalls = r.Format, r.ParallelToolCalls
	m.Cache, m.User, m.Tools = given(r.Cache), given(r.User), given(r.Tools)
	m.Draft, m.Prediction, m.Count = r.Draft, r.Prediction, r.Count
	m.ToolChoice, m.ToolName, m.Reasoning = given(r.ToolChoice), given(r.ToolName), given(r.Reasoning)
	return m
}

// given returns nil for a field that is left out.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// check refuses text and variables for which the generator would close the connection.
func (r *Request) check() error {
	for _, stop := range r.Stop {
		if err := checkText("a stop string", stop); err != nil {
			return err
		}
	}
	for i, m := range r.Messages {
		if err := checkMessage(fmt.Sprintf("message %d", i), m); err != nil {
			return err
		}
	}
	if f := r.Format; f != nil {
		if err := checkTexts("the format", append(f.Choice[:len(f.Choice):len(f.Choice)], f.JSONSchema, f.Regex)...); err != nil {
			return err
		}
	}
	if r.Draft != nil {
		if err := checkText("draft", r.Draft.Word); err != nil {
			return err
		}
	}
	if err := checkTexts("a field on tools, the user or the reasoning",
		r.Tools, r.ToolChoice, r.ToolName, r.User, r.Reasoning); err != nil {
		return err
	}
	if e := protocol.Variables(r.Template).Validate(); e != nil {
		return e
	}
	return checkText("the prompt", r.Prompt)
}

func checkMessage(which string, m Message) error {
	texts := []string{m.Role, m.Content, m.Reasoning, m.Name, m.ToolCallID}
	for _, call := range m.ToolCalls {
		texts = append(texts, call.ID, call.Name, call.Arguments)
	}
	return checkTexts(which, texts...)
}

// checkTexts refuses texts of which one is not UTF-8.
func checkTexts(which string, texts ...string) error {
	return checkText(which, strings.Join(texts, "\n"))
}

// Generate returns a sequence of the completion's tokens. It sends the request when the
// loop begins and yields each token as it comes. It yields at most one error, last: the
// generator's *[Error], [ErrConnectionLost], [ErrSlowLoop], [ErrClosed], or ctx's error.
// Ending ctx or leaving the loop cancels the request on the generator. A slow loop does
// not delay others.
func (c *Client) Generate(ctx context.Context, req Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s, err := c.start(ctx, &req)
		if err != nil {
			yield(Token{}, err)
			return
		}
		defer c.release(s)
		// Cancel at once, even while the body of the loop is blocked.
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

// start reserves an id and sends the request.
func (c *Client) start(ctx context.Context, req *Request) (*stream, error) {
	if err := cmp.Or(ctx.Err(), req.check()); err != nil {
		return nil, err
	}
	s := c.newStream()
	message := req.message(s.id)
	s.allowance = allowanceFor(message, c.welcome.Limits)
	if err := c.begin(s, message); err != nil {
		return nil, err
	}
	return s, nil
}

// newStream returns a stream with an id of its own.
func (c *Client) newStream() *stream {
	s := newStream(&c.queued)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	s.id = c.nextID
	return s
}

// begin sends the request of s.
func (c *Client) begin(s *stream, message any) error {
	err := c.write(message, func() { c.streams[s.id] = s })
	if err != nil {
		c.forget(s)
	}
	return err
}

// forget removes s, and reports whether it was still running.
func (c *Client) forget(s *stream) bool {
	c.mu.Lock()
	_, booked := c.streams[s.id]
	delete(c.streams, s.id)
	ended := s.ended
	c.mu.Unlock()
	s.close(nil)
	return booked && !ended
}

// release cancels the request of s unless it has ended. Messages that still come for
// it are dropped.
func (c *Client) release(s *stream) {
	if c.forget(s) {
		c.cancel(s.id)
	}
}

// cancel asks the generator to end request id. If the write fails, the connection is
// over, and so is the request.
func (c *Client) cancel(id uint64) {
	_ = c.write(&protocol.Cancel{ID: id}, func() {})
}

// abort waits up to cancelTime for the done of s, a cancelled request.
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

// finish handles a request's last message: done, an error, or nil if the connection
// ended first.
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
	return c.cause
}
