package device

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// appendOp appends its value to a list in host memory: an int32 count, then the values.
type appendOp struct {
	List  Buffer
	Value int32
}

func (appendOp) Kernel() string { return "append" }
func (appendOp) Check() error   { return nil }
func (o appendOp) Host(h *Host) {
	l := h.Int32(o.List)
	l[0]++
	l[l[0]] = o.Value
}

// rig is a device with a list and a stream.
type rig struct {
	t    *testing.T
	h    *Host
	s    Stream
	list Buffer
}

func newRig(t *testing.T, o HostOptions) *rig {
	t.Helper()
	runtime.LockOSThread() // a capture ends on the thread that began it
	t.Cleanup(runtime.UnlockOSThread)
	h := NewHost(o)
	r := &rig{t: t, h: h}
	var err error
	if r.s, err = h.NewStream(); err != nil {
		t.Fatal(err)
	}
	if r.list, err = h.Alloc(4 * 1024); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Faults().FailAt(0, false)
		_ = r.s.Destroy()
		h.Close()
	})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// values waits for the stream and returns the values in the list.
func (r *rig) values() []int32 {
	r.t.Helper()
	r.must(r.s.Synchronize())
	l := r.h.Int32(r.list)
	return slices.Clone(l[1 : 1+l[0]])
}

// capture records one append for each value.
func (r *rig) capture(values ...int32) Graph {
	r.t.Helper()
	r.must(r.s.BeginCapture())
	for _, v := range values {
		r.must(r.s.Launch(appendOp{r.list, v}))
	}
	g, err := r.s.EndCapture()
	r.must(err)
	return g
}

func TestCaptureRecordsAndReplayRuns(t *testing.T) {
	r := newRig(t, HostOptions{GraphBytes: 100})
	g := r.capture(1, 2, 3)
	if got := r.values(); len(got) != 0 || g.Nodes() != 3 {
		t.Fatalf("%d nodes; a capture ran %v", g.Nodes(), got)
	}
	x, err := g.Instantiate()
	r.must(err)
	r.must(g.Destroy())
	r.must(r.s.Upload(x))
	r.must(r.s.Replay(x))
	r.must(r.s.Launch(appendOp{r.list, 9}))
	r.must(r.s.Replay(x))
	if got := r.values(); !slices.Equal(got, []int32{1, 2, 3, 9, 1, 2, 3}) {
		t.Errorf("ran %v", got)
	}
	r.must(x.Destroy())
	if l := r.h.Live(); l.Graphs != 0 || l.Execs != 0 || l.Bytes != r.list.Bytes() {
		t.Errorf("left over: %+v", l)
	}
	if err := r.s.Replay(x); !errors.Is(err, ErrDestroyed) {
		t.Errorf("replay of a destroyed graph: %v", err)
	}
}

// A change of the op's struct after the capture changes nothing in a replay.
func TestCaptureCopiesItsArguments(t *testing.T) {
	r := newRig(t, HostOptions{})
	op := appendOp{r.list, 5}
	r.must(r.s.BeginCapture())
	r.must(r.s.Launch(op))
	op.Value = 6
	g, err := r.s.EndCapture()
	r.must(err)
	x, err := g.Instantiate()
	r.must(err)
	r.must(r.s.Replay(x))
	if got := r.values(); !slices.Equal(got, []int32{5}) {
		t.Errorf("replayed %v, wants 5", got)
	}
}

func TestCapturesThatFail(t *testing.T) {
	r := newRig(t, HostOptions{})
	r.must(r.s.BeginCapture())
	if _, err := r.s.EndCapture(); !errors.Is(err, ErrEmptyCapture) {
		t.Errorf("empty capture: %v", err)
	}
	if _, err := r.s.EndCapture(); !errors.Is(err, ErrCapture) {
		t.Errorf("second end: %v", err)
	}
	for name, spoil := range map[string]func(){
		"device-wide synchronise elsewhere": func() {
			var elsewhere sync.WaitGroup
			elsewhere.Go(func() { _ = r.h.Synchronize() })
			elsewhere.Wait()
		},
		"stream synchronise": func() {
			if err := r.s.Synchronize(); !errors.Is(err, ErrCapture) {
				t.Errorf("synchronise in a capture: %v", err)
			}
		},
	} {
		r.must(r.s.BeginCapture())
		r.must(r.s.Launch(appendOp{r.list, 1}))
		spoil()
		if _, err := r.s.EndCapture(); !errors.Is(err, ErrInvalidated) {
			t.Errorf("%s: %v, wants ErrInvalidated", name, err)
		}
	}
	r.capture(1) // the stream captures again
	if got := r.values(); len(got) != 0 {
		t.Errorf("captures ran %v", got)
	}
}

