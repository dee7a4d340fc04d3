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

// manyRows are numbers of rows at which the kernels of many generated rows change, and their neighbors.
var manyRows = []int{9, 12, 16, 17, 32, 33, 64, 65, 128, 129, 200, 256, 300}

// manyShapes are outputs and columns. Slices end in each of the ways that cutMany has: eight, four and two to an output
// tile, whole groups of partial sums, and any. Columns are fewer than 16 K blocks, or no whole K blocks.
var manyShapes = []struct{ outputs, cols int }{{2064, 1040}, {4096, 272}, {4112, 4096}, {8192, 1040}, {12288, 528},
	{17408, 1040}, {96, 2064}}

// alone returns out, width floats for each of rows rows, as products of one row write it.
func (b *both) alone(out device.Buffer, rows, width int, one func(row int, out device.Buffer) device.Op) []uint32 {
	for t := range rows {
		b.must(b.streams[1].Launch(one(t, out.Slice(int64(4*t*width), int64(4*width)))))
	}
	b.must(b.streams[1].Synchronize())
	return read[uint32](b, 1, out)
}

// row returns row t of x, which has rows of cols floats.
func row(x device.Buffer, t, cols int) device.Buffer { return x.Slice(int64(4*t*cols), int64(4*cols)) }

// Rows of many have the bits that each has alone, with any number of blocks. Outputs are poisoned before.
func TestCUDAManyRowsHaveTheBitsOfOne(t *testing.T) {
	defer func(n int) { tune.MaxWorkSlices = n }(tune.MaxWorkSlices)
	b, most := newBoth(t), slices.Max(manyRows)
	for i, s := range manyShapes {
		dtype := []kernels.DType{kernels.BF16, kernels.F16}[i%2]
		w, up := b.matrix(dtype, s.outputs, s.cols)[1], b.matrix(dtype, s.outputs, s.cols)[1]
		x, norm := put(b, b.normal(most*s.cols, 3))[1], put(b, b.normal(s.cols, 1))[1]
		bias, before := put(b, b.normal(s.outputs, 1))[1], b.normal(most*s.outputs, 1)
		tune.MaxWorkSlices = 132
		workspace := b.workspaceFor(most, s.cols)
		gateUp := kernels.GateUp{X: x, Norm: norm, Gate: w, Up: up, Eps: 1e-5}
		out := b.poisoned(most * s.outputs)[1]
		wantGateUp := b.alone(out, most, s.outputs, func(t int, out device.Buffer) device.Op {
			op := gateUp
			op.X, op.Out, op.T = row(x, t, s.cols), out, 1
			return op
		})
		res := b.load(1, bytesOf(before))
		wantProjection := b.alone(res, most, s.outputs, func(t int, out device.Buffer) device.Op {
			return kernels.Projection{W: w, In: row(x, t, s.cols), X: out, Bias: bias, T: 1}
		})
		for j, rows := range manyRows {
			tune.MaxWorkSlices = []int{132, 132, 66, 10}[(i+j)%4]
			name := fmt.Sprintf("type %d, %d to %d, %d rows, %d blocks", dtype, s.cols, s.outputs, rows, tune.MaxWorkSlices)
			op := gateUp
			op.Out, op.T, op.Workspace = b.poisoned(most * s.outputs)[1], rows, workspace
			projection := kernels.Projection{W: w, In: x, X: b.load(1, bytesOf(before)), Bias: bias, T: rows,
				Workspace: workspace}
			b.onGPU(op, projection)
			b.equal(name+": gate and up", read[uint32](b, 1, op.Out)[:rows*s.outputs], wantGateUp[:rows*s.outputs])
			b.equal(name+": rows after", read[uint32](b, 1, op.Out)[rows*s.outputs:],
				slices.Repeat([]uint32{kernels.Poison}, (most-rows)*s.outputs))
			b.equal(name+": projection", read[uint32](b, 1, projection.X),
				slices.Concat(wantProjection[:rows*s.outputs], viewOf[uint32](bytesOf(before))[rows*s.outputs:]))
		}
	}
}

