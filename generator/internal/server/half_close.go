package server

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// awaitRequests waits for the goroutines of requests after reading has ended with readErr:
// the client has shut down its sending side, or a frame was refused. A request that has left
// c.requests may still have tokens to send. It returns early if the client closes its socket,
// or the connection has to end.
func (c *conn) awaitRequests(readErr error) {
	if !errors.Is(readErr, io.EOF) && !errors.Is(readErr, errUnanswerable) {
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
