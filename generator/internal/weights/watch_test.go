package weights

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/files"
)

const tensorBytes = 3 * samplePage // size of each tensor in watched's checkpoint

// watched writes a checkpoint of 40 tensors, opens it and watches it.
func watched(t *testing.T) (path string, c *Checkpoint, w *Watch) {
	t.Helper()
	const tensors = 40
	dir := t.TempDir()
	path = filepath.Join(dir, singleName)
	if err := os.WriteFile(path, pack(equalTensors(tensors, tensorBytes), tensors*tensorBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(files.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w = c.Watch()
	w.Interval = time.Millisecond
	return path, c, w
}

// equalTensors returns a header of n tensors of equal size in bytes.
func equalTensors(n, bytes int) string {
	var entries []string
	for i := range n {
		entries = append(entries, fmt.Sprintf(`"t%d":{"dtype":"F16","shape":[%d],"data_offsets":[%d,%d]}`,
			i, bytes/2, i*bytes, (i+1)*bytes))
	}
	return "{" + strings.Join(entries, ",") + "}"
}

// overwrite writes content into a file in place, at an offset.
func overwrite(t *testing.T, path string, at int64, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(content, at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// The next look finds a write into any tensor, even if the writer sets the time back,
// and a file that was cut.
func TestWatchFindsWhatIsWritten(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string, header int64){
		"a tensor": func(t *testing.T, path string, header int64) {
			overwrite(t, path, header+rand.Int64N(40)*tensorBytes, slices.Repeat([]byte{0xff}, tensorBytes))
		},
		"header": func(t *testing.T, path string, _ int64) { overwrite(t, path, 20, []byte("zz")) },
		"time set back": func(t *testing.T, path string, header int64) {
			info, err := os.Stat(path)
			overwrite(t, path, header+tensorBytes, slices.Repeat([]byte{0xff}, tensorBytes))
			if err = errors.Join(err, os.Chtimes(path, time.Time{}, info.ModTime())); err != nil {
				t.Fatal(err)
			}
		},
		"shorter": func(t *testing.T, path string, header int64) {
			if err := os.Truncate(path, header); err != nil {
				t.Fatal(err)
			}
		},
		"shorter, and as long again": func(t *testing.T, path string, header int64) {
			info, err := os.Stat(path)
			if err = errors.Join(err, os.Truncate(path, header), os.Truncate(path, info.Size())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, c, w := watched(t)
			if err := w.Verify(); err != nil {
				t.Fatal(err)
			}
			header := int64(len(c.files[0].data)) - 40*tensorBytes
			change(t, path, header)
			for range 2 { // the error persists
				err := w.look(false, func(string) {})
				if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), singleName) {
					t.Fatalf("%v, wants %v", err, ErrChanged)
				}
			}
			if name == "shorter" && !strings.Contains(w.changed.Error(), "it shrank from") {
				t.Errorf("the error does not say that the file is shorter: %v", w.changed)
			}
			if err := w.Run(nil, nil); !errors.Is(err, ErrChanged) {
				t.Errorf("Run: %v, wants %v", err, ErrChanged)
			}
		})
	}
}

// A touch, a longer file and a rename into place leave the weights as they are. The
// first two are reported, once.
func TestWatchLeavesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		heard  int32
	}{
		"touched": {func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) }, 1},
		"longer":  {func(path string) error { return os.Truncate(path, 1<<20) }, 1},
		"rename": {func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path, _, w := watched(t)
			if err := w.Verify(); err != nil {
				t.Fatal(err)
			}
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			var heard atomic.Int32
			stop := make(chan struct{})
			time.AfterFunc(50*time.Millisecond, func() { close(stop) })
			if err := w.Run(stop, func(string) { heard.Add(1) }); err != nil || heard.Load() != c.heard {
				t.Errorf("%v, heard %d times, wants %d", err, heard.Load(), c.heard)
			}
		})
	}
}

// A write in the same tick of the kernel's clock as a look changes no time. The next
// look compares sums nevertheless.
func TestWriteInTheTickOfALook(t *testing.T) {
	path, _, w := watched(t)
	now := time.Now()
	if err := errors.Join(w.Verify(), os.Chtimes(path, time.Time{}, now), w.Verify()); err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, 20, []byte("zz"))
	info, err := w.files[0].mapped.Stat()
	if err != nil {
		t.Fatal(err)
	}
	w.files[0].known = stampOf(info) // as if the times were the same
	if err := w.look(false, func(string) {}); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, wants %v", err, ErrChanged)
	}
}