// EndCapture on another thread fails, and the capture is over.
func TestCaptureEndsOnItsThread(t *testing.T) {
	r := newRig(t, HostOptions{})
	r.must(r.s.BeginCapture())
	r.must(r.s.Launch(appendOp{r.list, 1}))
	var elsewhere sync.WaitGroup
	elsewhere.Go(func() {
		if _, err := r.s.EndCapture(); !errors.Is(err, ErrCapture) {
			t.Errorf("ended on another thread: %v, wants ErrCapture", err)
		}
	})
	elsewhere.Wait()
	r.capture(1)
}

func TestDestroyRefusesAPendingReplay(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, HostOptions{Delay: func() time.Duration {
		<-gate
		return 0
	}})
	g := r.capture(1)
	x, err := g.Instantiate()
	r.must(err)
	r.must(r.s.Replay(x))
	if err := x.Destroy(); !errors.Is(err, ErrDestroyed) {
		t.Errorf("destroy with a replay pending: %v", err)
	}
	close(gate)
	r.values()
	r.must(x.Destroy())
}

func TestExecsCountAgainstTheLimit(t *testing.T) {
	r := newRig(t, HostOptions{GraphBytes: 1000, Limit: 4*1024 + 1500})
	g := r.capture(1)
	x, err := g.Instantiate()
	r.must(err)
	if _, err := g.Instantiate(); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("second exec: %v, wants ErrOutOfMemory", err)
	}
	r.must(x.Destroy())
	_, err = g.Instantiate()
	r.must(err)
}

// Events order the work of two streams with random delays.
func TestEventsOrderStreams(t *testing.T) {
	r := newRig(t, HostOptions{Delay: func() time.Duration { return time.Duration(rand.IntN(100)) * time.Microsecond }})
	other, err := r.h.NewStream()
	r.must(err)
	defer other.Destroy()
	e, err := r.h.NewEvent()
	r.must(err)
	var want []int32
	for i := range int32(40) {
		from, to := r.s, other
		if i%2 == 1 {
			from, to = other, r.s
		}
		r.must(from.Launch(appendOp{r.list, i}))
		r.must(from.Record(e))
		r.must(to.Wait(e))
		want = append(want, i)
	}
	r.must(e.Synchronize())
	if done, err := e.Done(); !done || err != nil {
		t.Errorf("after its synchronise the event is %v, %v", done, err)
	}
	if got := r.values(); !slices.Equal(got, want) {
		t.Errorf("ran %v", got)
	}
}

func TestFailureAtTheNthCall(t *testing.T) {
	r := newRig(t, HostOptions{})
	r.h.Faults().FailAt(2, false)
	r.must(r.s.Launch(appendOp{r.list, 1}))
	if err := r.s.Launch(appendOp{r.list, 2}); err == nil {
		t.Fatal("the second call did not fail")
	}
	r.must(r.s.Launch(appendOp{r.list, 3}))
	r.h.Faults().FailAt(1, true)
	for range 2 {
		if err := r.s.Launch(appendOp{r.list, 4}); !errors.Is(err, ErrSticky) {
			t.Fatalf("after a sticky failure: %v", err)
		}
	}
	r.h.Faults().FailAt(0, false)
	if got := r.values(); !slices.Equal(got, []int32{1, 3}) {
		t.Errorf("ran %v, wants the launches that did not fail", got)
	}
}

// A trace sees the calls in order.
func TestTraceSeesCalls(t *testing.T) {
	r := newRig(t, HostOptions{})
	var kinds []CallKind
	r.h.Trace(func(c Call) { kinds = append(kinds, c.Kind) })
	_, m, err := r.h.Pinned(8)
	r.must(err)
	r.must(r.s.Launch(appendOp{r.list, 1}))
	m.Bytes()
	r.must(r.s.Synchronize())
	r.h.Trace(nil)
	m.Bytes()
	if want := []CallKind{CallAlloc, CallLaunch, CallHostRead, CallSynchronize}; !slices.Equal(kinds, want) {
		t.Errorf("saw %v, wants %v", kinds, want)
	}
}
