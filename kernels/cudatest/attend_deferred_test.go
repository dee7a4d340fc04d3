//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// deferredLayer is a layer with biases or head norms, and rows of sequences that advance step by
// step. Each step is a QKV and its attention, and either of them does QK post-processing.
type deferredLayer struct {
	*both
	name   string
	qkv    kernels.QKV
	pool   []uint16 // initial content: NaN after the end of each sequence
	work   device.Buffer
	window int
	logits logits
	steps  []kernels.Rows
	x      device.Buffer // the input of each step, [step][T][hidden]
}

const deferredHidden, deferredLayers, deferredContext = 64, 2, 700

// deferredShape is the dimensions of a deferredLayer. A group of more than eight query heads
// needs several blocks.
type deferredShape struct {
	rows, group, kvHeads, dim, window, steps int
	bias, norms, logits                      bool
}

func newDeferredLayer(b *both, s deferredShape) *deferredLayer {
	heads := s.group * s.kvHeads
	a := &deferredLayer{both: b, window: s.window, name: fmt.Sprintf("%+v", s)}
	kv := kernels.KV{DType: kernels.BF16, PageTokens: 16, Layers: deferredLayers, Heads: s.kvHeads, HeadDim: s.dim}
	at, table := a.sequences(&kv, s)
	a.qkv = kernels.QKV{Norm: put(b, b.powers(deferredHidden))[1],
		Q:    b.matrix(kernels.BF16, heads*s.dim, deferredHidden)[1],
		K:    b.matrix(kernels.BF16, s.kvHeads*s.dim, deferredHidden)[1],
		V:    b.matrix(kernels.BF16, s.kvHeads*s.dim, deferredHidden)[1],
		RoPE: b.load(1, bytesOf(b.randomRoPE(deferredContext, s.dim))), KV: kv,
		BeforeRoPE: b.beforeRoPE(s.rows, s.kvHeads, s.dim),
		Slots: kernels.Slots{Count: s.rows + 1, Pages: len(table) / (s.rows + 1), Context: deferredContext,
			BlockTable: b.load(1, bytesOf(table))},
		T: s.rows, Layer: 1, Hidden: deferredHidden, Heads: heads, Eps: 1e-5}
	if s.bias {
		a.qkv.Bias = b.load(1, bytesOf(b.normal((heads+2*s.kvHeads)*s.dim, 1)))
	}
	if s.norms {
		a.qkv.HeadNorms = b.load(1, bytesOf(b.powers(2*s.dim)))
	}
	if s.logits {
		a.logits = b.randomLogits(heads)
	}
	a.x = b.load(1, bytesOf(b.normal(s.steps*s.rows*deferredHidden, 3)))
	a.work = b.attendWorkspace(s.rows, heads, s.dim, deferredContext)
	slot := b.load(1, bytesOf(counted(s.rows)))
	for step := range s.steps {
		position := make([]int32, s.rows)
		for i := range position {
			position[i] = at[i] + int32(step)
		}
		a.steps = append(a.steps, kernels.Rows{Slot: slot, Position: b.load(1, bytesOf(position))})
	}
	return a
}

// edges are positions at which pages, warps' blocks and splits start or end.
var edges = []int32{0, 1, 15, 16, 31, 32, 33, 127, 128, 129, 255, 256, 383, 384, 511, 512, 640}

// sequences returns the first position of each row, and the block table. Some earlier pages are
// shared, and the last ones are a row's own. It fills the pool.
func (a *deferredLayer) sequences(kv *kernels.KV, s deferredShape) (at, table []int32) {
	const shared, pages = 40, (deferredContext + 15) / 16
	own := (s.steps+15)/16 + 1
	kv.Pages = 1 + shared + s.rows*own
	values := bitsOf(a.normal(100_003, 1)) // repeated, but no two pages are equal
	a.pool = make([]uint16, 0, int(kv.PageBytes()/2)*kv.Pages)
	for len(a.pool) < cap(a.pool) {
		a.pool = append(a.pool, values[:min(len(values), cap(a.pool)-len(a.pool))]...)
	}
	at, table = make([]int32, s.rows), make([]int32, (s.rows+1)*pages)
	for i := range at {
		at[i] = a.r.Int32N(int32(deferredContext - s.steps))
		if a.r.IntN(2) == 0 {
			at[i] = max(0, edges[a.r.IntN(len(edges))]-a.r.Int32N(int32(s.steps)))
		}
		first := int(at[i]) / 16
		for j := range first {
			table[i*pages+j] = 1 + a.r.Int32N(shared)
		}
		for j := range min(own, pages-first) {
			page := 1 + shared + i*own + j
			table[i*pages+first+j] = int32(page)
			a.poisonPage(kv, page, max(0, int(at[i])%16-16*j))
		}
	}
	a.poisonPage(kv, 0, 0)
	return at, table
}

