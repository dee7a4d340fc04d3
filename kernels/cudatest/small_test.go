//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel/kernels"
	"reel/kernels/device"
	"reel/kernels/internal/tune"
)

// One small shape for each kind of kernel that products, attention and sampling have,
// for a tool that takes a thousand times as long.
func TestCUDASmallShapes(t *testing.T) { testSmallShapes(t, newBoth(t)) }

// The same with kernels of which every lane arrives at barriers, as racecheck wants it.
func TestCUDASmallShapesEveryLane(t *testing.T) { testSmallShapes(t, bothOf(t, "lanes")) }

func testSmallShapes(t *testing.T, b *both) {
	defer func(n int) { tune.MaxPersistentBlocks = n }(tune.MaxPersistentBlocks)
	tune.MaxPersistentBlocks = 2 // for three units
	for i, rows := range []int{1, 5, 12, 40, 70, 120} {
		t.Logf("products of %d rows", rows)
		b.products([]kernels.DType{kernels.BF16, kernels.F16}[i%2], rows, 144, 48, []classAndWorkspace{{false, false}, {true, true}})
	}
	b.rowIndexProducts(kernels.BF16, 9, 3, 144)
	testSmallWorkSlices(b)
	for i, dim := range []int{32, 64, 96, 128} {
		t.Logf("heads of %d", dim)
		b.qkv([]classAndWorkspace{{true, true}, {false, false}}[i%2], b.newAttention(kernels.BF16, kernels.BF16, []int{5, 1, 40, 12}[i], 80, 2, 1, dim))
		a := newAttending(b, 4, 2, dim, 40)
		for _, a.prefill = range []bool{false, true} {
			a.attend(indices(6), 7, true)
		}
	}
	testSmallDeferred(b)
	const vocab = 300
	d := newDrawing(b, []kernels.Sampling{{Logprobs: kernels.MaxTop}, {Temperature: 0.8, TopK: 50, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.1, Seed: 1}}, vocab)
	slot, position := d.randomPositions(2)
	records := d.sample(slot, position, b.normal(2*vocab, 4), 3, true)
	if !d.sameRecord(records[1][0], records[0][0]) {
		t.Errorf("greedy: %+v, wants %+v", records[1][0], records[0][0])
	}
}

// Two units of a prompt's product in three spans, whose blocks leave each other parts, and
// in four and eight, which share units; and so for several tiles of tokens.
func testSmallWorkSlices(b *both) {
	defer func(most int) { tune.MaxWorkSlices, tune.StreamKTokens = most, 0 }(tune.MaxWorkSlices)
	const in, out = 2064, 208
	w, start := b.matrix(kernels.BF16, out, in), b.normal(56*out, 1)
	for _, rows := range []int{16, 56, 40} {
		if rows == 40 {
			tune.StreamKTokens = 16 // three token tiles
		}
		x, scratch, parts := put(b, b.normal(rows*in, 1)), b.roundedFor(rows, in), b.partialsFor(rows)
		for _, tune.MaxWorkSlices = range []int{3, 4, 8} {
			res := put(b, start[:rows*out])
			b.run(func(on int) device.Op {
				return kernels.Projection{W: w[on], In: x[on], X: res[on], Workspace: kernels.Workspace{Rounded: scratch, Partials: parts}, T: rows, Class: kernels.Prefill}
			})
			b.close(fmt.Sprintf("%d rows in %d spans", rows, tune.MaxWorkSlices), res, 2*sums(in), 1e-6)
		}
	}
}

// Attention that turns a row or a few, by one split a block and by two.
func testSmallDeferred(b *both) {
	for i, dim := range []int{32, 64, 96, 128} {
		a := newDeferredLayer(b, deferredShape{rows: []int{1, 140, 1, 1}[i], group: []int{2, 1, 9, 1}[i], kvHeads: 1, dim: dim, steps: 1, bias: i%2 == 0, norms: true})
		b.equal(a.name, a.results(true, true, a.onGPU), a.results(false, false, a.onGPU))
	}
}
