//go:build cuda

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// On a GPU too, the turns of a conversation go on from pages that were reread, which are of prompt class, and have the
// tokens and log-probabilities that they have without a cache, bit for bit: with exact and padded graphs and eagerly.
func TestGPUNextTurnFindsWhatWasReread(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for name, change := range map[string]func(*Options){
		"exact":  func(*Options) {},
		"padded": func(o *Options) { o.Precapture, o.MaxGraphs = []int{32}, 12 },
		"eager":  func(o *Options) { o.MaxGraphs = 0 },
	} {
		o := defaults()
		change(&o)
		b := runOnGPU(t, o)
		var turn []int32
		for i := range uint64(4) {
			history := len(turn)
			turn = append(turn, tokens(r, 1+r.IntN(60))...)
			q := Request{Tokens: slices.Clone(turn), MaxTokens: 1 + r.IntN(50), Sampling: sampled(i)}
			s := b.complete(q)
			q.Cache = CacheOff
			if alone := b.complete(q); !slices.EqualFunc(s.tokens, alone.tokens, sameToken) {
				t.Errorf("%s, turn %d: other tokens than without a cache", name, i)
			}
			if found, want := s.finish.Usage.CachedTokens, foundOf(history, o.PageTokens); found != want {
				t.Errorf("%s, turn %d found %d tokens, wants %d", name, i, found, want)
			}
			turn = append(turn, ids(s.tokens)...)
			b.reread(0, turn)
		}
	}
}
