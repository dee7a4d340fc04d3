//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// handingHeads has few rows of attention and the product over codes of their results, with and without a hand-over.
// Everything that they write was poisoned before.
type handingHeads struct {
	*both
	name    string
	attend  kernels.Attend
	project kernels.Projection
	start   []float32
	real    []bool // whether a row is a sequence's, of a verify pass
}

// handing returns those of an attention, before a product over weights of a random format.
func (b *both) handing(name string, attend kernels.Attend) *handingHeads {
	width := attend.Heads * attend.KV.HeadDim
	var formats []quantised
	for _, f := range quantisedFormats {
		if width%f.elements == 0 {
			formats = append(formats, f)
		}
	}
	f := formats[b.r.IntN(len(formats))]
	a := &handingHeads{both: b, name: name + ", " + f.name, attend: attend, start: b.normal(attend.T*handoverOutputs, 1)}
	a.project = kernels.Projection{W: b.matrix(f.dtype, handoverOutputs, width)[1], T: attend.T}
	return a
}

// ops returns both ops. given: attention hands over; taken: the product takes what was handed over.
func (a *handingHeads) ops(given, taken bool) (kernels.Attend, kernels.Projection) {
	attend, project := a.attend, a.project
	width := attend.Heads * attend.KV.HeadDim
	attend.Out = a.load(1, poison(4*attend.T*width))
	project.In, project.X = attend.Out, a.load(1, bytesOf(a.start))
	if project.Workspace.Rounded.IsZero() {
		project.Workspace.Rounded = a.roundedFor(attend.T, width)
	}
	project.Handover.InputIsRounded = taken
	if given {
		attend.Handover = kernels.Handover{Rounded: project.Workspace.Rounded, DType: project.W.DType}
	}
	return attend, project
}

// result returns the product's sums, and what attention left in Out.
func (a *handingHeads) result(given, taken bool) (sums, out []uint32) {
	a.t.Helper()
	attend, project := a.ops(given, taken)
	a.onGPU(attend, project)
	return read[uint32](a.both, 1, project.X), read[uint32](a.both, 1, attend.Out)
}

// compare fails if rows that are handed over give other sums than those that the product rounds, or are not handed over.
func (a *handingHeads) compare() {
	a.t.Helper()
	want, _ := a.result(false, false)
	got, out := a.result(true, true)
	a.poisonedStill(out)
	a.sameRows(got, want)
}

// poisonedStill fails unless a buffer is as it was.
func (a *handingHeads) poisonedStill(v []uint32) {
	a.t.Helper()
	a.equal(a.name+": out", v, slices.Repeat([]uint32{math.MaxUint32}, len(v)))
}

// sameRows fails if sums of sequences' rows differ, are not numbers, or are what they began with.
func (a *handingHeads) sameRows(got, want []uint32) {
	a.t.Helper()
	outputs := a.project.W.Rows
	for row := range a.attend.T {
		if a.real != nil && !a.real[row] {
			continue
		}
		part := want[row*outputs : (row+1)*outputs]
		a.equal(fmt.Sprintf("%s: row %d", a.name, row), got[row*outputs:], part)
		same := 0
		for i, v := range part {
			if math.IsNaN(float64(math.Float32frombits(v))) {
				a.t.Fatalf("%s: row %d is not a number", a.name, row)
			}
			if v == math.Float32bits(a.start[row*outputs+i]) {
				same++
			}
		}
		if same > outputs/10 {
			a.t.Fatalf("%s: %d of %d sums of row %d are what they began with", a.name, same, outputs, row)
		}
	}
}

// handAll has all rows handed over that can be, until the test ends.
func handAll(t *testing.T) {
	least, share := tune.LeastHanded, tune.ShareMerge
	t.Cleanup(func() { tune.LeastHanded, tune.ShareMerge = least, share })
	tune.LeastHanded = 0
}

