//go:build cuda

package cudatest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// streamKRows are the numbers of prompt tokens at which kernels change, and their neighbors.
var streamKRows = []int{1, 9, 16, 17, 56, 57, 104, 105, 208, 209, 400, 417}

// roundedFor returns a Workspace.Rounded on the GPU for rows of cols columns.
func (b *both) roundedFor(rows, cols int) device.Buffer {
	return b.load(1, poison(int(kernels.RoundedBytes(rows, cols))))
}

// workspaceFor returns both for products of rows of cols columns.
func (b *both) workspaceFor(rows, cols int) kernels.Workspace {
	return kernels.Workspace{Rounded: b.roundedFor(rows, cols), Partials: b.partialsFor(rows)}
}

// partialsFor returns a Workspace.Partials on the GPU for any product in these tests.
func (b *both) partialsFor(rows int) device.Buffer {
	return b.load(1, make([]byte, kernels.PartialsBytes(rows, 1<<14, 1<<14)))
}

func TestCUDAPrefillProjection(t *testing.T) {
	b := newBoth(t)
	for i, rows := range streamKRows {
		in, hidden := []int{64, 80, 4096, 1040, 176, 11008}[i%6], []int{64, 112, 272, 16}[i%4]
		w := b.matrix([]kernels.DType{kernels.BF16, kernels.F16}[i%2], hidden, in)
		x, res, workspace := put(b, b.normal(rows*in, 1)), put(b, b.normal(rows*hidden, 1)), b.workspaceFor(rows, in)
		b.run(func(on int) device.Op {
			return kernels.Projection{W: w[on], In: x[on], X: res[on], Workspace: workspace, T: rows,
				Class: kernels.Prefill}
		})
		b.close(fmt.Sprintf("%d rows of %d to %d", rows, in, hidden), res, 2*sums(in), 1e-6)
	}
}

// Outputs that are no multiple of 16 use the kernels of the decode class.
func TestCUDAPrefillOfOddOutputs(t *testing.T) {
	b := newBoth(t)
	const in, hidden = 176, 100
	for _, rows := range []int{1, 16, 57, 230} {
		w := b.matrix(kernels.BF16, hidden, in)
		x, res, workspace := put(b, b.normal(rows*in, 1)), put(b, b.normal(rows*hidden, 1)), b.workspaceFor(rows, in)
		b.run(func(on int) device.Op {
			return kernels.Projection{W: w[on], In: x[on], X: res[on], Workspace: workspace, T: rows,
				Class: kernels.Prefill}
		})
		b.close(fmt.Sprintf("%d rows of %d to %d", rows, in, hidden), res, 2*sums(in), 1e-6)
	}
}

func TestCUDAPrefillGateUp(t *testing.T) {
	b := newBoth(t)
	for i, rows := range streamKRows {
		hidden, inner := []int{64, 80, 2048, 1040, 4096}[i%5], []int{64, 96, 272, 16}[i%4]
		dtype := []kernels.DType{kernels.BF16, kernels.F16}[i%2]
		gate, up := b.matrix(dtype, inner, hidden), b.matrix(dtype, inner, hidden)
		x, norm, out := put(b, b.normal(rows*hidden, 3)), put(b, b.powers(hidden)), b.poisoned(rows*inner)
		workspace := b.workspaceFor(rows, hidden)
		b.run(func(on int) device.Op {
			return kernels.GateUp{X: x[on], Norm: norm[on], Gate: gate[on], Up: up[on], Out: out[on],
				Workspace: workspace, T: rows, Class: kernels.Prefill, Eps: 1e-5}
		})
		b.close(fmt.Sprintf("%d rows of %d to %d", rows, hidden, inner), out, 8*sums(hidden), 1e-5)
	}
}

func TestCUDAPrefillQKV(t *testing.T) {
	b := newBoth(t)
	for i, rows := range streamKRows {
		hidden, dim := []int{64, 80, 2048, 1040}[i%4], []int{32, 64, 96, 128}[i%4]
		kvHeads, group := 1+i%3, []int{1, 2, 4, 8}[i/2%4]
		a := b.newAttention([]kernels.DType{kernels.BF16, kernels.F16}[i%2], kernels.F32, rows, hidden, kvHeads*group,
			kvHeads, dim)
		a.op[1].Workspace.Rounded, a.op[1].Workspace.Partials, a.op[1].Class = b.roundedFor(rows, hidden),
			b.partialsFor(rows), kernels.Prefill
		b.run(func(on int) device.Op { return a.op[on] })
		name := fmt.Sprintf("%d rows of %d, %d heads of %d for each of %d", rows, hidden, group, dim, kvHeads)
		b.close(name+": q", a.out, 8*sums(hidden), 1e-5)
		b.samePool(name, a, 8*sums(hidden))
	}
}

