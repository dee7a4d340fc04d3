package server

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// socketReader reads from a socket as the socket's own Read does, and calls wait before it waits for the client.
type socketReader struct {
	raw  syscall.RawConn
	wait func()
	read func(fd uintptr) bool // reads into b and sets n and err; kept, since a new closure is an allocation
	b    []byte
	n    int
	err  error
}

// newSocketReader returns the socket itself if it is closed: its Read says so.
func newSocketReader(sock *net.UnixConn, wait func()) io.Reader {
	raw, err := sock.SyscallConn()
	if err != nil {
		return sock
	}
	r := &socketReader{raw: raw, wait: wait}
	// Sockets are written by package syscall. The race detector orders its own reads after these writes, but not those
	// of package unix.
	r.read = func(fd uintptr) bool {
		for {
			if r.n, r.err = syscall.Read(int(fd), r.b); !errors.Is(r.err, syscall.EINTR) {
				break
			}
		}
		if errors.Is(r.err, syscall.EAGAIN) {
			r.wait()
			return false
		}
		return true
	}
	return r
}

// Read returns at least one byte, or io.EOF or an error.
func (r *socketReader) Read(b []byte) (int, error) {
	r.b = b
	err := r.raw.Read(r.read)
	r.b = nil
	switch {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, os.NewSyscallError("read", r.err)
	case r.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return r.n, nil
}
