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
// A slow loop does not delay the others: its messages wait in the Client, at most
// 64 MiB for all loops together. Beyond that the loop with the longest queue ends with
// [ErrSlowLoop]. If a generator sends more than it was asked for, the connection ends
// with [ErrConnectionLost], so no generator can fill a client's memory.
//
// A Client sleeps until a token comes. [Options].Spin has it poll shortly before the next
// one is due instead, so that no token waits for a processor to wake.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"reel.internal/reel/protocol"
)

// Messages of the protocol that this package returns.
type (
	// Token is one token of a completion, with its text.
	Token = protocol.Token
	// Done reports how a completion ended: reason, usage, timing, graphs.
	Done = protocol.Done
	// Message is one message of a conversation: role and content.
	Message = protocol.Message
	// Bias is added to the logit of a token.
	Bias = protocol.Bias
	// Format bounds a completion to texts of one form.
	Format = protocol.Format
	// Draft bounds how many tokens a step guesses: a word, or a number.
	Draft = protocol.Draft
	// ToolCall is a call of a tool in a conversation.
	ToolCall = protocol.ToolCall
	// CallPiece is a piece of a tool call in a completion.
	CallPiece = protocol.CallPiece
	// Status is a generator's report on itself.
	Status = protocol.Status
	// Cached reports the cached pages that a user's prompts can find.
	Cached = protocol.Cached
	// Limits are the bounds that a generator announces.
	Limits = protocol.Limits
	// Error is an error that the generator sent: code, message, hint.
	Error = protocol.Error
)

// writeTime bounds the write of one frame. A generator that reads nothing for that
// long counts as gone.
const writeTime = 10 * time.Second

// Client is a connection to a generator. Its methods may be called from many
// goroutines at once.
type Client struct {
	conn    connection
	frames  protocol.FrameReader // used by the reading goroutine alone
	welcome protocol.Welcome
	bounds  bounds
	queued  atomic.Int64 // bytes waiting for their loops

	sending sync.Mutex // held while a frame is written

	mu        sync.Mutex
	nextID    uint64
	streams   map[uint64]*stream // running loops by request id
	questions []chan any         // unanswered questions without an id, oldest first
	reported  *Error             // the last error that names no request and answers no question

	lost  chan struct{} // closed when the connection ends, after cause is set
	cause error         // returned by every call from then on
}

// Model returns the name of the model that the generator serves.
func (c *Client) Model() string { return c.welcome.Model }

// Chat reports whether the model has a chat template, and so takes Messages.
func (c *Client) Chat() bool { return c.welcome.Chat }

// Limits returns the bounds that the generator announced in its welcome.
func (c *Client) Limits() Limits { return c.welcome.Limits }

// Tools reports whether the model has a chat template that shows tools, and so takes Request.Tools.
func (c *Client) Tools() bool { return c.welcome.Tools }

// Reasoning reports whether the model reasons before an answer.
func (c *Client) Reasoning() bool { return c.welcome.Reasoning }

// Drafter returns what guesses tokens, such as protocol.DrafterLookup; it is empty if nothing does.
func (c *Client) Drafter() string { return c.welcome.Drafter }

// Identity returns a hash of all that decides the generator's tokens. It is empty while that is
// computed, and for older generators.
func (c *Client) Identity() string { return c.welcome.Identity }

// Lost returns a channel that is closed when the connection has ended.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Close ends the connection. The generator cancels the requests that still run, and
// their loops end with [ErrClosed].
func (c *Client) Close() { c.end(ErrClosed) }

// end closes the connection once. All calls, waiting or later, return cause.
func (c *Client) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		close(c.lost)
		c.conn.Close()
	}
}

// fail ends the connection because of err. If the generator sent an error before, that
// one is reported instead.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.reported != nil {
		err = c.reported
	}
	c.mu.Unlock()
	c.end(fmt.Errorf("%w: %w", ErrConnectionLost, err))
}

// Status asks the generator for its status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return ask[*Status](ctx, c, &protocol.StatusRequest{})
}

// Sleep has the generator end if its last request ended the time idle ago or earlier, so that its device is free; the
// next connection starts it again. The generator may refuse with the codes forbidden, not_idle or not_activated, and an
// older one with unknown_type. The connection ends soon after.
func (c *Client) Sleep(ctx context.Context, idle time.Duration) error {
	_, err := ask[*protocol.Sleeping](ctx, c, &protocol.SleepRequest{IdleS: idle.Seconds()})
	return err
}

