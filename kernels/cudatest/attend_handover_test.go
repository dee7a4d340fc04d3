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

// Results are handed over if the number of columns is a multiple of 128, so not in the last
// shape.
var handoverShapes = []struct{ heads, kvHeads, d, context int }{
	{8, 8, 64, 2300}, {14, 2, 64, 700}, {4, 1, 96, 1100}, {8, 8, 96, 450}, {8, 1, 128, 2300}, {5, 5, 128, 1100},
	{8, 1, 80, 1100}, {32, 8, 128, 420}, {5, 5, 64, 300}, {4, 2, 256, 1100},
	{4, 1, 192, 600},
}

// handoverOutputs is the number of outputs of the product after attention.
const handoverOutputs = 80

// lastRows returns the last n positions of slot 1, which fills its context.
func (a *attending) lastRows(n int) []kernels.Row {
	var rows []kernels.Row
	for p := a.slots[1].Context - n; p < a.slots[1].Context; p++ {
		rows = append(rows, kernels.Row{Slot: 1, Position: int32(p)})
	}
	return rows
}

// chain returns attention for rows, and the product of its results with w, which adds to start.
// Its queries are the last ones of a.query.
func (a *attending) chain(w kernels.Weight, rows []kernels.Row, start []float32, handover bool) (kernels.Attend,
	kernels.Projection) {
	a.t.Helper()
	width, n := a.heads*a.kv[1].HeadDim, len(rows)
	slot, position := make([]int32, n), make([]int32, n)
	for i, r := range rows {
		slot[i], position[i] = r.Slot, r.Position
	}
	attend := kernels.Attend{Q: a.load(1, bytesOf(a.query[len(a.query)-n*width:])),
		Rows:  kernels.Rows{Slot: a.load(1, bytesOf(slot)), Position: a.load(1, bytesOf(position))},
		Slots: a.slots[1], KV: a.kv[1], Out: a.load(1, poison(4*n*width)), Workspace: a.work, T: n, Layer: 1,
		Heads: a.heads, Class: kernels.Prefill,
		Scale: float32(1 / math.Sqrt(float64(a.kv[1].HeadDim))), Window: a.window, Softcap: a.logits.softcap,
		Sinks: a.logits.sinks[1]}
	project := kernels.Projection{W: w, In: attend.Out, X: a.load(1, bytesOf(start[len(start)-n*w.Rows:])),
		Workspace: kernels.Workspace{Rounded: a.roundedFor(n, width),
			Partials: a.load(1, make([]byte, kernels.PartialsBytes(n, width, w.Rows)))}, T: n, Class: kernels.Prefill,
		Handover: kernels.Handover{InputIsRounded: handover}}
	if handover {
		attend.Handover.Rounded, attend.Handover.DType = project.Workspace.Rounded, w.DType
	}
	return attend, project
}

// chainResult returns the result of attention and the product.
func (a *attending) chainResult(w kernels.Weight, rows []kernels.Row, start []float32, handover bool) []uint32 {
	a.t.Helper()
	attend, project := a.chain(w, rows, start, handover)
	a.onGPU(attend, project)
	return read[uint32](a.both, 1, project.X)
}

// Rows that attention hands over rounded equal the rows that the product rounds itself: for any
// number of tokens, over one split of the context and over several, and in a window.
func TestCUDAAttendHandover(t *testing.T) {
	defer func() { tune.ParallelSplits = true }()
	for i, c := range handoverShapes {
		b := newBoth(t)
		a := newAttending(b, c.heads, c.kvHeads, c.d, c.context)
		a.window = []int{0, 0, 0, 131}[i%4]
		most := min(400, c.context)
		a.query = a.normal(most*c.heads*c.d, 1)
		start := a.normal(most*handoverOutputs, 1)
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			w := a.matrix(dtype, handoverOutputs, c.heads*c.d)[1]
			all := a.chainResult(w, a.lastRows(most), start, false)
			a.changed(all, start)
			for _, n := range []int{1, 7, 17, 100, 207, most} {
				for _, tune.ParallelSplits = range []bool{true, false} {
					name := fmt.Sprintf("%d heads over %d of size %d, type %d, %d rows of %d, splits at once %t",
						c.heads, c.kvHeads, c.d, dtype, n, c.context, tune.ParallelSplits)
					a.equal(name, a.chainResult(w, a.lastRows(n), start, true), all[len(all)-n*handoverOutputs:])
				}
			}
		}
		a.makePrompts(100) // of several sequences
		a.window = 0
		start = a.normal(len(a.row)*handoverOutputs, 1)
		w := a.matrix(kernels.F16, handoverOutputs, c.heads*c.d)[1]
		a.equal("several sequences", a.chainResult(w, a.row, start, true), a.chainResult(w, a.row, start, false))
	}
}

