package server

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// awaitRequests waits for the running requests after reading has ended with readErr: the
// client has shut down its sending side, or a frame was refused. It returns early if the
// client closes its socket, or the connection has to end.
func (c *conn) awaitRequests(readErr error) {
	if !errors.Is(readErr, io.EOF) && !errors.Is(readErr, errUnanswerable) || c.idle() {
		return
	}
	c.setReadDeadline(time.Time{})
	done, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c.streams.Wait()
	}()
	go func() {
		defer close(left)
		c.awaitClose()
	}()
	select {
	case <-done:
	case <-left:
	case <-c.hangup:
	}
	c.setReadDeadline(time.Unix(1, 0)) // ends awaitClose
	<-left
}

// idle reports whether no request runs.
func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests) == 0
}

// awaitClose returns when the client has closed its socket, or at the read deadline.
// Shutting down the sending side is not a close.
func (c *conn) awaitClose() {
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
