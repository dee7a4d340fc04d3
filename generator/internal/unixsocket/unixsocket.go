// Package unixsocket binds Unix sockets. One process at a time owns a path; a stale socket is
// replaced; any other file at the path stays. A socket is stale if no process listens on it.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reasons to refuse a socket path. The path is left as it was.
var (
	ErrPath        = errors.New("unusable socket path")
	ErrInUse       = errors.New("another program listens on the socket")
	ErrNotSocket   = errors.New("the socket path holds something else")
	ErrForeignDir  = errors.New("the socket directory is not ours")
	ErrForeignLock = errors.New("the socket's lock file is not ours")
	ErrLocked      = errors.New("another process owns the socket and does not listen on it")
)

const (
	maxPath      = 107 // bytes in sockaddr_un, without the final zero
	socketMode   = 0o660
	dirMode      = 0o750
	privateMode  = 0o700 // of the directory under /tmp, which every user can reach
	probeTimeout = time.Second
)

// PrivateDir returns the path of user uid's directory for sockets under tmp. No other user
// may enter it.
func PrivateDir(tmp string, uid int) string {
	return filepath.Join(tmp, "reel-"+strconv.Itoa(uid))
}

// Listener is a listening socket. It remembers the inode that it made, so that Close does not
// remove a successor's socket.
type Listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo // nil for an inherited socket, which Close leaves in place
	lock *Lock       // released by Close; nil if the caller keeps the lock
}

// Inherit wraps a socket that a service manager has bound and keeps. Close leaves the path,
// so that clients that connect meanwhile wait for the next process.
func Inherit(l *net.UnixListener) *Listener {
	l.SetUnlinkOnClose(false)
	return &Listener{UnixListener: l, path: l.Addr().String()}
}

// Listen owns path and listens on it until the listener is closed. It waits like [Acquire].
// Errors are those of Acquire and [Lock.Listen].
func Listen(ctx context.Context, path string) (*Listener, error) {
	lock, err := Acquire(ctx, path)
	if err != nil {
		return nil, err
	}
	l, err := lock.Listen()
	if err != nil {
		lock.Release()
		return nil, err
	}
	l.lock = lock
	return l, nil
}

// Path returns the absolute path of the socket.
func (l *Listener) Path() string { return l.path }

// Close stops listening, removes the socket that was made here, and releases the lock that
// the function [Listen] took.
func (l *Listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && l.made != nil && os.SameFile(now, l.made) {
		_ = os.Remove(l.path)
	}
	err := l.UnixListener.Close()
	if l.lock != nil {
		l.lock.Release()
	}
	return err
}

// removeStale removes a stale socket at path.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: %s is a %s: move it away or choose another path", ErrNotSocket, path, kind(info))
	}
	if err := probe(path); err != nil {
		return err
	}
	return os.Remove(path)
}

// probe returns [ErrInUse] if a process listens on path. A full queue of connections counts,
// too: only a refused connection proves that the socket is stale.
func probe(path string) error {
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%w: %s: stop it or choose another path", ErrInUse, path)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrInUse, path, err)
}

// listen binds path. It sets the mode before the bind, so that the inode never allows more
// than socketMode, and after it, since the umask narrows the mode.
func listen(path string) (*Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), socketMode) })
		return errors.Join(err, chmod)
	}}
	made, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	l := &Listener{UnixListener: made.(*net.UnixListener), path: path}
	l.SetUnlinkOnClose(false)
	if l.made, err = os.Lstat(path); err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// kind names the type of a file, for a message.
func kind(info fs.FileInfo) string {
	switch info.Mode().Type() {
	case 0:
		return "regular file"
	case fs.ModeSymlink:
		return "symbolic link"
	case fs.ModeDir:
		return "directory"
	case fs.ModeNamedPipe:
		return "named pipe"
	case fs.ModeSocket:
		return "socket"
	}
	return "device file"
}
