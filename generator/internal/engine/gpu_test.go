//go:build cuda

package engine

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"reel/generator/internal/model"
	"reel/graphs"
	"reel/kernels"
	"reel/kernels/cuda"
	"reel/kernels/device"
	gpu "reel/kernels/device/cuda"
)

// onGPU makes an engine for the micro model on the first GPU.
func onGPU(t *testing.T, o Options) (*gpu.Device, *Engine) {
	t.Helper()
	d, err := gpu.New(0, cuda.Fatbin)
	if err != nil {
		t.Fatal(err)
	}
	c := microConfig()
	c.HeadDim, c.Context = 32, max(2048, o.Context)
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	o.KVType = kernels.BF16
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, e
}

func runOnGPU(t *testing.T, o Options) *bench {
	t.Helper()
	_, e := onGPU(t, o)
	b := &bench{Engine: e, t: t, ended: make(chan error, 1)}
	go func() { b.ended <- e.Run() }()
	t.Cleanup(func() {
		e.Stop()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// Alone, beside 31 others, padded, eagerly and while the roller works: the same
// tokens and log-probabilities, bit for bit.
func TestGPUGivesTheSameTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	request := Request{Tokens: tokens(r, 77), MaxTokens: 60, Sampling: sampled(7)}
	var want []Token
	for name, change := range map[string]func(*Options){
		"exact":  func(*Options) {},
		"padded": func(o *Options) { o.Precapture, o.MaxGraphs = []int{32}, 12 },
		"eager":  func(o *Options) { o.MaxGraphs = 0 },
		"rolled": func(o *Options) { o.Precapture, o.MaxGraphs = []int{}, 40 },
		"chunks": func(o *Options) { o.Chunk = 20 },
	} {
		o := defaults()
		change(&o)
		b := runOnGPU(t, o)
		alone := b.complete(request)
		beside := b.besideOthers(r, request)
		if want == nil {
			want = alone.tokens
		}
		for how, got := range map[string][]Token{"alone": alone.tokens, "beside others": beside.tokens} {
			if !slices.EqualFunc(got, want, sameToken) {
				t.Errorf("%s, %s: %d tokens that differ from the first run's %d", name, how, len(got), len(want))
			}
		}
	}
}

// Every graph of the lattice: the pass is ready, replays equal the eager run.
func TestGPUReplayEqualsEager(t *testing.T) {
	o := defaults()
	o.Pages = 64
	_, e := onGPU(t, o)
	err := e.Check(func(c Checked, err error) {
		if err != nil {
			t.Errorf("%s: %v", c.Report.Key, err)
		}
	})
	if err := errors.Join(err, e.Close()); err != nil {
		t.Fatal(err)
	}
}

// resident is this process's memory in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
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

// The documents' systems broke after about 150 graphs. Here more than a thousand
// live at once, and ten thousand go through a pool of 128 while the device's
// memory does not grow between the thousandth and the last.
func TestGPUPassesTheCeilingOf150Graphs(t *testing.T) {
	o := defaults()
	o.Chunk, o.Context, o.MaxGraphs = 1100, 2048, 2000
	o.Pages = 512
	o.Precapture = nil
	for n := range 1100 {
		o.Precapture = append(o.Precapture, n+1)
	}
	_, e := onGPU(t, o)
	if live := e.pool.Stats().Live; live < 1100 {
		t.Errorf("%d graphs live, wants 1,100: %s", live, e.pool.Stats().Failure)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestGPURollsTenThousandGraphs(t *testing.T) {
	o := defaults()
	o.Chunk, o.MaxGraphs, o.Precapture = 512, 128, []int{}
	d, e := onGPU(t, o)
	wake := make(chan struct{}, 1)
	pool := graphs.NewPool(graphs.Options{Pass: e.pass, Identity: e.identity(), MaxGraphs: 128, Budget: 1 << 30, Estimate: 1 << 20, Wake: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	roller, ended := graphs.NewRoller(pool, d), make(chan error, 1)
	go func() { ended <- roller.Run() }()
	var memory, rss int64
	for n := range uint64(10000) {
		if n == 1000 {
			memory, rss = used(t, d), resident(t)
		}
		rollOne(t, e, pool, graphs.Prefill(1+int(n%512)), n, wake)
	}
	grown, residentGrown := used(t, d)-memory, resident(t)-rss
	t.Logf("device memory grew by %d bytes, resident memory by %d, between the 1,000th graph and the 10,000th", grown, residentGrown)
	if grown > 0 || residentGrown > 8<<20 {
		t.Errorf("device memory grew by %d bytes, resident memory by %d", grown, residentGrown)
	}
	roller.Stop()
	if err := errors.Join(<-ended, e.stream.Synchronize(), pool.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
}

func used(t *testing.T, d *gpu.Device) int64 {
	t.Helper()
	free, total, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	return total - free
}

// rollOne misses k until the roller has captured it: the n-th graph.
func rollOne(t *testing.T, e *Engine, pool *graphs.Pool, k graphs.Key, n uint64, wake chan struct{}) {
	t.Helper()
	for range 4 {
		e.next++
		if err := pool.Launch(e.stream, pool.Acquire(k), e.next); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.stream.Synchronize(); err != nil {
		t.Fatal(err)
	}
	for s := pool.Stats(); s.Rolled == n; s = pool.Stats() {
		if s.Failed > 0 {
			t.Fatal(s.Failure)
		}
		select {
		case <-wake:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s, the %d-th graph, does not come: %+v", k, n, pool.Stats())
		}
		pool.Tend(e.next, false)
	}
}

// A device-wide synchronise on another thread loses a capture, which is ended,
// counted and tried again; the engine's own calls do not disturb it.
func TestGPUDeviceWideSynchroniseLosesACapture(t *testing.T) {
	d, e := onGPU(t, defaults())
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(call func() error) error {
		if err := s.BeginCapture(); err != nil {
			t.Fatal(err)
		}
		launched := e.pass(s, graphs.Decode(1))
		done := make(chan error)
		go func() { done <- call() }()
		<-done // may fail: that is the other thread's affair
		g, err := s.EndCapture()
		if g != nil {
			err = errors.Join(err, g.Destroy())
		}
		return errors.Join(launched, err)
	}
	if err := spoil(d.Synchronize); !errors.Is(err, device.ErrInvalidated) {
		t.Errorf("with a device-wide synchronise: %v, wants ErrInvalidated", err)
	}
	if err := spoil(e.stream.Synchronize); err != nil {
		t.Errorf("with a synchronise of another stream: %v", err)
	}
	if err := errors.Join(s.Destroy(), e.Close()); err != nil {
		t.Fatal(err)
	}
}

// A capture that records nothing is refused.
func TestGPUEmptyCapture(t *testing.T) {
	d, e := onGPU(t, defaults())
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EndCapture(); !errors.Is(err, device.ErrEmptyCapture) {
		t.Errorf("%v, wants ErrEmptyCapture", err)
	}
	if err := errors.Join(s.Destroy(), e.Close()); err != nil {
		t.Fatal(err)
	}
}
