package device

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestAllocAndFreeKeepCount(t *testing.T) {
	h := NewHost(HostOptions{Limit: 1000})
	defer h.Close()
	a, err := h.Alloc(600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Alloc(600); !errors.Is(err, ErrOutOfMemory) {
		t.Fatalf("beyond the limit: %v, wants ErrOutOfMemory", err)
	}
	if err := h.Free(a.Slice(0, 100)); !errors.Is(err, ErrBadBuffer) {
		t.Fatalf("free of a part: %v, wants ErrBadBuffer", err)
	}
	if err := h.Free(a); err != nil {
		t.Fatal(err)
	}
	if err := h.Free(a); !errors.Is(err, ErrBadBuffer) {
		t.Fatalf("second free: %v, wants ErrBadBuffer", err)
	}
	if h.Live() != (Live{}) {
		t.Fatalf("%+v live after all was freed", h.Live())
	}
}

func TestSliceStaysInside(t *testing.T) {
	b := Buffer{id: 1, bytes: 10}
	for _, c := range [][2]int64{{-1, 2}, {0, 11}, {9, 2}, {3, -1}} {
		if s := b.Slice(c[0], c[1]); !s.IsZero() {
			t.Errorf("Slice(%d, %d) of 10 bytes gave %+v", c[0], c[1], s)
		}
	}
	if s := b.Slice(2, 8); s.Bytes() != 8 || s.IsZero() {
		t.Errorf("Slice(2, 8) of 10 bytes gave %+v", s)
	}
}

func TestLoadKeepsAlignedDataAndCopiesOther(t *testing.T) {
	h := NewHost(HostOptions{})
	defer h.Close()
	words := make([]uint32, 4)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 16)
	aligned, _ := h.Load(raw[4:])
	shifted, _ := h.Load(raw[1:9])
	raw[5] = 7
	if h.Bytes(aligned)[1] != 7 {
		t.Error("aligned data was copied")
	}
	if h.Bytes(shifted)[4] != 0 {
		t.Error("data off alignment was kept in place")
	}
}

func TestForCoversEachIndexOnce(t *testing.T) {
	h := NewHost(HostOptions{Workers: 4})
	defer h.Close()
	for _, n := range []int{0, 1, 2, 63, 1000} {
		for _, work := range []int{0, parallelWork} {
			seen := make([]atomic.Int32, n)
			h.For(n, work, func(begin, end int) {
				for i := begin; i < end; i++ {
					seen[i].Add(1)
				}
			})
			for i := range seen {
				if got := seen[i].Load(); got != 1 {
					t.Fatalf("n=%d work=%d: index %d was visited %d times", n, work, i, got)
				}
			}
		}
	}
}

type badOp struct{ ran *bool }

func (badOp) Kernel() string { return "bad" }
func (badOp) Check() error   { return ErrBadShape }
func (o badOp) Host(*Host)   { *o.ran = true }

func TestLaunchChecksBeforeItRuns(t *testing.T) {
	h := NewHost(HostOptions{})
	defer h.Close()
	s, _ := h.NewStream()
	ran := false
	if err := s.Launch(badOp{&ran}); !errors.Is(err, ErrBadShape) || ran {
		t.Fatalf("error %v, ran %v; wants ErrBadShape and no run", err, ran)
	}
}

// A loop that has ended lets nobody in, and waits for those inside.
func TestLoopWaitsForThoseInside(t *testing.T) {
	p := &parallelLoop{}
	p.last.Add(1)
	for range 2 {
		if !p.enter() {
			t.Fatal("a running loop lets nobody in")
		}
	}
	p.leave()
	over := make(chan struct{})
	go func() {
		p.end()
		close(over)
	}()
	for p.inside.Load() >= 0 {
		runtime.Gosched()
	}
	if p.enter() {
		t.Error("a loop that has ended lets a worker in")
	}
	select {
	case <-over:
		t.Error("the loop did not wait for a worker inside")
	default:
	}
	p.leave()
	<-over
	none := &parallelLoop{}
	none.last.Add(1)
	none.end() // at once: nobody is inside
}

// Loops one after another, some from several goroutines, see each index once whether workers sleep or linger.
func TestLoopsInARow(t *testing.T) {
	h := NewHost(HostOptions{Workers: 4})
	defer h.Close()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for n := range 300 {
				var sum atomic.Int64
				h.For(n, parallelWork, func(begin, end int) { sum.Add(int64(end - begin)) })
				if sum.Load() != int64(n) {
					t.Errorf("%d indices of %d", sum.Load(), n)
				}
			}
		})
	}
	all.Wait()
}