// Verify does not rely on times, since a file system may fail to update them.
func TestVerifyComparesIfNoTimeChanged(t *testing.T) {
	path, _, w := watched(t)
	w.Interval = 0
	if err := w.Verify(); err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, 20, []byte("zz"))
	info, err := w.files[0].mapped.Stat()
	if err != nil {
		t.Fatal(err)
	}
	w.files[0].known = stampOf(info)
	if err := w.look(false, func(string) {}); err != nil {
		t.Errorf("a look without force: %v", err)
	}
	if err := w.Verify(); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, wants %v", err, ErrChanged)
	}
}

// A file that is touched before the sums are recorded counts as changed, since there
// is nothing to compare it with.
func TestChangedBeforeTheSums(t *testing.T) {
	path, _, w := watched(t)
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := w.Verify(); !errors.Is(err, ErrChanged) {
		t.Errorf("%v, wants %v", err, ErrChanged)
	}
}

// Run ends at once when Verify has found a change.
func TestVerifyEndsRun(t *testing.T) {
	path, _, w := watched(t)
	w.Interval = time.Hour
	ended := make(chan error, 1)
	go func() { ended <- w.Run(nil, func(string) {}) }()
	for taken := false; !taken; {
		w.mu.Lock()
		taken = w.recorded
		w.mu.Unlock()
	}
	overwrite(t, path, 20, []byte("zz"))
	if err := w.Verify(); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, ErrChanged) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Run goes on")
	}
}

// Rest waits while a file is written to, and no longer than its limit.
func TestRest(t *testing.T) {
	path, _, w := watched(t)
	w.Interval = 50 * time.Millisecond
	writes := 0
	w.Rest(t.Context(), func() {
		if writes++; writes < 5 {
			overwrite(t, path, 20, []byte{byte('a' + writes)})
		}
	})
	if writes != 6 {
		t.Errorf("it returned after %d intervals, wants 4 with writes and 2 without", writes)
	}
	w.Limit = 0
	w.Rest(context.Background(), func() { t.Error("it waits beyond its limit") })
}

// Every tensor has a sampled page if the checkpoint has few enough of them.
func TestSampleOffsets(t *testing.T) {
	_, c, w := watched(t)
	offsets := w.files[0].offsets
	for i := range 40 {
		begin := len(c.files[0].data) - (40-i)*tensorBytes
		if !slices.ContainsFunc(offsets, func(at int) bool { return at+samplePage > begin && at < begin+tensorBytes }) {
			t.Errorf("tensor %d has no sampled page", i)
		}
	}
	big := &file{data: make([]byte, 64<<20+1)}
	for at := range 1 << 14 {
		big.middles = append(big.middles, at*samplePage+1)
	}
	for n, want := range map[int]int{0: 2, 2: 2, 100: 100, 1 << 20: 1<<14 + 1} {
		got := sampleOffsets(big, n)
		distinct := slices.IsSorted(got) && len(slices.Compact(slices.Clone(got))) == want
		if len(got) != want || got[0] != 0 || got[len(got)-1] != 64<<20 || !distinct {
			t.Errorf("with at most %d there are %d pages, wants %d", n, len(got), want)
		}
	}
	if w := (&Checkpoint{files: []*file{{data: []byte{1}}}}).Watch(); w != nil {
		t.Error("a copy is watched")
	}
}

// BenchmarkFirstSums measures the time to record the sums of 1 GiB in 300 tensors. All
// pages are in the page cache, as after the loading of a model.
func BenchmarkFirstSums(b *testing.B) {
	const tensors, bytes = 300, 1 << 30 / 300 &^ 1
	dir, header := b.TempDir(), pack(equalTensors(tensors, bytes), 0)
	path := filepath.Join(dir, singleName)
	err := errors.Join(os.WriteFile(path, header, 0o600), os.Truncate(path, int64(len(header)+tensors*bytes)))
	if err != nil {
		b.Fatal(err)
	}
	c, err := Open(files.Dir(dir))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.Watch().Verify(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := c.Watch().Verify(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(c.Watch().files[0].offsets)), "pages")
}
