package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// edited returns s with some of presence and frequency penalty and biases, at random.
func edited(r *rand.Rand, s Sampling, vocab int) Sampling {
	if r.IntN(3) > 0 {
		s.PresencePenalty = 4*r.Float32() - 2
	}
	if r.IntN(3) > 0 {
		s.FrequencyPenalty = 4*r.Float32() - 2
	}
	for _, id := range r.Perm(vocab)[:r.IntN(5)] {
		s.Biases = append(s.Biases, Bias{Token: int32(id), Value: 6*r.Float32() - 3})
	}
	return s
}

// The penalties count the completion and not the prompt, and biases are added. The values are so large that the
// model's logits do not matter.
func TestEditsReachTheSampler(t *testing.T) {
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	biases := []Bias{{Token: 3, Value: 1000}, {Token: 5, Value: 900}}
	for name, c := range map[string]struct {
		s    Sampling
		want []int32
	}{
		"biases":    {Sampling{Biases: biases}, []int32{3, 3, 3, 3, 3, 3}},
		"presence":  {Sampling{Biases: biases, PresencePenalty: 500}, []int32{3, 5, 3, 3, 3, 3}},
		"frequency": {Sampling{Biases: biases, FrequencyPenalty: 150}, []int32{3, 5, 3, 5, 3, 5}},
	} {
		for range 2 { // the second time, the prompt's pages are found and the slot is restored
			q := Request{Tokens: []int32{3, 3, 3, 5, 3, 3, 3, 3, 3}, MaxTokens: len(c.want), Sampling: c.s}
			var got []int32
			for _, token := range b.complete(q).tokens {
				got = append(got, token.ID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
	if b.Stats().Cache.Hits == 0 {
		t.Error("no prompt was found in the cache")
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// A model's suppressed tokens are never drawn, whatever a request's biases are. Of 16 tokens one is left here.
func TestSuppressedTokensAreNeverDrawn(t *testing.T) {
	c := nanoConfig()
	for id := range int32(16) {
		if id != 7 {
			c.Suppressed = append(c.Suppressed, id)
		}
	}
	b, err := tryBuildModel(t, c, device.HostOptions{}, nano(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	few := []Bias{{Token: 3, Value: 1000}, {Token: 7, Value: -1000}}
	for name, s := range map[string]Sampling{
		"greedy": {}, "biased": {Biases: few}, "drawn": {Temperature: 2, TopP: 1, RepeatPenalty: 1, Seed: 5, Biases: few},
		"many": {Biases: slices.Repeat(few[:1], kernels.MaxBiases)},
	} {
		for range 2 { // the second time, the prompt's pages are found and the slot is restored
			got := b.complete(Request{Tokens: []int32{3, 3, 3, 5, 3, 3, 3, 3, 3}, MaxTokens: 4, Sampling: s})
			if len(got.tokens) != 4 || slices.ContainsFunc(got.tokens, func(x Token) bool { return x.ID != 7 }) {
				t.Errorf("%s: %+v, %+v", name, got.tokens, got.finish)
			}
		}
	}
	q := Request{Tokens: []int32{1}, MaxTokens: 1, Sink: newSink()}
	q.Sampling.Biases = slices.Repeat(few[1:], kernels.MaxBiases-len(c.Suppressed))
	b.complete(q)
	q.Sampling.Biases = append(q.Sampling.Biases, few[1])
	if _, err := b.Submit(&q); !errors.Is(err, ErrTooManyBiases) {
		t.Errorf("one bias too many: %v", err)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}

// Sequences with penalties and biases move out to the host tier, come back in other slots, and give the tokens that
// they give alone.
func TestEditsMoveWithTheirSequence(t *testing.T) {
	r := seeded(t)
	var requests []Request
	for i := range 8 {
		q := Request{Tokens: make([]int32, 1+r.IntN(8)), MaxTokens: 40, IgnoreEOS: true, Cache: CacheOff,
			Sampling: edited(r, sampled(uint64(i)), 16)}
		q.Sampling.Biases = append(q.Sampling.Biases[:0:0], Bias{Token: int32(i), Value: 4})
		requests = append(requests, q)
	}
	a := askEach(t, requests)
	o := tiered(20)
	b := built(t, device.HostOptions{}, o, nil)
	b.run()
	b.eventually("the host tier", func() bool { return int64(b.Stats().KV.HostPages)*nanoPage == o.HostCache })
	for range 3 {
		a.atOnce(t, b)
	}
	if kv := b.Stats().KV; kv.MovedOut == 0 || kv.MovedIn == 0 {
		t.Errorf("no sequence moved: %+v", kv)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
