package server

import (
	"slices"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// recorder is an Observer that records its calls.
type recorder struct {
	mu          sync.Mutex
	connected   int
	errors      []string
	tokens      int
	finishes    []string
	usage       protocol.Usage
	negative    bool
	lastTotalMS float64
}

func (w *recorder) Connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connected++
}

func (w *recorder) Error(code string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors = append(w.errors, code)
}

func (w *recorder) Tokens(n int, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens += n
	w.negative = w.negative || after < 0
}

func (w *recorder) Request(finish string, u protocol.Usage, t protocol.Timing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishes = append(w.finishes, finish)
	w.usage.PromptTokens += u.PromptTokens
	w.usage.CompletionTokens += u.CompletionTokens
	w.lastTotalMS = t.TotalMS
}

// The observer is called for each connection, request, gap between tokens, and error.
func TestObserver(t *testing.T) {
	w := new(recorder)
	f := newFixture(t, nil)
	f.opts.Observer = w
	f.serve()
	f.SetReady(f.model())
	c := f.client()
	for id := range uint64(3) { // the client gets each token before the next step
		f.engine.allow(0)
		c.send(generate(id, "abc", 3))
		for range 3 {
			f.engine.allow(1)
			expect[protocol.Token](c)
		}
		expect[protocol.Done](c)
	}
	c.ask(generate(4, "?", 3))
	c.send(&protocol.Hello{Version: 99})
	c.closedAfter()
	f.stop()
	want := []string{protocol.FinishLength, protocol.FinishLength, protocol.FinishLength}
	usage := protocol.Usage{PromptTokens: 9, CompletionTokens: 9}
	if w.connected != 1 || !slices.Equal(w.finishes, want) || w.usage != usage || w.lastTotalMS != 1 {
		t.Errorf("%+v", w)
	}
	if w.tokens != 6 || w.negative {
		t.Errorf("%d gaps between tokens, want 6", w.tokens)
	}
	if want := []string{protocol.CodeBadRequest, protocol.CodeUnsupportedVersion}; !slices.Equal(w.errors, want) {
		t.Errorf("errors %v, want %v", w.errors, want)
	}
}

func TestObserverOfRejectedAndFailed(t *testing.T) {
	w := new(recorder)
	f := newFixture(t, func(b *bounds) { b.connections = 1 })
	f.opts.Observer = w
	f.serve()
	f.SetReady(f.model())
	f.engine.allow(0)
	c := f.client()
	c.send(generate(1, "abc", 3))
	f.awaitLive(1)
	f.dial().closedAfter()
	f.stop() // ends the request with shutdown
	want := []string{protocol.CodeTooManyConnections, protocol.CodeShutdown}
	if !slices.Equal(w.errors, want) || !slices.Equal(w.finishes, want[1:]) || w.connected != 1 {
		t.Errorf("%+v", w)
	}
}

// What several GPUs use is compared with a plan of each, and what simulated ones use with a plan of all. The engine counts
// pages on all GPUs, and the rest on one.
func TestMemoryOfSeveralGPUs(t *testing.T) {
	stats := engine.Stats{KV: protocol.KV{Bytes: 80}, Arena: 10, Graphs: protocol.GraphPool{Bytes: 5}}
	kinds := []string{protocol.MemoryWeights, protocol.MemoryKV, protocol.MemoryArena, protocol.MemoryGraphs, protocol.MemoryOther}
	for _, c := range []struct {
		gpus      int
		simulated bool
		used      []int64
	}{{0, false, []int64{3, 80, 10, 5, 102}}, {2, false, []int64{3, 40, 10, 5, 142}}, {0, true, []int64{3, 80, 10, 5, 102}},
		{2, true, []int64{3, 80, 20, 10, 87}}} {
		m := &Model{GPUs: c.gpus, Simulated: c.simulated, Shape: protocol.Shape{WeightBytes: 3}}
		for _, kind := range kinds {
			m.Memory = append(m.Memory, protocol.MemoryUse{Kind: kind})
		}
		for i, got := range m.memoryUse(stats, protocol.Machine{MemoryUsed: 200}) {
			if got.Used != c.used[i] {
				t.Errorf("%d GPUs, simulated %t: %s uses %d, wants %d", c.gpus, c.simulated, got.Kind, got.Used, c.used[i])
			}
		}
	}
}

// Status has planned and used memory by kind.
func TestStatusOfMemory(t *testing.T) {
	f := newFixture(t, nil)
	f.serve()
	m := f.model()
	m.Shape.WeightBytes = 3
	m.Memory = []protocol.MemoryUse{
		{Kind: protocol.MemoryWeights, Planned: 4}, {Kind: protocol.MemoryOther, Planned: 1},
	}
	taken := int64(0)
	m.Taken = func() (int64, string) { return taken, "a test" }
	f.SetReady(m)
	want := []protocol.MemoryUse{
		{Kind: protocol.MemoryWeights, Planned: 4, Used: 3}, {Kind: protocol.MemoryOther, Planned: 1, Used: 2},
	}
	if got := f.Status().Memory; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	taken = 4
	if got := f.Status().Memory[1].Used; got != 1 {
		t.Errorf("of 4 bytes taken, 3 for weights, %d are other", got)
	}
}
