//go:build cuda

package cudatest

import (
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// qwenExperts are two layers as of Qwen3-30B-A3B, with narrow experts and a small vocabulary.
var qwenExperts = taggedShape{hidden: 2048, inner: 128, heads: 32, kvHeads: 4, dim: 128, layers: 2, vocab: 4096,
	normed: true, experts: 128, used: 8}

// taggedMixtures have experts of widths for some warps of a down projection, for all, and for several K blocks of each;
// a unit for some blocks of the gates, or two; with biases as of gpt-oss, or without; in bfloat16, in each format that
// has kernels, and in two. The last ones have gates and down projections with rings, of gpt-oss-20b's width, then of
// another that ends within a chunk of 128.
func taggedMixtures() []taggedShape {
	codes := func(gates, down kernels.DType) taggedFormats { return taggedFormats{gates: gates, down: down} }
	return []taggedShape{
		qwenExperts,
		{hidden: 2048, inner: 768, heads: 32, kvHeads: 4, dim: 128, layers: 1, vocab: 512, normed: true, experts: 12,
			used: 8},
		{hidden: 128, inner: 64, heads: 4, kvHeads: 2, dim: 64, layers: 3, vocab: 512, experts: 8, used: 2},
		{hidden: 2880, inner: 1088, heads: 8, kvHeads: 8, dim: 64, layers: 2, vocab: 1024, biased: true, experts: 6,
			used: 4},
		{hidden: 2048, inner: 768, heads: 32, kvHeads: 4, dim: 128, layers: 2, vocab: 512, normed: true, experts: 12,
			used: 8, taggedFormats: codes(kernels.Q4_K, kernels.Q6_K)},
		{hidden: 512, inner: 256, heads: 8, kvHeads: 8, dim: 64, layers: 3, vocab: 512, biased: true, experts: 40, used: 5,
			taggedFormats: codes(kernels.Q5_K, kernels.Q4_K)},
		{hidden: 1024, inner: 384, heads: 8, kvHeads: 8, dim: 64, layers: 2, vocab: 512, experts: 24, used: 6,
			taggedFormats: codes(kernels.G4_128, kernels.F8)},
		{hidden: 768, inner: 512, heads: 8, kvHeads: 8, dim: 64, layers: 2, vocab: 512, experts: 16, used: 4,
			taggedFormats: codes(kernels.F8, kernels.Q5_K)},
		{hidden: 2048, inner: 256, heads: 8, kvHeads: 8, dim: 64, layers: 2, vocab: 512, experts: 16, used: 4,
			taggedFormats: codes(kernels.BF16, kernels.G4_128)},
		{hidden: 2880, inner: 2880, heads: 64, kvHeads: 8, dim: 64, layers: 2, vocab: 1024, biased: true, outputBias: true,
			sinks: true, window: 128, experts: 8, used: 4, taggedFormats: codes(kernels.MXFP4, kernels.MXFP4)},
		{hidden: 192, inner: 576, heads: 4, kvHeads: 2, dim: 64, layers: 3, vocab: 512, sinks: true, window: 30,
			experts: 9, used: 8, taggedFormats: codes(kernels.BF16, kernels.MXFP4)},
		{hidden: 576, inner: 128, heads: 4, kvHeads: 2, dim: 64, layers: 2, vocab: 512, biased: true, experts: 12, used: 3,
			taggedFormats: codes(kernels.MXFP4, kernels.BF16)},
	}
}

// Passes with experts whose values are tagged have the bits of those whose kernels wait for each other.
func TestCUDATaggedExperts(t *testing.T) { taggedEqual(t, newBoth(t), 24, taggedMixtures()) }

// taggedExpertsMemory is what a layer's experts work in, and where their kernels pass tagged values on.
type taggedExpertsMemory struct {
	chosen  kernels.Chosen
	route   kernels.RouteWorkspace
	results device.Buffer
	between kernels.ExpertTags
}

// newTaggedExperts returns such memory with NaN in it.
func newTaggedExperts(b *both, s taggedShape) taggedExpertsMemory {
	words := func(n int) device.Buffer { return b.poisoned(n)[1] }
	return taggedExpertsMemory{
		chosen: kernels.Chosen{IDs: words(s.used), Weights: words(s.used),
			Segments: words(int(kernels.SegmentsBytes(1, s.used, s.experts) / 4)), Experts: s.experts, Used: s.used},
		route:   kernels.RouteWorkspace{Logits: words(s.experts), Arrivals: b.load(1, make([]byte, 4))},
		results: words(s.used * s.hidden),
		between: kernels.ExpertTags{Logits: words(2 * s.experts), Choice: words(4 * s.used),
			Inner: words(s.used * s.inner)},
	}
}

// layerExperts returns the experts of a layer, as of Qwen3, or with biases as of gpt-oss.
func (p *taggedPass) layerExperts(l taggedLayer, tags kernels.Tags) kernels.Experts {
	m := p.experts
	o := kernels.Experts{
		Route: kernels.Route{X: p.x, Norm: l.inner, Router: l.router, Chosen: m.chosen, T: 1, Hidden: p.hidden, Eps: 1e-5,
			Normalise: true, Workspace: m.route},
		GateUp: kernels.ExpertGateUp{X: p.x, Norm: l.inner, Gate: l.gate, Up: l.up, Chosen: m.chosen, Out: p.inner,
			Eps: 1e-5, T: 1},
		Down: kernels.ExpertDown{Down: l.down, In: p.inner, X: p.x, Chosen: m.chosen, T: 1,
			Workspace: kernels.ExpertWorkspace{Results: m.results}},
		Tags: tags, Between: m.between,
	}
	if p.biased {
		o.Route.Bias, o.Route.Scoring, o.Route.Normalise = l.biases[0], kernels.SoftmaxOfChosen, false
		o.GateUp.GateBias, o.GateUp.UpBias, o.GateUp.Limit, o.Down.Bias = l.biases[1], l.biases[2], 7, l.biases[3]
	}
	return o
}

// Replays with other tokens route afresh: the last layer's choice changes from step to step, is that of a pass that
// waits, and no pass with tags writes where those leave it.
func TestCUDATaggedRoutesAfresh(t *testing.T) {
	b := newBoth(t)
	w := b.taggedWeights(qwenExperts)
	kv := w.pool()
	pool := bitsOf(b.normal(int(kv.PageBytes()/2)*kv.Pages, 1))
	plain, tagged := newTaggedPass(b, w, pool), newTaggedPass(b, w, pool)
	graphs := [2]device.Exec{plain.capture(false), tagged.capture(true)}
	untouched := read[uint32](b, 1, tagged.experts.chosen.IDs)
	choices := map[[8]int32]bool{}
	for step := range 20 {
		for i, p := range []*taggedPass{plain, tagged} {
			p.next(step, true)
			b.must(b.streams[1].Replay(graphs[i]))
		}
		b.must(b.streams[1].Synchronize())
		want, got := [8]int32(read[int32](b, 1, plain.experts.chosen.IDs)), [8]int32{}
		weights, given := read[uint32](b, 1, plain.experts.chosen.Weights), read[uint32](b, 1, tagged.experts.between.Choice)
		for k := range got {
			got[k] = int32(given[4*k])
			if given[4*k+2] != weights[k] {
				t.Errorf("step %d: weight %d is %#x, wants %#x", step, k, given[4*k+2], weights[k])
			}
		}
		if got != want {
			t.Errorf("step %d: experts %v, wants %v", step, got, want)
		}
		choices[got] = true
	}
	if len(choices) < 15 {
		t.Errorf("%d choices in 20 steps: replays do not route afresh", len(choices))
	}
	b.equal("ids where other passes leave them", read[uint32](b, 1, tagged.experts.chosen.IDs), untouched)
	for _, g := range graphs {
		b.must(g.Destroy())
	}
}
