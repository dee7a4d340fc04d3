package engine

import (
	"errors"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// draftConfigs are shapes of draft models for nanoConfig: the model itself, and others in heads, layers, family, and
// numbers of tokens.
func draftConfigs() []model.Config {
	deep, biased, few, many := nanoConfig(), nanoConfig(), nanoConfig(), nanoConfig()
	deep.Layers, deep.Heads, deep.KVHeads, deep.HeadDim, deep.Hidden = 3, 4, 2, 4, 12
	biased.Bias, biased.HeadNorms, biased.Layers = true, true, 2
	few.Vocab, few.Windows = 11, []int{5}
	many.Vocab, many.TiedHead = 40, false
	return []model.Config{nanoConfig(), deep, biased, few, many}
}

// draftersOf returns shapes of drafters for a model: draft models, and EAGLE-3 heads.
func draftersOf(c model.Config) []model.Config { return append(draftConfigs(), eagleConfigs(c)...) }

// eagleConfigs are shapes of EAGLE-3 heads for a model: with its embedding and tokens, and with all that a head may
// have.
func eagleConfigs(c model.Config) []model.Config {
	plain := model.Config{Name: "llama", Vocab: c.Vocab, Hidden: c.Hidden, Inner: 12, Layers: 1, Heads: 2, KVHeads: 1,
		HeadDim: 4, Context: c.Context, RMSNormEps: 1e-5, RoPETheta: 10000,
		Eagle: &model.Eagle{Vocab: c.Vocab, Target: c.Hidden, Layers: []int{0, c.Layers / 2, c.Layers - 1}}}
	normed, parts := plain, plain
	normed.Vocab, normed.Hidden, normed.HeadNorms = 11, 12, true
	normed.Eagle = &model.Eagle{Vocab: c.Vocab, Target: c.Hidden, Layers: []int{c.Layers - 1, 0}, NormedResidual: true,
		FeaturesNorm: true, NormedOutput: true, Embedding: true, Mapped: true}
	parts.Bias, parts.Windows = true, []int{9}
	parts.Eagle = &model.Eagle{Vocab: c.Vocab, Target: c.Hidden, Layers: []int{0, 0, c.Layers - 1}, PartNorms: true}
	return []model.Config{plain, normed, parts}
}

// self returns options with which the model drafts for itself.
func self() Options {
	o := nano()
	o.Draft, o.DraftTokens, o.Chunk, o.planDrafts = DraftModel, 3, 16, inTurn()
	return o
}

// greedy returns a request whose drafts stand if they are the most probable tokens.
func greedy(prompt ...int32) Request {
	return Request{Tokens: prompt, MaxTokens: 30, IgnoreEOS: true, DraftTokens: MaxDrafts}
}

// allStand checks that a request had drafts, and that all stood.
func allStand(t *testing.T, s *sink) {
	t.Helper()
	u := s.must(t).finish.Usage
	if s.finish.Err != nil || u.DraftedTokens == 0 || u.AcceptedTokens != u.DraftedTokens {
		t.Errorf("of %d tokens %d were drafted, and %d of those stood: %v", len(s.tokens), u.DraftedTokens,
			u.AcceptedTokens, s.finish.Err)
	}
}

// inTurn returns a plan of drafts with which some steps have none.
func inTurn() func([]*scheduler.Sequence) {
	steps := 0
	return func(ready []*scheduler.Sequence) {
		steps++
		for i, q := range ready {
			q.Drafts = min((steps/2+i)%4, q.MayDraft)
		}
	}
}

// A model that drafts for itself is always right about greedy requests: its keys and values are those of the model at
// every position, also where all drafts of a step stood, after steps without drafts, and where pages were moved or
// found.
func TestOwnDraftsStand(t *testing.T) {
	o := self()
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	for n := range len(prompt) {
		s, h := b.submit(greedy(prompt[:n+1]...))
		<-s.first
		for i := range 12 {
			b.Relocate(h, i%4)
		}
		allStand(t, s)
	}
	if s := b.complete(greedy(prompt...)); s.finish.Usage.CachedTokens == 0 {
		t.Error("nothing was found")
	} else {
		allStand(t, s)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// They stand as well after pages moved on the device, sequences moved to the host tier and back, and prompts found
// pages there: the draft model's part of a page moves with the model's.
func TestOwnDraftsStandWherePagesMove(t *testing.T) {
	o := self()
	o.Pages, o.HostCache, o.slabPages = nanoPool, 200*2*nanoPage, 5
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	b.eventually("the host tier", func() bool { return b.Stats().KV.HostPages == 200 })
	for round := range int32(5) {
		var sinks []*sink
		for i := range int32(8) {
			q := greedy(7, i%4, round%3, 5, 1, 2, i, 3)
			q.MaxTokens = 50
			s, h := b.submit(q)
			sinks = append(sinks, s)
			b.Relocate(h, int(round)%3)
		}
		for _, s := range sinks {
			allStand(t, s)
		}
	}
	if kv := b.Stats().KV; kv.MovedIn == 0 || kv.Loaded == 0 {
		t.Errorf("nothing moved: %+v", kv)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// And after a restart, with pages from files.
func TestOwnDraftsStandAfterARestart(t *testing.T) {
	l := newLives(t)
	o := self()
	o.Files, o.HostCache, o.slabPages = true, 40*2*64*int64(o.PageTokens), 7
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2}
	for life := range 2 {
		l.begin(o, device.HostOptions{})
		l.used()
		s := l.complete(greedy(prompt...))
		if allStand(t, s); life > 0 && s.finish.Usage.CachedTokens != 16 {
			t.Errorf("%d tokens were found", s.finish.Usage.CachedTokens)
		}
		l.written(4)
		l.end()
	}
}

// A draft model follows a sequence that may have drafts, for a bounded number of steps without them. It does not follow
// one that has none.
func TestDraftModelFollowsForAWhile(t *testing.T) {
	o := self()
	o.MaxGraphs = 0
	o.planDrafts = func([]*scheduler.Sequence) {}
	b := built(t, device.HostOptions{}, o, nil)
	followed := 0
	b.h.Trace(func(c device.Call) {
		if op, ok := c.Op.(kernels.DraftRows); ok && op.Draft == 1 {
			followed++
		}
	})
	b.run()
	for _, c := range []struct{ drafts, want int }{{MaxDrafts, mostFollowed - 1}, {0, 0}} {
		q := greedy(1, 2, 3)
		q.DraftTokens, q.MaxTokens, followed = c.drafts, 60, 0
		b.complete(q)
		b.baseline()
		if followed != c.want {
			t.Errorf("with %d drafts at most %d of 60 steps were followed, wants %d", c.drafts, followed, c.want)
		}
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// On a guarded device Check reports a write outside a layer of the draft model's part of a page.
func TestCheckFindsOverrunsOfADraftModel(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	t.Cleanup(h.Close)
	c, deep := nanoConfig(), draftConfigs()[1]
	for want, past := range map[bool]int64{false: 0, true: 1} {
		g := device.NewGuard(&planter{h, "qkv", func(op device.Op) device.Buffer {
			q := op.(kernels.QKV)
			plane := q.KV.PageBytes() / int64(q.KV.Layers)
			if q.KV.Layers != 2*deep.Layers+1 || past == 0 {
				return q.Out.Slice(0, 4)
			}
			return beside(q.KV.Data, q.KV.PageBytes()+plane*int64(q.Layer+1))
		}})
		var all [2]*model.Model
		for i, config := range []model.Config{c, deep} {
			var err error
			if all[i], err = model.Load(g, config, randomTensors{config}, func(float64) {}); err != nil {
				t.Fatal(err)
			}
		}
		o := self()
		o.DraftModel, o.Pages, o.Precapture, o.MaxGraphs, o.GraphMemory = all[1], 17, []int{3}, 20, 20000
		e, err := New(g, all[0], o)
		if err != nil {
			t.Fatal(err)
		}
		err = e.Check(func(Checked, error) {})
		if errors.Is(err, device.ErrOverrun) != want || !want && err != nil {
			t.Errorf("planted %t: %v", want, err)
		}
		if err := e.Close(); err != nil && !errors.Is(err, device.ErrOverrun) {
			t.Error(err)
		}
	}
}
