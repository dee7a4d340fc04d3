package engine

import (
	"runtime"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels/device"
)

// watcher is a sink that counts the objects that the engine's thread, on which its methods run, allocates between
// two tokens.
type watcher struct {
	from, to int   // token indices
	plant    bool  // allocate one object in between
	before   int64 // objects at from
	objects  int64 // allocated between from and to; -1 if that was not reached
	rate     int   // of the memory profile before from
	kept     *int
	ended    chan struct{}
	h        *device.Host
	trace    func(device.Call)
	calls    [64]int // of the device between from and to, by kind
}

func (w *watcher) Token(t Token) {
	switch t.Index {
	case w.from:
		if w.h != nil {
			w.h.Trace(w.trace)
		}
		w.before, w.objects = engineObjects(), -1
		w.rate, runtime.MemProfileRate = runtime.MemProfileRate, 1 // each object, from the next on
	case w.from + 1:
		if w.plant {
			w.kept = new(int)
		}
	case w.to:
		runtime.MemProfileRate = w.rate
		w.objects = engineObjects() - w.before
		if w.h != nil {
			w.h.Trace(nil)
		}
	}
}

func (w *watcher) Finish(Finish) {
	if w.objects < 0 {
		runtime.MemProfileRate = w.rate
	}
	close(w.ended)
}

// engineObjects returns the number of objects that Engine.loop and the functions it calls have allocated, without
// this test's own, while each object was profiled. It does not count the runtime's records of waiting goroutines
// (acquireSudog). The runtime reuses them but drops its cache at each collection, so an engine on the host device, which
// waits for its steps in Go, may have to allocate one after the collections below.
func engineObjects() (n int64) {
	runtime.GC() // two collections bring the profile up to date
	runtime.GC()
	all := make([]runtime.MemProfileRecord, 20000)
	known, _ := runtime.MemProfile(all, true)
	seen := map[uintptr]allocator{}
	for i := range known {
		var in allocator
		for stack := all[i].Stack(); len(stack) > 0; stack = stack[1:] {
			in |= allocatorOf(stack[:1], seen)
		}
		if in == inLoop {
			n += all[i].AllocObjects
		}
	}
	return n
}

// allocator says which of the functions that engineObjects looks for a stack has.
type allocator uint8

const (
	inLoop allocator = 1 << iota
	inTest
	inSudog
)

// allocatorOf returns what a program counter, the only one in pc, says of its stack. known keeps it: a profile has
// thousands of stacks, and they share a few hundred counters. No object of a few bytes is made here: the runtime would
// put the next one, of the engine, beside it and not count that.
func allocatorOf(pc []uintptr, known map[uintptr]allocator) (a allocator) {
	if a, ok := known[pc[0]]; ok {
		return a
	}
	frames := runtime.CallersFrames(pc)
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		for in, name := range map[allocator]string{inLoop: "engine.(*Engine).loop", inTest: "engineObjects",
			inSudog: "runtime.acquireSudog"} {
			if strings.Contains(f.Function, name) {
				a |= in
			}
		}
	}
	known[pc[0]] = a
	return a
}

// Over a thousand steps of two sequences the engine's thread allocates nothing, and makes the same calls of the device
// with a prefix cache and a host tier as without. One planted object is found.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	c := nanoConfig()
	c.Context = 1200
	without := nano()
	without.Context, without.Pages, without.CacheScope = c.Context, 2*c.Context/without.PageTokens, ScopeOff
	with := without
	with.CacheScope, with.HostCache = ScopeUser, 1<<20
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	t.Cleanup(h.Close)
	m, err := model.Load(h, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	var counts [][64]int
	for _, run := range []struct {
		options Options
		plant   bool
		want    int64
	}{{without, false, 0}, {without, true, 1}, {with, false, 0}} {
		e, err := New(h, m, run.options)
		if err != nil {
			t.Fatal(err)
		}
		b := &testEngine{Engine: e, t: t, h: h, ended: make(chan error, 1)}
		b.run()
		if run.options.HostCache > 0 {
			b.eventually("the host tier is pinned", func() bool { return b.Stats().KV.HostPages == 1<<20/256 })
		}
		w := &watcher{from: 50, to: 1050, plant: run.plant, ended: make(chan struct{}), h: h}
		w.trace = func(c device.Call) { w.calls[c.Kind]++ }
		for _, sink := range []Sink{&watcher{from: -1, to: -1, ended: make(chan struct{})}, w} {
			r := Request{Tokens: []int32{1, 2}, MaxTokens: 1150, IgnoreEOS: true, Sink: sink}
			if _, err := b.Submit(&r); err != nil {
				t.Fatal(err)
			}
		}
		<-w.ended
		if w.objects != run.want {
			t.Errorf("%d bytes of host tier, planted %v: %d objects in 1,000 steps, wants %d", run.options.HostCache, run.plant,
				w.objects, run.want)
		}
		counts = append(counts, w.calls)
		b.Stop()
		if err := b.wait(); err != nil {
			t.Error(err)
		}
	}
	if counts[0] != counts[2] || counts[0] == [64]int{} {
		t.Errorf("calls in 1,000 steps without a cache: %v, with: %v", counts[0], counts[2])
	}
}