// decoded returns decode attention of n random rows.
func (a *attending) decoded(n int) kernels.Attend {
	slot, position := make([]int32, n), make([]int32, n)
	for i := range n {
		r := a.row[a.r.IntN(len(a.row))]
		slot[i], position[i] = r.Slot, r.Position
	}
	d := a.kv[1].HeadDim
	return kernels.Attend{Q: a.load(1, bytesOf(a.normal(n*a.heads*d, 1))),
		Rows:  kernels.Rows{Slot: a.load(1, bytesOf(slot)), Position: a.load(1, bytesOf(position))},
		Slots: a.slots[1], KV: a.kv[1], Workspace: a.work, T: n, Layer: 1, Heads: a.heads,
		Scale: float32(1 / math.Sqrt(float64(d))), Window: a.window, Softcap: a.logits.softcap, Sinks: a.logits.sinks[1]}
}

// handedShapes are of one split and of several in a block, of more than a block merges at once, of head sizes that do
// not fill a kernel's, and of wide heads, whose blocks merge together or one by one.
var handedShapes = []struct{ heads, kvHeads, d, context int }{
	{8, 2, 64, 700}, {32, 8, 64, 1100}, {32, 32, 64, 300}, {16, 4, 48, 500}, {2, 1, 64, 17000}, {32, 32, 128, 700},
	{8, 1, 128, 2300}, {32, 8, 128, 1500}, {8, 8, 112, 450}, {4, 2, 256, 1100}, {16, 8, 256, 600}, {2, 1, 256, 9000},
	{8, 4, 144, 700}, {8, 1, 240, 1000}, {40, 40, 128, 130},
}

// Rows of decode that are handed over to a product over codes give the bits of rows that it rounds: of 2 to 8 rows, all
// head sizes, and any division into splits.
func TestCUDADecodeHandsFewRowsToCodes(t *testing.T) {
	handAll(t)
	for i, c := range handedShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.window = []int{0, 0, 131}[i%3]
		for n := 2; n <= 8; n++ {
			for _, tune.ShareMerge = range []bool{true, false} {
				a.handing(fmt.Sprintf("%+v, %d rows, merged together %t", c, n, tune.ShareMerge), a.decoded(n)).compare()
			}
		}
	}
}

// The same with a softcap, sinks or both.
func TestCUDADecodeWithLogitsHandsFewRowsToCodes(t *testing.T) {
	handAll(t)
	for _, c := range handedShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.logits = a.randomLogits(c.heads)
		for _, n := range []int{2, 5, 8} {
			a.handing(fmt.Sprintf("%+v, %d rows", c, n), a.decoded(n)).compare()
		}
	}
}

// Rows of a verify pass that are handed over to a product over codes give the bits of rows that it rounds.
func TestCUDAVerifyHandsFewRowsToCodes(t *testing.T) {
	handAll(t)
	b := newBoth(t)
	for _, d := range []int{64, 128, 112, 256} {
		for queries := 2; queries <= 8; queries++ {
			for groups := 1; groups*queries <= 8; groups++ {
				s := verifyShape{groups: groups, queries: queries, group: []int{1, 2, 4, 8}[b.r.IntN(4)], kvHeads: 8,
					dim: d, context: []int{20, 700, 9000}[b.r.IntN(3)], window: []int{0, 0, 131}[b.r.IntN(3)],
					logits: b.r.IntN(3) == 0}
				v := newVerifying(b, s)
				a := b.handing(v.name, v.op[1])
				a.real = v.real
				a.compare()
			}
		}
	}
}

