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
}

func (w *watcher) Token(t Token) {
	switch t.Index {
	case w.from:
		w.before = engineObjects()
	case w.from + 1:
		if w.plant {
			w.kept = new(int)
		}
	case w.to:
		w.objects = engineObjects() - w.before
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

// Over a thousand steps of two sequences the engine's thread allocates nothing. One planted object is found.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	c := nanoConfig()
	c.Context = 1200
	o := nano()
	o.Context, o.Pages = c.Context, 2*c.Context/o.PageTokens
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	t.Cleanup(h.Close)
	m, err := model.Load(h, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, plant := range []bool{false, true} {
		e, err := New(h, m, o)
		if err != nil {
			t.Fatal(err)
		}
		b := &testEngine{Engine: e, t: t, h: h, ended: make(chan error, 1)}
		b.run()
		w := &watcher{from: 50, to: 1050, plant: plant, ended: make(chan struct{})}
		for _, sink := range []Sink{&watcher{from: -1, to: -1, ended: make(chan struct{})}, w} {
			r := Request{Tokens: []int32{1, 2}, MaxTokens: 1150, IgnoreEOS: true, Sink: sink}
			if _, err := b.Submit(&r); err != nil {
				t.Fatal(err)
			}
		}
		<-w.ended
		if want := map[bool]int64{true: 1}[plant]; w.objects != want {
			t.Errorf("planted %v: %d objects in 1,000 steps, wants %d", plant, w.objects, want)
		}
		b.Stop()
		if err := b.wait(); err != nil {
			t.Error(err)
		}
	}
}