// Logits of many samples have the bits of one, for vocabularies that end within a row tile, and with padding between.
func TestCUDAManySamplesHaveTheBitsOfOne(t *testing.T) {
	b, most := newBoth(t), 256
	for _, vocab := range []int{1000, 1001, 17411, 32000} {
		const hidden = 1040
		w, x, norm := b.matrix(kernels.BF16, vocab, hidden)[1], put(b, b.normal(most*hidden, 3))[1],
			put(b, b.normal(hidden, 1))[1]
		index := make([]int32, most)
		for i := range index {
			index[i] = int32(b.r.IntN(most+8) - 8)
			index[i] = max(index[i], -1)
		}
		samples, workspace := put(b, index)[1], b.workspaceFor(most, hidden)
		head := kernels.Head{X: x, Norm: norm, W: w, T: most, Eps: 1e-5}
		want := b.alone(b.poisoned(most * vocab)[1], most, vocab, func(t int, out device.Buffer) device.Op {
			op := head
			op.Rows.Sample, op.Logits, op.N = samples.Slice(int64(4*t), 4), out, 1
			return op
		})
		for _, n := range []int{9, 16, 32, 50, 64, 100, 128, 200, 256} {
			op := head
			op.Rows.Sample, op.Logits, op.N, op.Workspace = samples, b.poisoned(most * vocab)[1], n, workspace
			b.onGPU(op)
			b.equal(fmt.Sprintf("%d samples of %d", n, vocab), read[uint32](b, 1, op.Logits)[:n*vocab], want[:n*vocab])
		}
	}
}

// Queries, keys and values of many rows have the bits of one.
func TestCUDAQKVOfManyRowsHasTheBitsOfOne(t *testing.T) {
	b := newBoth(t)
	for i, heads := range []int{4, 32} {
		most, hidden, dim := 256, []int{1040, 2048}[i], []int{64, 128}[i]
		a := b.newAttention(kernels.BF16, kernels.BF16, most, hidden, heads, heads/2, dim).op[1]
		part := func(first, n int) device.Op {
			op := a
			op.T, op.X, op.Out = n, a.X.Slice(int64(4*first*hidden), int64(4*n*hidden)),
				a.Out.Slice(int64(4*first*heads*dim), int64(4*n*heads*dim))
			op.Rows.Slot, op.Rows.Position = a.Rows.Slot.Slice(int64(4*first), int64(4*n)),
				a.Rows.Position.Slice(int64(4*first), int64(4*n))
			return op
		}
		for t := range most {
			b.must(b.streams[1].Launch(part(t, 1)))
		}
		b.must(b.streams[1].Synchronize())
		wantQ, wantKV := read[uint32](b, 1, a.Out), read[uint32](b, 1, a.KV.Data)
		a.Workspace = b.workspaceFor(most, hidden)
		for _, n := range []int{9, 16, 32, 64, 128, 256} {
			b.onGPU(kernels.Fill{Data: a.Out, Value: kernels.Poison}, kernels.Fill{Data: a.KV.Data, Value: 0xffffffff})
			for first := 0; first < most; first += n {
				b.must(b.streams[1].Launch(part(first, min(n, most-first))))
			}
			b.must(b.streams[1].Synchronize())
			b.equal(fmt.Sprintf("%d heads, %d rows: q", heads, n), read[uint32](b, 1, a.Out), wantQ)
			b.equal(fmt.Sprintf("%d heads, %d rows: keys and values", heads, n), read[uint32](b, 1, a.KV.Data), wantKV)
		}
	}
}

