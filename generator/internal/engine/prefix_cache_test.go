package engine

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
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
	return Request{Tokens: slices.Clone(c.turn), MaxTokens: 1 + c.r.IntN(4+c.r.IntN(2)*40), User: User{UID: c.user},
		Connection: c.seed % 2, Sampling: sampled(c.seed)}
}

// alone is an engine that runs one request at a time, op by op, without a cache.
type alone struct{ *testEngine }

func newAlone(t *testing.T) alone { return aloneWith(t, nanoConfig()) }

func aloneWith(t *testing.T, c model.Config) alone {
	t.Helper()
	o := nano()
	o.MaxBatch, o.MaxGraphs, o.CacheScope = 1, 0, ScopeOff
	b, err := tryBuildModel(t, c, device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	return alone{b}
}

// answer runs a request and returns its tokens.
func (a alone) answer(q Request) []Token {
	q.Cache = CacheOff
	return a.complete(q).tokens
}

// families are models whose passes differ: all rows seen or a window, RoPE in qkv or in attend, in some layers and of a
// part of each head, quantised weights; and all that OLMo, Granite and Gemma have beside that, in one model; experts;
// pages of latents; and pages whose layers differ.
func families() map[string]model.Config {
	llama, window, qwen2, qwen3, smol := nanoConfig(), nanoConfig(), nanoConfig(), nanoConfig(), nanoConfig()
	window.Layers, window.Heads, window.Windows = 2, 2, []int{7, 0}
	qwen2.Bias, qwen2.Heads = true, 2
	qwen3.HeadNorms, qwen3.Windows = true, []int{11}
	smol.Layers, smol.Rotated, smol.NoRoPE = 2, 4, []bool{true, false}
	branches := nanoConfig()
	branches.Layers, branches.Heads, branches.Windows = 2, 2, []int{9, 0}
	branches.NoNormsBefore, branches.NormsAfter, branches.WidthNorms, branches.NormsFromOne = true, true, true, true
	branches.LocalTheta, branches.Local, branches.Activation = 100, []bool{true, false}, kernels.GELUTanh
	branches.EmbeddingRoot, branches.ResidualScale, branches.AttentionScale = true, 0.5, 0.3
	branches.ScoreCap, branches.LogitsCap, branches.LogitsDivisor, branches.StreamDivisor = 5, 20, 0.5, 4
	branches.InnerDivisor = 8
	return map[string]model.Config{"llama": llama, "window": window, "qwen2": qwen2, "qwen3": qwen3,
		"smollm3": smol, "quantised": quantisedConfig(), "branches": branches, "experts": expertsConfig(),
		"latent": latentConfig(), "gemma4": gemma4Config()}
}

// gemma4Config has all that Gemma 4 has beside other families, in one model: layers of two widths of heads, some of which
// use the keys and values of others, experts beside the feed-forward, and embeddings of layers.
func gemma4Config() model.Config {
	c := wideConfig()
	c.SharedKV, c.PerLayer = &model.SharedKV{Layers: 2, Inner: 8}, 4
	c.Experts = &model.Experts{Count: 8, Used: 2, Inner: 8, Shared: 8, Normalise: true, Beside: true}
	return c
}

// wideConfig has layers of two widths of heads.
func wideConfig() model.Config {
	c := nanoConfig()
	c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Windows = 4, 2, 2, 4, []int{7, 0, 7, 0}
	c.Wide = &model.Wide{Layers: []bool{false, true, false, true}, HeadDim: 8, KVHeads: 1, KeysAreValues: true}
	c.LocalTheta, c.Local = 100, []bool{true, false, true, false}
	c.RoPE = model.RoPEScaling{Kind: model.ProportionalRoPE, Factor: 1, Fraction: 0.25}
	c.HeadNorms, c.ValueNorms, c.NormsAfter, c.LayerScales, c.AttentionScale = true, true, true, true, 1
	c.StreamDivisor, c.InnerDivisor, c.LogitsCap, c.Activation = 4, 8, 20, kernels.GELUTanh
	return c
}

// events counts what happened in engines.
type events struct {
	found, evicted, stored, loaded, moved, precaptured, rolled, padded, eager, drafted, accepted, reread int
	relocated                                                                                            int
}

// count adds what happened in an engine.
func (n *events) count(b *testEngine) {
	s := b.Stats()
	n.evicted, n.stored, n.loaded = n.evicted+int(s.KV.Evicted), n.stored+int(s.KV.Stored), n.loaded+int(s.KV.Loaded)
	n.moved += int(s.KV.MovedOut)
	g := s.Steps.Graphs
	n.precaptured, n.rolled = n.precaptured+g.Precaptured, n.rolled+g.Rolled
	n.padded, n.eager = n.padded+g.Padded, n.eager+g.Eager
	d := s.Drafts.Total()
	n.drafted, n.accepted = n.drafted+int(d.Drafted), n.accepted+int(d.Accepted)
	n.reread += int(s.Steps.RereadTokens)
}

func (n events) all() bool {
	return min(n.found, n.evicted, n.stored, n.loaded, n.moved, n.precaptured, n.rolled, n.padded, n.eager, n.accepted,
		n.drafted-n.accepted, n.reread) > 0
}

// Random conversations of three users, which share beginnings, fork, have formats and drafts, are edited in the middle,
// cancelled, moved and reread, in a pool too small for them, give the tokens and log-probabilities that they give
// without a cache and without drafts, bit for bit: with exact, rolled and padded graphs and eagerly, for models with
// windows, biases, head norms, quantised weights, experts and latents. REEL_LONG runs 1,000 conversations of each family,
// for 30 minutes: REEL_SOAK_MINUTES=30 go test -race -timeout 0 -run TestConversations
func TestConversationsGiveTheSameTokensFromTheCache(t *testing.T) {
	t.Parallel()
	var n events
	for name, c := range families() {
		t.Run(name, func(t *testing.T) {
			r, reference := seeded(t), aloneWith(t, c)
			end := time.Now().Add(soakMinutes(t) / time.Duration(len(families())))
			for i := 0; i < familyConversations()/10 || time.Now().Before(end); i++ {
				n.talk(t, r, c, reference)
			}
			if err := reference.finish(); err != nil {
				t.Error(err)
			}
		})
	}
	if t.Logf("%+v", n); !n.all() || n.relocated == 0 && familyConversations() > 500 {
		t.Error("some event that this test needs never happened")
	}
}

// tight returns random options in which 10 conversations have too few pages.
func tight(r *rand.Rand) (Options, device.HostOptions) {
	o, host := randomBounds(r)
	o.CacheScope = CacheScope(r.IntN(2))
	if r.IntN(2) == 0 {
		o.PageTokens = 1 + r.IntN(2) // sequences grow often
	}
	o.Pages = (64+o.PageTokens-1)/o.PageTokens + o.Reserve*o.ReservePages + r.IntN(5)
	if r.IntN(6) > 0 {
		o.HostCache, o.slabPages = int64((20+r.IntN(180))*64*o.PageTokens), 1+r.IntN(20)
	}
	randomDrafts(r, &o)
	return o, host
}

// talk runs 10 conversations of 4 turns at once and compares their answers with those of the reference.
func (n *events) talk(t *testing.T, r *rand.Rand, c model.Config, reference alone) {
	o, host := tight(r)
	drafters := draftersOf(c)
	b, err := tryBuildPair(t, c, drafters[r.IntN(len(drafters))], host, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.h.Trace(func(c device.Call) {
		if _, ok := c.Op.(kernels.CopyPage); ok {
			n.relocated++ // on the engine's thread
		}
	})
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
		n.found += turns(b, r, all, answers, reference)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()
	n.count(b)
}

// turns makes one turn of each conversation on b, all at once, and compares the answers with those of the reference,
// which it leaves in answers. Some requests have formats or drafts, some are cancelled, some do not use the cache or
// leave nothing there. Some of the texts are reread. It returns the number of prompt tokens that were found.
func turns(b *testEngine, r *rand.Rand, all []*conversation, answers [][]Token, reference alone) (found int) {
	b.t.Helper()
	var next [][]Token
	requests, sinks := submitTurns(b, r, all, answers, 50, func(q *Request) {
		q.Cache = CacheMode(max(0, r.IntN(8)-5))
		if r.IntN(4) == 0 {
			q.Format = randomAutomaton(r, b.model.Config.Vocab, true)
		}
		next = append(next, reference.answer(*q))
		q.DraftTokens, q.Prediction = r.IntN(1+MaxDrafts), predicted(r, next[len(next)-1], b.model.Config.Vocab)
	})
	copy(answers, next)
	for i, s := range sinks {
		<-s.ended
		if r.IntN(3) == 0 {
			b.Reread(requests[i].User, append(slices.Clone(requests[i].Tokens), ids(answers[i])...))
		}
		if n := len(s.tokens); n > len(answers[i]) || s.finish.Reason != "cancelled" && n < len(answers[i]) ||
			!slices.EqualFunc(s.tokens, answers[i][:n], sameToken) {
			b.t.Fatalf("%+v\n request %+v\n   got %v %+v\n alone %v", b.opts, requests[i], s.tokens, s.finish,
				answers[i])
		}
		found += s.finish.Usage.CachedTokens
	}
	return found
}

// submitTurns submits the next turn of each conversation, of at most limit tokens and changed by change, cancels some
// of them, and moves some of their pages.
func submitTurns(b *testEngine, r *rand.Rand, all []*conversation, answers [][]Token, limit int,
	change func(*Request)) (requests []Request, sinks []*sink) {
	b.t.Helper()
	for i, c := range all {
		q := c.next(answers[i], limit)
		change(&q)
		requests = append(requests, q)
	}
	for _, q := range requests {
		s, h := b.submit(q)
		for range r.IntN(20) { // most of their pages are shared, or there is no other
			b.Relocate(h-Handle(r.IntN(min(int(h), len(all)))), r.IntN(20))
		}
		if r.IntN(8) == 0 {
			b.Cancel(h)
		}
		sinks = append(sinks, s)
	}
	return requests, sinks
}

// soakMinutes returns how long a test that can run for any time goes on at least; REEL_SOAK_MINUTES sets it.
func soakMinutes(t *testing.T) time.Duration {
	text, ok := os.LookupEnv("REEL_SOAK_MINUTES")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Minute
}

// conversations is the number of random conversations of a test that has one model.
func conversations() int {
	if os.Getenv("REEL_LONG") != "" {
		return 1000
	}
	return 200
}

// familyConversations is that of each family.
func familyConversations() int {
	if os.Getenv("REEL_LONG") != "" {
		return 1000
	}
	return 40
}
