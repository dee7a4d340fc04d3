// Package client talks to a Reel generator over its Unix socket.
//
// One Client carries any number of requests at once:
//
//	c, err := client.Dial(ctx, client.Options{Wait: 5 * time.Second})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	for tok, err := range c.Generate(ctx, client.Request{Prompt: "Once more", MaxTokens: new(64)}) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(tok.Text)
//	}
//
// Ending ctx, or breaking out of the loop, cancels the request on the generator.
//
// A slow loop holds up no other: what it has not taken waits in the Client, 64 MiB
// over all loops at most. Beyond that the loop that is behind most ends with
// ErrSlowLoop. A generator that sends more than it was asked for loses the
// connection (ErrConnectionLost), so that none can fill a client's memory.
//
// A Client keeps one thread, which waits for the generator. While tokens come at a
// steady pace, one every 1 to 20 ms, it is awake shortly before the next is due, so
// that no token waits for a processor to get up: for a tenth of the time at most,
// and only where Go has at least 4 processors (GOMAXPROCS=2 turns it off).
package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"reel/protocol"
)

// The protocol's messages that this package hands out.
type (
	// Token is one token of a completion, with its text.
	Token = protocol.Token
	// Done is how a completion ended: reason, usage, timing, graphs.
	Done = protocol.Done
	// Message is one turn of a conversation: role and content.
	Message = protocol.Message
	// Status is what a generator says of itself.
	Status = protocol.Status
	// Limits are the bounds that a generator states.
	Limits = protocol.Limits
	// Error is what a generator refuses or fails with: code, message, hint.
	Error = protocol.Error
)

// writeTime bounds the write of one frame: a generator that reads nothing for
// so long is gone.
const writeTime = 10 * time.Second

// Client is a connection to a generator. Its methods may be called from many
// goroutines at once.
type Client struct {
	conn    connection
	frames  protocol.FrameReader // of the one goroutine that reads
	welcome protocol.Welcome
	bounds  bounds
	queued  atomic.Int64 // bytes that wait for their loops

	sending sync.Mutex // held while a frame is written

	mu      sync.Mutex
	nextID  uint64
	streams map[uint64]*stream // requests that have a loop, by id
	asks    []chan any         // unanswered questions without an id, oldest first
	said    *Error             // the last error that names no request and answers no question

	lost chan struct{} // closed when the connection ends, after why is set
	why  error
}

// Model returns the name of the model that the generator serves.
func (c *Client) Model() string { return c.welcome.Model }

// Chat reports whether the model has a chat template, and so takes Messages.
func (c *Client) Chat() bool { return c.welcome.Chat }

// Limits returns the bounds that the generator stated when it was dialled.
func (c *Client) Limits() Limits { return c.welcome.Limits }

// Close ends the connection. The generator drops the requests that still run;
// their loops end with ErrClosed.
func (c *Client) Close() { c.end(ErrClosed) }

// end closes the connection once; why is the reason that everybody gets.
func (c *Client) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		c.why = why
		close(c.lost)
		c.conn.Close()
	}
}

// lose ends the connection because err happened to it. What the generator
// said last is the better reason.
func (c *Client) lose(err error) {
	c.mu.Lock()
	if c.said != nil {
		err = c.said
	}
	c.mu.Unlock()
	c.end(fmt.Errorf("%w: %w", ErrConnectionLost, err))
}

// Status asks the generator for its status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return ask[*Status](ctx, c, &protocol.StatusRequest{})
}

// Tokenize returns the ids of the tokens that text, valid UTF-8, becomes as a
// prompt.
func (c *Client) Tokenize(ctx context.Context, text string) ([]int32, error) {
	if err := checkText("text", text); err != nil {
		return nil, err
	}
	reply, err := ask[*protocol.Tokens](ctx, c, &protocol.Tokenize{Text: text})
	if err != nil {
		return nil, err
	}
	return reply.Tokens, nil
}

// ask sends a question and waits for its answer. Answers come in the order of
// the questions, so that one nobody waits for any more still takes its own.
func ask[T any](ctx context.Context, c *Client, question any) (T, error) {
	var none T
	answer := make(chan any, 1)
	err := c.write(question, func() { c.asks = append(c.asks, answer) })
	if err != nil {
		return none, err
	}
	select {
	case reply := <-answer:
		return as[T](reply)
	case <-c.lost:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	select { // The answer may have come just before the end.
	case reply := <-answer:
		return as[T](reply)
	default:
		return none, c.why
	}
}

// as returns reply as a T, or the error that it is.
func as[T any](reply any) (T, error) {
	switch reply := reply.(type) {
	case T:
		return reply, nil
	case *Error:
		var none T
		return none, reply
	}
	var none T
	return none, fmt.Errorf("%w: a %T answered", ErrConnectionLost, reply)
}

// write sends one message. Register, run before it, books the place to which
// the answer goes; it holds c.mu.
func (c *Client) write(message any, register func()) error {
	frame, err := encode(message)
	if err != nil {
		return err
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	why := c.why
	if why == nil {
		register()
	}
	c.mu.Unlock()
	if why != nil {
		return why
	}
	return c.writeFrame(frame)
}

// encode returns the frame of message.
func encode(message any) ([]byte, error) {
	frame, err := protocol.AppendFrame(nil, message)
	if errors.Is(err, protocol.ErrFrameTooLarge) {
		return nil, protocol.Errorf(protocol.CodePromptTooLong, "shorten the prompt", "the request does not fit a frame: %v", err)
	}
	return frame, err
}

// checkText refuses text for which the generator would close the connection,
// and so end the other requests on it.
func checkText(field, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return protocol.Errorf(protocol.CodeBadRequest, "convert it to UTF-8", "%s is not valid UTF-8", field)
}

// writeFrame writes a frame; where that fails the connection is over.
func (c *Client) writeFrame(frame []byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTime)) // It fails where the write will, and for a socket that blocks, which has it already.
	_, err := c.conn.Write(frame)
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.EPIPE) {
		c.lose(err)
	}
	// Where the generator has closed, the reader finds the end, and before it
	// perhaps what the generator had to say.
	<-c.lost
	return c.why
}
