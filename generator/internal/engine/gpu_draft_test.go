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

// gpuFamilies are models whose passes differ on a GPU: all rows seen or a window, RoPE in qkv or in attend.
func gpuFamilies() map[string]model.Config {
	llama := microConfig()
	llama.HeadDim, llama.Context, llama.EOS = 32, 2048, []int32{eosToken}
	window, biased, normed := llama, llama, llama
	window.Windows = []int{20, 0}
	biased.Bias, normed.HeadNorms = true, true
	return map[string]model.Config{"llama": llama, "window": window, "biases": biased, "head norms": normed}
}

// gpuDraftModel returns the shape of a draft model for one of c: the model itself, with one layer.
func gpuDraftModel(c model.Config) model.Config {
	c.Layers, c.Windows = 1, nil
	return c
}

// gpuHead returns the shape of an EAGLE-3 head for a model of c.
func gpuHead(c model.Config) model.Config {
	return model.Config{Name: "llama", Vocab: c.Vocab / 2, Hidden: c.Hidden, Inner: 64, Layers: 1, Heads: 4, KVHeads: 2,
		HeadDim: 32, Context: c.Context, RMSNormEps: 1e-5, RoPETheta: 10000, HeadNorms: c.HeadNorms, Bias: c.Bias,
		Eagle: &model.Eagle{Vocab: c.Vocab, Target: c.Hidden, Layers: []int{0, 1, 1}, Mapped: true,
			NormedResidual: c.Bias, FeaturesNorm: c.HeadNorms, NormedOutput: c.HeadNorms}}
}

// draftedOnGPU runs an engine for a model of c on a GPU until the test ends. drafter is the shape of a draft model or
// of an EAGLE-3 head, if o asks for one.
func draftedOnGPU(t *testing.T, d device.Device, c, drafter model.Config, o Options) *testEngine {
	t.Helper()
	o.KVType = kernels.BF16
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err == nil && o.Draft == DraftModel {
		o.DraftModel, err = model.Load(d, drafter, randomTensors{drafter}, func(float64) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	b := &testEngine{Engine: e, t: t, ended: make(chan error, 1)}
	go func() { b.ended <- e.Run() }()
	return b
}

// each submits all cases, a queue of them at a time, and calls f for each when it has ended.
func (b *testEngine) each(cases []draftedCase, f func(x *draftedCase, s *sink)) {
	b.t.Helper()
	for part := range slices.Chunk(cases, 60) {
		sinks := make([]*sink, len(part))
		for i := range part {
			sinks[i], _ = b.submit(part[i].Request)
		}
		for i := range part {
			f(&part[i], sinks[i].must(b.t))
		}
	}
	b.Stop()
	if err := <-b.ended; err != nil {
		b.t.Error(err)
	}
}

// casesOnGPU returns random requests with what they give without drafts, and predictions of that.
func casesOnGPU(t *testing.T, d device.Device, c model.Config, r *rand.Rand, n int) []draftedCase {
	t.Helper()
	cases := make([]draftedCase, n)
	for i := range cases {
		cases[i].Request = Request{Tokens: tokens(r, 1+r.IntN(150)), MaxTokens: 1 + r.IntN(60),
			IgnoreEOS: r.IntN(2) == 0, Sampling: randomSampling(r, c.Vocab), DraftTokens: r.IntN(1 + MaxDrafts)}
	}
	draftedOnGPU(t, d, c, c, defaults()).each(cases, func(x *draftedCase, s *sink) {
		x.want, x.reason = s.tokens, s.finish.Reason
		x.Prediction = predicted(r, s.tokens, c.Vocab)
	})
	return cases
}

// Random requests beside each other give the same tokens, log-probabilities and ends with each drafter as without
// drafts, bit for bit: 500 of each family.
func TestGPUDraftsChangeNoToken(t *testing.T) {
	for name, c := range gpuFamilies() {
		t.Run(name, func(t *testing.T) {
			r, d := seeded(t), openGPU(t)
			cases := casesOnGPU(t, d, c, r, 500)
			for _, x := range []struct {
				kind    DraftKind
				drafter model.Config
				window  int
			}{{kind: DraftLookup}, {kind: DraftGiven}, {DraftModel, gpuDraftModel(c), 0}, {DraftModel, gpuHead(c), 0},
				{DraftModel, gpuDraftModel(c), 40}, {DraftModel, gpuHead(c), 20}} {
				o, drafted, accepted := defaults(), 0, 0
				o.planDrafts = randomPlan(r.Uint64())
				o.Draft, o.DraftWindow, o.DraftTokens = x.kind, x.window, 1+r.IntN(MaxDrafts)
				o.MaxGraphs = []int{0, 20, 200}[r.IntN(3)]
				draftedOnGPU(t, d, c, x.drafter, o).each(cases, func(x *draftedCase, s *sink) {
					x.check(t, s, false)
					drafted, accepted = drafted+s.finish.Usage.DraftedTokens, accepted+s.finish.Usage.AcceptedTokens
				})
				t.Logf("drafter %d, head %t, window %d: %d of %d drafts stand", x.kind,
					x.drafter.Eagle != nil, x.window, accepted, drafted)
				if x.kind == DraftGiven && accepted == 0 {
					t.Error("no draft stands: this test proves nothing")
				}
			}
		})
	}
}
