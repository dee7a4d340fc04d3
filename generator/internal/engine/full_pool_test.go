package engine

import (
	"os"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels/device"
)

// fullPoolRequests is how many sequences pass through the full pool. REEL_LONG makes it 10,000.
func fullPoolRequests() int {
	if os.Getenv("REEL_LONG") != "" {
		return 10_000
	}
	return 600
}

// Thousands of sequences through a pool that is always full, with a host tier and the roller, take no more memory of
// the device than the engine took at its start and the bounds of host tier and graphs allow.
func TestFullPoolTakesNoMoreMemory(t *testing.T) {
	r := seeded(t)
	o := nano()
	o.Pages, o.HostCache, o.slabPages = 24, 4000, 4
	o.Precapture = []int{}
	b := built(t, device.HostOptions{}, o, nil)
	before := b.h.Live()
	bound := before.Bytes - b.pool.Stats().Bytes + o.GraphMemory
	b.run()
	const page = 64 * 4
	host := o.HostCache / page * page
	b.eventually("the host tier is pinned", func() bool { return int64(b.Stats().KV.HostPages)*page == host })
	bound += host
	var sinks []*sink
	for range fullPoolRequests() {
		q := Request{Tokens: make([]int32, 1+r.IntN(40)), MaxTokens: 1 + r.IntN(20), User: User{UID: uint32(r.IntN(3))}}
		for i := range q.Tokens {
			q.Tokens[i] = int32(r.IntN(2))
		}
		s, _ := b.submit(q)
		if sinks = append(sinks, s); len(sinks) == 12 {
			sinks[0].must(t)
			sinks = sinks[1:]
		}
		if live := b.h.Live(); live.Bytes > bound {
			t.Fatalf("%d bytes, wants at most %d: %+v", live.Bytes, bound, live)
		}
	}
	for _, s := range sinks {
		s.must(t)
	}
	s := b.Stats()
	t.Logf("%d bytes at the start, %d with tier and graphs; %+v; %+v", before.Bytes, b.h.Live().Bytes, s.KV, s.Graphs)
	if s.KV.Stored == 0 || s.KV.Loaded == 0 || s.KV.Evicted == 0 || s.Graphs.Rolled == 0 || s.Graphs.Evicted == 0 {
		t.Error("some event that this test needs never happened")
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// A prompt whose tokens are nearly all found gives the tokens that it gives alone, with a penalty on tokens that lie
// on both sides of the border.
func TestLongHistoryIsRestored(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	c := nanoConfig()
	c.Context, c.Windows = n+200, []int{40} // of few positions each, so that the prompt is soon computed
	o := nano()
	o.Context, o.Chunk, o.PageTokens, o.MaxGraphs = c.Context, 512, 16, 0
	o.Pages = 2 * (c.Context/o.PageTokens + 1)
	b := builtModel(t, c, o)
	b.run()
	r := seeded(t)
	q := Request{Tokens: make([]int32, n+1), MaxTokens: 60, IgnoreEOS: true,
		Sampling: Sampling{RepeatPenalty: 3, Logprobs: 3}}
	for i := range q.Tokens {
		q.Tokens[i] = int32(r.IntN(16))
	}
	for i := range q.Tokens[n-300:] { // so that a penalty on others of the 16 tokens changes the greedy choice
		q.Tokens[n-300+i] = int32(i % 8)
	}
	without, other := b.complete(q), q
	other.Tokens = append(slices.Clone(q.Tokens[:n-200]), make([]int32, 250)...)
	other.MaxTokens = 1
	b.complete(other) // its history is in the slot now
	with := b.complete(q)
	if found := with.finish.Usage.CachedTokens; found != n/16*16 {
		t.Errorf("%d tokens of %d were found", found, n)
	}
	if !slices.EqualFunc(with.tokens, without.tokens, sameToken) {
		t.Errorf("%v, wants %v", with.tokens, without.tokens)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// builtModel is built for a model of this shape.
func builtModel(t testing.TB, c model.Config, o Options) *testEngine {
	t.Helper()
	b, err := tryBuildModel(t, c, device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Two sequences of 4,096 tokens and more, of which the pool holds one and a half, move out and come back, and give
// the tokens that they give alone.
func TestLongSequenceComesBack(t *testing.T) {
	const n = 4096
	c := nanoConfig()
	c.Context, c.Windows = n+1200, []int{40}
	o := nano()
	o.Context, o.Chunk, o.PageTokens, o.MaxGraphs = c.Context, 512, 16, 0
	o.Pages = 2*n/o.PageTokens + 40 // two prompts, and little to grow
	r := seeded(t)
	var requests []Request
	for range 2 {
		q := Request{Tokens: make([]int32, n), MaxTokens: 1000, IgnoreEOS: true, Cache: CacheOff,
			Sampling: Sampling{Temperature: 1, TopP: 1, RepeatPenalty: 1.3, Seed: r.Uint64()}}
		for i := range q.Tokens {
			q.Tokens[i] = int32(r.IntN(16))
		}
		requests = append(requests, q)
	}
	o.HostCache = int64(3*c.Context/o.PageTokens) * 1024
	alone, b := builtModel(t, c, withoutTier(o)), builtModel(t, c, o)
	alone.run()
	b.run()
	b.eventually("the host tier is pinned", func() bool { return int64(b.Stats().KV.HostPages)*1024 == o.HostCache })
	var sinks []*sink
	for _, q := range requests {
		s, _ := b.submit(q)
		sinks = append(sinks, s)
	}
	for i, s := range sinks {
		if want := alone.complete(requests[i]); !slices.EqualFunc(s.must(t).tokens, want.tokens, sameToken) {
			t.Errorf("request %d gives other tokens than alone", i)
		}
	}
	if kv := b.Stats().KV; kv.MovedOut == 0 || kv.MovedIn == 0 {
		t.Errorf("no sequence moved: %+v", kv)
	}
	for _, e := range []*testEngine{alone, b} {
		if err := e.finish(); err != nil {
			t.Error(err)
		}
	}
}

func withoutTier(o Options) Options {
	o.HostCache = 0
	return o
}