// Tokenize returns the token ids of text, as a prompt would have them. text must be
// valid UTF-8.
func (c *Client) Tokenize(ctx context.Context, text string) ([]int32, error) {
	return c.tokenize(ctx, &protocol.Tokenize{Text: text})
}

// TokenizeData returns the token ids that text has in a prompt with Special false: a control
// token in it, such as <|im_end|>, is encoded as text.
func (c *Client) TokenizeData(ctx context.Context, text string) ([]int32, error) {
	return c.tokenize(ctx, &protocol.Tokenize{Text: text, Special: new(false)})
}

// Cached returns the cached pages that this user's prompts can find, of requests without a User.
func (c *Client) Cached(ctx context.Context) (*Cached, error) {
	return c.CachedOf(ctx, "")
}

// DropCached drops the cached pages that this user's prompts can find, of requests without a User,
// except those that requests hold, and returns the rest.
func (c *Client) DropCached(ctx context.Context) (*Cached, error) {
	return c.DropCachedOf(ctx, "")
}

// CachedOf is Cached for the prompts of requests with this User.
func (c *Client) CachedOf(ctx context.Context, user string) (*Cached, error) {
	return c.cached(ctx, &protocol.CacheRequest{User: user})
}

// DropCachedOf is DropCached for the prompts of requests with this User.
func (c *Client) DropCachedOf(ctx context.Context, user string) (*Cached, error) {
	return c.cached(ctx, &protocol.CacheRequest{User: user, Drop: true})
}

func (c *Client) cached(ctx context.Context, m *protocol.CacheRequest) (*Cached, error) {
	if err := checkText("user", m.User); err != nil {
		return nil, err
	}
	return ask[*Cached](ctx, c, m)
}

func (c *Client) tokenize(ctx context.Context, m *protocol.Tokenize) ([]int32, error) {
	if err := checkText("text", m.Text); err != nil {
		return nil, err
	}
	reply, err := ask[*protocol.Tokens](ctx, c, m)
	if err != nil {
		return nil, err
	}
	return reply.Tokens, nil
}

// ask sends a question and waits for the answer. Answers come in the order of the
// questions, so a question whose caller has left still consumes its own answer.
func ask[T any](ctx context.Context, c *Client, question any) (T, error) {
	var none T
	answer := make(chan any, 1)
	err := c.write(question, func() { c.questions = append(c.questions, answer) })
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
	select { // The answer may have arrived just before the end.
	case reply := <-answer:
		return as[T](reply)
	default:
		return none, c.cause
	}
}

// as returns reply as a T, or as the error if the generator sent one.
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

// write sends one message. Just before, it calls register with c.mu held, to record
// where the answer goes.
func (c *Client) write(message any, register func()) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	frame, err := encode(message) // of those that wait here none has its frame in memory
	if err != nil {
		return err
	}
	c.mu.Lock()
	cause := c.cause
	if cause == nil {
		register()
	}
	c.mu.Unlock()
	if cause != nil {
		return cause
	}
	return c.writeFrame(frame)
}

// encode returns the frame of message.
func encode(message any) ([]byte, error) {
	frame, err := protocol.AppendFrame(nil, message)
	if errors.Is(err, protocol.ErrFrameTooLarge) {
		return nil, protocol.Errorf(protocol.CodePromptTooLong, "shorten the prompt",
			"the request does not fit a frame: %v", err)
	}
	return frame, err
}

// checkText refuses invalid UTF-8, for which the generator would close the connection
// and so end all its requests.
func checkText(field, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return protocol.Errorf(protocol.CodeBadRequest, "convert it to UTF-8", "%s is not valid UTF-8", field)
}

// writeFrame writes a frame. A failed write ends the connection.
func (c *Client) writeFrame(frame []byte) error {
	// An error here means that the write fails too, or that the socket blocks and has
	// its deadline already.
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := c.conn.Write(frame)
	if err == nil {
		return nil
	}
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrClosedPipe) {
		c.fail(err)
	}
	// If the generator has closed the connection, the reading goroutine finds the end,
	// and perhaps an error that the generator sent before it.
	<-c.lost
	return c.cause
}
