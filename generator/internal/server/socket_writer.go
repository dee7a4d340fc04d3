package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketWriter writes to a socket without waiting. One goroutine at a time may use it.
type socketWriter struct {
	raw  syscall.RawConn
	send func(fd uintptr) // sends b and sets n; kept, since a new closure is an allocation
	b    []byte
	n    int
}

// newSocketWriter returns nil if the socket is closed.
func newSocketWriter(sock *net.UnixConn) *socketWriter {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil
	}
	w := &socketWriter{raw: raw}
	w.send = func(fd uintptr) {
		// The write queue's writer meets the same error.
		w.n, _ = unix.SendmsgN(int(fd), w.b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	return w
}

// write returns the number of bytes of b that the kernel took, perhaps 0.
func (w *socketWriter) write(b []byte) int {
	w.b, w.n = b, 0
	_ = w.raw.Control(w.send)
	w.b = nil
	return max(0, w.n)
}
