package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quickly fails the test if fn blocks.
func quickly(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it blocks")
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "there")
	err := errors.Join(os.WriteFile(path, []byte("text"), 0o600), os.Symlink(path, filepath.Join(dir, "link")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"there", "link"} {
		f, err := Dir(dir).Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]error{
		"absent": fs.ErrNotExist, "../there": fs.ErrInvalid, "/etc/passwd": fs.ErrInvalid, ".": ErrNotRegular,
	} {
		if f, err := Dir(dir).Open(name); f != nil || !errors.Is(err, want) {
			t.Errorf("%s: %v, wants %v", name, err, want)
		}
	}
}

// A file that becomes a named pipe after the check does not block Open.
func TestReplacedAfterTheCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := afterCheck
	defer func() { afterCheck = before }()
	afterCheck = func(string) {
		if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Error(err)
		}
	}
	quickly(t, func() {
		if _, err := Open(path); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), "a named pipe") {
			t.Errorf("%v, wants %v", err, ErrNotRegular)
		}
	})
}
