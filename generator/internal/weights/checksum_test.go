package weights

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
)

// fast is a rate that a test does not wait for.
const fast = 1 << 40

// checkpointDir writes a checkpoint whose tensor has n elements of 2 bytes.
func checkpointDir(t *testing.T, n int) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, singleName)
	header := one(`"F16"`, fmt.Sprintf("[%d]", n), fmt.Sprintf("[0,%d]", 2*n))
	if err := os.WriteFile(path, append(pack(header, 0), make([]byte, 2*n)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

func opens(t *testing.T, dir string) (*Checkpoint, []FileState) {
	t.Helper()
	c, err := Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	state, err := c.State()
	if err != nil {
		t.Fatal(err)
	}
	return c, state
}

// setByte changes a byte of a file in place and sets its mtime back.
func setByte(t *testing.T, path string, at int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(12 * time.Millisecond) // the kernel's clock for files has steps of 4 or 10 ms
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{0x3c}, at)
	}
	if err = errors.Join(err, f.Close(), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
}

// The checksum is one of all bytes: it is the same for the same files, and another after a change of any part.
func TestChecksum(t *testing.T) {
	const elements = 1 << 20 // two parts and a bit
	dir, path := checkpointDir(t, elements)
	c, state := opens(t, dir)
	first, err := c.Checksum(t.Context(), state, fast)
	if err != nil {
		t.Fatal(err)
	}
	again := func() [32]byte {
		c, state := opens(t, dir)
		sum, err := c.Checksum(t.Context(), state, fast)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if again() != first {
		t.Error("the same file has another sum")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{info.Size() - 1, 1 << 20} {
		setByte(t, path, at)
		last := first
		if first = again(); first == last {
			t.Errorf("after a change at byte %d the sum is the same", at)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := Open(fstest.MapFS{singleName: {Data: text}})
	if err != nil {
		t.Fatal(err)
	}
	state, err = copied.State()
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := copied.Checksum(t.Context(), state, fast); err != nil || sum != first {
		t.Errorf("a file that is not mapped has another sum: %v", err)
	}
}

// A file that was written to since its state was taken has no checksum, though size and mtime are as before.
func TestChecksumOfAChangedFile(t *testing.T) {
	dir, path := checkpointDir(t, 64)
	_, before := opens(t, dir)
	setByte(t, path, 100)
	c, after := opens(t, dir)
	if before[0].Modified != after[0].Modified || before[0].Size != after[0].Size {
		t.Fatal("the test does not set back the time")
	}
	if _, err := c.Checksum(t.Context(), before, fast); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, wants %v", err, ErrChanged)
	}
	if _, err := c.Checksum(t.Context(), after, fast); err != nil {
		t.Error(err)
	}
}

// A file that is cut while it is read gives an error and no fault.
func TestChecksumOfAFileThatShrinks(t *testing.T) {
	dir, path := checkpointDir(t, 3<<20)
	c, state := opens(t, dir)
	cut := make(chan error)
	go func() {
		time.Sleep(20 * time.Millisecond)
		cut <- os.Truncate(path, 4096)
	}()
	if _, err := c.Checksum(t.Context(), state, 20<<20); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, wants %v", err, ErrChanged)
	}
	if err := <-cut; err != nil {
		t.Fatal(err)
	}
	if _, err := c.State(); !errors.Is(err, ErrChanged) && err != nil {
		t.Error(err)
	}
}

// The rate is kept, and the end of the context ends a slow one.
func TestChecksumRate(t *testing.T) {
	dir, _ := checkpointDir(t, 1<<20)
	c, state := opens(t, dir)
	began := time.Now()
	if _, err := c.Checksum(t.Context(), state, 20<<20); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 95*time.Millisecond {
		t.Errorf("2 MiB took %v at 20 MiB/s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Checksum(ctx, state, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the end of the context: %v", err)
	}
}
