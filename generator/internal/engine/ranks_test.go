package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels/device"
)

// ranked is an engine of several simulated ranks.
type ranked struct {
	*testEngine
	dev *device.HostRanks
}

// ranksConfig is the shape of a model that 2, 4 and 8 ranks can share: with 8 its KV heads are there twice, and the
// last parts of its widths overlap.
func ranksConfig() model.Config {
	return model.Config{Name: "llama", Vocab: 70, Hidden: 40, Inner: 72, Layers: 2, Heads: 8, KVHeads: 4, HeadDim: 8,
		Context: 64, RMSNormEps: 1e-5, RoPETheta: 10000, TiedHead: true}
}

// ranksOptions configures simulated ranks: each has random delays of its own.
type ranksOptions struct {
	n        int
	patience time.Duration
}

func (o ranksOptions) host(rank int) device.HostOptions {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(rand.Uint64(), uint64(rank)))
	return device.HostOptions{Workers: 1, GraphBytes: 1000, Delay: func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(r.IntN(10)) * time.Microsecond
	}}
}

// onRanks returns an engine on simulated ranks. The caller runs it.
func onRanks(t *testing.T, c model.Config, r ranksOptions, o Options) (*ranked, error) {
	t.Helper()
	dev, err := device.NewHostRanks(r.n, r.patience, r.host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	c.Ranks = r.n
	m, err := model.Load(dev, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if o.Draft == DraftModel {
		small := nanoConfig()
		small.Vocab = c.Vocab
		if o.DraftModel, err = model.Load(dev, small, randomTensors{small}, func(float64) {}); err != nil {
			t.Fatal(err)
		}
	}
	b := &ranked{&testEngine{t: t, h: dev.Hosts()[0], ended: make(chan error, 1), weights: dev.Hosts()[0].Live()}, dev}
	b.Engine, err = New(dev, m, o)
	return b, err
}

// alike checks that all ranks hold as much as the first one.
func (b *ranked) alike() {
	b.t.Helper()
	first := b.dev.Hosts()[0].Live()
	for rank, h := range b.dev.Hosts() {
		if live := h.Live(); live != first {
			b.t.Errorf("rank %d holds %+v, the first %+v", rank, live, first)
		}
	}
}

func mustRank(t *testing.T, c model.Config, r ranksOptions, o Options) *ranked {
	t.Helper()
	b, err := onRanks(t, c, r, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Requests give the tokens and log-probabilities on several ranks that each gives alone on one, bit for bit: beside
// others, from graphs and eagerly, with cached prefixes, a host tier, guesses and a draft model.
func TestRanksGiveTheTokensOfOne(t *testing.T) {
	t.Parallel()
	plain := func(*Options) {}
	variants := map[string]func(*Options){
		"plain": plain,
		"host tier": func(o *Options) {
			o.HostCache, o.Pages, o.slabPages = 1<<20, 24, 4
		},
		"drafts":      func(o *Options) { o.Draft, o.DraftTokens, o.DraftAlways = DraftLookup, 3, true },
		"draft model": func(o *Options) { o.Draft, o.DraftTokens, o.DraftAlways = DraftModel, 3, true },
		"no graphs":   func(o *Options) { o.MaxGraphs = 0 },
	}
	r := seeded(t)
	a := askModel(t, ranksConfig(), r, 8, 30, 12)
	for name, change := range variants {
		ranks := []int{2, 4, 8}
		if name != "plain" {
			ranks = ranks[:1]
		}
		for _, n := range ranks {
			t.Run(fmt.Sprint(name, " on ", n), func(t *testing.T) {
				o := nano()
				change(&o)
				b := mustRank(t, a.config, ranksOptions{n: n}, o)
				b.run()
				for range 2 { // the second time prompts are cached
					a.atOnce(t, b.testEngine)
				}
				if err := b.finish(); err != nil {
					t.Error(err)
				}
				b.alike()
			})
		}
	}
}

// Prompts have the tokens of one rank's short steps also in long ones, alone and at once.
func TestLongStepsOnRanksGiveTheTokensOfShortOnes(t *testing.T) {
	a := askModel(t, ranksConfig(), seeded(t), 8, 50, 12)
	chunks := 0
	for _, q := range a.requests {
		chunks += (len(q.Tokens) + nano().Chunk - 1) / nano().Chunk
	}
	for _, n := range []int{2, 4, 8} {
		for _, gap := range []time.Duration{0, time.Second} {
			o := nano()
			o.LongChunk, o.Gap, o.CacheScope = 4*o.Chunk, gap, ScopeOff
			b := mustRank(t, a.config, ranksOptions{n: n}, o)
			b.run()
			for i, q := range a.requests {
				a.check(t, i, b.complete(q), true)
			}
			if got := int(b.Stats().Steps.Prefill); gap == 0 && got >= chunks {
				t.Errorf("%d ranks: %d steps of prompts that have %d chunks", n, got, chunks)
			}
			a.atOnce(t, b.testEngine)
			if err := b.finish(); err != nil {
				t.Error(err)
			}
			b.alike()
		}
	}
}

// Every graph gives the bits of the eager run on every rank, and the readiness detector finds no fault.
func TestReplayEqualsEagerOnEveryRank(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4, 8} {
		replaysOnRanks(t, ranksConfig(), n)
	}
	replaysOnRanks(t, latentConfig(), 2)
	replaysOnRanks(t, wideConfig(), 2)
}

// replaysOnRanks checks the graphs of a model on n ranks.
func replaysOnRanks(t *testing.T, c model.Config, n int) {
	t.Helper()
	o := nano()
	o.MaxGraphs, o.GraphMemory = 30, 30_000
	b := mustRank(t, c, ranksOptions{n: n}, o)
	verified := 0
	err := b.Check(func(c Checked, err error) {
		verified += c.Verified
		if faults := c.Report.Faults(); len(faults) > 0 {
			t.Errorf("%d ranks, %s: %v", n, c.Report.Key, faults)
		}
	})
	if err != nil || verified == 0 {
		t.Errorf("%d ranks: %v, %d verified", n, err, verified)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.returned()
	b.alike()
}

// A rank that fails while requests run, and one that raises no flag or that of an exchange long ago, ends them all with
// a typed error, and the engine.
func TestALostRankEndsAllRequests(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *ranked){
		"fails":        func(b *ranked) { b.dev.Hosts()[1].Faults().FailAt(20, true) },
		"fails once":   func(b *ranked) { b.dev.Hosts()[1].Faults().FailAt(20, false) },
		"missing flag": func(b *ranked) { b.dev.Hosts()[1].Faults().PlantExchange(device.MissingFlag) },
		"wrong epoch":  func(b *ranked) { b.dev.Hosts()[1].Faults().PlantExchange(device.WrongEpoch) },
	} {
		o := nano()
		o.NoRoller = true // its capture could meet the failure, which ends nothing
		b := mustRank(t, ranksConfig(), ranksOptions{n: 2, patience: 3 * time.Second}, o)
		b.run()
		var sinks []*sink
		for range 6 {
			s, _ := b.submit(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 60})
			sinks = append(sinks, s)
		}
		<-sinks[0].first
		lose(b)
		for _, s := range sinks {
			if s.must(t); !errors.Is(s.finish.Err, ErrDevice) {
				t.Errorf("%s: a request ended with %v", name, s.finish.Err)
			}
		}
		// What fails once is over before any rank waits for another in vain, or not.
		if err := b.wait(); !errors.Is(err, ErrDevice) || !errors.Is(err, device.ErrSticky) && name != "fails once" {
			t.Errorf("%s: Run returned %v", name, err)
		}
	}
}

// Memory of a peer that is no longer read is found by the comparison of replay and eager run, or by its logits.
func TestAStalePeerIsFound(t *testing.T) {
	b := mustRank(t, ranksConfig(), ranksOptions{n: 2}, nano())
	b.dev.Hosts()[1].Faults().PlantExchange(device.StalePeer)
	b.run()
	a := askModel(t, ranksConfig(), seeded(t), 1, 20, 10)
	s := b.complete(a.requests[0])
	if s.finish.Err == nil && len(s.tokens) == len(a.alone[0]) {
		same := true
		for i, token := range s.tokens {
			same = same && sameToken(token, a.alone[0][i])
		}
		if same {
			t.Error("parts that did not arrive changed no token")
		}
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// A capture that fails on one rank leaves a graph on none.
func TestACaptureThatFailsOnARankLeavesNone(t *testing.T) {
	b := mustRank(t, ranksConfig(), ranksOptions{n: 4}, nano())
	last := b.dev.Hosts()[3]
	failed := 0
	last.Trace(func(c device.Call) {
		if c.Kind == device.CallEndCapture || c.Kind == device.CallInstantiate || c.Kind == device.CallUpload {
			if failed++; failed <= 3 {
				last.Faults().FailAt(1, false)
			}
		}
	})
	for _, k := range []graphs.Key{graphs.Prefill(5), graphs.Prefill(6), graphs.Prefill(7)} {
		if _, err := b.pool.Precapture(b.stream, []graphs.Key{k}, func(int, int) {}); err != nil {
			t.Fatal(err)
		}
		b.alike()
	}
	last.Trace(nil)
	last.Faults().FailAt(0, false)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.returned()
	b.alike()
}
