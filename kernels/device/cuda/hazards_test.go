//go:build cuda

package cuda

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda/calls"
)

// These tests compare this package's guards with the behaviour of the bare driver.

// open opens GPU 0 until the test ends.
func open(t *testing.T) *Device {
	t.Helper()
	d, err := New(0, cuda.Kernels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unreadable are images of which one cannot be read.
type unreadable struct {
	Images
	image string
	err   error
}

func (u unreadable) Read(image string) ([]byte, error) {
	if image == u.image {
		return nil, u.err
	}
	return u.Images.Read(image)
}

// A kernel that no image has, or whose image cannot be read, gives an error with the cause when it is asked for. The
// device goes on.
func TestKernelsWithoutAnImage(t *testing.T) {
	cause := errors.New("planted")
	d, err := New(0, unreadable{cuda.Kernels, cuda.Kernels.Image("reel_pack_q4_k"), cause})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	if _, err := d.function("reel_pack_q4_k", Grid{}); !errors.Is(err, cause) || !strings.Contains(err.Error(), "reel_pack_q4_k") {
		t.Errorf("an image that cannot be read gives %v", err)
	}
	if _, err := d.function("reel_nothing", Grid{}); err == nil || !strings.Contains(err.Error(), "no image has the kernel reel_nothing") {
		t.Errorf("a kernel without an image gives %v", err)
	}
	if _, err := d.function("reel_pack_q8_0", Grid{}); err != nil {
		t.Errorf("and then %v", err)
	}
}

// newStream makes a stream of d, with the type of this package, until the test ends.
func newStream(t *testing.T, d *Device) *stream {
	t.Helper()
	s, err := d.NewStream()
	must(t, err)
	t.Cleanup(func() { must(t, s.Destroy()) })
	return s.(*stream)
}

// alloc allocates n words of device memory until the test ends.
func alloc(t *testing.T, d *Device, n int64) device.Buffer {
	t.Helper()
	b, err := d.Alloc(4 * n)
	must(t, err)
	t.Cleanup(func() { must(t, d.Free(b)) })
	return b
}

// fill sets each word of a buffer.
type fill struct {
	data   device.Buffer
	value  uint32
	shared int // bytes of dynamic shared memory, which it does not use
	all    bool
	atOnce int
}

func (fill) Kernel() string    { return "fill" }
func (fill) Check() error      { return nil }
func (fill) Host(*device.Host) {}

func (o fill) CUDA(q *Queue) error {
	return Launch(q, "reel_fill", Grid{Threads: 32, Shared: o.shared, AllShared: o.all, AtOnce: o.atOnce}, struct {
		data  uint64
		n     int64
		value uint32
		_     uint32
	}{data: q.Address(o.data), n: o.data.Bytes() / 4, value: o.value})
}

// words returns the content of a buffer.
func words(t *testing.T, d *Device, b device.Buffer) []uint32 {
	t.Helper()
	raw := make([]byte, b.Bytes())
	must(t, d.Read(raw, b))
	var all []uint32
	for chunk := range slices.Chunk(raw, 4) {
		all = append(all, binary.LittleEndian.Uint32(chunk))
	}
	return all
}

// captured captures the launches of launch on s and returns the graph, or the errors.
func captured(t *testing.T, s *stream, launch func() error) (*graph, error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(t, s.BeginCapture())
	launched := launch()
	g, err := s.EndCapture()
	if g == nil {
		return nil, errors.Join(launched, err)
	}
	t.Cleanup(func() { must(t, g.Destroy()) })
	return g.(*graph), errors.Join(launched, err)
}

// Memory is cleared before Alloc returns, so that later writes of a stream stay. The
// driver clears on the default stream, and 8 GiB take milliseconds.
func TestAllocatedMemoryIsReady(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	all, err := d.Alloc(8 << 30)
	must(t, err)
	end := all.Slice(8<<30-32, 32)
	must(t, errors.Join(s.Launch(fill{data: end, value: 9}), s.Synchronize(), d.Synchronize()))
	if got := words(t, d, end); got[0] != 9 || got[7] != 9 {
		t.Errorf("the words written after the allocation became %v, want 9", got)
	}
	must(t, d.Free(all))
}

// Threads launch a kernel with different amounts of shared memory. The driver has one bound for all of its launches, so
// a thread that lowered it would have others' launches fail, as CUDA_ERROR_INVALID_VALUE.
func TestLaunchesOfDifferentSharedMemory(t *testing.T) {
	d := open(t)
	ended := make(chan error)
	for _, shared := range []int{24 << 10, 40 << 10, 90 << 10} {
		s, data := newStream(t, d), alloc(t, d, 1)
		go func() {
			var err error
			for n := 0; n < 20_000 && err == nil; n++ {
				err = s.Launch(fill{data: data, value: 1, shared: shared})
			}
			ended <- errors.Join(err, s.Synchronize())
		}()
	}
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A kernel's attributes are set by the first launch that needs them, and by no later one.
func TestAttributesAreSetOnce(t *testing.T) {
	d := open(t)
	s, data := newStream(t, d), alloc(t, d, 1)
	if err := calls.Begin(); err != nil {
		t.Skip(err)
	}
	defer func() { must(t, calls.End()) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls.Watch()
	for _, o := range []fill{{}, {shared: 30 << 10}, {shared: 30 << 10}, {atOnce: 2, shared: 20 << 10},
		{atOnce: 1, shared: 20 << 10}, {atOnce: 2, shared: 20 << 10}, {all: true}, {all: true, shared: 20 << 10},
		{atOnce: 2, shared: 20 << 10}} {
		o.data = data
		must(t, s.Launch(o))
	}
	if own, _ := calls.Read(); own["cuFuncSetAttribute"] != 3 || own["cuFuncGetAttribute"] > 1 {
		t.Errorf("9 launches of a kernel set %d attributes, want 3", own["cuFuncSetAttribute"])
	}
	must(t, s.Synchronize())
}

// An empty capture is an error. The driver would silently instantiate and replay it, and
// steps would compute nothing.
func TestEmptyCapture(t *testing.T) {
	s := newStream(t, open(t))
	if g, err := captured(t, s, func() error { return nil }); g != nil || !errors.Is(err, device.ErrEmptyCapture) {
		t.Errorf("%v, %v, wants ErrEmptyCapture", g, err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(t, s.beginCapture())
	g, err := s.endCapture() // the guard is in EndCapture
	must(t, err)
	x, err := g.Instantiate()
	must(t, errors.Join(err, g.Destroy()))
	if err := errors.Join(s.Upload(x), s.Replay(x), s.Synchronize(), x.Destroy()); err != nil || g.nodes != 0 {
		t.Errorf("without the guard: %d nodes, %v", g.nodes, err)
	}
}

// Calls work on their device even if another context is current. Without that, memory
// comes from the current context and is freed with it.
func TestAnotherContextIsCurrent(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := open(t)
	s := newStream(t, d)
	other, err := New(0, cuda.Kernels)
	must(t, err)
	must(t, cu.SetCurrentContext(other.context))
	guarded := alloc(t, d, 8)
	must(t, cu.SetCurrentContext(other.context))
	address, err := cu.MemAlloc(32) // as Alloc without making its context current
	must(t, err)
	unguarded := d.register(allocation{address: uint64(address), bytes: 32})
	must(t, cu.SetCurrentContext(other.context))
	must(t, s.Launch(fill{data: guarded, value: 7}))
	must(t, cu.SetCurrentContext(other.context))
	must(t, s.Synchronize())
	must(t, other.Close())
	if got := words(t, d, guarded); got[0] != 7 || got[7] != 7 {
		t.Errorf("the launch filled %v", got)
	}
	raw := make([]byte, 32)
	err = d.Read(raw, unguarded)
	t.Logf("read of memory of a context that was destroyed: %v", err)
	if err == nil {
		t.Error("memory of another context outlives it")
	}
}

// A call that a capture forbids invalidates it; EndCapture still ends it, and the stream
// can capture again. The driver allows a read: it runs at once, and no replay repeats
// it. Only the readiness detector reports that.
func TestCallsThatACaptureForbids(t *testing.T) {
	d := open(t)
	s, b := newStream(t, d), alloc(t, d, 8)
	for name, call := range map[string]func() error{
		"synchronise of the stream": s.Synchronize,
		"device-wide synchronise":   d.Synchronize,
		"read of device memory": func() error {
			return d.Read(make([]byte, 32), b)
		},
		"allocation": func() error {
			b, err := d.Alloc(1 << 20)
			if err == nil {
				err = d.Free(b)
			}
			return err
		},
	} {
		g, err := captured(t, s, func() error {
			return errors.Join(s.Launch(fill{data: b, value: 1}), call(), s.Launch(fill{data: b, value: 2}))
		})
		t.Logf("%s in a capture: %v", name, err)
		switch {
		case name == "read of device memory" && (err != nil || g.nodes != 2):
			t.Errorf("%s in a capture: %v, wants two launches captured and the read ignored", name, err)
		case name != "read of device memory" && !errors.Is(err, device.ErrInvalidated):
			t.Errorf("%s in a capture: %v, wants ErrInvalidated", name, err)
		}
		if g, err := captured(t, s, func() error { return s.Launch(fill{data: b, value: 1}) }); err != nil || g.nodes != 1 {
			t.Errorf("after a %s in a capture the stream cannot capture: %v", name, err)
		}
	}
}

// A capture that is not ended blocks its stream.
func TestCaptureThatIsNotEnded(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := open(t)
	s, b := newStream(t, d), alloc(t, d, 8)
	must(t, s.BeginCapture())
	if err := s.Synchronize(); err == nil {
		t.Error("a stream that captures can be waited for")
	}
	if err := s.Launch(fill{data: b, value: 1}); err == nil {
		t.Error("a lost capture takes a launch")
	}
	if err := s.beginCapture(); err == nil {
		t.Error("the stream captures anew before the lost capture was ended")
	}
	if _, err := s.EndCapture(); !errors.Is(err, device.ErrInvalidated) {
		t.Errorf("its end: %v, wants ErrInvalidated", err)
	}
	must(t, errors.Join(s.Launch(fill{data: b, value: 3}), s.Synchronize()))
	if got := words(t, d, b); got[0] != 3 {
		t.Errorf("the stream filled %v", got)
	}
}

// A launch on the default stream during a capture is not in the graph. Our streams do not
// synchronise with the default stream, so the driver reports no error. On a stream that
// does, the capture is invalidated.
func TestDefaultStreamInACapture(t *testing.T) {
	d := open(t)
	s, b := newStream(t, d), alloc(t, d, 8)
	var seen []bool
	d.Trace(func(c device.Call) {
		if c.Kind == device.CallLaunch {
			seen = append(seen, c.Default)
		}
	})
	astray := d.DefaultStream()
	g, err := captured(t, s, func() error {
		return errors.Join(s.Launch(fill{data: b, value: 1}), astray.Launch(fill{data: b, value: 2}))
	})
	d.Trace(nil)
	must(t, errors.Join(err, astray.Synchronize()))
	if g.nodes != 1 || words(t, d, b)[0] != 2 {
		t.Errorf("%d nodes, and the buffer holds %v: the second launch must run at once", g.nodes, words(t, d, b))
	}
	if !slices.Equal(seen, []bool{false, true}) {
		t.Errorf("the launches are seen as %v, wants the second on the default stream", seen)
	}
	if err := d.DefaultStream().BeginCapture(); err == nil {
		t.Error("the default stream can be captured")
	}
	waits := &stream{d: d}
	waits.q.s = waits
	must(t, d.do(device.CallNew, "stream", func() (err error) {
		waits.s, err = cu.MakeStream(cu.DefaultStream)
		return err
	}))
	t.Cleanup(func() { must(t, waits.Destroy()) })
	_, err = captured(t, waits, func() error {
		return errors.Join(waits.Launch(fill{data: b, value: 1}), astray.Launch(fill{data: b, value: 2}))
	})
	if !errors.Is(err, device.ErrInvalidated) {
		t.Errorf("on a stream that waits for the default stream: %v, wants ErrInvalidated", err)
	}
}
