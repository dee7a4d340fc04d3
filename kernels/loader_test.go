package kernels

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/kernels/device"
)

// packedWhole returns a weight packed by one op, and the same weight loaded in parts.
func packedWhole(t *testing.T, dtype DType, rows, cols int) (whole, parts []uint16) {
	t.Helper()
	// Slower than reading, so that a loader that does not wait overwrites a part too early.
	h := device.NewHost(device.HostOptions{Delay: func() time.Duration { return 20 * time.Millisecond }})
	defer h.Close()
	data := make([]byte, int64(rows)*dtype.Bytes(int64(cols)))
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	src, err := h.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	p := Pack{Src: src, DType: dtype, Rows: rows, Cols: cols}
	if p.Dst, err = h.Alloc(PackedBytes(dtype, rows, cols)); err != nil {
		t.Fatal(err)
	}
	p.Host(h)
	l := newPacker(h, 2, 3)
	// with parts that may be too small for the next weight
	if _, err := l.Weight(BF16, 16, 16, make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	w, err := l.Weight(dtype, rows, cols, data)
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	if err := w.check("loaded", rows, cols); err != nil {
		t.Error(err)
	}
	return slices.Clone(h.Uint16(p.Dst)), slices.Clone(h.Uint16(w.Data))
}

// A weight that is loaded in parts equals one that a single op packs.
func TestLoaderPacksInParts(t *testing.T) {
	for _, c := range []struct {
		dtype      DType
		rows, cols int
	}{{BF16, 17, 32}, {F16, 1, 16}, {BF16, 4117, 2064}, {F32, 2100, 1040}, {F32, 33, 1 << 17}, {Q4_0, 5, 32},
		{Q8_0, 960, 4128}, {Q6_K, 40, 512}} {
		whole, parts := packedWhole(t, c.dtype, c.rows, c.cols)
		if !slices.Equal(whole, parts) {
			t.Errorf("[%d][%d]: the weight loaded in parts differs", c.rows, c.cols)
		}
	}
}

// After a failure at any call nothing stays allocated.
func TestLoaderGivesBack(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	before := h.Live()
	const rows, cols = 48, 16
	load := func() (Weight, error) {
		l := newPacker(h, 2, 3)
		w, err := l.Weight(BF16, rows, cols, make([]byte, 2*rows*cols))
		return w, errors.Join(err, l.Close())
	}
	h.Faults().FailAt(0, false)
	w, err := load()
	calls := h.Faults().Calls()
	if err = errors.Join(err, h.Free(w.Data)); err != nil || h.Live() != before {
		t.Fatalf("%v, %+v are allocated", err, h.Live())
	}
	for n := range calls {
		h.Faults().FailAt(n+1, false)
		w, err := load()
		h.Faults().FailAt(0, false)
		if !w.Data.IsZero() { // the failure came after the weight was loaded
			err = errors.Join(err, h.Free(w.Data))
		}
		if err == nil || h.Live() != before {
			t.Errorf("failure at call %d: %v, %+v are allocated", n+1, err, h.Live())
		}
	}
}

// A file that is truncated while it is read is an error.
func TestLoaderMeetsAShrunkenFile(t *testing.T) {
	const rows, cols = 1024, 128
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, 2*rows*cols), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, 2*rows*cols, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	l := newPacker(h, 2, 3)
	w, err := l.Weight(BF16, rows, cols, data)
	if err = errors.Join(err, l.Close()); !w.Data.IsZero() { // it was read after Weight returned
		err = errors.Join(err, h.Free(w.Data))
	}
	if !errors.Is(err, device.ErrUnreadable) || h.Live().Buffers != 0 {
		t.Errorf("%v, wants %v; %+v are allocated", err, device.ErrUnreadable, h.Live())
	}
}

// A failure after Weight returned makes a later Weight fail.
func TestLoaderStopsAfterAFailure(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	l := newPacker(h, 1, 2)
	l.fail(device.ErrUnreadable)
	if _, err := l.Weight(BF16, 16, 16, make([]byte, 512)); !errors.Is(err, device.ErrUnreadable) ||
		h.Live().Buffers != 0 {
		t.Errorf("got %v; %+v are allocated", err, h.Live())
	}
}

// Close waits for parts that are still being read.
func TestLoaderCloseWaits(t *testing.T) {
	const rows, cols = 1024, 2048 // one part
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	data := bytes.Repeat([]byte{1}, 2*rows*cols)
	for range 5 {
		l := newPacker(h, 1, 1)
		w, err := l.Weight(BF16, rows, cols, data)
		if err = errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(h.Bytes(w.Data), data) {
			t.Fatal("Close returned before the weight was loaded")
		}
	}
}

func TestUploadRefusesSizes(t *testing.T) {
	g := newRig(t, 1, 8)
	b, _ := g.random(16)
	for _, op := range []Upload{{Src: b, Dst: b.Slice(0, 16)}, {Src: b.Slice(0, 8), Dst: b.Slice(0, 8)}, {}} {
		if err := g.stream.Launch(op); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%d to %d bytes: %v, wants ErrBadShape", op.Src.Bytes(), op.Dst.Bytes(), err)
		}
	}
}

// A weight's memory is there before a row of it has been read, however large it is. Read counts the elements.
func TestLoaderReadsBehindWeight(t *testing.T) {
	const rows, cols, weights = 5000, 2048, 3 // five parts each
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	begin := make(chan struct{})
	var read atomic.Int64
	l := newPacker(h, 2, 3)
	l.Read = func(elements int64) { read.Add(elements) }
	for i := range weights {
		w, err := l.Convert(BF16, rows, cols, func(dst []byte, _ int) error {
			<-begin
			for j := range dst {
				dst[j] = byte(i + 1)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if first := h.Bytes(w.Data)[0]; first != 0 || read.Load() != 0 {
			t.Fatalf("weight %d begins with %d, and %d elements are read, before anything was", i, first, read.Load())
		}
		defer func() {
			if first := h.Bytes(w.Data)[0]; first != byte(i+1) {
				t.Errorf("weight %d begins with %d after Close", i, first)
			}
		}()
	}
	l.Start()
	close(begin)
	if err := l.Close(); err != nil || read.Load() != weights*rows*cols {
		t.Errorf("%v, %d elements are read, want %d", err, read.Load(), weights*rows*cols)
	}
}

// Cancel ends the reading after the parts that are under way, and Close says why.
func TestLoaderIsCancelled(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	const readers = 2
	under, goOn := make(chan struct{}), make(chan struct{})
	var parts atomic.Int64
	l := newPacker(h, readers, readers+1)
	w, err := l.Convert(BF16, 20_000, 2048, func([]byte, int) error {
		parts.Add(1)
		under <- struct{}{}
		<-goOn
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	for range readers {
		<-under
	}
	reason := errors.New("not wanted any more")
	l.Cancel(reason)
	close(goOn)
	if err := l.Close(); !errors.Is(err, reason) || parts.Load() != readers {
		t.Errorf("%v after %d parts, want %v after %d", err, parts.Load(), reason, readers)
	}
	if err := h.Free(w.Data); err != nil || h.Live().Buffers != 0 {
		t.Errorf("%v, %+v are allocated", err, h.Live())
	}
}