// poisonPage makes a page NaN from a token on.
func (a *deferredLayer) poisonPage(kv *kernels.KV, page, from int) {
	for plane := range kv.Layers * 2 * kv.Heads {
		at := (page*kv.Layers*2*kv.Heads + plane) * kv.PageTokens * kv.HeadDim
		for i := at + from*kv.HeadDim; i < at+kv.PageTokens*kv.HeadDim; i++ {
			a.pool[i] = math.MaxUint16
		}
	}
}

// randomRoPE returns cos and sin of random angles.
func (b *both) randomRoPE(context, dim int) []float32 {
	rope := make([]float32, context*dim)
	for i := range rope[:len(rope)/2] {
		sin, cos := math.Sincos(b.r.Float64() * 7)
		rope[2*i], rope[2*i+1] = float32(cos), float32(sin)
	}
	return rope
}

// results returns the outputs of attention in all steps, then the pool.
func (a *deferredLayer) results(inAttend, early bool, run func(ops ...device.Op)) (out []uint32) {
	a.t.Helper()
	kv := a.qkv.KV
	kv.Data = a.load(1, bytesOf(a.pool))
	width := a.qkv.Heads * kv.HeadDim
	attended := a.load(1, poison(4*len(a.steps)*a.qkv.T*width))
	var ops []device.Op
	for i, rows := range a.steps {
		part := func(x device.Buffer, each int) device.Buffer {
			return x.Slice(int64(4*i*a.qkv.T*each), int64(4*a.qkv.T*each))
		}
		qkv := a.qkv
		qkv.X, qkv.Out, qkv.Rows, qkv.KV = part(a.x, deferredHidden), a.load(1, poison(4*a.qkv.T*width)), rows, kv
		attend := kernels.Attend{Q: qkv.Out, Rows: rows, Slots: qkv.Slots, KV: kv, Out: part(attended, width),
			Workspace: a.work, T: qkv.T, Layer: qkv.Layer,
			Heads: qkv.Heads, Scale: float32(1 / math.Sqrt(float64(kv.HeadDim))), Window: a.window, AfterQKV: early,
			Softcap: a.logits.softcap, Sinks: a.logits.sinks[1]}
		if inAttend {
			qkv.DeferRoPE, attend.Post = true, qkv.Post()
		}
		ops = append(ops, qkv, attend)
	}
	run(ops...)
	return append(read[uint32](a.both, 1, attended), read[uint32](a.both, 1, kv.Data)...)
}

// compare fails if attention with deferred RoPE gives other bits, or stores others, than kernels of few rows without it:
// with these kernels, and with those of many rows.
func (a *deferredLayer) compare() {
	a.t.Helper()
	before := tune.ManyAttend
	defer func() { tune.ManyAttend = before }()
	tune.ManyAttend = math.MaxInt32
	want := a.results(false, false, a.oneByOne)
	for i, w := range want[:len(a.steps)*a.qkv.T*a.qkv.Heads*a.qkv.KV.HeadDim] {
		if math.IsNaN(float64(math.Float32frombits(w))) {
			a.t.Fatalf("%s: element %d is not a number", a.name, i)
		}
	}
	for _, tune.ManyAttend = range []int{math.MaxInt32, 0} {
		for _, early := range []bool{false, true} {
			name := fmt.Sprintf("%s, %d heads for each SM, early %t", a.name, tune.ManyAttend, early)
			a.equal(name, a.results(true, early, a.onGPU), want)
			a.equal(name+", replayed", a.results(true, early, a.replay), want)
		}
	}
}

