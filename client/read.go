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
	c := &Client{conn: conn, streams: map[uint64]*stream{}, lost: make(chan struct{})}
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
		c.hand(message)
	}
}

// hand gives a message to whom it is for. One for a request that was left is dropped.
func (c *Client) hand(message any) {
	switch m := message.(type) {
	case *Token:
		c.give(m.ID, m, false)
	case *Done:
		c.give(m.ID, m, true)
	case *Error:
		if m.ID != nil {
			c.give(*m.ID, m, true)
			return
		}
		c.answer(m)
	case *Status, *protocol.Tokens:
		c.answer(m)
	}
}

// give adds a message to the stream of id; last ends it.
func (c *Client) give(id uint64, message any, last bool) {
	c.mu.Lock()
	s := c.streams[id]
	if last {
		delete(c.streams, id)
	}
	c.mu.Unlock()
	if s != nil {
		s.push(message)
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
