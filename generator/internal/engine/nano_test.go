package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels/device"
)

// nanoConfig is the shape of a model so small that a step is nearly all bookkeeping.
func nanoConfig() model.Config {
	return model.Config{Name: "llama", Vocab: 16, Hidden: 8, Inner: 8, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 8,
		Context: 64, RMSNormEps: 1e-5, RoPETheta: 10000, TiedHead: true}
}

// nano returns options for nanoConfig: few slots, small pages, few graphs.
func nano() Options {
	return Options{Context: 64, MaxBatch: 4, MaxQueue: 64, Chunk: 8, PageTokens: 4, Pages: 64,
		Precapture: []int{4}, MaxGraphs: 4, GraphMemory: 4000}
}

// mixedRows returns an Options.MixedRows for these options: with generated rows in multiples of a number, and as many
// prompt rows as fit beside them.
func mixedRows(o Options, multiple int) func(n int) (rows, most int) {
	all := o.Geometry().MaxRows
	return func(n int) (rows, most int) {
		rows = (n + multiple - 1) / multiple * multiple
		if most = min(o.Chunk, all-rows); most < 1 {
			return 0, 0
		}
		return rows, most
	}
}

// built returns an engine of the nano model. The caller runs it.
func built(t *testing.T, host device.HostOptions, o Options, wrap func(device.Device) device.Device) *testEngine {
	t.Helper()
	b, err := tryBuild(t, host, o, wrap)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tryBuild is built for starts that may fail. The testEngine has its device even then.
func tryBuild(t *testing.T, host device.HostOptions, o Options, wrap func(device.Device) device.Device) (
	*testEngine, error) {
	t.Helper()
	return tryBuildModel(t, nanoConfig(), host, o, wrap)
}

// tryBuildModel is tryBuild for a model of this shape.
func tryBuildModel(t testing.TB, c model.Config, host device.HostOptions, o Options,
	wrap func(device.Device) device.Device) (*testEngine, error) {
	t.Helper()
	return tryBuildPair(t, c, c, host, o, wrap)
}

// tryBuildPair is tryBuildModel with a draft model of the shape draft, if o asks for one, or has a window for one beside
// given drafts.
func tryBuildPair(t testing.TB, c, draft model.Config, host device.HostOptions, o Options,
	wrap func(device.Device) device.Device) (*testEngine, error) {
	t.Helper()
	host.Workers, host.GraphBytes = 1, 1000
	h := device.NewHost(host)
	t.Cleanup(h.Close)
	m, err := model.Load(h, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if o.Draft == DraftModel || o.Draft == DraftGiven && o.DraftWindow > 0 {
		if o.DraftModel, err = model.Load(h, draft, randomTensors{draft}, func(float64) {}); err != nil {
			t.Fatal(err)
		}
	}
	b := &testEngine{t: t, h: h, ended: make(chan error, 1), weights: h.Live()}
	var dev device.Device = h
	if wrap != nil {
		dev = wrap(h)
	}
	b.Engine, err = New(dev, m, o)
	return b, err
}

// run runs the engine on a goroutine of its own; finish ends it.
func (b *testEngine) run() { go func() { b.ended <- b.Run() }() }

// finish stops the engine, checks that it freed its device memory, and returns Run's error.
func (b *testEngine) finish() error {
	b.t.Helper()
	b.Stop()
	err := b.wait()
	b.returned()
	return err
}

// wait waits for Run's error.
func (b *testEngine) wait() error {
	b.t.Helper()
	select {
	case err := <-b.ended:
		return err
	case <-time.After(patience):
		b.t.Fatal("Run does not return")
		return nil
	}
}

// returned checks that the device holds only what it held before the engine: the weights.
func (b *testEngine) returned() {
	b.t.Helper()
	if left := b.h.Live(); left != b.weights {
		b.t.Errorf("the engine left %+v on the device, before it were %+v", left, b.weights)
	}
}

// patience is how long a test waits before it reports a deadlock.
const patience = 60 * time.Second

// must waits until the request has ended.
func (s *sink) must(t testing.TB) *sink {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("a request does not end")
	}
	return s
}

// asked holds requests and the tokens that each gives alone, launched op by op.
type asked struct {
	config   model.Config
	requests []Request
	alone    [][]Token
}

// ask makes up n requests of the nano model and runs each alone.
func ask(t *testing.T, r *rand.Rand, n, maxPrompt, maxTokens int) *asked {
	t.Helper()
	return askModel(t, nanoConfig(), r, n, maxPrompt, maxTokens)
}

// askModel is ask for a model of this shape.
func askModel(t *testing.T, c model.Config, r *rand.Rand, n, maxPrompt, maxTokens int) *asked {
	t.Helper()
	var requests []Request
	for i := range n {
		q := Request{Tokens: make([]int32, 1+r.IntN(maxPrompt)), MaxTokens: 1 + maxTokens/2 + r.IntN(maxTokens/2),
			Sampling: sampled(uint64(i))}
		if i%3 > 0 {
			q.Sampling = edited(r, q.Sampling, c.Vocab)
		}
		for j := range q.Tokens {
			q.Tokens[j] = int32(r.IntN(16))
		}
		requests = append(requests, q)
	}
	return askEachModel(t, c, requests)
}

// askEach runs each request alone.
func askEach(t *testing.T, requests []Request) *asked {
	t.Helper()
	return askEachModel(t, nanoConfig(), requests)
}

// askEachModel is askEach for a model of this shape.
func askEachModel(t *testing.T, c model.Config, requests []Request) *asked {
	t.Helper()
	o := nano()
	o.MaxBatch, o.MaxGraphs, o.CacheScope = 1, 0, ScopeOff
	b := builtModel(t, c, o)
	b.run()
	a := &asked{config: c, requests: requests}
	for _, q := range requests {
		a.alone = append(a.alone, b.complete(q).tokens)
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
	return a
}

// atOnce runs all requests at once, and compares each with what it gives alone.
func (a *asked) atOnce(t *testing.T, b *testEngine) {
	t.Helper()
	var sinks []*sink
	for _, q := range a.requests {
		s, _ := b.submit(q)
		sinks = append(sinks, s)
	}
	for i, s := range sinks {
		a.check(t, i, s.must(t), true)
	}
}

// check compares the tokens in s with those that request i gets alone: all of them if whole is set, else the first
// ones.
func (a *asked) check(t testing.TB, i int, s *sink, whole bool) {
	t.Helper()
	want := a.alone[i]
	if whole && len(s.tokens) != len(want) || len(s.tokens) > len(want) {
		t.Errorf("request %d: %d tokens, wants %d: %+v", i, len(s.tokens), len(want), s.finish)
		return
	}
	if !slices.EqualFunc(s.tokens, want[:len(s.tokens)], sameToken) {
		t.Errorf("request %d:\n   got %v\n alone %v", i, s.tokens, want)
	}
}

// seeded returns a random source, and logs its seed if the test fails.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
