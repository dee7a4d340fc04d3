//go:build cuda

package cudatest

import (
	"fmt"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// codesChain is products of few rows over quantised weights: an output projection, gate and up, the down projection, and
// the queries, keys and values of the next layer. Gate and up, and the down projection, hand rows over. Index 0 is the
// host, 1 the GPU.
type codesChain struct {
	*both
	qkv              [2]kernels.QKV
	output           [2]kernels.Weight
	gate, up, down   [2]kernels.Weight
	attended, inside twin // input of the output projection, and results of gate and up
	start            []float32
	inner, width     int
	work             [2]kernels.Workspace // of rows of the hidden size, and of the inner size
}

// newCodesChain returns one over n rows. The down projection has the second format.
func newCodesChain(b *both, formats [2]kernels.DType, n, hidden, inner int) *codesChain {
	const heads, kvHeads, dim = 4, 2, 64
	c := &codesChain{both: b, inner: inner, width: heads * dim}
	c.qkv = b.newAttention(formats[0], kernels.BF16, n, hidden, heads, kvHeads, dim).op
	c.output, c.gate, c.up = b.matrix(formats[0], hidden, c.width), b.matrix(formats[0], inner, hidden),
		b.matrix(formats[0], inner, hidden)
	c.down = b.matrix(formats[1], hidden, inner)
	c.attended, c.inside = put(b, b.normal(n*c.width, 1)), b.poisoned(n*inner)
	c.start = b.normal(n*hidden, 3)
	for i, cols := range []int{hidden, inner} {
		c.work[i].Rounded = b.roundedFor(8, cols)
	}
	return c
}

// ops returns the products over n rows from number first on.
func (c *codesChain) ops(on, first, n int, handsOver bool) []device.Op {
	of := func(x device.Buffer, width int) device.Buffer { return x.Slice(int64(4*first*width), int64(4*n*width)) }
	qkv := c.qkv[on]
	x := of(qkv.X, qkv.Hidden)
	output := kernels.Projection{W: c.output[on], In: of(c.attended[on], c.width), X: x, T: n}
	gateUp := kernels.GateUp{X: x, Norm: qkv.Norm, Gate: c.gate[on], Up: c.up[on], Out: of(c.inside[on], c.inner), T: n,
		Eps: 1e-5}
	down := kernels.Projection{W: c.down[on], In: gateUp.Out, X: x, T: n, Name: kernels.DownProjection}
	qkv.T, qkv.X, qkv.Out = n, x, of(qkv.Out, c.width)
	qkv.Rows.Slot, qkv.Rows.Position = of(qkv.Rows.Slot, 1), of(qkv.Rows.Position, 1)
	if handsOver {
		gateUp.Workspace, down.Workspace, qkv.Workspace = c.work[0], c.work[1], c.work[0]
		gateUp.Handover = kernels.Handover{Rounded: c.work[1].Rounded}
		down.Handover = kernels.Handover{InputIsRounded: true, Rounded: c.work[0].Rounded, Norm: qkv.Norm}
		qkv.Handover.InputIsRounded = true
	}
	return []device.Op{output, gateUp, down, qkv}
}

// codesResults are what a chain leaves.
type codesResults struct{ x, inside, q, kv []uint32 }

// run computes all rows on the GPU, n at a time. Everything that it writes was poisoned before.
func (c *codesChain) run(n int, handsOver bool) codesResults {
	c.t.Helper()
	all := len(c.start) / c.qkv[1].Hidden
	copy1 := c.load(1, bytesOf(c.start))
	c.qkv[1].X = copy1
	for _, x := range []device.Buffer{c.inside[1], c.qkv[1].Out, c.qkv[1].KV.Data, c.work[0].Rounded, c.work[1].Rounded} {
		c.onGPU(kernels.Fill{Data: x, Value: 0xffffffff})
	}
	for first := 0; first < all; first += n {
		c.onGPU(c.ops(1, first, min(n, all-first), handsOver)...)
	}
	return codesResults{read[uint32](c.both, 1, copy1), read[uint32](c.both, 1, c.inside[1]),
		read[uint32](c.both, 1, c.qkv[1].Out), read[uint32](c.both, 1, c.qkv[1].KV.Data)}
}

func (c *codesChain) equalTo(name string, got, want codesResults) {
	c.t.Helper()
	c.equal(name+": residual stream", got.x, want.x)
	c.equal(name+": gates", got.inside, want.inside)
	c.equal(name+": queries", got.q, want.q)
	c.equal(name+": keys and values", got.kv, want.kv)
}

// Rows that are handed over have the bits that each has alone: of all formats, with another one in the down projection,
// more columns than a piece has, more than a block's shared memory holds of 8 rows, and fewer blocks than rows.
func TestCUDAFewQuantisedRowsHandedOverHaveTheBitsOfOne(t *testing.T) {
	defer func(blocks, least int) { tune.MaxPersistentBlocks, tune.LeastHanded = blocks, least }(
		tune.MaxPersistentBlocks, tune.LeastHanded)
	most := tune.MaxPersistentBlocks
	tune.LeastHanded = 0
	for i, f := range quantisedFormats {
		t.Run(f.name, func(t *testing.T) {
			b := newBoth(t)
			hidden, inner := []int{256, 768, 1024, 4096}[i%4], []int{512, 1280, 14336, 11008}[i%4]
			c := newCodesChain(b, [2]kernels.DType{f.dtype, quantisedFormats[b.r.IntN(len(quantisedFormats))].dtype}, 8,
				hidden, inner)
			want := c.run(1, false)
			for n := 2; n <= 8; n++ {
				tune.MaxPersistentBlocks = []int{most, 3}[n%2]
				c.equalTo(fmt.Sprintf("%d rows", n), c.run(n, true), want)
			}
		})
	}
}

// Handed-over rows give what the host computes.
func TestCUDAOpQuantisedRowsHandedOver(t *testing.T) {
	for i, f := range quantisedFormats {
		t.Run(f.name, func(t *testing.T) {
			b := newBoth(t)
			b.handedCodes(f.dtype, 2+b.r.IntN(7), 512, []int{512, 1280}[i%2])
		})
	}
}

// handedCodes compares a chain of n rows with the host's.
func (b *both) handedCodes(format kernels.DType, n, hidden, inner int) {
	b.t.Helper()
	defer func(least int) { tune.LeastHanded = least }(tune.LeastHanded)
	tune.LeastHanded = 0
	c := newCodesChain(b, [2]kernels.DType{format, format}, n, hidden, inner)
	c.qkv[0].X = b.load(0, bytesOf(slices.Clone(c.start)))
	for _, op := range c.ops(0, 0, n, false) {
		b.must(b.streams[0].Launch(op))
	}
	b.must(b.streams[0].Synchronize())
	c.run(n, true)
	b.close("residual stream", twin{c.qkv[0].X, c.qkv[1].X}, 0.1, 0.02)
	b.close("gates", c.inside, 0.1, 0.05)
	b.close("queries", twin{c.qkv[0].Out, c.qkv[1].Out}, 0.1, 0.05)
}

// One row, many rows, rows of odd columns, or a workspace that is too small give the same bits with hand-overs that are
// asked for.
func TestCUDAQuantisedRowsThatCannotBeHandedOver(t *testing.T) {
	defer func(least int) { tune.LeastHanded = least }(tune.LeastHanded)
	tune.LeastHanded = 0
	for _, test := range []struct {
		name                  string
		rows, n, inner, bytes int
	}{{"one row", 2, 1, 512, 0}, {"many rows", 12, 12, 512, 0}, {"odd columns", 4, 4, 544, 0},
		{"a small workspace", 4, 4, 512, 4096}} {
		b := newBoth(t)
		c := newCodesChain(b, [2]kernels.DType{kernels.Q4_0, kernels.Q8_0}, test.rows, 512, test.inner)
		for i, cols := range []int{512, test.inner} {
			c.work[i].Rounded = b.roundedFor(max(8, test.n), cols)
			if test.bytes > 0 {
				c.work[i].Rounded = c.work[i].Rounded.Slice(0, int64(test.bytes))
			}
		}
		c.equalTo(test.name, c.run(test.n, true), c.run(1, false))
	}
}
