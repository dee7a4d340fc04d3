//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// A small shape for each kind of kernel, for tools that slow kernels a thousand times.
func TestCUDASmallShapes(t *testing.T) { testSmallShapes(t, newBoth(t)) }

// The same with kernels in which every lane arrives at barriers, as racecheck requires.
func TestCUDASmallShapesEveryLane(t *testing.T) { testSmallShapes(t, bothOf(t, "lanes")) }

func testSmallShapes(t *testing.T, b *both) {
	defer func(n int) { tune.MaxPersistentBlocks = n }(tune.MaxPersistentBlocks)
	tune.MaxPersistentBlocks = 2 // there are three units
	for i, rows := range []int{1, 5, 12, 40, 70, 120} {
		t.Logf("products of %d rows", rows)
		b.products([]kernels.DType{kernels.BF16, kernels.F16}[i%2], rows, 144, 48,
			[]classAndWorkspace{{false, false}, {true, true}})
	}
	b.rowIndexProducts(kernels.BF16, 9, 3, 144)
	for i, dtype := range []kernels.DType{kernels.Q8_0, kernels.Q4_K, kernels.Q4_1, kernels.Q6_K} {
		t.Logf("products over %s", formatOf(dtype).name)
		b.products(dtype, []int{1, 12, 5, 8}[i], 768, 48, []classAndWorkspace{{false, false}, {true, true}})
	}
	b.rowIndexProducts(kernels.Q4_0, 9, 3, 160)
	b.handedCodes(kernels.Q4_K, 3, 256, 256)
	b.branches(kernels.BF16, 5, 144, 48)
	b.ofFamilies(kernels.BF16, 5, 144, 48)
	testSmallWorkSlices(b)
	for i, slices := range []int{3, 4} { // an output tile in two slices that go on with one another, and that share it
		b.mixedRows(kernels.BF16, mixedShape{208, 1152, slices}, rowsOfBoth{16 << i, 9})
	}
	for i, dim := range []int{32, 64, 96, 128} {
		t.Logf("heads of %d", dim)
		b.qkv([]classAndWorkspace{{true, true}, {false, false}}[i%2],
			b.newAttention(kernels.BF16, kernels.BF16, []int{5, 1, 40, 12}[i], 80, 2, 1, dim))
		a := newAttending(b, 4, 2, dim, 40)
		for _, a.prefill = range []bool{false, true} {
			a.attend(indices(6), 7, true)
		}
		newVerifying(b, verifyShape{groups: 2, queries: 3, group: 2 + i, kvHeads: 1, dim: dim, context: 140}).compare()
	}
	testSmallDeferred(b)
	b.join(1040, true)
	b.vectors(144, 2, 1)
	const vocab = 300
	d := newDrawing(b, []kernels.Sampling{
		{RepeatPenalty: 1.1, PresencePenalty: 0.5, FrequencyPenalty: 0.5, Biases: biasesOf(40, 3), Masked: true},
		{Logprobs: kernels.MaxTop},
		{Temperature: 0.8, TopK: 50, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.1, Seed: 1}}, vocab)
	d.randomMasks()
	slot, position := d.randomPositions(3)
	records := d.sample(slot, position, b.normal(3*vocab, 4), 4, true)
	for i := range 2 {
		if !d.sameRecord(records[1][i], records[0][i]) {
			t.Errorf("greedy %d: %+v, wants %+v", i, records[1][i], records[0][i])
		}
	}
}

// Heads of 512, for the same tools: blocks that share a row's splits, and blocks of several rows of a prompt, with keys and
// values at once and in turn.
func TestCUDASmallWide(t *testing.T) {
	inTurnToo(func() {
		a := newAttending(newBoth(t), 4, 2, 512, 150)
		a.attend(indices(6), 7, true)
		a.makePrompts(70)
		a.attend(indices(len(a.row)), max(len(a.row), kernels.AttendSplitRows)+2, true)
	})
}

// Two output tiles in three work slices, whose blocks store partials for one another, and in four
// and eight, which share output tiles; for one token tile and for several.
func testSmallWorkSlices(b *both) {
	defer func(most int) { tune.MaxWorkSlices, tune.StreamKTokens = most, 0 }(tune.MaxWorkSlices)
	const in, out = 2064, 208
	w, start := b.matrix(kernels.BF16, out, in), b.normal(56*out, 1)
	for _, rows := range []int{16, 56, 40} {
		if rows == 40 {
			tune.StreamKTokens = 16 // three token tiles
		}
		x, workspace := put(b, b.normal(rows*in, 1)), b.workspaceFor(rows, in)
		for _, tune.MaxWorkSlices = range []int{3, 4, 8} {
			res := put(b, start[:rows*out])
			b.run(func(on int) device.Op {
				return kernels.Projection{W: w[on], In: x[on], X: res[on], Workspace: workspace, T: rows,
					Class: kernels.Prefill}
			})
			b.close(fmt.Sprintf("%d rows in %d work slices", rows, tune.MaxWorkSlices), res, 2*sums(in), 1e-6)
		}
	}
}

// Attention with deferred RoPE of one row and of many, with blocks of one split and of two.
func testSmallDeferred(b *both) {
	for i, dim := range []int{32, 64, 96, 128} {
		a := newDeferredLayer(b, deferredShape{rows: []int{1, 140, 1, 1}[i], group: []int{2, 1, 9, 1}[i], kvHeads: 1,
			dim: dim, steps: 1, bias: i%2 == 0, norms: true})
		b.equal(a.name, a.results(true, true, a.onGPU), a.results(false, false, a.onGPU))
	}
}
