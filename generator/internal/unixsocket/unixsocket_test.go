package unixsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// bind listens on path; it waits at most a minute for another owner.
func bind(t *testing.T, path string) (*Listener, error) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	return Listen(ctx, path)
}

func TestBindModes(t *testing.T) {
	for _, mask := range []int{0, 0o077} {
		dir := t.TempDir()
		path := filepath.Join(dir, "made", "too", "g.sock")
		b := bindUnder(t, mask, path)
		wantMode(t, path, socketMode)
		wantMode(t, filepath.Dir(path), dirMode)
		wantMode(t, filepath.Join(dir, "made"), dirMode)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for _, left := range []string{path, LockPath(path)} {
			if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is still there: %v", left, err)
			}
		}
	}
}

// bindUnder binds with the process's umask set to mask.
func bindUnder(t *testing.T, mask int, path string) *Listener {
	t.Helper()
	defer syscall.Umask(syscall.Umask(mask))
	b, err := bind(t, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// The inode's mode never allows more than socketMode, not even before the chmod.
func TestSocketModeAtBind(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "g.sock")
	b, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if made := b.made.Mode().Perm(); made != socketMode {
		t.Errorf("the bind made the socket with mode %o", made)
	}
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %o, want %o", path, got, want)
	}
}

func TestExistingDirKeepsItsMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := prepareDir(dir, "/other"); err != nil {
		t.Fatal(err)
	}
	wantMode(t, dir, 0o755)
}

func TestPrivateDir(t *testing.T) {
	tmp := t.TempDir()
	private := PrivateDir(tmp, os.Getuid())
	if err := prepareDir(private, private); err != nil {
		t.Fatal(err)
	}
	wantMode(t, private, privateMode)
	if err := checkOwned(private, os.Getuid()+1); !errors.Is(err, ErrForeignDir) {
		t.Errorf("another user's directory: got %v", err)
	}
	link := filepath.Join(tmp, "link")
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	if err := prepareDir(link, link); !errors.Is(err, ErrForeignDir) {
		t.Errorf("a symlink: got %v", err)
	}
}

func TestBindRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	live, err := bind(t, at("live"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	must(t, os.WriteFile(at("file"), []byte("x"), 0o600))
	must(t, os.Symlink(at("live"), at("link")))
	must(t, os.Symlink(at("nothing"), at("dangling")))
	must(t, os.Mkdir(at("dir"), 0o700))
	must(t, syscall.Mkfifo(at("pipe"), 0o600))
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at("datagrams"), Net: "unixgram"})
	must(t, err)
	defer datagrams.Close()
	for name, want := range map[string]error{
		"datagrams": ErrInUse, "live": ErrInUse, "file": ErrNotSocket, "link": ErrNotSocket,
		"dangling": ErrNotSocket, "dir": ErrNotSocket, "pipe": ErrNotSocket,
		strings.Repeat("x", 108-len(dir)): ErrPath,
	} {
		before, _ := os.Lstat(at(name))
		if _, err := bind(t, at(name)); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if after, _ := os.Lstat(at(name)); before != nil && !os.SameFile(before, after) {
			t.Errorf("%s was touched", name)
		}
	}
}

func TestLongestPathBinds(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)-1))
	b, err := bind(t, path)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.sock")
	leaveStale(t, path)
	b, err := bind(t, path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// leaveStale leaves a stale socket at path, as a killed generator does.
func leaveStale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
}

func TestCloseLeavesSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.sock")
	first, err := bind(t, path)
	if err != nil {
		t.Fatal(err)
	}
	must(t, errors.Join(os.Remove(path), os.Remove(LockPath(path))))
	second, err := bind(t, path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	must(t, first.Close())
	for _, left := range []string{path, LockPath(path)} {
		if _, err := os.Lstat(left); err != nil {
			t.Errorf("the successor's file: %v", err)
		}
	}
}

// Of several callers that find one stale socket, exactly one listens.
func TestOneCallerListens(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "g.sock")
		leaveStale(t, path)
		var won atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if b, err := bind(t, path); err == nil {
					won.Add(1)
					t.Cleanup(func() { _ = b.Close() })
				} else if !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d callers listen", won.Load())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
