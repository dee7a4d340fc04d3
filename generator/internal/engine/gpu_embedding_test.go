//go:build cuda

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// embedderOnGPU makes an engine for a small model for embeddings. The caller runs it.
func embedderOnGPU(t *testing.T, d device.Device, o Options) *Engine {
	t.Helper()
	c := microConfig()
	c.Name, c.HeadNorms, c.HeadDim, c.Context, c.Embedding = "qwen3", true, 32, 2048, &model.Embedding{}
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	o.KVType, o.Embeddings = kernels.BF16, true
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// An embedding has the same bits alone and beside others, with exact, padded and rolled graphs, eagerly, in other
// chunks, and after a prefix of it was found.
func TestGPUGivesTheSameEmbeddings(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 27))
	prefix := tokens(r, 100)
	var prompts [][]int32
	for range 60 {
		prompts = append(prompts, slices.Concat(prefix[:r.IntN(101)], tokens(r, 1+r.IntN(60))))
	}
	var want [][]float32
	for name, change := range ways(map[string]func(*Options){
		"alone": func(o *Options) { o.MaxBatch, o.CacheScope = 1, ScopeOff },
	}) {
		o := defaults()
		change(&o)
		b := &testEngine{Engine: embedderOnGPU(t, openGPU(t), o), t: t, ended: make(chan error, 1)}
		go func() { b.ended <- b.Run() }()
		for range 2 {
			got, sinks := make([][]float32, len(prompts)), make([]*sink, len(prompts))
			for i, p := range prompts {
				request := Request{Tokens: p, MaxTokens: 1, Vector: make([]float32, b.model.Config.Hidden)}
				got[i] = request.Vector
				sinks[i], _ = b.submit(request)
			}
			for i, s := range sinks {
				if <-s.ended; s.finish.Err != nil {
					t.Fatal(s.finish.Err)
				}
				if want != nil && !slices.Equal(got[i], want[i]) {
					t.Errorf("%s: the embedding of %d tokens, %d of them cached, has other bits", name, len(prompts[i]),
						s.finish.Usage.CachedTokens)
				}
			}
			if want == nil {
				want = got
			}
		}
		b.Stop()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	}
}

// For every graph of a model for embeddings the pass can be captured, and replays equal the eager run.
func TestGPUReplayOfEmbeddingsEqualsEager(t *testing.T) {
	o := defaults()
	o.Pages = 64
	replaysEqualEager(t, embedderOnGPU(t, openGPU(t), o))
}
