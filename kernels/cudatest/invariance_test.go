//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// viewOf views bytes as values.
func viewOf[T any](raw []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&raw[0])), len(raw)/int(unsafe.Sizeof(one)))
}

type batch struct{ first, rows int }

// batches are the batches of rows in which a row's result is compared.
var batches = []batch{{0, 1}, {150, 1}, {3, 2}, {0, 8}, {9, 9}, {100, 16}, {40, 17}, {7, 33},
	{0, 64}, {130, 65}, {64, 136}, {0, 200}}

// manyBatches are more of them, at which the kernels of many generated rows change.
var manyBatches = []batch{{3, 12}, {20, 32}, {60, 128}, {1, 256}}

// productOf returns a product over rows rows of x and out.
type productOf func(x, out device.Buffer, workspace kernels.Workspace, rows int, class kernels.Class) device.Op

// checkInvariance runs product over all rows of x, then over batches of them with NaN in the rows
// around each batch, and compares the bits: without a workspace, with one, and in the prefill
// class. in and width are the lengths of the rows of x and out.
func checkInvariance(b *both, name string, in, width int, product productOf) {
	b.t.Helper()
	const all = 260
	values := b.normal(all*in, 3)
	x, out := b.load(1, bytesOf(values)), b.load(1, make([]byte, 4*all*width))
	b.onGPU(product(x, out, kernels.Workspace{}, all, kernels.Decode))
	want := read[uint32](b, 1, out)
	checkBatches(b, name, in, width, values, want, func(x, out device.Buffer, rows int) device.Op {
		return product(x, out, kernels.Workspace{}, rows, kernels.Decode)
	})
	workspace := b.workspaceFor(all, in)
	checkBatches(b, name+" with a workspace", in, width, values, want, func(x, out device.Buffer, rows int) device.Op {
		return product(x, out, workspace, rows, kernels.Decode)
	})
	x, out = b.load(1, bytesOf(values)), b.load(1, make([]byte, 4*all*width))
	b.onGPU(product(x, out, workspace, all, kernels.Prefill))
	prompt := read[uint32](b, 1, out)
	checkBatches(b, name+" in prefill", in, width, values, prompt, func(x, out device.Buffer, rows int) device.Op {
		return product(x, out, workspace, rows, kernels.Prefill)
	})
}

// checkBatches runs product over batches of the rows in values, and compares with want.
func checkBatches(b *both, name string, in, width int, values []float32, want []uint32,
	product func(x, out device.Buffer, rows int) device.Op) {
	b.t.Helper()
	for _, c := range slices.Concat(batches, manyBatches) {
		padded := slices.Repeat([]float32{float32(math.NaN())}, (c.rows+2)*in)
		copy(padded[in:], values[c.first*in:(c.first+c.rows)*in])
		x, out := b.load(1, bytesOf(padded)), b.load(1, make([]byte, 4*(c.rows+2)*width))
		b.onGPU(product(x.Slice(int64(4*in), int64(4*c.rows*in)), out.Slice(int64(4*width), int64(4*c.rows*width)),
			c.rows))
		got := read[uint32](b, 1, out)
		b.equal(fmt.Sprintf("%s: rows %d to %d", name, c.first, c.first+c.rows), got[width:(c.rows+1)*width],
			want[c.first*width:(c.first+c.rows)*width])
		around := slices.Concat(got[:width], got[(c.rows+1)*width:])
		b.equal(name+": around", around, make([]uint32, len(around)))
	}
	// NaN in other rows of a batch does not change a row.
	for _, rows := range []int{2, 9, 20, 70} {
		lone := slices.Repeat([]float32{float32(math.NaN())}, rows*in)
		at := b.r.IntN(rows)
		copy(lone[at*in:], values[:in])
		x, out := b.load(1, bytesOf(lone)), b.load(1, make([]byte, 4*rows*width))
		b.onGPU(product(x, out, rows))
		b.equal(fmt.Sprintf("%s: row %d of %d, beside NaN", name, at, rows),
			read[uint32](b, 1, out)[at*width:(at+1)*width], want[:width])
	}
}

