package server

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"reel.internal/reel/protocol"
)

var (
	// errSilent ends a connection that sends no frame before welcome.
	errSilent = errors.New("server: no frame came")
	// errUnanswerable ends the reading of a connection after a refused frame that named
	// no request.
	errUnanswerable = errors.New("server: a frame was refused")
)

// frameHeader is the size in bytes of the length in front of a frame.
const frameHeader = 4

// readFrames handles frames until the client leaves, or the connection has to end.
func (c *conn) readFrames() error {
	for !c.hungUp.Load() {
		body, err := c.nextFrame()
		if e := c.overloaded(err); e != nil {
			if err = c.refuseFrame(e); err == nil {
				continue
			}
		}
		if err != nil {
			c.sendReadError(err)
			return err
		}
		e := c.handleFrame(body)
		if e != nil && e.Closes() {
			return e
		}
	}
	return nil
}

// expect tells the engine that this client's requests are being read, until all that has come is handled.
func (c *conn) expect() {
	if c.expects == nil {
		c.expects = c.model.Engine
		c.expects.Expect()
	}
}

// endExpect tells it that they were read: the reader is about to wait for the client.
func (c *conn) endExpect() {
	if c.expects != nil {
		c.expects.EndExpect()
		c.expects = nil
	}
}

// nextFrame waits for a frame and returns its body. A client may stay silent for ever
// after welcome, but must finish a frame that it has begun.
func (c *conn) nextFrame() ([]byte, error) {
	var deadline time.Time
	if c.model == nil {
		deadline = time.Now().Add(c.server.bounds.helloTimeout)
	}
	c.setReadDeadline(deadline)
	if _, err := c.in.Peek(1); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, errSilent
		}
		return nil, err
	}
	if !c.frameBuffered() {
		c.setReadDeadline(time.Now().Add(c.server.bounds.frameTimeout))
	}
	return c.frames.Next()
}

// setReadDeadline bounds the wait for more bytes; the zero time is no bound. Setting a
// deadline takes some µs of a client's time to first token, so it is skipped if there is
// none to remove.
func (c *conn) setReadDeadline(deadline time.Time) {
	if deadline.IsZero() && !c.hasReadDeadline {
		return
	}
	c.hasReadDeadline = !deadline.IsZero()
	_ = c.sock.SetReadDeadline(deadline)
}

// frameBuffered reports whether a whole frame is in the read buffer.
func (c *conn) frameBuffered() bool {
	n := c.in.Buffered()
	if n < frameHeader {
		return false
	}
	header, _ := c.in.Peek(frameHeader)
	return int64(n-frameHeader) >= int64(binary.BigEndian.Uint32(header))
}

// sendReadError sends the reason for closing the connection, unless the client has left.
func (c *conn) sendReadError(err error) {
	e := protocol.FrameError(err)
	switch {
	case errors.Is(err, errSilent):
		e = protocol.Errorf(protocol.CodeHelloRequired, "connect when there is something to ask",
			"no frame came for %v", c.server.bounds.helloTimeout)
	case errors.Is(err, os.ErrDeadlineExceeded):
		e = protocol.Errorf(protocol.CodeBadFrame, "send whole frames",
			"a frame was not complete after %v", c.server.bounds.frameTimeout)
	}
	if e != nil {
		c.send(e)
	}
}

// Acquire takes n bytes of the budget for the frame in reception. After a wait it extends the
// frame's deadline, since the client could not send during the wait.
func (c *conn) Acquire(n int) error {
	waited, err := c.reservation.acquire(n)
	if waited {
		c.setReadDeadline(time.Now().Add(c.server.bounds.frameTimeout))
	}
	return err
}

// Release returns the frame's bytes, unless its message is being handled: handleFrame
// returns them after that.
func (c *conn) Release(int) {
	if !c.dispatching {
		c.reservation.release()
	}
}

// overloaded returns the error for a frame that got no bytes of the budget, or lost them
// to another user's frame; nil for any other err.
func (c *conn) overloaded(err error) *protocol.Error {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.reservation.interrupted() {
		return protocol.Errorf(protocol.CodeOverloaded, "send whole frames at once, and this one again",
			"the frame was not complete after %v, and others waited for its memory",
			c.server.bounds.contendedFrameTimeout)
	}
	if errors.Is(err, protocol.ErrOverloaded) {
		return protocol.FrameError(err)
	}
	return nil
}

// refuseFrame answers a frame with e. If the frame's first bytes name the request, the
// rest is skipped and the connection continues. Otherwise it ends, since its client could
// not know which request is lost.
func (c *conn) refuseFrame(e *protocol.Error) error {
	id := protocol.PeekID(c.frames.Head())
	if id == nil {
		c.send(e)
		return errUnanswerable
	}
	c.countRefused(*id, e)
	c.send(e.For(*id))
	c.setReadDeadline(time.Now().Add(c.server.bounds.frameTimeout))
	return c.frames.Skip()
}
