//go:build cuda

package engine

import (
	"errors"
	"maps"
	"runtime"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/cuda"
	gpu "reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/device/cuda/calls"
)

// count counts calls to the driver until the test ends.
func count(t *testing.T) {
	t.Helper()
	if err := calls.Begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := calls.End(); err != nil {
			t.Error(err)
		}
	})
}

// window is a sink that counts calls and allocations between two of its tokens. Its methods run on the engine's
// thread, and each step makes one token.
type window struct {
	idle
	from, to        int    // token indices
	plant           func() // called in the middle, if set
	before, after   runtime.MemStats
	watched, others calls.Counts
}

func (w *window) Token(t Token) {
	switch t.Index {
	case w.from:
		calls.Watch()
		runtime.ReadMemStats(&w.before)
	case w.from + (w.to-w.from)/2:
		if w.plant != nil {
			w.plant()
		}
	case w.to:
		runtime.ReadMemStats(&w.after)
		w.watched, w.others = calls.Read()
	}
}

// idle is a sink that discards tokens.
type idle struct{ ended chan struct{} }

func (idle) Token(Token)     {}
func (i idle) Finish(Finish) { close(i.ended) }

// mallocs returns the number of objects that all threads allocated in Go during the window.
func (w *window) mallocs() uint64 { return w.after.Mallocs - w.before.Mallocs }

// kindOf returns the kind of a driver function that a steady state must not call; empty for any other.
func kindOf(function string) string {
	for _, k := range []struct{ kind, part string }{
		{"synchronisation", "Synchronize"}, {"copy", "cuMemcpy"}, {"copy", "cuMemset"}, {"copy", "cuMemPrefetch"},
		{"allocation", "Alloc"}, {"allocation", "Free"}, {"allocation", "Create"}, {"allocation", "Destroy"},
		{"allocation", "cuMemMap"}, {"allocation", "cuMemUnmap"}, {"allocation", "HostRegister"},
		{"capture", "Capture"}, {"graph", "Instantiate"},
	} {
		if strings.Contains(function, k.part) {
			return k.kind
		}
	}
	return ""
}

// withoutLogprobs samples with every filter but reports no alternatives, which allocate memory.
func withoutLogprobs(seed uint64) Sampling {
	s := sampled(seed)
	s.Logprobs = 0
	return s
}

