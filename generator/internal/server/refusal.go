package server

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"reel/protocol"
)

// errUnanswerable ends the reading of a connection after a frame that was refused
// as a whole and named no request.
var errUnanswerable = errors.New("server: a frame was refused")

// Acquire takes bytes for the frame that the reader receives. The frame's time
// begins anew after a wait, in which the client could send nothing.
func (c *conn) Acquire(n int) error {
	waited, err := c.room.acquire(n)
	if waited {
		c.readUntil(time.Now().Add(c.s.bounds.frame))
	}
	return err
}

// Release gives them back, once the message that the frame has become is dealt with.
func (c *conn) Release(int) {
	if !c.dispatching {
		c.room.release()
	}
}

// overloaded is the error for a frame that found no room, or lost it to another
// user's; nil where err is something else.
func (c *conn) overloaded(err error) *protocol.Error {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.room.interrupted() {
		return protocol.Errorf(protocol.CodeOverloaded, "send whole frames at once, and this one again",
			"the frame was not complete after %v, and others waited for its place", c.s.bounds.contendedFrame)
	}
	if errors.Is(err, protocol.ErrOverloaded) {
		return protocol.FrameError(err)
	}
	return nil
}

// refuseFrame answers a frame with e. Where the frame's first bytes name the
// request, the rest is skipped and the connection goes on; otherwise its client
// could not tell which of its requests is lost.
func (c *conn) refuseFrame(e *protocol.Error) error {
	id := protocol.PeekID(c.frames.Head())
	if id == nil {
		c.send(e)
		return errUnanswerable
	}
	c.refused(*id, e)
	c.send(e.For(*id))
	c.readUntil(time.Now().Add(c.s.bounds.frame))
	return c.frames.Skip()
}

// outlive waits for the requests of a connection that is read no more: its client
// has shut down its sending side, or a frame of it was refused. It returns early
// when the client is gone, or the connection is to end.
func (c *conn) outlive(readErr error) {
	if !errors.Is(readErr, io.EOF) && !errors.Is(readErr, errUnanswerable) || c.idle() {
		return
	}
	c.readUntil(time.Time{})
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c.streams.Wait()
	}()
	go func() {
		defer close(gone)
		c.awaitHangup()
	}()
	select {
	case <-done:
	case <-gone:
	case <-c.ended:
	}
	c.readUntil(time.Unix(1, 0)) // ends awaitHangup
	<-gone
}

func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests) == 0
}

// awaitHangup returns when the client has closed its socket, which a shutdown of
// its sending side is not, or at the read deadline.
func (c *conn) awaitHangup() {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
}
