//go:build cuda

package engine

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// On a GPU, conversations that share beginnings, fork, have drafts and are cancelled, in a pool so small that pages are
// stored, loaded and evicted and sequences move, give the tokens and log-probabilities that they give without a cache
// and without drafts, bit for bit: with exact, rolled and padded graphs and eagerly. There are 40 of 6 turns each;
// REEL_LONG makes it 1,000.
func TestGPUConversationsGiveTheSameTokensFromTheCache(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	groups := 1
	if os.Getenv("REEL_LONG") != "" {
		groups = 25
	}
	var n events
	const page = 4096 // bytes
	for name, change := range map[string]func(*Options){
		"exact": func(o *Options) { o.Draft = DraftGiven },
		"padded": func(o *Options) {
			o.Precapture, o.MaxGraphs, o.HostCache, o.Draft = []int{32}, 12, 128*page, DraftModel
		},
		"eager": func(o *Options) { o.MaxGraphs = 0 },
		"rolled": func(o *Options) {
			o.Precapture, o.MaxGraphs, o.HostCache = []int{}, 40, 128*page
			o.Gap, o.lead = 500*time.Microsecond, 50*time.Microsecond
		},
	} {
		o := defaults()
		o.Pages, o.MaxBatch, o.HostCache, o.slabPages = 80, 8, 1024*page, 64
		o.Draft, o.DraftTokens, o.planDrafts = DraftLookup, MaxDrafts, randomPlan(r.Uint64(), MaxDrafts)
		change(&o)
		b := runOnGPU(t, o)
		for range groups {
			tenConversations(t, b, r, name, &n)
		}
		n.count(b)
	}
	if t.Logf("%+v", n); !n.all() {
		t.Error("some event that this test needs never happened")
	}
}

// tenConversations runs six turns of ten conversations with one beginning at once, and compares each answer with the
// same request alone, without a cache and without drafts.
func tenConversations(t *testing.T, b *testEngine, r *rand.Rand, name string, n *events) {
	t.Helper()
	begin := tokens(r, 40)
	var all []*conversation
	for i := range 10 {
		all = append(all, &conversation{r: r, begin: begin, turn: slices.Clone(begin), user: uint32(i % 3), seed: r.Uint64()})
	}
	answers := make([][]Token, len(all))
	for range 6 {
		var next [][]Token
		requests, sinks := submitTurns(b, r, all, answers, 300, func(q *Request) {
			q.MaxTokens, q.Cache = 1+r.IntN(120), CacheOff
			next = append(next, b.complete(*q).tokens)
			q.Cache, q.DraftTokens, q.Prediction = CacheOn, r.IntN(1+MaxDrafts), predicted(r, next[len(next)-1], 96)
		})
		for _, s := range sinks {
			<-s.ended
		}
		copy(answers, next)
		for i, s := range sinks {
			if r.IntN(4) == 0 {
				b.reread(requests[i].User.UID, append(slices.Clone(requests[i].Tokens), ids(answers[i])...))
			}
			if !slices.EqualFunc(s.tokens, answers[i][:min(len(s.tokens), len(answers[i]))], sameToken) {
				t.Fatalf("%s: request %+v\n   got %v %+v\n alone %v", name, requests[i], s.tokens, s.finish, answers[i])
			}
			n.found += s.finish.Usage.CachedTokens
		}
	}
}
