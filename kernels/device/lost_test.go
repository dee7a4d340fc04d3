package device

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// sum reads all of In on several processors.
type sum struct{ In Buffer }

func (sum) Kernel() string { return "sum" }
func (sum) Check() error   { return nil }
func (o sum) Host(h *Host) {
	x := h.Bytes(o.In)
	h.For(len(x), parallelWork, func(begin, end int) {
		var s byte
		for _, b := range x[begin:end] {
			s += b
		}
		sink.Store(int64(s))
	})
}

var sink atomic.Int64

// If the file of the weights is truncated while they are served, the device is lost with
// an error and the process survives.
func TestShrunkenFileLosesTheDevice(t *testing.T) {
	for _, workers := range []int{1, 4} {
		path := filepath.Join(t.TempDir(), "weights")
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		h := NewHost(HostOptions{Workers: workers})
		b, err := h.Load(data)
		if err != nil {
			t.Fatal(err)
		}
		s, err := h.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Launch(sum{b}), s.Synchronize()); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 4096); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Launch(sum{b}), s.Synchronize()); err != nil && !errors.Is(err, ErrSticky) {
			t.Fatal(err)
		}
		if err := s.Launch(sum{b}); !errors.Is(err, ErrSticky) {
			t.Errorf("%d workers: %v, wants %v", workers, err, ErrSticky)
		}
		_ = s.Destroy()
		h.Close()
		if err := unix.Munmap(data); err != nil {
			t.Fatal(err)
		}
	}
}
