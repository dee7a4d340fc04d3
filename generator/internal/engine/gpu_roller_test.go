//go:build cuda

package engine

import (
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// More than a thousand graphs exist at once. Other systems are reported to break after about 150.
func TestGPUPassesTheCeilingOf150Graphs(t *testing.T) {
	o := longPrompts()
	o.MaxGraphs, o.Precapture = 2000, nil
	for n := range o.Chunk {
		o.Precapture = append(o.Precapture, n+1)
	}
	e := builtOn(t, openGPU(t), o)
	g := e.Stats().Graphs
	t.Logf("%d graphs of the micro model live at once, %.2f ms each, %d bytes each; %.2f s",
		g.Live, g.CaptureMedianMS, g.GraphBytes, g.CaptureS)
	if g.Live < 1100 {
		t.Errorf("%d graphs live, wants 1,100: %s", g.Live, g.Failure)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// longPrompts returns options with a prefill shape for each count up to 1,100.
func longPrompts() Options {
	o := defaults()
	o.Chunk, o.Context, o.Pages, o.MaxBatch = 1100, 2048, 1024, 4
	return o
}

// Ten thousand graphs pass through a pool of 128 while requests run, and more than a thousand captures fail in
// between. Neither the device's memory nor the host's grows after the thousandth graph, and the requests get the
// same tokens each time.
func TestGPURollsTenThousandGraphs(t *testing.T) {
	o := longPrompts()
	o.MaxGraphs, o.Precapture = 128, []int{}
	o.Draft, o.DraftTokens = DraftLookup, MaxDrafts
	o.planDrafts = randomPlan(1, MaxDrafts) // verify steps are among the shapes
	d := &failing{Device: openGPU(t), every: 8}
	b := &testEngine{Engine: builtOn(t, d, o), t: t, ended: make(chan error, 1)}
	d.started = true
	b.run()
	stop, others := make(chan struct{}), make(chan int)
	for range 2 {
		go func() { others <- b.repeat(stop) }()
	}
	b.sweep(o.Chunk, 1000)
	memory, rss := used(t, d.Device), resident(t)
	b.sweep(o.Chunk, 10_000)
	grown, residentGrown := used(t, d.Device)-memory, resident(t)-rss
	close(stop)
	repeated := <-others + <-others
	s := b.Stats()
	t.Logf("device memory grew by %d bytes, resident memory by %d, between the 1,000th graph and the %d-th; "+
		"%d captures failed, the last: %s",
		grown, residentGrown, s.Graphs.Rolled, s.Graphs.Failed, s.Graphs.Failure)
	t.Logf("%d steps, %d requests beside; %+v", s.Steps.Prefill+s.Steps.Decode, repeated, s.Graphs)
	if grown > 0 || residentGrown > 8<<20 {
		t.Errorf("device memory grew by %d bytes, resident memory by %d", grown, residentGrown)
	}
	if s.Graphs.Failed < 1000 || s.Graphs.Live > 128 || s.Graphs.Bytes > s.Graphs.Budget {
		t.Errorf("wants 1,000 failures, and at most 128 graphs within the budget: %+v", s.Graphs)
	}
	b.Stop()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
}

// sweep sends prompts of 1 to longest tokens, in this order and over again, each often enough to be captured, until
// this number of graphs were captured. In this order a live graph seldom covers the next shape: most are shorter.
func (b *testEngine) sweep(longest int, graphs uint64) {
	b.t.Helper()
	rolled, since := uint64(0), time.Now()
	for n := 0; ; n++ {
		for range missesToCapture {
			q := Request{Tokens: make([]int32, 1+n%longest), MaxTokens: 1, Cache: CacheOff} // of which none is found
			if s := b.complete(q); s.finish.Err != nil {
				b.t.Fatal(s.finish.Err)
			}
		}
		g := b.Stats().Graphs
		switch {
		case g.Rolled >= graphs:
			return
		case g.Rolled > rolled:
			rolled, since = g.Rolled, time.Now()
		case time.Since(since) > 30*time.Second:
			b.t.Fatalf("no graph was captured for 30 s: %+v", g)
		}
	}
}

// missesToCapture is more than the misses that a capture needs, since counts may be halved in between.
const missesToCapture = 3

// repeat sends one request until stop is closed, checks that its tokens are the same each time, and returns the
// number of times.
func (b *testEngine) repeat(stop <-chan struct{}) (n int) {
	var first []Token
	for ; ; n++ {
		select {
		case <-stop:
			return n
		default:
		}
		s := b.complete(Request{Tokens: []int32{5, 6, 7}, MaxTokens: 200, Sampling: sampled(3), DraftTokens: MaxDrafts})
		if first == nil {
			first = s.tokens
		}
		if s.finish.Err != nil || !slices.EqualFunc(s.tokens, first, sameToken) {
			b.t.Errorf("request %d: %v, %d tokens that differ from the first's", n, s.finish.Err, len(s.tokens))
		}
	}
}

// failing is a device on which each every-th capture of the roller fails. The cause is, in rotation, a synchronise
// during the capture, a launch, or the upload.
type failing struct {
	*gpu.Device
	every   int
	started bool // the engine has made its streams
}

func (d *failing) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	if d.started && err == nil {
		s = &failingStream{Stream: s, every: d.every}
	}
	return s, err
}

type failingStream struct {
	device.Stream
	every    int
	captures atomic.Int64
}

// errForced is the error of a failing stream, unless the driver returns its own.
var errForced = errors.New("forced")

// fails reports whether the current capture fails, and how: 0 to 2, as in failing.
func (s *failingStream) fails() (how int, ok bool) {
	n := int(s.captures.Load())
	return n / s.every % 3, n%s.every == 0
}

func (s *failingStream) BeginCapture() error {
	s.captures.Add(1)
	return s.Stream.BeginCapture()
}

func (s *failingStream) Launch(op device.Op) error {
	if how, ok := s.fails(); ok && how == 1 {
		return errForced
	}
	return s.Stream.Launch(op)
}

func (s *failingStream) EndCapture() (device.Graph, error) {
	if how, ok := s.fails(); ok && how == 0 {
		_ = s.Synchronize() // the driver refuses it, and the capture is lost
	}
	return s.Stream.EndCapture()
}

func (s *failingStream) Upload(x device.Exec) error {
	if how, ok := s.fails(); ok && how == 2 {
		return errForced
	}
	return s.Stream.Upload(x)
}

// used returns the bytes of the GPU's memory that are in use.
func used(t *testing.T, d *gpu.Device) int64 {
	t.Helper()
	free, total, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	return total - free
}

// resident returns this process's resident memory in bytes, after Go has returned its free memory.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
