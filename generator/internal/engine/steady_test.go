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
	objects  int64 // allocated between from and to
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
		w.before = engineObjects()
	case w.from + 1:
		if w.plant {
			w.kept = new(int)
		}
	case w.to:
		w.objects = engineObjects() - w.before
		if w.h != nil {
			w.h.Trace(nil)
		}
	}
}

func (w *watcher) Finish(Finish) { close(w.ended) }

// engineObjects returns the number of objects that Engine.loop and the functions it calls have allocated, without
// this test's own. It does not count the runtime's records of waiting goroutines (acquireSudog). The runtime reuses
// them but drops its cache at each collection, so an engine on the host device, which waits for its steps in Go,
// may have to allocate one after the collections below.
func engineObjects() (n int64) {
	runtime.GC() // two collections bring the profile up to date
	runtime.GC()
	all := make([]runtime.MemProfileRecord, 20000)
	known, _ := runtime.MemProfile(all, true)
	for i := range known {
		in := stackOf(&all[i])
		if strings.Contains(in, "engine.(*Engine).loop") && !strings.Contains(in, "engineObjects") &&
			!strings.Contains(in, "runtime.acquireSudog") {
			n += all[i].AllocObjects
		}
	}
	return n
}

func stackOf(r *runtime.MemProfileRecord) string {
	var names strings.Builder
	frames := runtime.CallersFrames(r.Stack())
	for {
		f, more := frames.Next()
		names.WriteString(f.Function + "\n")
		if !more {
			return names.String()
		}
	}
}

// Over a thousand steps of two sequences the engine's thread allocates nothing, and makes the same calls of the device
// with a prefix cache and a host tier as without. One planted object is found.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
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