// changed fails if a product left most of its sums unchanged.
func (a *attending) changed(got []uint32, start []float32) {
	a.t.Helper()
	same := 0
	for i, v := range start {
		if math.Float32bits(v) == got[i] {
			same++
		}
	}
	if same > len(start)/10 {
		a.t.Fatalf("%d of %d sums are what they began with", same, len(start))
	}
}

// Decode of few rows, which products read as float32, writes its results to Out alone, with or without a Handover.
func TestCUDADecodeOfFewRowsHasNoHandover(t *testing.T) {
	a := newAttending(newBoth(t), 8, 2, 64, 700)
	a.row = a.row[:8]
	w := a.matrix(kernels.BF16, handoverOutputs, 512)[1]
	run := func(handover bool) (out, rounded []uint32) {
		attend, project := a.chain(w, a.row, a.normal(len(a.row)*handoverOutputs, 1), handover)
		attend.Class = kernels.Decode
		a.onGPU(attend)
		return read[uint32](a.both, 1, attend.Out), read[uint32](a.both, 1, project.Workspace.Rounded)
	}
	want, _ := run(false)
	got, rounded := run(true)
	a.equal("out", got, want)
	a.equal("rounded", rounded, slices.Repeat([]uint32{math.MaxUint32}, len(rounded)))
}

// A chain of attention and products gives the same bits with and without handover, with and
// without programmatic dependent launch, launched and replayed.
func TestCUDAAttendHandoverInAGraph(t *testing.T) {
	defer func() { tune.DependentLaunch = true }()
	for _, n := range []int{1, 17, 100, 400} {
		a := newAttending(newBoth(t), 8, 2, 64, 1500)
		a.query = a.normal(n*512, 1)
		w, start := a.matrix(kernels.BF16, 512, 512)[1], slices.Clone(a.query)
		var want []uint32
		for _, how := range []struct{ handover, dependent, graph bool }{{false, false, false}, {true, false, false},
			{true, true, false}, {true, false, true}, {true, true, true}, {true, true, true}} {
			tune.DependentLaunch = how.dependent
			attend, project := a.chain(w, a.lastRows(n), start, how.handover)
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
				a.changed(got, start)
			}
			a.equal(fmt.Sprintf("%d rows, %+v", n, how), got, want)
		}
	}
}

// BenchmarkCUDAAttendHandover measures attention and the output projection in all layers of a
// pass, with rows rounded by a kernel of their own and by attention.
func BenchmarkCUDAAttendHandover(t *testing.B) {
	for _, shape := range []struct {
		name                      string
		heads, kvHeads, d, layers int
	}{{"7B", 32, 32, 128, 32}, {"1B", 32, 8, 64, 16}} {
		b := newBoth(t)
		width := shape.heads * shape.d
		var w [4]kernels.Weight // together larger than the L2 cache if width is 4096
		for i := range w {
			w[i] = b.matrix(kernels.BF16, width, width)[1]
		}
		for _, rows := range []int{1, 10, 50, 100, 200, 400} {
			t.Run(fmt.Sprintf("%s/%d-rows", shape.name, rows), func(t *testing.B) {
				ops := b.prefillLayers(shape.heads, shape.kvHeads, shape.d, 1, rows, rows, shape.layers)
				x := b.load(1, make([]byte, 4*rows*width))
				workspace := kernels.Workspace{Rounded: b.roundedFor(rows, width),
					Partials: b.load(1, make([]byte, kernels.PartialsBytes(rows, width, width)))}
				var took [2]float64
				for t.Loop() {
					for handover := range took {
						var chain []device.Op
						for i, op := range ops {
							attend := op.(kernels.Attend)
							project := kernels.Projection{W: w[i%len(w)], In: attend.Out, X: x, Workspace: workspace,
								T: rows, Class: kernels.Prefill,
								Handover: kernels.Handover{InputIsRounded: handover == 1}}
							if handover == 1 {
								attend.Handover = kernels.Handover{Rounded: workspace.Rounded, DType: kernels.BF16}
							}
							chain = append(chain, attend, project)
						}
						each := b.replayTimes(20, chain...)
						took[handover] = each[len(each)/2].Seconds()
					}
				}
				t.ReportMetric(took[0]*1e3, "ms/pass-rounded-apart")
				t.ReportMetric(took[1]*1e3, "ms/pass")
			})
		}
	}
}
