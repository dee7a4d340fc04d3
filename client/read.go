package client

import (
	"bufio"
	"errors"
	"fmt"
	"net"

	"reel/protocol"
)

// newClient returns a client that has yet to say hello.
func newClient(conn net.Conn) *Client {
	c := &Client{conn: conn, streams: map[uint64]*stream{}, lost: make(chan struct{}), bounds: allBounds}
	c.frames.R = bufio.NewReader(source{c})
	return c
}

// source reads from the connection that the client has at the time.
type source struct{ c *Client }

func (s source) Read(b []byte) (int, error) { return s.c.conn.Read(b) }

// hello says hello and returns the welcome.
func (c *Client) hello() (*protocol.Welcome, error) {
	return exchange[*protocol.Welcome](c, &protocol.Hello{Version: protocol.Version})
}

// exchange sends a message and reads the answer itself, before the goroutine
// that reads is there.
func exchange[T any](c *Client, message any) (T, error) {
	var none T
	frame, err := protocol.AppendFrame(nil, message)
	if err != nil {
		return none, err
	}
	// A generator that refuses the connection may have closed it already: what
	// it said counts for more than the write that failed.
	_, wrote := c.conn.Write(frame)
	reply, err := c.next()
	if err != nil {
		return none, fmt.Errorf("%w: %w: %w", ErrNoGenerator, ErrNoAnswer, errors.Join(wrote, err))
	}
	return as[T](reply)
}

// next reads the next message of a type that this client knows. A newer
// generator may send others.
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

// read hands out what the generator sends until the connection ends.
func (c *Client) read() {
	for {
		message, err := c.next()
		if err != nil {
			c.lose(err)
			return
		}
		if err := c.hand(message); err != nil {
			c.end(fmt.Errorf("%w: %w", ErrConnectionLost, err))
			return
		}
	}
}

// hand gives a message to whom it is for. One that nobody asked for, or for a
// request that was left, is dropped. The error ends the connection.
func (c *Client) hand(message any) error {
	switch m := message.(type) {
	case *Token:
		s := c.running(m.ID, false)
		if s == nil {
			return nil
		}
		if err := s.asked.take(m, c.bounds); err != nil {
			return err
		}
		c.give(s, m)
	case *Done:
		c.give(c.running(m.ID, true), m)
	case *Error:
		if m.ID != nil {
			c.give(c.running(*m.ID, true), m)
			return nil
		}
		c.answer(m)
	case *Status, *protocol.Tokens:
		c.answer(m)
	}
	return nil
}

// running is the stream of the request id, nil where that has ended; last ends it.
func (c *Client) running(id uint64, last bool) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if s == nil || s.ended {
		return nil
	}
	s.ended = last
	return s
}

// give adds a message to s, unless that is nil.
func (c *Client) give(s *stream, message any) {
	if s == nil {
		return
	}
	s.push(message)
	if c.queued.Load() > c.bounds.queued {
		c.shed()
	}
}

// answer gives reply to the oldest question. An error that answers none, or
// after which the generator closes, is kept: it says why the connection ended.
func (c *Client) answer(reply any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if said, ok := reply.(*Error); ok && (said.Closes() || len(c.asks) == 0) {
		c.said = said
	}
	if len(c.asks) == 0 {
		return
	}
	c.asks[0] <- reply
	c.asks = c.asks[1:]
}
