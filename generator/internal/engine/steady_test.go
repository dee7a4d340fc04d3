package engine

import (
	"runtime"
	"strings"
	"testing"

	"reel/generator/internal/model"
	"reel/kernels/device"
)

// watcher counts what the engine's thread, on which its methods are called, takes
// of Go's allocator between two tokens.
type watcher struct {
	from, to int
	plant    bool
	before   int64
	objects  int64 // in between
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

// engineObjects is how many objects Go's allocator has given to Engine.loop, and
// to what it called, tests' counting apart. The record of a goroutine that waits is
// not counted either: the runtime keeps them for the next to wait, but loses what it
// keeps at each collection, such as the counting's own. Then a host's engine, which
// waits for its steps in Go, may find none.
func engineObjects() (n int64) {
	runtime.GC() // which brings the profile up to date
	runtime.GC()
	all := make([]runtime.MemProfileRecord, 20000)
	known, _ := runtime.MemProfile(all, true)
	for i := range known {
		in := stackOf(&all[i])
		if strings.Contains(in, "engine.(*Engine).loop") && !strings.Contains(in, "engineObjects") && !strings.Contains(in, "runtime.acquireSudog") {
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

// Over a thousand steps of two sequences the engine's thread takes nothing of
// Go's allocator; one object that it does take is seen.
func TestSteadyStateTakesNoMemory(t *testing.T) {
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
			if _, err := b.Submit(&Request{Tokens: []int32{1, 2}, MaxTokens: 1150, IgnoreEOS: true, Sink: sink}); err != nil {
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