// randomDeferred returns a random shape.
func randomDeferred(b *both, rows int) deferredShape {
	group := []int{1, 2, 3, 4, 5, 6, 7, 8, 12}[b.r.IntN(9)]
	families, steps := b.r.IntN(3), 2+b.r.IntN(20)
	if rows > 8 {
		steps = 2 + b.r.IntN(3)
	}
	return deferredShape{rows: rows, group: group, kvHeads: 1 + b.r.IntN(3), dim: []int{32, 64, 96, 128, 256}[b.r.IntN(5)],
		window: []int{0, 0, 1, 2, 20, 131, 300}[b.r.IntN(7)],
		steps:  steps, bias: families != 0, norms: families != 1, logits: b.r.IntN(3) == 0}
}

// Attention with deferred RoPE gives the same bits as after a QKV that applies RoPE, and stores
// the same keys and values: over random shapes, steps that cross pages and splits, windows, and
// more query heads per KV head than a block takes.
func TestCUDAAttendWithDeferredRoPE(t *testing.T) {
	b := newBoth(t)
	for _, s := range []deferredShape{
		{rows: 1, group: 4, kvHeads: 8, dim: 128, steps: 18, norms: true},
		{rows: 9, group: 4, kvHeads: 8, dim: 128, steps: 18, norms: true},
		{rows: 20, group: 4, kvHeads: 8, dim: 128, steps: 3, norms: true},
		{rows: 2, group: 7, kvHeads: 2, dim: 64, steps: 20, bias: true},
		{rows: 70, group: 7, kvHeads: 2, dim: 64, steps: 2, bias: true, window: 200},
		{rows: 3, group: 2, kvHeads: 4, dim: 256, steps: 18, norms: true, window: 200},
		{rows: 2, group: 8, kvHeads: 1, dim: 256, steps: 18, bias: true, norms: true},
		{rows: 2, group: 8, kvHeads: 2, dim: 64, steps: 18, bias: true, window: 128, logits: true},
	} {
		newDeferredLayer(b, s).compare()
	}
	for range 40 {
		newDeferredLayer(b, randomDeferred(b, 1+b.r.IntN(8))).compare()
	}
	for range 10 {
		newDeferredLayer(b, randomDeferred(b, 1+b.r.IntN(64))).compare()
	}
}

// The same with kernels that are delayed at random.
func TestCUDAAttendWithDeferredRoPEAfterLateQKV(t *testing.T) {
	b := bothOf(t, "late")
	for range 8 {
		newDeferredLayer(b, randomDeferred(b, 1+b.r.IntN(24))).compare()
	}
}

// A row has the same bits alone and in a batch.
func TestCUDAAttendWithDeferredRoPEIsBatchInvariant(t *testing.T) {
	attendAsMany(t)
	b := newBoth(t)
	for range 8 {
		s := randomDeferred(b, 2+b.r.IntN(60))
		a := newDeferredLayer(b, s)
		all, width := a.results(true, true, a.onGPU), a.qkv.Heads*s.dim
		for _, row := range []int{0, b.r.IntN(s.rows), s.rows - 1} {
			one := a.oneRow(row)
			got := one.results(true, true, one.onGPU)
			for step := range a.steps {
				at := (step*s.rows + row) * width
				b.equal(fmt.Sprintf("%s, row %d, step %d", a.name, row, step), got[step*width:(step+1)*width],
					all[at:at+width])
			}
		}
	}
}

// oneRow returns a copy of a with only one of its rows.
func (a *deferredLayer) oneRow(row int) *deferredLayer {
	one := *a
	one.qkv.T, one.steps = 1, nil
	x := read[float32](a.both, 1, a.x)
	var mine []float32
	for step, rows := range a.steps {
		at := (step*a.qkv.T + row) * deferredHidden
		mine = append(mine, x[at:at+deferredHidden]...)
		one.steps = append(one.steps, kernels.Rows{Slot: rows.Slot.Slice(int64(4*row), 4),
			Position: rows.Position.Slice(int64(4*row), 4)})
	}
	one.x = a.load(1, bytesOf(mine))
	return &one
}