// A row's result has the same bits alone and in any batch.
func TestCUDAProductsAreBatchInvariant(t *testing.T) {
	b := newBoth(t)
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
		for _, in := range []int{64, 1040, 4096} {
			const width = 96
			w, up := b.matrix(dtype, width, in)[1], b.matrix(dtype, width, in)[1]
			norm := put(b, b.normal(in, 1))[1]
			samples := put(b, counted(260))[1]
			checkInvariance(b, fmt.Sprintf("projection, type %d, %d", dtype, in), in, width,
				func(x, out device.Buffer, workspace kernels.Workspace, rows int, class kernels.Class) device.Op {
					return kernels.Projection{W: w, In: x, X: out, Workspace: workspace, T: rows, Class: class}
				})
			checkInvariance(b, fmt.Sprintf("gateup, type %d, %d", dtype, in), in, width,
				func(x, out device.Buffer, workspace kernels.Workspace, rows int, class kernels.Class) device.Op {
					return kernels.GateUp{X: x, Norm: norm, Gate: w, Up: up, Out: out, Workspace: workspace, T: rows,
						Class: class, Eps: 1e-5}
				})
			checkInvariance(b, fmt.Sprintf("head, type %d, %d", dtype, in), in, width,
				func(x, out device.Buffer, workspace kernels.Workspace, rows int, _ kernels.Class) device.Op {
					return kernels.Head{X: x, Norm: norm, W: w, Rows: kernels.Rows{Sample: samples}, Logits: out,
						Workspace: workspace, T: rows, N: rows, Eps: 1e-5}
				})
		}
	}
}

// Q, keys and values of a row have the same bits in batches of any size.
func TestCUDAQKVIsBatchInvariant(t *testing.T) {
	b := newBoth(t)
	const rows, hidden, heads, dim = 200, 1040, 4, 64
	a := b.newAttention(kernels.BF16, kernels.BF16, rows, hidden, heads, 2, dim)
	op := a.op[1]
	b.onGPU(op)
	wantQ, wantKV := read[uint32](b, 1, op.Out), read[uint32](b, 1, op.KV.Data)
	rounded := b.roundedFor(rows, hidden)
	op.Workspace.Partials = b.partialsFor(rows)
	for i, n := range []int{1, 5, 9, 40, 40, 100, 100, rows, rows, 150, 60, 7} {
		op.Workspace.Rounded = device.Buffer{}
		if i%2 == 1 || i >= 8 {
			op.Workspace.Rounded = rounded
		}
		if op.Class = classOf(i >= 8); i == 8 {
			b.onGPU(op)
			wantQ, wantKV = read[uint32](b, 1, op.Out), read[uint32](b, 1, op.KV.Data)
		}
		b.onGPU(kernels.Fill{Data: op.Out, Value: kernels.Poison},
			kernels.Fill{Data: op.KV.Data, Value: kernels.Poison})
		for first := 0; first < rows; first += n {
			part := op
			part.T = min(n, rows-first)
			part.X = op.X.Slice(int64(4*first*hidden), int64(4*part.T*hidden))
			part.Out = op.Out.Slice(int64(4*first*heads*dim), int64(4*part.T*heads*dim))
			part.Rows.Slot = op.Rows.Slot.Slice(int64(4*first), int64(4*part.T))
			part.Rows.Position = op.Rows.Position.Slice(int64(4*first), int64(4*part.T))
			b.must(b.streams[1].Launch(part))
		}
		b.must(b.streams[1].Synchronize())
		b.equal(fmt.Sprintf("q, %d rows at a time", n), read[uint32](b, 1, op.Out), wantQ)
		got := read[uint32](b, 1, op.KV.Data)
		for i, w := range wantKV {
			if w != math.MaxUint32 && got[i] != w || w == math.MaxUint32 && got[i] != kernels.Poison {
				t.Fatalf("%d rows at a time: word %d of the pool is %#x, wants %#x", n, i, got[i], w)
			}
		}
	}
}

// QKV before QK post-processing, which has a kernel of its own for one row, gives a row the bits that it has among
// others: q, k and v.
func TestCUDAQKVApartIsBatchInvariant(t *testing.T) {
	b := newBoth(t)
	for i, dim := range []int{32, 64, 128} {
		const rows, heads, kvHeads = 16, 6, 2
		hidden := []int{80, 1040, 896}[i]
		a := b.newAttention([]kernels.DType{kernels.BF16, kernels.F16}[i%2], kernels.BF16, rows, hidden, heads, kvHeads, dim)
		op := a.op[1]
		op.Bias, op.BeforeRoPE = put(b, b.normal((heads+2*kvHeads)*dim, 1))[1], b.beforeRoPE(rows, kvHeads, dim)
		op.DeferRoPE = true
		b.onGPU(op)
		wantQ, wantKV := read[uint32](b, 1, op.Out), read[uint32](b, 1, op.BeforeRoPE.Data)
		for _, n := range []int{1, 8} {
			b.onGPU(kernels.Fill{Data: op.Out, Value: kernels.Poison},
				kernels.Fill{Data: op.BeforeRoPE.Data, Value: kernels.Poison})
			for first := 0; first < rows; first += n {
				b.onGPU(rowsOfQKV(op, first, n))
			}
			name := fmt.Sprintf("heads of %d, %d rows at a time: ", dim, n)
			b.equal(name+"q", read[uint32](b, 1, op.Out), wantQ)
			b.equal(name+"k and v", read[uint32](b, 1, op.BeforeRoPE.Data), wantKV)
		}
	}
}

