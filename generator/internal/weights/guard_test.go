package weights

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shrunk returns a tensor of a mapped file that was cut before the tensor's pages.
func shrunk(t *testing.T) Tensor {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, singleName)
	const size = 64 << 10
	if err := os.WriteFile(path, pack(one(`"F16"`, `[32768]`, `[0,65536]`), size), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	x, err := c.Tensor("x")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Reading past the new end of a file returns an error and does not end the process.
func TestGuard(t *testing.T) {
	x := shrunk(t)
	into := make([]byte, len(x.Data))
	if err := Guard(func() error { copy(into, x.Data); return nil }); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, wants %v", err, ErrChanged)
	}
	if err := Guard(func() error { return ErrMissing }); !errors.Is(err, ErrMissing) {
		t.Errorf("fn's own error: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("another panic was swallowed")
		}
	}()
	_ = Guard(func() error { panic("another") })
}

// Without Guard the same read ends the process.
func TestWithoutGuard(t *testing.T) {
	if os.Getenv("UNGUARDED") != "" {
		x := shrunk(t)
		copy(make([]byte, len(x.Data)), x.Data)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestWithoutGuard$")
	cmd.Env = append(os.Environ(), "UNGUARDED=1", "TMPDIR="+t.TempDir()) // it ends without removing its own
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "unexpected fault address") {
		t.Errorf("%v, wants a fault:\n%s", err, out)
	}
}

// A file that loses its header after it was mapped and before it is parsed gives an
// error with its name.
func TestShrinksWhileItIsOpened(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, singleName)
	if err := os.WriteFile(path, pack(good, 16), 0o600); err != nil {
		t.Fatal(err)
	}
	before := opened
	defer func() { opened = before }()
	opened = func(string) {
		if err := os.Truncate(path, 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(os.DirFS(dir)); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), singleName) {
		t.Errorf("%v, wants %v", err, ErrChanged)
	}
}
