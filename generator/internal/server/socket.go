package server

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

// Reasons for which a socket path is refused. Each leaves the path as it was.
var (
	ErrSocketPath  = errors.New("server: unusable socket path")
	ErrSocketInUse = errors.New("server: another generator listens on the socket")
	ErrNotSocket   = errors.New("server: the socket path holds something else")
	ErrForeignDir  = errors.New("server: the socket directory is not ours")
)

const (
	maxSocketPath = 107 // bytes in sockaddr_un, less the closing zero
	socketMode    = 0o660
	dirMode       = 0o750
	privateMode   = 0o700 // of the directory under /tmp, which every user can reach
	probeTimeout  = time.Second
	lockTimeout   = 5 * time.Second
)

// DefaultSocket is the path that a generator listens on where none is given:
// /run/reel for root, else $XDG_RUNTIME_DIR/reel, else /tmp/reel-UID.
func DefaultSocket() string {
	return defaultSocket(os.Getuid(), os.Getenv("XDG_RUNTIME_DIR"))
}

func defaultSocket(uid int, runtimeDir string) string {
	const name = "generator.sock"
	switch {
	case uid == 0:
		return filepath.Join("/run/reel", name)
	case runtimeDir != "":
		return filepath.Join(runtimeDir, "reel", name)
	}
	return filepath.Join(privateDir("/tmp", uid), name)
}

func privateDir(tmp string, uid int) string {
	return filepath.Join(tmp, "reel-"+strconv.Itoa(uid))
}

// boundSocket is a listening socket and the inode it made, so that closing
// removes that inode and never a successor's.
type boundSocket struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

// bind listens on path. It makes the directory where it is missing, removes a
// stale socket, and refuses all else: ErrSocketPath, ErrSocketInUse,
// ErrNotSocket, ErrForeignDir or the system's error.
func bind(path string) (*boundSocket, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSocketPath, err)
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%w: %q has %d bytes, a Unix socket's path at most %d: choose a shorter --socket", ErrSocketPath, path, len(path), maxSocketPath)
	}
	if err := prepareDir(filepath.Dir(path), privateDir("/tmp", os.Getuid())); err != nil {
		return nil, err
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	return listen(path)
}

// prepareDir makes dir with dirMode, or privateMode where it is private, the
// one under /tmp. What exists is left as it is, but another user's private
// directory is refused: its owner could put a socket of their own in the place.
func prepareDir(dir, private string) error {
	if dir != private {
		return makeDir(dir, dirMode)
	}
	if err := makeDir(dir, privateMode); err != nil {
		return err
	}
	return checkOwned(dir, os.Getuid())
}

func checkOwned(dir string, uid int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is a %s, not a directory: choose another --socket", ErrForeignDir, dir, kind(info))
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != uid {
		return fmt.Errorf("%w: %s belongs to user %d: choose another --socket", ErrForeignDir, dir, owner)
	}
	return nil
}

// makeDir makes dir and its missing parents. The mode is set once more after
// the umask has narrowed it.
func makeDir(dir string, mode fs.FileMode) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	if err := makeDir(filepath.Dir(dir), mode); err != nil {
		return err
	}
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// lockDir holds dir against other generators between the look at the path and
// the bind. The lock is on the directory itself, so that no file is left behind.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = d.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			_ = d.Close()
			return nil, fmt.Errorf("server: lock %s: %w", dir, err)
		}
	}
}

// removeStale removes a socket at path on which nobody listens.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: %s is a %s: move it away or choose another --socket", ErrNotSocket, path, kind(info))
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%w: %s: stop it or choose another --socket", ErrSocketInUse, path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %s: %w", ErrSocketInUse, path, err)
	}
	return os.Remove(path)
}

// listen binds path. The mode is set before the bind, so the inode is never
// wider than socketMode, and after it, where the umask has narrowed it.
func listen(path string) (*boundSocket, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), socketMode) })
		return errors.Join(err, chmod)
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	b := &boundSocket{UnixListener: l.(*net.UnixListener), path: path}
	b.SetUnlinkOnClose(false)
	if b.made, err = os.Lstat(path); err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// Close stops listening and removes the socket if it is still the one made here.
func (b *boundSocket) Close() error {
	if now, err := os.Lstat(b.path); err == nil && b.made != nil && os.SameFile(now, b.made) {
		_ = os.Remove(b.path)
	}
	return b.UnixListener.Close()
}

// kind names what info describes, for a message.
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
	}
	return "device file"
}
