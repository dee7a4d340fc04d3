//go:build cuda

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// On a GPU, conversations that share beginnings, fork and are cancelled, in a pool so small that pages are stored,
// loaded and evicted and sequences move, give the tokens and log-probabilities that they give without a cache, bit for
// bit: with exact, rolled and padded graphs and eagerly.
func TestGPUConversationsGiveTheSameTokensFromTheCache(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var n events
	for name, change := range map[string]func(*Options){
		"exact":  func(*Options) {},
		"padded": func(o *Options) { o.Precapture, o.MaxGraphs = []int{32}, 12 },
		"eager":  func(o *Options) { o.MaxGraphs = 0 },
		"rolled": func(o *Options) { o.Precapture, o.MaxGraphs = []int{}, 40 },
	} {
		o := defaults()
		o.Pages, o.MaxBatch, o.HostCache, o.slabPages = 80, 8, 4<<20, 64
		change(&o)
		b := runOnGPU(t, o)
		begin := tokens(r, 40)
		var all []*conversation
		for i := range 10 {
			all = append(all, &conversation{r: r, begin: begin, turn: slices.Clone(begin), user: uint32(i % 3), seed: r.Uint64()})
		}
		answers := make([][]Token, len(all))
		for range 6 {
			var requests []Request
			var sinks []*sink
			for i, c := range all {
				q := c.next(answers[i], 300)
				q.MaxTokens = 1 + r.IntN(120)
				s, h := b.submit(q)
				if r.IntN(8) == 0 {
					b.Cancel(h)
				}
				requests, sinks = append(requests, q), append(sinks, s)
			}
			for _, s := range sinks {
				<-s.ended
			}
			for i, s := range sinks {
				q := requests[i]
				q.Cache = CacheOff
				answers[i] = b.complete(q).tokens
				if !slices.EqualFunc(s.tokens, answers[i][:min(len(s.tokens), len(answers[i]))], sameToken) {
					t.Fatalf("%s: request %+v\n   got %v %+v\n alone %v", name, requests[i], s.tokens, s.finish, answers[i])
				}
				n.found += s.finish.Usage.CachedTokens
			}
		}
		n.count(b)
	}
	if t.Logf("%+v", n); !n.all() {
		t.Error("some event that this test needs never happened")
	}
}