// feedForward runs GateUp, the down projection and GateUp again on a prompt's rows, with handover
// or with rounding by each product.
func (b *both) feedForward(x device.Buffer, rows, hidden, inner int, w [2]kernels.Weight, down kernels.Weight,
	norm device.Buffer, handover bool) []uint32 {
	b.t.Helper()
	mid := b.poisoned(rows * inner)[1]
	workspace := b.workspaceFor(rows, hidden)
	inside := kernels.Workspace{Rounded: b.roundedFor(rows, inner), Partials: workspace.Partials}
	gateup := kernels.GateUp{X: x, Norm: norm, Gate: w[0], Up: w[1], Out: mid, Workspace: workspace, T: rows,
		Class: kernels.Prefill, Eps: 1e-5}
	project := kernels.Projection{W: down, In: mid, X: x, Workspace: inside, T: rows, Class: kernels.Prefill}
	second := gateup
	if handover {
		gateup.Handover = kernels.Handover{Rounded: inside.Rounded}
		project.Handover = kernels.Handover{InputIsRounded: true, Rounded: workspace.Rounded, Norm: norm}
		second.Handover.InputIsRounded = true
	}
	b.onGPU(gateup, project, second)
	return read[uint32](b, 1, mid)
}

// Handed-over rows give the same results as rows that each product rounds, up to the order of the
// sum of squares; and the same bits in any batch.
func TestCUDAHandover(t *testing.T) {
	b := newBoth(t)
	const all, hidden, inner = 230, 256, 384
	gate, up, down := b.matrix(kernels.BF16, inner, hidden), b.matrix(kernels.BF16, inner, hidden),
		b.matrix(kernels.BF16, hidden, inner)
	norm, values := put(b, b.normal(hidden, 1))[1], b.normal(all*hidden, 3)
	run := func(first, rows int, handover bool) []uint32 {
		x := b.load(1, bytesOf(values[first*hidden:(first+rows)*hidden]))
		return b.feedForward(x, rows, hidden, inner, [2]kernels.Weight{gate[1], up[1]}, down[1], norm, handover)
	}
	want, own := run(0, all, true), run(0, all, false)
	b.closeTo("handed over", viewOf[float32](bytesOf(want)), viewOf[float32](bytesOf(own)),
		func(int) float64 { return 1e-5 }, 1e-4)
	for _, c := range batches {
		b.equal(fmt.Sprintf("rows %d to %d", c.first, c.first+c.rows), run(c.first, c.rows, true),
			want[c.first*inner:(c.first+c.rows)*inner])
	}
}

// Any number of work slices gives the host's product: several per output tile, ends within tiles,
// over several tiles or all; also with a norm. With the same slices a row has the same bits in
// kernels of any size, and the arrival counters are 0 at the end.
func TestCUDAWorkSlices(t *testing.T) {
	b := newBoth(t)
	defer func(most int) { tune.MaxWorkSlices, tune.StreamKTokens = most, 0 }(tune.MaxWorkSlices)
	const in, hidden, most = 2064, 704, 230 // 6 output tiles of 33 K blocks
	w, x, start := b.matrix(kernels.BF16, hidden, in), put(b, b.normal(most*in, 1)), b.normal(most*hidden, 1)
	const inner = hidden / 2
	gate, up, norm := b.matrix(kernels.BF16, inner, in), b.matrix(kernels.BF16, inner, in), put(b, b.powers(in))
	workspace := b.workspaceFor(most, in)
	for _, tune.MaxWorkSlices = range []int{1, 2, 5, 6, 7, 11, 12, 13, 18, 24} {
		var want, wantGated []uint32
		for _, tune.StreamKTokens = range []int{16, 56, 104, 208, 192} {
			res := put(b, start)
			b.run(func(on int) device.Op {
				return kernels.Projection{W: w[on], In: x[on], X: res[on], Workspace: workspace, T: most,
					Class: kernels.Prefill}
			})
			name := fmt.Sprintf("at most %d work slices, %d tokens per block", tune.MaxWorkSlices, tune.StreamKTokens)
			b.close(name, res, 2*sums(in), 1e-6)
			got := read[uint32](b, 1, res[1])
			if want == nil {
				want = got
			}
			b.equal(name, got, want)
			out := b.poisoned(most * inner)
			b.run(func(on int) device.Op {
				return kernels.GateUp{X: x[on], Norm: norm[on], Gate: gate[on], Up: up[on], Out: out[on],
					Workspace: workspace, T: most, Class: kernels.Prefill, Eps: 1e-5}
			})
			b.close(name+", gated", out, 8*sums(in), 1e-5)
			gated := read[uint32](b, 1, out[1])
			if wantGated == nil {
				wantGated = gated
			}
			b.equal(name+", gated", gated, wantGated)
			b.placesAreEmpty(name, workspace)
		}
	}
}