// longContext runs an engine with a long context until the test ends. With drafts all graphs of verify steps are
// captured first, and none later.
func longContext(t *testing.T, kind DraftKind) *Engine {
	t.Helper()
	d, err := gpu.New(0, cuda.Kernels)
	if err != nil {
		t.Fatal(err)
	}
	c, o := microConfig(), defaults()
	c.HeadDim, c.Context = 32, 10600
	o.Context, o.PageTokens, o.MaxBatch, o.KVType = c.Context, 16, 4, kernels.BF16
	o.Pages = o.MaxBatch * c.Context / o.PageTokens
	if kind != DraftOff {
		o.Draft, o.DraftTokens, o.planDrafts, o.NoRoller = kind, MaxDrafts, inTurn(), true
	}
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	var keys []graphs.Key
	for sequences := o.MaxBatch; sequences > 0 && kind != DraftOff; sequences-- {
		for queries := o.DraftTokens + 1; queries > 1; queries-- {
			keys = append(keys, graphs.VerifyStep(sequences, queries))
		}
	}
	if _, err := e.pool.Precapture(e.stream, keys, func(int, int) {}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run() }()
	t.Cleanup(func() {
		e.Stop()
		if err := errors.Join(<-ended, d.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// steady runs three requests, and a window over a fourth. plant, if set, is called in the window's middle.
func steady(t *testing.T, kind DraftKind, from, to int, plant func(e *Engine)) *window {
	t.Helper()
	e := longContext(t, kind)
	w := &window{idle: idle{make(chan struct{})}, from: from, to: to}
	if plant != nil {
		w.plant = func() { plant(e) }
	}
	for i := range 3 {
		r := Request{Tokens: make([]int32, 5), MaxTokens: to + 200, IgnoreEOS: true,
			Sampling: withoutLogprobs(uint64(i)), Sink: idle{make(chan struct{})}, DraftTokens: MaxDrafts}
		if _, err := e.Submit(&r); err != nil {
			t.Fatal(err)
		}
	}
	fourth := Request{Tokens: make([]int32, 5), MaxTokens: to + 100, IgnoreEOS: true,
		Sampling: withoutLogprobs(9), Sink: w, DraftTokens: MaxDrafts}
	if _, err := e.Submit(&fourth); err != nil {
		t.Fatal(err)
	}
	<-w.ended
	least := uint64(to - from)
	if kind != DraftOff {
		least /= 1 + MaxDrafts
	}
	if w.watched["cuGraphLaunch"] < least {
		t.Fatalf("%d graphs were launched for %d tokens: CUPTI does not see the engine's thread: %v",
			w.watched["cuGraphLaunch"], to-from, w.watched)
	}
	return w
}

// faults counts, by kind, the calls and allocations that a steady state must not make.
func (w *window) faults() map[string]uint64 {
	found := map[string]uint64{}
	for _, counts := range []calls.Counts{w.watched, w.others} {
		for name, n := range counts {
			if k := kindOf(name); k != "" {
				found[k] += n
			}
		}
	}
	if n := w.mallocs(); n > 0 {
		found["Go allocation"] = n
	}
	return found
}

// In ten thousand tokens of each of four sequences, all threads call the driver only to launch graphs and to learn when
// they are done, and nothing is allocated in Go. So it is with drafts.
func TestGPUSteadyState(t *testing.T) {
	for _, kind := range []DraftKind{DraftOff, DraftLookup} {
		t.Run(kind.String(), func(t *testing.T) { steadyWith(t, kind) })
	}
}

func steadyWith(t *testing.T, kind DraftKind) {
	count(t)
	w := steady(t, kind, 200, 10200, nil)
	t.Logf("%d tokens; the engine's thread called %v, all others %v; %d Go allocations",
		w.to-w.from, w.watched, w.others, w.mallocs())
	if found := w.faults(); len(found) > 0 {
		t.Errorf("in %d tokens: %v", w.to-w.from, found)
	}
	may := map[string]bool{"cuGraphLaunch": true, "cuCtxSetCurrent": true, "cuStreamWriteValue32_v2": true,
		"cuStreamQuery": true}
	for name, n := range w.watched {
		if !may[name] {
			t.Errorf("the engine's thread called %s %d times", name, n)
		}
	}
}

var planted []byte // allocated by a test

// One planted call of each kind is found.
func TestGPUSteadyStateFindsPlantedCalls(t *testing.T) {
	count(t)
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for kind, c := range map[string]struct {
		plant func(e *Engine)
		want  map[string]uint64 // without Go allocations, which the other kinds may make too
	}{
		"allocation": {func(e *Engine) { _, err := e.dev.Alloc(64); must(err) },
			map[string]uint64{"allocation": 1, "copy": 1, "synchronisation": 1}}, // Alloc zeroes the memory
		"synchronisation": {func(e *Engine) { must(e.stream.Synchronize()) }, map[string]uint64{"synchronisation": 1}},
		"copy": {func(e *Engine) { must(e.dev.Read(make([]byte, 4), e.memory.Logits().Slice(0, 4))) },
			map[string]uint64{"copy": 1}},
		"Go allocation": {func(*Engine) { planted = make([]byte, 64) }, map[string]uint64{}},
	} {
		found := steady(t, DraftOff, 300, 500, c.plant).faults()
		if kind == "Go allocation" && found[kind] < 1 {
			t.Errorf("one planted %s: found %v", kind, found)
		}
		delete(found, "Go allocation")
		if !maps.Equal(found, c.want) {
			t.Errorf("one planted %s: found %v, wants %v", kind, found, c.want)
		}
	}
}