// A layer's ops that hand rounded rows on leave the bits of ops that do not, and of rows alone: with attention, both
// projections, and a second layer's queries and gates.
func TestCUDAManyRowsHandedOverHaveTheBitsOfOne(t *testing.T) {
	b := newBoth(t)
	const most, heads, dim, hidden, inner = 256, 4, 64, 256, 1408
	a := b.newAttention(kernels.BF16, kernels.BF16, most, hidden, heads, heads, dim).op[1]
	output, gate, up := b.matrix(kernels.BF16, hidden, heads*dim)[1], b.matrix(kernels.BF16, inner, hidden)[1],
		b.matrix(kernels.BF16, inner, hidden)[1]
	down, norm, start := b.matrix(kernels.BF16, hidden, inner)[1], put(b, b.normal(hidden, 1))[1], read[float32](b, 1, a.X)
	work, mid, gated := b.attendWorkspace(most, heads, dim, 64), b.poisoned(most * inner)[1], b.poisoned(most * inner)[1]
	attended := b.poisoned(most * heads * dim)[1]
	outer, inside := b.workspaceFor(most, hidden), kernels.Workspace{Rounded: b.roundedFor(most, inner)}
	inside.Partials = outer.Partials
	run := func(n int, workspace, within kernels.Workspace, handsOver bool) (results [3][]uint32) {
		a.X = b.load(1, bytesOf(start))
		b.onGPU(kernels.Fill{Data: a.KV.Data, Value: 0x3f803f00}, kernels.Fill{Data: a.Out, Value: kernels.Poison},
			kernels.Fill{Data: gated, Value: kernels.Poison}, kernels.Fill{Data: mid, Value: kernels.Poison})
		for first := 0; first < most; first += n {
			l := handedLayer{QKV: a, output: output, gate: gate, up: up, down: down, norm: norm, work: work, mid: mid,
				attended: attended, gated: gated, workspace: workspace, within: within, inner: inner}
			b.onGPU(l.ops(first, min(n, most-first), handsOver)...)
		}
		return [3][]uint32{read[uint32](b, 1, a.X), read[uint32](b, 1, gated), read[uint32](b, 1, a.KV.Data)}
	}
	want := run(1, kernels.Workspace{}, kernels.Workspace{}, false)
	for _, n := range []int{9, 16, 33, 64, 100, 129, 256} {
		for _, handsOver := range []bool{false, true} {
			got := run(n, outer, inside, handsOver)
			for i, of := range []string{"residual stream", "gates", "keys and values"} {
				b.equal(fmt.Sprintf("%d rows, handed over %t: %s", n, handsOver, of), got[i], want[i])
			}
		}
	}
}

// handedLayer is a layer whose ops may hand rounded rows on, and gate and up of the next one.
type handedLayer struct {
	kernels.QKV
	output, gate, up, down           kernels.Weight
	norm, work, mid, gated, attended device.Buffer
	workspace, within                kernels.Workspace
	inner                            int
}

// ops returns the ops over n rows from number first on.
func (l handedLayer) ops(first, n int, handsOver bool) []device.Op {
	of := func(x device.Buffer, width int) device.Buffer { return x.Slice(int64(4*first*width), int64(4*n*width)) }
	var attended, projected, gated, again kernels.Handover
	if handsOver {
		attended = kernels.Handover{Rounded: l.within.Rounded, DType: kernels.BF16}
		projected = kernels.Handover{InputIsRounded: true, Rounded: l.workspace.Rounded, Norm: l.norm}
		gated = kernels.Handover{InputIsRounded: true, Rounded: l.within.Rounded}
		again.InputIsRounded = true
		attended.Next, projected.Next = [3]device.Buffer{l.output.Data}, [3]device.Buffer{l.gate.Data, l.up.Data, l.norm}
		gated.Next = [3]device.Buffer{l.down.Data}
	}
	qkv, width := l.QKV, l.Heads*l.KV.HeadDim
	qkv.T, qkv.X, qkv.Out, qkv.Workspace = n, of(l.X, l.Hidden), of(l.Out, width), l.workspace
	qkv.Rows.Slot, qkv.Rows.Position = of(l.Rows.Slot, 1), of(l.Rows.Position, 1)
	x := qkv.X
	second := kernels.GateUp{X: x, Norm: l.norm, Gate: l.gate, Up: l.up, Out: of(l.mid, l.inner), T: n, Eps: 1e-5,
		Workspace: l.workspace, Handover: again}
	one := second
	one.Handover, second.Out = gated, of(l.gated, l.inner)
	return []device.Op{qkv, kernels.Attend{Q: qkv.Out, Rows: qkv.Rows, Slots: l.Slots, KV: l.KV, T: n, Layer: l.Layer,
		Out: of(l.attended, width), Workspace: l.work, Heads: l.Heads, Scale: 0.1, Handover: attended},
		kernels.Projection{W: l.output, In: of(l.attended, width), X: x, T: n, Workspace: l.within, Handover: projected}, one,
		kernels.Projection{W: l.down, In: one.Out, X: x, T: n, Workspace: l.within, Handover: projected}, second}
}