// A weight with fewer work slices than SMs has several blocks for each, and its rows have the bits that they have alone.
func TestCUDAFewWorkSlicesSideBySide(t *testing.T) {
	b := newBoth(t)
	defer func() { tune.StreamKTokens = 0 }()
	const rows, few = 832, 10
	for _, c := range []struct{ in, hidden int }{{1024, 4096}, {3072, 1024}, {2048, 1024}, {2112, 704}, {896, 640}} {
		w, values, start := b.matrix(kernels.BF16, c.hidden, c.in)[1], b.normal(rows*c.in, 1), b.normal(rows*c.hidden, 1)
		workspace := b.workspaceFor(rows, c.in)
		of := func(first, n int) []uint32 {
			x, res := b.load(1, bytesOf(values[first*c.in:][:n*c.in])), b.load(1, bytesOf(start[first*c.hidden:][:n*c.hidden]))
			b.onGPU(kernels.Projection{W: w, In: x, X: res, Workspace: workspace, T: n, Class: kernels.Prefill})
			return read[uint32](b, 1, res)
		}
		tune.StreamKTokens = 0
		want := of(0, rows)
		for _, tune.StreamKTokens = range []int{0, 56, 104, 208} {
			name := fmt.Sprintf("%+v, %d tokens per block", c, tune.StreamKTokens)
			b.equal(name+", few rows", of(300, few), want[300*c.hidden:][:few*c.hidden])
			b.equal(name+", two tiles", of(200, 112), want[200*c.hidden:][:112*c.hidden])
			b.placesAreEmpty(name, workspace)
			if tune.StreamKTokens == 56 {
				continue // there are places for two rounds of blocks at most
			}
			b.equal(name, of(0, rows), want)
			b.equal(name+", some rows", of(100, 416), want[100*c.hidden:][:416*c.hidden])
			b.placesAreEmpty(name, workspace)
		}
	}
}

// Whole output tiles have the bits of stream-K, with results handed over or not: over token tiles of any size, also where
// the last pair of blocks has tokens for one of them, and the last output tile is not full.
func TestCUDAWholeTiles(t *testing.T) {
	b := newBoth(t)
	defer func() { tune.StreamKTokens = 0 }()
	for i, rows := range []int{1, 100, 385, 417, 600, 800, 1000, 1150} {
		const hidden, inner = 640, 1408
		dtype := []kernels.DType{kernels.BF16, kernels.F16}[i%2]
		gate, up, down := b.matrix(dtype, inner, hidden), b.matrix(dtype, inner, hidden), b.matrix(dtype, hidden, inner)
		norm, x := put(b, b.normal(hidden, 1))[1], b.normal(rows*hidden, 3)
		a := b.newAttention(dtype, kernels.BF16, rows, hidden, 9, 3, 64)
		a.op[1].Workspace, a.op[1].Class = b.workspaceFor(rows, hidden), kernels.Prefill
		compute := func(tokens int) (results [][]uint32) {
			tune.StreamKTokens = tokens
			for _, handover := range []bool{true, false} {
				results = append(results, b.feedForward(b.load(1, bytesOf(x)), rows, hidden, inner,
					[2]kernels.Weight{gate[1], up[1]}, down[1], norm, handover))
			}
			b.onGPU(a.op[1])
			return append(results, read[uint32](b, 1, a.op[1].Out), read[uint32](b, 1, a.op[1].KV.Data))
		}
		want := compute(208)
		for j, got := range compute(192) {
			b.equal(fmt.Sprintf("%d rows: %s", rows, []string{"handed over", "apart", "queries", "pool"}[j]), got, want[j])
		}
	}
}

// Repeated launches with many token tiles end. With slices this short, blocks without an epilogue
// must not run ahead of the blocks that compute the tokens' scales.
func TestCUDAManyTokenTilesTerminate(t *testing.T) {
	b := newBoth(t)
	const rows, hidden, dim = 800, 896, 64 // 4 token tiles
	// 61 work slices of 35 output tiles, not side by side, and 15 of 9, side by side.
	for _, heads := range []struct{ q, kv int }{{56, 7}, {14, 2}} {
		a := b.newAttention(kernels.BF16, kernels.BF16, rows, hidden, heads.q, heads.kv, dim)
		a.op[1].Workspace.Rounded, a.op[1].Workspace.Partials, a.op[1].Class = b.roundedFor(rows, hidden),
			b.partialsFor(rows), kernels.Prefill
		b.onGPU(a.op[1])
		want := read[uint32](b, 1, a.op[1].Out)
		for range 20 {
			b.onGPU(slices.Repeat([]device.Op{a.op[1]}, 50)...)
			b.equal("q", read[uint32](b, 1, a.op[1].Out), want)
		}
	}
}

// Rounded input without memory for split-K partials is refused, because the unrounded rows may
// not exist. Unrounded rows use the kernels of all GPUs.
func TestCUDARoundedInputNeedsPartials(t *testing.T) {
	b := newBoth(t)
	const rows, in, hidden = 20, 128, 64
	p := kernels.Projection{W: b.matrix(kernels.BF16, hidden, in)[1], In: put(b, b.normal(rows*in, 1))[1],
		X:         put(b, b.normal(rows*hidden, 1))[1],
		Workspace: kernels.Workspace{Rounded: b.roundedFor(rows, in)}, T: rows, Class: kernels.Prefill}
	b.onGPU(p)
	p.Handover.InputIsRounded = true
	if err := b.streams[1].Launch(p); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("%v, wants %v", err, device.ErrBadShape)
	}
}
