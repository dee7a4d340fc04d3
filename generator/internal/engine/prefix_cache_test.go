package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// conversation is a random conversation: each turn's prompt is the one before it, its answer, and new words; some
// turns edit a token in the middle or go back to an earlier turn.
type conversation struct {
	r     *rand.Rand
	begin []int32
	turn  []int32
	user  uint32
	seed  uint64
}

// next returns the request of the next turn, after answer.
func (c *conversation) next(answer []Token, limit int) Request {
	for _, t := range answer {
		c.turn = append(c.turn, t.ID)
	}
	for range 1 + c.r.IntN(9) {
		c.turn = append(c.turn, int32(c.r.IntN(16)))
	}
	switch at := c.r.IntN(len(c.turn)); c.r.IntN(6) {
	case 0:
		c.turn[at] = int32(c.r.IntN(16))
	case 1:
		c.turn = c.turn[:at+1]
	}
	if len(c.turn) > limit {
		c.turn = slices.Clone(c.begin)
	}
	c.seed++
	return Request{Tokens: slices.Clone(c.turn), MaxTokens: 1 + c.r.IntN(4+c.r.IntN(2)*40), User: c.user,
		Connection: c.seed % 2, Sampling: sampled(c.seed)}
}

// answers runs requests on an engine without a cache, one after another, and returns the tokens of each.
func (a *alone) answer(q Request) []Token {
	q.Cache = CacheOff
	return a.complete(q).tokens
}

// alone is an engine that runs one request at a time, op by op, without a cache.
type alone struct{ *testEngine }

func newAlone(t *testing.T) alone {
	t.Helper()
	o := nano()
	o.MaxBatch, o.MaxGraphs, o.CacheScope = 1, 0, ScopeOff
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	return alone{b}
}

// Random conversations of three users, which share beginnings, fork, are edited in the middle and cancelled, in a
// pool too small for them, give the tokens and log-probabilities that they give without a cache, bit for bit.
func TestConversationsGiveTheSameTokensFromTheCache(t *testing.T) {
	r := seeded(t)
	reference := newAlone(t)
	var hits, evicted, stored, loaded, moved int
	for range conversations() / 10 {
		o, host := randomBounds(r)
		o.CacheScope = CacheScope(r.IntN(2))
		o.Pages = (64+o.PageTokens-1)/o.PageTokens + o.Reserve*o.ReservePages + r.IntN(10)
		if r.IntN(4) > 0 {
			o.HostCache, o.slabPages = int64(r.IntN(200)*64*o.PageTokens), 1+r.IntN(20)
		}
		b := built(t, host, o, nil)
		b.run()
		begin := make([]int32, 1+r.IntN(30))
		for i := range begin {
			begin[i] = int32(r.IntN(16))
		}
		var all []*conversation
		answers := make([][]Token, 10)
		for i := range 10 {
			all = append(all, &conversation{r: r, begin: begin, turn: slices.Clone(begin), user: uint32(i % 3), seed: r.Uint64()})
		}
		for range 4 {
			var requests []Request
			var sinks []*sink
			for i, c := range all {
				q := c.next(answers[i], 50)
				q.Cache = CacheMode(max(0, r.IntN(8)-5))
				s, h := b.submit(q)
				if r.IntN(8) == 0 {
					b.Cancel(h)
				}
				requests, sinks = append(requests, q), append(sinks, s)
			}
			for i, s := range sinks {
				<-s.ended
				answers[i] = reference.answer(requests[i])
				if n := len(s.tokens); n > len(answers[i]) || s.finish.Reason != "cancelled" && n < len(answers[i]) ||
					!slices.EqualFunc(s.tokens, answers[i][:n], sameToken) {
					t.Fatalf("%+v\n request %+v\n   got %v %+v\n alone %v", o, requests[i], s.tokens, s.finish, answers[i])
				}
				hits += s.finish.Usage.CachedTokens
			}
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
		b.baseline()
		kv := b.Stats().KV
		evicted, stored, loaded, moved = evicted+int(kv.Evicted), stored+int(kv.Stored), loaded+int(kv.Loaded), moved+int(kv.MovedOut)
	}
	if err := reference.finish(); err != nil {
		t.Error(err)
	}
	t.Logf("%d tokens found, %d pages evicted, %d stored, %d loaded, %d sequences moved out", hits, evicted, stored,
		loaded, moved)
	if min(hits, evicted, stored, loaded, moved) == 0 {
		t.Error("some event that this test needs never happened")
	}
}

// conversations is the number of random conversations.
func conversations() int {
	if testing.Short() {
		return 200
	}
	return 1000
}
