package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockMode = 0o600 // only the owner can open the file, and so hold the lock
	lockPoll = 10 * time.Millisecond
)

// LockPath returns the path of the lock file of the socket at path.
func LockPath(path string) string { return path + ".lock" }

// Lock makes this process the owner of a socket path. The kernel releases it at the end of
// the process, also of a killed one.
type Lock struct {
	socket string // absolute path
	file   *os.File
	path   string // of the lock file
}

// Acquire takes the lock of a socket path, which it makes absolute; it makes a missing
// directory. While another process owns the path without listening, Acquire waits; when ctx
// ends, it returns [ErrLocked]. If the owner listens, it returns [ErrInUse] at once. Other
// errors: [ErrPath], [ErrForeignDir], [ErrForeignLock] or the system's.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPath, err)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("%w: %q has %d bytes, a Unix socket's path at most %d: choose a shorter path",
			ErrPath, path, len(path), maxPath)
	}
	if err := prepareDir(filepath.Dir(path), PrivateDir("/tmp", os.Getuid())); err != nil {
		return nil, err
	}
	for {
		l, err := acquire(ctx, path)
		if l != nil || err != nil {
			return l, err
		}
	}
}

// acquire opens the lock file and waits for its lock. It returns nil and no error if the
// former owner has removed the file meanwhile: that lock protects nothing.
func acquire(ctx context.Context, socket string) (*Lock, error) {
	l := &Lock{socket: socket, path: LockPath(socket)}
	var err error
	if l.file, err = openLock(l.path); err != nil {
		if errors.Is(err, fs.ErrPermission) { // reports first that another process listens
			err = errors.Join(probe(socket), err)
		}
		return nil, err
	}
	if err = l.wait(ctx); err == nil && l.current() {
		l.sign()
		return l, nil
	}
	_ = l.file.Close()
	return nil, err
}

// openLock opens or makes the lock file. It follows no link and waits for no pipe's writer:
// in a directory such as /tmp any user can make a file of that name.
func openLock(path string) (*os.File, error) {
	const flags = unix.O_CREAT | unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	f, err := os.OpenFile(path, flags, lockMode)
	if err != nil {
		if info, e := os.Lstat(path); e == nil {
			return nil, errors.Join(checkLock(path, info), err)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkLock(path, info)
	}
	if err == nil && info.Mode().Perm() != lockMode && ownerOf(info) == os.Getuid() {
		err = f.Chmod(lockMode)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// checkLock refuses a lock file that another user could hold for ever: it must belong to this
// process's user, to root or to the directory's owner.
func checkLock(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is a %s: remove it or choose another path", ErrForeignLock, path, kind(info))
	}
	dir, _ := os.Stat(filepath.Dir(path)) // nil has no owner
	owner := ownerOf(info)
	if owner != os.Getuid() && owner != 0 && owner != ownerOf(dir) {
		return fmt.Errorf("%w: %s belongs to user %d: remove it, or choose a path in a directory of your own",
			ErrForeignLock, path, owner)
	}
	return nil
}

// wait waits for the lock.
func (l *Lock) wait(ctx context.Context) error {
	for {
		err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", l.path, err)
		}
		if err := probe(l.socket); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s holds %s: it starts or drains; try again when it has ended",
				ErrLocked, l.holder(), l.path)
		case <-time.After(lockPoll):
		}
	}
}

// current reports whether the locked file is still at the path.
func (l *Lock) current() bool {
	mine, err := l.file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(mine, now)
}

// sign writes the process id into the file, for the error of a process that waits.
func (l *Lock) sign() {
	_ = l.file.Truncate(0)
	_, _ = l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
}

// holder names the process that wrote its id into the file.
func (l *Lock) holder() string {
	text := make([]byte, 20)
	n, _ := l.file.ReadAt(text, 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}

// Listen binds the socket and replaces a stale one. Closing the listener keeps the lock.
// Errors: [ErrInUse], [ErrNotSocket] or the system's.
func (l *Lock) Listen() (*Listener, error) {
	if err := removeStale(l.socket); err != nil {
		return nil, err
	}
	return listen(l.socket)
}

// Release removes the lock file and lets another process own the path.
func (l *Lock) Release() {
	if l.current() {
		_ = os.Remove(l.path)
	}
	_ = l.file.Close()
}