// codesResults returns the sums of the products of all steps, then the pool.
func (a *deferredLayer) codesResults(w kernels.Weight, start []float32, handover bool, early bool,
	run func(ops ...device.Op)) []uint32 {
	a.t.Helper()
	kv, n := a.qkv.KV, a.qkv.T
	kv.Data = a.load(1, bytesOf(a.pool))
	width := a.qkv.Heads * kv.HeadDim
	sums := a.load(1, bytesOf(start))
	rounded := a.roundedFor(n, width)
	var ops []device.Op
	for i, rows := range a.steps {
		part := func(x device.Buffer, each int) device.Buffer { return x.Slice(int64(4*i*n*each), int64(4*n*each)) }
		qkv := a.qkv
		qkv.X, qkv.Out = part(a.x, deferredHidden), a.load(1, poison(4*n*width))
		qkv.Rows, qkv.KV, qkv.DeferRoPE = rows, kv, true
		attend := kernels.Attend{Q: qkv.Out, Rows: rows, Slots: qkv.Slots, KV: kv, Out: a.load(1, poison(4*n*width)),
			Workspace: a.work, T: n, Layer: qkv.Layer, Heads: qkv.Heads, AfterQKV: early, Post: qkv.Post(),
			Scale: float32(1 / math.Sqrt(float64(kv.HeadDim))), Window: a.window, Softcap: a.logits.softcap,
			Sinks: a.logits.sinks[1]}
		project := kernels.Projection{W: w, In: attend.Out, X: part(sums, w.Rows), T: n,
			Workspace: kernels.Workspace{Rounded: rounded}, Handover: kernels.Handover{InputIsRounded: handover}}
		if handover {
			attend.Handover = kernels.Handover{Rounded: rounded, DType: w.DType}
		}
		ops = append(ops, qkv, attend, project)
	}
	run(ops...)
	return append(read[uint32](a.both, 1, sums), read[uint32](a.both, 1, kv.Data)...)
}

// Rows of decode with deferred QK post-processing that are handed over to a product over codes give the bits of rows
// that it rounds, and store the same keys and values: also of attention that begins before QKV ends, and replayed.
func TestCUDADeferredDecodeHandsFewRowsToCodes(t *testing.T) {
	handAll(t)
	b := newBoth(t)
	for i := range 16 {
		s := randomDeferred(b, 2+b.r.IntN(7))
		s.kvHeads, s.dim, s.group = 4, []int{64, 128, 256}[i%3], []int{1, 2, 4, 8}[b.r.IntN(4)]
		a := newDeferredLayer(b, s)
		dtype := []kernels.DType{kernels.Q4_0, kernels.Q8_0, kernels.Q4_K, kernels.Q6_K}[i%4]
		w := b.matrix(dtype, handoverOutputs, s.group*s.kvHeads*s.dim)[1]
		start := b.normal(s.steps*s.rows*handoverOutputs, 1)
		want := a.codesResults(w, start, false, false, a.oneByOne)
		for _, v := range want[:len(start)] {
			if math.IsNaN(float64(math.Float32frombits(v))) {
				t.Fatalf("%s: a sum is not a number", a.name)
			}
		}
		for _, early := range []bool{false, true} {
			name := fmt.Sprintf("%s, format %d, early %t", a.name, dtype, early)
			a.equal(name, a.codesResults(w, start, true, early, a.onGPU), want)
			a.equal(name+", replayed", a.codesResults(w, start, true, early, a.replay), want)
		}
	}
}

// The product notices if attention has left nothing for it: in decode, in a verify pass and with deferred QK
// post-processing. It notices too that attention has left nothing but what it handed over.
func TestCUDACodesNoticeAttentionThatLeftNothing(t *testing.T) {
	handAll(t)
	b := newBoth(t)
	decode := newAttending(b, 8, 2, 128, 700)
	verify := newVerifying(b, verifyShape{groups: 1, queries: 4, group: 2, kvHeads: 4, dim: 64, context: 300})
	all := []*handingHeads{b.handing("decode", decode.decoded(6)), b.handing("verify", verify.op[1])}
	all[1].real = verify.real
	for _, a := range all {
		a.compare()
		want, _ := a.result(false, false)
		for _, given := range []bool{false, true} {
			got, _ := a.result(given, !given)
			if !a.fails(func() { a.sameRows(got, want) }) {
				t.Errorf("%s: rows that attention left %t, and the product took %t, are the same", a.name, given, !given)
			}
		}
	}
	// With deferred QK post-processing the product reads what the step before left, or poison.
	a := newDeferredLayer(b, deferredShape{rows: 4, group: 2, kvHeads: 4, dim: 128, steps: 3, norms: true})
	w, start := b.matrix(kernels.Q4_K, handoverOutputs, 1024)[1], b.normal(3*4*handoverOutputs, 1)
	want := a.codesResults(w, start, false, false, a.oneByOne)
	leaveNothing := func(ops ...device.Op) {
		for _, op := range ops {
			if attend, ok := op.(kernels.Attend); ok {
				attend.Handover = kernels.Handover{}
				op = attend
			}
			a.onGPU(op)
		}
	}
	a.equal("deferred", a.codesResults(w, start, true, true, a.onGPU), want)
	got := a.codesResults(w, start, true, true, leaveNothing)
	if !a.fails(func() { a.equal("left nothing", got, want) }) {
		t.Error("with deferred QK post-processing rows that attention did not leave are the same")
	}
}

