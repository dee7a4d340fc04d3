package engine

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// embedderConfig is the shape of a small model for embeddings.
func embedderConfig() model.Config {
	return model.Config{Name: "qwen3", Vocab: 96, Hidden: 16, Inner: 24, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 8,
		HeadNorms: true, Context: 64, RMSNormEps: 1e-6, RoPETheta: 10000, TiedHead: true, Embedding: &model.Embedding{}}
}

// embedderOptions are those of nano for such a model.
func embedderOptions() Options {
	o := nano()
	o.Embeddings = true
	return o
}

// newEmbedder runs an engine of the model for embeddings until the test ends.
func newEmbedder(t *testing.T, o Options) *testEngine {
	t.Helper()
	b, err := tryBuildModel(t, embedderConfig(), device.HostOptions{}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	t.Cleanup(func() {
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// embedding is a request for the embedding of tokens.
func embedding(tokens []int32) Request {
	return Request{Tokens: tokens, MaxTokens: 1, Vector: make([]float32, embedderConfig().Hidden)}
}

// embed returns the embedding of tokens, and the request's end.
func (b *testEngine) embed(r Request) ([]float32, *sink) {
	b.t.Helper()
	s := b.complete(r)
	if f := s.finish; f.Err != nil || f.Reason != protocol.FinishStop || len(s.tokens) > 0 ||
		f.Usage.PromptTokens != len(r.Tokens) || f.Usage.CompletionTokens != 0 {
		b.t.Errorf("an embedding of %d tokens ended with %+v and %d tokens", len(r.Tokens), f, len(s.tokens))
	}
	return r.Vector, s
}

// An embedding has the same bits alone, beside others, in any chunk, after a prefix hit, by replay and op by op, and
// with pages in the host tier; also that of a prompt that fills the context.
func TestEmbeddingsDoNotDependOnCompany(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 27))
	eager := embedderOptions()
	eager.MaxGraphs, eager.MaxBatch, eager.CacheScope, eager.Chunk = 0, 1, ScopeOff, 64
	alone := newEmbedder(t, eager)
	busy, byOne, tiered := embedderOptions(), embedderOptions(), embedderOptions()
	byOne.Chunk, byOne.Precapture = 1, []int{1}
	tiered.Pages, tiered.HostCache = 20, 1<<20
	engines := map[string]*testEngine{"chunks of 8": newEmbedder(t, busy), "chunks of 1": newEmbedder(t, byOne),
		"host tier": newEmbedder(t, tiered)}
	prefix := tokens(r, 40)
	prompts := [][]int32{tokens(r, 1), tokens(r, 64), prefix, slices.Concat(prefix, tokens(r, 3)), prefix[:8]}
	for range 10 {
		prompts = append(prompts, slices.Concat(prefix[:r.IntN(41)], tokens(r, 1+r.IntN(20))))
	}
	var want [][]float32
	for _, p := range prompts {
		v, _ := alone.embed(embedding(p))
		want = append(want, slices.Clone(v))
	}
	for name, e := range engines {
		for range 2 { // the second time all are cached
			var requests []Request
			var sinks []*sink
			for _, i := range r.Perm(len(prompts)) {
				requests = append(requests, embedding(prompts[i]))
				s, _ := e.submit(requests[len(requests)-1])
				sinks = append(sinks, s)
			}
			for i, s := range sinks {
				<-s.ended
				at := slices.IndexFunc(prompts, func(p []int32) bool { return slices.Equal(p, requests[i].Tokens) })
				if s.finish.Err != nil || !slices.Equal(requests[i].Vector, want[at]) {
					t.Errorf("%s: the embedding of %d tokens has other bits beside others: %v", name, len(prompts[at]),
						s.finish.Err)
				}
			}
		}
		if hits := e.Stats().Cache.Hits; hits == 0 {
			t.Errorf("%s: no prompt found cached pages", name)
		}
	}
}

// A prefix hit counts, and neither tokens nor pages of a result are left.
func TestEmbeddingsCountCachedTokens(t *testing.T) {
	b := newEmbedder(t, embedderOptions())
	prompt := tokens(rand.New(rand.NewPCG(rand.Uint64(), 27)), 21)
	first, s := b.embed(embedding(prompt))
	again, hit := b.embed(embedding(prompt))
	if !slices.Equal(first, again) || s.finish.Usage.CachedTokens != 0 || hit.finish.Usage.CachedTokens != 20 {
		t.Errorf("cached tokens %d and %d, want 0 and 20; bits are equal: %v", s.finish.Usage.CachedTokens,
			hit.finish.Usage.CachedTokens, slices.Equal(first, again))
	}
	b.baseline()
	if n := b.Stats().Steps; n.Tokens != 0 || n.Decode != 0 || n.Prefill == 0 {
		t.Errorf("steps %+v", n)
	}
}

// Requests of the other kind are refused, and so are vectors of another width and prompts that do not fit.
func TestEmbeddingsAreOfModelsForThem(t *testing.T) {
	embedder, other := newEmbedder(t, embedderOptions()), built(t, device.HostOptions{}, nano(), nil)
	other.run()
	defer other.finish()
	narrow, long := embedding([]int32{1}), embedding(make([]int32, 65))
	narrow.Vector = narrow.Vector[1:]
	for name, c := range map[string]struct {
		e    *testEngine
		r    Request
		want error
	}{
		"a completion":    {embedder, Request{Tokens: []int32{1}, MaxTokens: 1}, ErrOtherModel},
		"an embedding":    {other, embedding([]int32{1}), ErrOtherModel},
		"narrow":          {embedder, narrow, ErrOtherModel},
		"long":            {embedder, long, ErrTooLong},
		"no tokens":       {embedder, embedding(nil), ErrTooLong},
		"a full context":  {embedder, embedding(make([]int32, 64)), nil},
		"full, to extend": {other, Request{Tokens: make([]int32, 64), MaxTokens: 1}, ErrTooLong},
	} {
		c.r.Sink = newSink()
		if _, err := c.e.Submit(&c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A cancelled request for an embedding ends, and gives everything back.
func TestEmbeddingsAreCancelled(t *testing.T) {
	b := newEmbedder(t, embedderOptions())
	for range 50 {
		s, h := b.submit(embedding(make([]int32, 60)))
		b.Cancel(h)
		<-s.ended
		f := s.finish
		if f.Err != nil || f.Reason != protocol.FinishCancelled && f.Reason != protocol.FinishStop {
			t.Fatalf("ended with %+v", f)
		}
	}
	b.baseline()
}

// Every shape of a model for embeddings can be captured, and replays, padded ones too, leave the same vectors.
func TestEmbeddingsReplayIsEager(t *testing.T) {
	b, err := tryBuildModel(t, embedderConfig(), device.HostOptions{}, embedderOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	err = b.Check(func(c Checked, err error) { checked += c.Verified })
	if err = errors.Join(err, b.Close()); err != nil || checked < 3 {
		t.Errorf("%d replays verified: %v", checked, err)
	}
}

// badNorm has a final norm with an infinity.
type badNorm struct{ randomTensors }

func (b badNorm) Tensor(name string) (weights.Tensor, error) {
	t, err := b.randomTensors.Tensor(name)
	if name == "model.norm.weight" {
		bits := math.Float32bits(float32(math.Inf(1))) >> 16
		t.Data[0], t.Data[1] = byte(bits), byte(bits>>8)
	}
	return t, err
}

// A vector that is not finite ends its request with ErrNumeric.
func TestEmbeddingsAreFinite(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 1, GraphBytes: 1000})
	defer h.Close()
	c := embedderConfig()
	m, err := model.Load(h, c, badNorm{randomTensors{c}}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	b := &testEngine{t: t, h: h, ended: make(chan error, 1), weights: h.Live()}
	if b.Engine, err = New(h, m, embedderOptions()); err != nil {
		t.Fatal(err)
	}
	b.run()
	if s := b.complete(embedding([]int32{1, 2, 3})); !errors.Is(s.finish.Err, ErrNumeric) {
		t.Errorf("ended with %+v, want %v", s.finish, ErrNumeric)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