// rowsOfQKV returns op for n rows from the first on, before QK post-processing.
func rowsOfQKV(op kernels.QKV, first, n int) kernels.QKV {
	part := func(b device.Buffer, width int) device.Buffer { return b.Slice(int64(4*first*width), int64(4*n*width)) }
	op.T = n
	op.X, op.Out = part(op.X, op.Hidden), part(op.Out, op.Q.Rows)
	op.Rows.Slot, op.Rows.Position = part(op.Rows.Slot, 1), part(op.Rows.Position, 1)
	op.BeforeRoPE.Data = part(op.BeforeRoPE.Data, 2*op.K.Rows)
	return op
}

// A chain of kernels gives the same bits with and without programmatic dependent launch, launched
// and replayed.
func TestCUDADependentLaunchChangesNothing(t *testing.T) {
	b := newBoth(t)
	b.dependentLaunch(1024, 2816)
	b.dependentLaunch(256, 704) // of 4 and 11 K blocks, so that some blocks of a product have none
}

func (b *both) dependentLaunch(hidden, inner int) {
	b.t.Helper()
	gate, up, down := b.matrix(kernels.BF16, inner, hidden)[1], b.matrix(kernels.BF16, inner, hidden)[1],
		b.matrix(kernels.BF16, hidden, inner)[1]
	norm := put(b, b.normal(hidden, 1))[1]
	defer func(n int) { tune.DependentLaunch, tune.MaxPersistentBlocks = true, n }(tune.MaxPersistentBlocks)
	for _, rows := range []int{1, 8, 12, 40, 150, -3, -50, -100, -300} { // below 0: rows of the prefill class
		prefill := rows < 0
		rows = max(rows, -rows)
		start := b.normal(rows*hidden, 1)
		mid, workspace := b.poisoned(rows * inner)[1], b.workspaceFor(rows, inner)
		var want []uint32
		for _, how := range []struct {
			dependent, graph bool
			blocks           int // the limit of persistent blocks
		}{{false, false, 512}, {true, false, 512}, {false, true, 512}, {true, true, 512}, {true, true, 512},
			{true, true, 24}, {true, false, 7}} {
			tune.DependentLaunch, tune.MaxPersistentBlocks = how.dependent, how.blocks
			x := b.load(1, bytesOf(start))
			chain := make([]device.Op, 0, 80)
			for range cap(chain) / 2 {
				chain = append(chain, kernels.GateUp{X: x, Norm: norm, Gate: gate, Up: up, Out: mid,
					Workspace: workspace, T: rows, Class: classOf(prefill), Eps: 1e-5},
					kernels.Projection{W: down, In: mid, X: x, Workspace: workspace, T: rows, Class: classOf(prefill)})
			}
			if how.graph {
				b.replay(chain...)
			} else {
				b.onGPU(chain...)
			}
			got := read[uint32](b, 1, x)
			if want == nil {
				want = got
			}
			b.equal(fmt.Sprintf("%d to %d, %d rows, %+v", hidden, inner, rows, how), got, want)
		}
	}
}

// capture returns a graph of ops on the GPU.
func (b *both) capture(ops ...device.Op) device.Exec {
	b.t.Helper()
	runtime.LockOSThread() // a capture must end on the thread on which it began
	defer runtime.UnlockOSThread()
	s := b.streams[1]
	b.must(s.BeginCapture())
	for _, op := range ops {
		b.must(s.Launch(op))
	}
	g, err := s.EndCapture()
	b.must(err)
	if g.Nodes() < len(ops) {
		b.t.Fatalf("the graph has %d nodes, wants %d at least", g.Nodes(), len(ops))
	}
	x, err := g.Instantiate()
	b.must(err)
	b.must(g.Destroy())
	return x
}

// replay captures ops and replays them once.
func (b *both) replay(ops ...device.Op) { b.replayTimes(1, ops...) }

// replayTimes captures ops and, n times, replays them n times without a pause. It returns the
// average time of a replay in each round, in ascending order.
func (b *both) replayTimes(n int, ops ...device.Op) (took []time.Duration) {
	b.t.Helper()
	s, x := b.streams[1], b.capture(ops...)
	for range n {
		start := time.Now()
		for range n {
			b.must(s.Replay(x))
		}
		b.must(s.Synchronize())
		took = append(took, time.Since(start)/time.Duration(n))
	}
	b.must(x.Destroy())
	slices.Sort(took)
	return took
}
