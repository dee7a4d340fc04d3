//go:build cuda

package engine

import "testing"

// Thousands of sequences through a GPU's pool that is always full, with a host tier, drafts and the roller, take no more
// memory of the GPU after the first thousand, and the host tier stays within its bound. REEL_LONG makes it 10,000
// sequences after the first ones.
func TestGPUFullPoolTakesNoMoreMemory(t *testing.T) {
	r, d := seeded(t), openGPU(t)
	o := defaults()
	const page = 4096 // bytes
	o.Pages, o.MaxBatch, o.HostCache, o.slabPages = 80, 8, 512*page, 64
	o.Precapture, o.MaxGraphs = []int{}, 40
	o.Draft, o.DraftTokens, o.planDrafts = DraftLookup, MaxDrafts, randomPlan(r.Uint64())
	b := &testEngine{Engine: builtOn(t, d, o), t: t, ended: make(chan error, 1)}
	b.run()
	b.eventually("the host tier is pinned", func() bool { return int64(b.Stats().KV.HostPages)*page == o.HostCache })
	through := func(n int) {
		var sinks []*sink
		for range n {
			q := Request{Tokens: tokens(r, 1+r.IntN(100)), MaxTokens: 1 + r.IntN(40), User: User{UID: uint32(r.IntN(3))},
				Sampling: randomSampling(r, microConfig().Vocab), DraftTokens: MaxDrafts}
			s, _ := b.submit(q)
			if sinks = append(sinks, s); len(sinks) == 12 {
				sinks[0].must(t)
				sinks = sinks[1:]
			}
		}
		for _, s := range sinks {
			s.must(t)
		}
	}
	through(1000)
	before := used(t, d)
	through(fullPoolRequests())
	s, grown := b.Stats(), used(t, d)-before
	t.Logf("device memory grew by %d bytes; %+v; %+v", grown, s.KV, s.Graphs)
	if grown > 0 || int64(s.KV.HostPages)*page > o.HostCache {
		t.Errorf("device memory grew by %d bytes; the tier has %d pages", grown, s.KV.HostPages)
	}
	if s.KV.Stored == 0 || s.KV.Loaded == 0 || s.KV.Evicted == 0 || s.Graphs.Rolled == 0 || s.Graphs.Evicted == 0 {
		t.Error("some event that this test needs never happened")
	}
	b.Stop()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
}
