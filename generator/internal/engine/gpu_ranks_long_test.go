//go:build cuda

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// The rows of steps on a GPU, as plans have them.
const (
	gpuChunkRows = 416
	gpuLongRows  = 1536
)

// gpuLongConfigs are models that two GPUs share in long steps: parts of rounded rows are handed over, or float32 rows
// are exchanged, since parts of the feed-forward are no whole blocks or norms follow the results. Gates with more
// output tiles than slices have stream-K's kernel up to 639 rows, all others that of whole output tiles.
func gpuLongConfigs() map[string]model.Config {
	handed := model.Config{Name: "llama", Vocab: 320, Hidden: 1024, Inner: 4096, Layers: 3, Heads: 16, KVHeads: 4,
		HeadDim: 64, Context: 4096, RMSNormEps: 1e-5, RoPETheta: 10000, Ranks: 2}
	gates, uneven, normed := handed, handed, handed
	gates.Hidden, gates.Inner, gates.Heads, gates.HeadDim = 256, 17408, 4, 128
	uneven.Inner = 4176
	normed.NormsAfter = true
	return map[string]model.Config{"parts": handed, "many gates": gates, "uneven parts": uneven, "norms after": normed}
}

// longOnGPUs are options with long steps.
func longOnGPUs() Options {
	o := defaults()
	o.Context, o.Pages, o.Precapture, o.KVType = 4096, 4096, []int{16, 208, gpuChunkRows}, kernels.BF16
	o.Chunk, o.LongChunk = gpuChunkRows, gpuLongRows
	return o
}

// loadOnTwo loads a model on two GPUs. The test closes them.
func loadOnTwo(t *testing.T, c model.Config) (device.Device, *model.Model) {
	t.Helper()
	d := openGPUs(t)
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	return d, m
}

// runOnTwo runs an engine, has use use it, and ends it.
func runOnTwo(t *testing.T, d device.Device, m *model.Model, o Options, use func(b *testEngine)) {
	t.Helper()
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	b := &testEngine{Engine: e, t: t, ended: make(chan error, 1)}
	go func() { b.ended <- e.Run() }()
	use(b)
	e.Stop()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
}

// longStepPrompts returns prompts of 430 to 3,000 tokens: as many as kernels change at, and random numbers of them.
func longStepPrompts() (all [][]int32) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 41))
	for _, n := range []int{430, 639, 640, 768, 1000, 1537, 2000, 3000, 430 + r.IntN(2571), 430 + r.IntN(2571)} {
		all = append(all, tokens(r, n))
	}
	return all
}

// On two GPUs prompts give the same tokens and log-probabilities, bit for bit, in long steps and in steps of a chunk:
// alone and all at once, eagerly and from rolled graphs, and in other long steps.
func TestTwoGPUsLongStepsGiveTheSameTokens(t *testing.T) {
	for name, c := range gpuLongConfigs() {
		t.Run(name, func(t *testing.T) {
			d, m := loadOnTwo(t, c)
			var requests []Request
			for _, p := range longStepPrompts() {
				requests = append(requests, Request{Tokens: p, MaxTokens: 6, Sampling: sampled(7), Cache: CacheOff})
			}
			want, inChunks := [][]Token(nil), uint64(0)
			short := longOnGPUs()
			short.LongChunk, short.MaxGraphs = 0, 0
			runOnTwo(t, d, m, short, func(b *testEngine) {
				for _, q := range requests {
					want = append(want, b.complete(q).tokens)
				}
				inChunks = b.Stats().Steps.Prefill
			})
			for way, change := range map[string]func(*Options){
				"rolled": func(*Options) {},
				"eager":  func(o *Options) { o.MaxGraphs = 0 },
				"paced":  func(o *Options) { o.Gap = time.Second },
				"others": func(o *Options) { o.LongChunk = 1200 },
			} {
				o := longOnGPUs()
				change(&o)
				runOnTwo(t, d, m, o, func(b *testEngine) {
					longSteps(t, name+", "+way, b, requests, want, inChunks)
				})
			}
		})
	}
}

// longSteps compares what an engine with long steps gives with what is wanted: three times alone, so that graphs are
// rolled, then all at once. It must take fewer steps than there are chunks.
func longSteps(t *testing.T, name string, b *testEngine, requests []Request, want [][]Token, inChunks uint64) {
	t.Helper()
	check := func(how string, i int, s *sink) {
		q, same := requests[i], slices.EqualFunc(s.tokens, want[i], sameToken)
		if s.finish.Err != nil || len(s.tokens) != q.MaxTokens || !same {
			t.Errorf("%s, %s: %d tokens of a prompt of %d differ from those of short steps, %v", name, how,
				len(s.tokens), len(q.Tokens), s.finish.Err)
		}
	}
	for range 3 {
		for i, q := range requests {
			check("alone", i, b.complete(q))
		}
	}
	alone := b.Stats().Steps.Prefill
	var sinks []*sink
	for _, q := range requests {
		s, _ := b.submit(q)
		sinks = append(sinks, s)
	}
	for i, s := range sinks {
		<-s.ended
		check("beside others", i, s)
	}
	steps := b.Stats().Steps
	t.Logf("%s: %d steps alone, %d in chunks; at once %d; %d from rolled graphs", name, alone/3, inChunks,
		steps.Prefill-alone, steps.Graphs.Rolled)
	if alone >= 3*inChunks {
		t.Errorf("%s: %d steps for prompts alone, three times, and %d once in chunks", name, alone, inChunks)
	}
}

// For graphs of long steps the pass can be captured on both GPUs, and replays equal the eager run on both.
func TestTwoGPUsReplayOfLongStepsEqualsEager(t *testing.T) {
	for name, c := range gpuLongConfigs() {
		t.Run(name, func(t *testing.T) {
			o := longOnGPUs()
			o.Pages, o.MaxBatch = 1040, 2
			o.Precapture = []int{417, 500, 639, 640, 700, 768, 1000, 1152, gpuLongRows}
			if k := o.Lattice()[0]; k.Tokens() != gpuLongRows {
				t.Fatalf("the largest key is %s", k)
			}
			replaysEqualEager(t, onGPUs(t, openGPUs(t), c, o))
		})
	}
}

// On two GPUs embeddings have the same bits in steps of 416 and of 1,536 rows.
func TestTwoGPUsLongStepsGiveTheSameEmbeddings(t *testing.T) {
	c := gpuLongConfigs()["parts"]
	c.Name, c.HeadNorms, c.Embedding = "qwen3", true, &model.Embedding{}
	d, m := loadOnTwo(t, c)
	prompts := longStepPrompts()
	var want [][]float32
	for _, rows := range []int{gpuChunkRows, gpuLongRows} {
		o := longOnGPUs()
		o.Chunk, o.LongChunk, o.Embeddings, o.CacheScope = rows, 0, true, ScopeOff
		runOnTwo(t, d, m, o, func(b *testEngine) {
			var sinks []*sink
			var got [][]float32
			for _, p := range prompts {
				request := Request{Tokens: p, MaxTokens: 1, Vector: make([]float32, c.Hidden)}
				got = append(got, request.Vector)
				s, _ := b.submit(request)
				sinks = append(sinks, s)
			}
			for i, s := range sinks {
				if <-s.ended; s.finish.Err != nil {
					t.Fatal(s.finish.Err)
				}
				if want != nil && !slices.Equal(got[i], want[i]) {
					t.Errorf("the embedding of %d tokens has other bits in steps of %d", len(prompts[i]), rows)
				}
			}
			if want == nil {
				want = got
			}
		})
	}
}
