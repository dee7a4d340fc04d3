package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flock takes a lock on a file or directory, as another process would.
func flock(t *testing.T, path string, how int) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	must(t, unix.Flock(int(f.Fd()), how|unix.LOCK_NB))
	return f
}

// A lock on the directory, which each of its readers can hold, has no effect.
func TestDirectoryLockIsIgnored(t *testing.T) {
	for _, how := range []int{unix.LOCK_SH, unix.LOCK_EX} {
		dir := t.TempDir()
		flock(t, dir, how)
		b, err := bind(t, filepath.Join(dir, "g.sock"))
		must(t, err)
		must(t, b.Close())
	}
}

// Only the owner may open the lock file, with any umask and any earlier mode.
func TestLockModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "g.sock")
	must(t, os.WriteFile(LockPath(path), nil, 0o666))
	for range 2 {
		l, err := Acquire(t.Context(), path)
		must(t, err)
		wantMode(t, LockPath(path), lockMode)
		l.Release()
	}
}

// Waiting for a lock whose owner does not listen ends with ErrLocked, which names the owner.
// The lock is free after the owner releases it.
func TestLockTimesOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.sock")
	first, err := Acquire(t.Context(), path)
	must(t, err)
	leaveStale(t, path) // of an earlier generator
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	holder := fmt.Sprintf("process %d holds", os.Getpid())
	if l, err := Acquire(ctx, path); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), holder) {
		t.Fatalf("got %v, %v", l, err)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		first.Release()
	}()
	second, err := bind(t, path)
	must(t, err)
	must(t, second.Close())
}

// A listening owner is reported at once, even if its queue of connections is full.
func TestFullQueueIsInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.sock")
	l, err := Acquire(t.Context(), path)
	must(t, err)
	defer l.Release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)))
	for range 2 {
		if _, err := bind(t, path); !errors.Is(err, ErrInUse) {
			t.Errorf("got %v", err)
		}
		if c, err := net.Dial("unix", path); err == nil {
			defer c.Close()
		}
	}
}

// Another kind of file at the lock's path is refused and left as it is.
func TestForeignLockIsRefused(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"symbolic link": func(path string) error { return os.Symlink("elsewhere", path) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"named pipe":    func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "g.sock")
		must(t, make(LockPath(path)))
		before, err := os.Lstat(LockPath(path))
		must(t, err)
		_, err = bind(t, path)
		if !errors.Is(err, ErrForeignLock) || !strings.Contains(err.Error(), LockPath(path)+" is a "+name) {
			t.Errorf("%s: got %v", name, err)
		}
		if after, err := os.Lstat(LockPath(path)); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was touched: %v", name, err)
		}
	}
}

// In /tmp another user may have made the lock file. It is refused at once.
func TestLockOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wants root, to give a file to another user")
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o1777))
	path := filepath.Join(dir, "g.sock")
	must(t, os.WriteFile(LockPath(path), nil, 0o666))
	must(t, os.Chown(LockPath(path), 65534, 65534))
	flock(t, LockPath(path), unix.LOCK_EX)
	_, err := bind(t, path)
	if !errors.Is(err, ErrForeignLock) || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("got %v", err)
	}
	must(t, os.Chown(dir, 65534, 65534)) // the directory's owner could replace the file anyway
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := Acquire(ctx, path); !errors.Is(err, ErrLocked) {
		t.Errorf("in the user's own directory: got %v", err)
	}
}

// Processes that wait for one lock own it one at a time: a lock on a file that its former
// owner has removed does not count.
func TestOneOwnerAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.sock")
	var owners, most int
	owned := make(chan int)
	for range 8 {
		go func() {
			for range 25 {
				l, err := Acquire(t.Context(), path)
				if err != nil {
					t.Error(err)
					break
				}
				owned <- 1
				owned <- -1
				l.Release()
			}
			owned <- 0
		}()
	}
	for left := 8; left > 0; {
		change := <-owned
		owners += change
		most = max(most, owners)
		if change == 0 {
			left--
		}
	}
	if most != 1 {
		t.Errorf("%d owners at once", most)
	}
}

// A killed process leaves its socket and lock file, but does not own them.
func TestKilledOwner(t *testing.T) {
	const variable = "REEL_TEST_OWN_SOCKET"
	if path := os.Getenv(variable); path != "" {
		_, err := Listen(t.Context(), path)
		must(t, err)
		fmt.Println("owned")
		select {}
	}
	path := filepath.Join(t.TempDir(), "g.sock")
	child := exec.Command(os.Args[0], "-test.run=^TestKilledOwner$")
	child.Env = append(os.Environ(), variable+"="+path)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	_, err = out.Read(make([]byte, 5))
	must(t, err)
	if _, err := bind(t, path); !errors.Is(err, ErrInUse) {
		t.Errorf("while it lives: %v", err)
	}
	must(t, child.Process.Kill())
	_ = child.Wait()
	b, err := bind(t, path)
	must(t, err)
	must(t, b.Close())
}
