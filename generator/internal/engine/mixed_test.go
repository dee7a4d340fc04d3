package engine

import (
	"slices"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// mixedEngine returns an engine of the nano model with mixed steps, which runs. One request runs in it for long.
func mixedEngine(t *testing.T, o Options) (b *testEngine, long *sink) {
	t.Helper()
	o.Context, o.Pages = 400, 400
	o.MixedRows = mixedRows(o, 2)
	c := nanoConfig()
	c.Context = o.Context
	b, err := tryBuildModel(t, c, device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	long, _ = b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 390, IgnoreEOS: true})
	<-long.first
	return b, long
}

// A shape of mixed steps that is missed gets a graph while serving. All other shapes have one from the start.
func TestMixedStepsAreRolled(t *testing.T) {
	o := nano()
	o.Precapture, o.MaxGraphs, o.GraphMemory = []int{1, 2, 3, 4, 5, 6, 7, 8}, 100, 100_000
	b, long := mixedEngine(t, o)
	for b.Stats().Graphs.Rolled == 0 {
		s, _ := b.submit(Request{Tokens: []int32{3, 4, 5}, MaxTokens: 1, Cache: CacheOff})
		s.must(t)
		select {
		case <-long.ended:
			long, _ = b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 390, IgnoreEOS: true})
			<-long.first
		default:
		}
	}
	if s := b.Stats().Steps; s.Mixed == 0 || s.Graphs.Padded == 0 {
		t.Errorf("%+v", s)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// The passes of mixed steps know their generated rows.
func TestPassesOfMixedSteps(t *testing.T) {
	o := nano()
	o.MaxGraphs = 0
	b, _ := mixedEngine(t, o)
	passes := map[[2]int]int{} // by rows and generated rows
	b.h.Trace(func(call device.Call) {
		if op, ok := call.Op.(kernels.QKV); ok && op.Generated > 0 {
			passes[[2]int{op.T, int(op.Generated)}]++ // on the engine's thread
		}
	})
	s, _ := b.submit(Request{Tokens: make([]int32, 30), MaxTokens: 1, Cache: CacheOff})
	s.must(t)
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	if passes[[2]int{8, 2}] != 5 || len(passes) != 1 {
		t.Errorf("passes by rows and generated rows: %v", passes)
	}
}

// A mixed step counts as one, for the engine and for each request that it serves, and as a token of each that it samples.
func TestMixedStepsAreCounted(t *testing.T) {
	b, long := mixedEngine(t, nano())
	before := b.Stats().Steps
	s, _ := b.submit(Request{Tokens: make([]int32, 30), MaxTokens: 1, Cache: CacheOff})
	s.must(t)
	after := b.Stats().Steps
	if n, g := after.Mixed-before.Mixed, s.finish.Graphs; n != 5 || after.Prefill != before.Prefill || before.Mixed != 0 ||
		g.Precaptured+g.Padded+g.Eager+g.Rolled != 5 {
		t.Errorf("30 tokens in chunks of 6: %d mixed steps, %+v; before %+v, after %+v", n, g, before, after)
	}
	long.must(t)
	b.baseline()
	if n := b.Stats().Steps.Tokens; n != 391 {
		t.Errorf("%d tokens", n)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// A draft model follows no mixed step, and embeddings and a single slot have none: no key is captured, and the scheduler
// forms none.
func TestWhoHasNoMixedSteps(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   bool
	}{
		"dense":         {func(*Options) {}, true},
		"lookup":        {func(o *Options) { o.Draft, o.DraftTokens = DraftLookup, 3 }, true},
		"a draft model": {func(o *Options) { o.Draft, o.DraftTokens, o.DraftModel = DraftModel, 3, &model.Model{} }, false},
		"embeddings":    {func(o *Options) { o.Embeddings = true }, false},
		"one slot":      {func(o *Options) { o.MaxBatch = 1 }, false},
		"a device":      {func(o *Options) { o.MixedRows = nil }, false},
	} {
		o := nano()
		o.MixedRows = mixedRows(o, 2)
		c.change(&o)
		mixed := slices.ContainsFunc(o.Lattice(), func(k graphs.Key) bool { return k.Class == graphs.MixedClass })
		if mixed != c.want || (o.mixedRows() != nil) != c.want {
			t.Errorf("%s: mixed steps in the lattice: %t, in the scheduler: %t", name, mixed, o.mixedRows() != nil)
		}
	}
}

// Graphs are captured for each number of generated rows in which a prompt can end, with the most prompt rows and about
// half as many, and so on.
func TestMixedLattice(t *testing.T) {
	o := defaults()
	o.MaxBatch, o.Reserve, o.Chunk = 100, 4, 256
	o.MixedRows = mixedRows(o, 16)
	got := o.mixedLattice()
	for _, rows := range []int{16, 32, 48, 64} {
		if !slices.Contains(got, graphs.Mixed(rows, 256-rows)) {
			t.Errorf("no key of %d rows: %v", rows, got)
		}
	}
	for _, prompt := range []int{192, 96, 48, 32, 16} {
		if !slices.Contains(got, graphs.Mixed(64, prompt)) {
			t.Errorf("no key with %d prompt rows: %v", prompt, got)
		}
	}
	if len(got) != 20 {
		t.Errorf("%v", got)
	}
	o.MixedGraphs = 2
	if few := o.mixedLattice(); len(few) != 8 || !slices.Contains(few, graphs.Mixed(64, 96)) {
		t.Errorf("two of each: %v", few)
	}
}

// While a prompt is computed, whoever runs gets tokens: one in each step of the prompt.
func TestRunningRequestsGetTokensInMixedSteps(t *testing.T) {
	o := nano()
	o.Gap = time.Hour
	b, long := mixedEngine(t, o)
	s, _ := b.submit(Request{Tokens: make([]int32, 350), MaxTokens: 1, Cache: CacheOff})
	long.mu.Lock()
	before := len(long.tokens)
	long.mu.Unlock()
	s.must(t)
	long.mu.Lock()
	during := len(long.tokens) - before
	long.mu.Unlock()
	if n := b.Stats().Steps.Mixed; n < 43 || during < int(n)-2 {
		t.Errorf("%d tokens in %d mixed steps", during, n)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