// One row, nine rows, fewer values than are worth it, and a workspace that is too small are left as float32, and the
// product rounds them, if both are asked for a hand-over.
func TestCUDAAttendThatCannotHandToCodes(t *testing.T) {
	handAll(t)
	for _, test := range []struct {
		name           string
		n, least, room int
	}{{"one row", 1, 0, 0}, {"nine rows", 9, 0, 0}, {"few values", 4, 6 * 4096, 0}, {"a small workspace", 4, 0, 4096}} {
		b := newBoth(t)
		tune.LeastHanded = test.least
		a := b.handing(test.name, newAttending(b, 8, 2, 64, 700).decoded(test.n))
		want, left := a.result(false, false)
		if test.room > 0 {
			a.project.Workspace.Rounded = a.roundedFor(test.n, 512).Slice(0, int64(test.room))
		}
		got, out := a.result(true, true)
		a.equal(a.name+": out", out, left)
		a.sameRows(got, want)
	}
}

// A chain of attention and products over codes gives the same bits with and without hand-overs, with and without
// programmatic dependent launch, launched and replayed.
func TestCUDAAttendHandsToCodesInAGraph(t *testing.T) {
	handAll(t)
	defer func() { tune.DependentLaunch = true }()
	for _, n := range []int{2, 5, 8} {
		b := newBoth(t)
		a := b.handing("", newAttending(b, 8, 2, 64, 1500).decoded(n))
		a.project.W, a.start = a.matrix(kernels.Q4_K, 512, 512)[1], a.normal(n*512, 1)
		var want []uint32
		for _, how := range []struct{ handover, dependent, graph bool }{{false, false, false}, {true, false, false},
			{true, true, false}, {true, false, true}, {true, true, true}, {true, true, true}} {
			tune.DependentLaunch, a.name = how.dependent, fmt.Sprintf("%d rows, %+v", n, how)
			attend, project := a.ops(how.handover, how.handover)
			attend.Q = project.X
			chain := make([]device.Op, 0, 40)
			for range cap(chain) / 2 {
				chain = append(chain, attend, project)
			}
			if how.graph {
				a.replay(chain...)
			} else {
				a.onGPU(chain...)
			}
			got := read[uint32](a.both, 1, project.X)
			if want == nil {
				want = got
			}
			a.sameRows(got, want)
		}
	}
}

// BenchmarkCUDAAttendHandsToCodes measures attention and the output projection over codes in all layers of a pass, with
// rows that each block of the product rounds and rows that attention hands over.
func BenchmarkCUDAAttendHandsToCodes(t *testing.B) {
	const heads, d, layers, context = 32, 128, 32, 250
	b := newBoth(t)
	var w [8]kernels.Weight // together larger than the L2 cache
	for i := range w {
		w[i] = b.matrix(kernels.Q4_K, heads*d, heads*d)[1]
	}
	a := newAttending(b, heads, heads, d, context)
	for _, rows := range []int{6, 8} {
		t.Run(fmt.Sprintf("%d-rows", rows), func(t *testing.B) {
			h := b.handing("", a.decoded(rows))
			h.project.W, h.start = w[0], b.normal(rows*heads*d, 1)
			var took [2]float64
			for t.Loop() {
				for handover := range took {
					attend, project := h.ops(handover == 1, handover == 1)
					var chain []device.Op
					for i := range layers {
						project.W = w[i%len(w)]
						chain = append(chain, attend, project)
					}
					each := b.replayTimes(20, chain...)
					took[handover] = each[len(each)/2].Seconds()
				}
			}
			t.ReportMetric(took[0]*1e6/layers, "us/layer-rounded-by-blocks")
			t.ReportMetric(took[1]*1e6/layers, "us/layer")
		})
	}
}
