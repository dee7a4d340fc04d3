package client

import (
	"bufio"
	"errors"
	"fmt"
	"net"

	"reel.internal/reel/protocol"
)

// newClient returns a client that has not yet said hello.
func newClient(conn net.Conn) *Client {
	c := &Client{conn: conn, streams: map[uint64]*stream{}, lost: make(chan struct{}), bounds: allBounds}
	c.frames.R = bufio.NewReader(connReader{c})
	return c
}

// connReader reads from the client's current connection, which [greet] replaces.
type connReader struct{ c *Client }

func (s connReader) Read(b []byte) (int, error) { return s.c.conn.Read(b) }

// hello says hello and returns the welcome.
func (c *Client) hello() (*protocol.Welcome, error) {
	return exchange[*protocol.Welcome](c, &protocol.Hello{Version: protocol.Version})
}

// exchange sends a message and reads the reply. It is for the time before the reading
// goroutine starts.
func exchange[T any](c *Client, message any) (T, error) {
	var none T
	frame, err := protocol.AppendFrame(nil, message)
	if err != nil {
		return none, err
	}
	// A generator that refuses the connection may have closed it already: its error
	// matters more than the failed write.
	_, wrote := c.conn.Write(frame)
	reply, err := c.next()
	if err != nil {
		return none, fmt.Errorf("%w: %w: %w", ErrNoGenerator, ErrNoAnswer, errors.Join(wrote, err))
	}
	return as[T](reply)
}

// next reads the next message of a type that this client knows. It skips others, which
// a newer generator may send.
func (c *Client) next() (any, error) {
	for {
		body, err := c.frames.Next()
		if err != nil {
			return nil, err
		}
		message, err := protocol.DecodeReply(body)
		var bad *Error
		if errors.As(err, &bad) && bad.Code == protocol.CodeUnknownType {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("its message can't be understood: %w", err)
		}
		return message, nil
	}
}

// read dispatches the generator's messages until the connection ends.
func (c *Client) read() {
	for {
		message, err := c.next()
		if err != nil {
			c.fail(err)
			return
		}
		if err := c.dispatch(message); err != nil {
			c.end(fmt.Errorf("%w: %w", ErrConnectionLost, err))
			return
		}
	}
}

// dispatch gives a message to its stream or question. It drops a message that nobody asked
// for or whose request was left. An error ends the connection.
func (c *Client) dispatch(message any) error {
	switch m := message.(type) {
	case *Token:
		s := c.streamOf(m.ID, false)
		if s == nil {
			return nil
		}
		if err := s.allowance.take(m, c.bounds); err != nil {
			return err
		}
		c.deliver(s, m)
	case *Embedding:
		return c.takeEmbedding(m)
	case *Done:
		c.deliver(c.streamOf(m.ID, true), m)
	case *Error:
		if m.ID != nil {
			c.deliver(c.streamOf(*m.ID, true), m)
			return nil
		}
		c.answer(m)
	case *Status, *protocol.Tokens, *Cached, *protocol.Sleeping:
		c.answer(m)
	}
	return nil
}

// streamOf returns the stream of request id, or nil if it has ended; last marks it ended.
func (c *Client) streamOf(id uint64, last bool) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if s == nil || s.ended {
		return nil
	}
	s.ended = last
	return s
}

// deliver adds a message to s, unless s is nil.
func (c *Client) deliver(s *stream, message any) {
	if s == nil {
		return
	}
	s.push(message)
	if c.queued.Load() > c.bounds.queued {
		c.dropLongest()
	}
}

// answer gives reply to the oldest question. An error that answers none, or after
// which the generator closes, is kept as the reason for the connection's end. So is
// draining: if nobody asked for it, the question that it meets here may be unwritten.
func (c *Client) answer(reply any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reported, ok := reply.(*Error); ok &&
		(reported.Closes() || reported.Code == protocol.CodeDraining || len(c.questions) == 0) {
		c.reported = reported
	}
	if len(c.questions) == 0 {
		return
	}
	c.questions[0] <- reply
	c.questions = c.questions[1:]
}
