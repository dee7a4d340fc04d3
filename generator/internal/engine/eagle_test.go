package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
)

// headed returns options with the trained EAGLE-3 head of this name, and its model. Each step has one draft, if it may
// have any: then how many a step has does not change the share that stands.
func headed(t *testing.T, h device.Device, name string) (*model.Model, Options) {
	t.Helper()
	dir := filepath.Join("..", "model", "testdata", "eagle")
	open := func(name string, parse func(raw []byte) (model.Config, error)) (model.Config, *weights.Checkpoint) {
		raw, err := os.ReadFile(filepath.Join(dir, name, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		w, err := weights.Open(os.DirFS(filepath.Join(dir, name)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return c, w
	}
	c, w := open("target", func(raw []byte) (model.Config, error) { return model.ParseConfig(raw, nil) })
	m, err := model.Load(h, c, w, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	headConfig, file := open(name, model.ParseEagle)
	headConfig, named, err := headConfig.EagleTensors(file)
	if err == nil {
		headConfig, err = headConfig.ForTarget(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	headConfig.Context = c.Context
	head, err := model.Load(h, headConfig, named, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	o := nano()
	o.Context, o.Chunk, o.Pages, o.MaxBatch = c.Context, 16, 300, 8
	o.Draft, o.DraftModel, o.DraftTokens = DraftModel, head, 5
	o.planDrafts = func(ready []*scheduler.Sequence) {
		for _, q := range ready {
			q.Drafts = min(1, q.MayDraft)
		}
	}
	return m, o
}

// headedEngine runs an engine with that head.
func headedEngine(t *testing.T, name string, change func(o *Options)) *testEngine {
	t.Helper()
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	t.Cleanup(h.Close)
	m, o := headed(t, h, name)
	change(&o)
	b := &testEngine{t: t, h: h, ended: make(chan error, 1), weights: h.Live()}
	var err error
	if b.Engine, err = New(h, m, o); err != nil {
		t.Fatal(err)
	}
	b.run()
	return b
}

// standing counts the drafts of requests, and those that stood; and the tokens of prompts that were found.
type standing struct{ stood, drafted, cached int }

// share returns the share of drafts that stood.
func (n standing) share() float64 { return float64(n.stood) / float64(n.drafted) }

// standing runs requests, n at a time, and with moving has their pages moved on the device meanwhile. A step that waits
// for a move has no drafts, and how many steps do so is a matter of time.
func (b *testEngine) standing(requests []Request, n int, moving bool) (sum standing) {
	b.t.Helper()
	for ; len(requests) > 0; requests = requests[min(n, len(requests)):] {
		var sinks []*sink
		for i, q := range requests[:min(n, len(requests))] {
			s, h := b.submit(q)
			sinks = append(sinks, s)
			if n == 1 {
				<-s.first
			}
			for at := 0; moving && at < 5; at++ {
				b.Relocate(h, at+i%3)
			}
		}
		for _, s := range sinks {
			u := s.must(b.t).finish.Usage
			sum.stood, sum.drafted, sum.cached = sum.stood+u.AcceptedTokens, sum.drafted+u.DraftedTokens,
				sum.cached+u.CachedTokens
		}
	}
	return sum
}

// prompts returns requests of prompts that begin alike, in three groups.
func prompts(cache CacheMode) (all []Request) {
	r := rand.New(rand.NewPCG(4, 5))
	var begins [3][]int32
	for i := range begins {
		for range 33 {
			begins[i] = append(begins[i], r.Int32N(31))
		}
	}
	for i := range 24 {
		q := Request{Tokens: append([]int32(nil), begins[i%3][:33-i%7]...), MaxTokens: 60, IgnoreEOS: true,
			DraftTokens: MaxDrafts, Cache: cache}
		for range 3 {
			q.Tokens = append(q.Tokens, r.Int32N(31))
		}
		all = append(all, q)
	}
	return all
}

// As many drafts of an EAGLE-3 head stand where prompts are found in the cache, pages move on the device, sequences
// move out and in, and pages come from files after a restart, as in a request alone without any of that: a page has the
// head's keys and values, and the feature that the next row needs. Where pages move, or sequences run beside one another,
// other steps may have drafts: there "as many" is within 4%. On a busy machine 2.2% were seen; where the head's pages were
// not loaded, 8 to 51%. Elsewhere it is exact, but for a last step that was formed before the one before it had ended,
// which a slow machine may leave out.
func TestEagleAcceptanceSurvivesTheCache(t *testing.T) {
	for _, name := range []string{"parts", "safeailab"} {
		var want standing
		alone := func(change func(o *Options)) {
			b := headedEngine(t, name, change)
			want = b.standing(prompts(CacheOff), 1, false)
			t.Logf("%s, alone: %+v", name, want)
			if err := b.finish(); err != nil {
				t.Error(err)
			}
		}
		same := func(what string, got standing) {
			t.Helper()
			t.Logf("%s, %s: %+v", name, what, got)
			if got.share() < 0.96*want.share() || got.share() > 1.04*want.share() || want.stood == 0 {
				t.Errorf("%s, %s: %+v, alone %+v", name, what, got, want)
			}
		}
		alone(func(*Options) {})
		b := headedEngine(t, name, func(*Options) {})
		for _, what := range []string{"at first", "found"} {
			got := b.standing(prompts(CacheOn), 1, false)
			if got.cached == 0 || max(got.stood-want.stood, want.stood-got.stood) > 1 ||
				max(got.drafted-want.drafted, want.drafted-got.drafted) > 3 {
				t.Errorf("%s, %s: %+v, alone %+v", name, what, got, want)
			}
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
		alone(func(o *Options) { o.HostCache, o.slabPages = 4<<20, 5 })
		b = headedEngine(t, name, func(o *Options) { o.Pages, o.HostCache, o.slabPages = 60, 4<<20, 5 })
		b.eventually("the host tier", func() bool { return b.Stats().KV.HostPages > 500 })
		same("in the host tier", b.standing(prompts(CacheOn), 8, true))
		if kv := b.Stats().KV; kv.MovedIn == 0 || kv.Loaded == 0 {
			t.Errorf("nothing moved: %+v", kv)
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
		l := newLives(t)
		for life := range 2 {
			filed := func(o *Options) { o.Files, o.HostCache, o.slabPages = true, 4<<20, 7 }
			l.testEngine = headedEngine(t, name, filed)
			l.attach(l.opts)
			l.used()
			got := l.standing(prompts(CacheOn), 1, true)
			if same(fmt.Sprintf("life %d", life), got); life > 0 && l.Stats().Disk.Read == 0 {
				t.Error("nothing was read from files")
			}
			l.written(20)
			l.end()
		}
	}
}
