//go:build cuda

package cudatest

import (
	"fmt"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// afterQKV is the QKV of a layer and the attention after it. The product has long columns and few
// outputs, so that attention has the SMs and the time to start before it ends.
type afterQKV struct {
	*both
	qkv  kernels.QKV
	pool []float32 // initial content
	work device.Buffer
	// queries is Attend.Queries.
	queries int
}

const (
	afterHidden, afterHeads, afterKVHeads, afterDim = 8192, 4, 2, 64
	afterContext                                    = 64 // as newAttention has it
)

func newAfterQKV(b *both, rows int, rounded, biased bool) *afterQKV {
	return newAfterQKVOf(b, rows, afterDim, rounded, biased)
}

// newAfterQKVOf has heads of dim.
func newAfterQKVOf(b *both, rows, dim int, rounded, biased bool) *afterQKV {
	a := &afterQKV{both: b, qkv: b.newAttention(kernels.BF16, kernels.BF16, rows, afterHidden, afterHeads,
		afterKVHeads, dim).op[1]}
	a.pool = b.normal(int(a.qkv.KV.Data.Bytes()/2), 1)
	a.work = b.attendWorkspace(rows, afterHeads, dim, afterContext)
	if rounded {
		a.qkv.Workspace.Rounded = b.roundedFor(rows, afterHidden)
	}
	if biased {
		a.qkv.Bias, a.qkv.BeforeRoPE = put(b, b.normal((afterHeads+2*afterKVHeads)*dim, 1))[1],
			b.beforeRoPE(rows, afterKVHeads, dim)
	}
	return a
}

// rows returns the rows of a step.
func (a *afterQKV) rows(of func(row int) kernels.Row) kernels.Rows {
	slot, position := make([]int32, a.qkv.T), make([]int32, a.qkv.T)
	for i := range slot {
		r := of(i)
		slot[i], position[i] = r.Slot, r.Position
	}
	return kernels.Rows{Slot: a.load(1, bytesOf(slot)), Position: a.load(1, bytesOf(position))}
}

// steps returns steps of as many sequences as there are rows. Each sequence advances by one
// position a step, so that attention reads keys early that the step before stored.
func (a *afterQKV) steps() (steps []kernels.Rows) {
	for step := range int32(16) {
		steps = append(steps, a.rows(func(row int) kernels.Row {
			return kernels.Row{Slot: int32(row), Position: 24 + step + int32(row%8)}
		}))
	}
	return steps
}

// results returns the outputs of attention in steps over the initial pool. run launches the ops.
func (a *afterQKV) results(early, deferred bool, steps []kernels.Rows, run func(ops ...device.Op)) (out []uint32) {
	a.t.Helper()
	kv := a.qkv.KV
	kv.Data = a.load(1, bytesOf(bitsOf(a.pool)))
	var ops []device.Op
	var attended []device.Buffer
	for _, rows := range steps {
		qkv := a.qkv
		qkv.Rows, qkv.KV = rows, kv
		attend := kernels.Attend{Q: qkv.Out, Rows: rows, Slots: qkv.Slots, KV: kv,
			Out: a.poisoned(qkv.T * afterHeads * kv.HeadDim)[1], Workspace: a.work,
			T: qkv.T, Layer: qkv.Layer, Heads: afterHeads, Scale: 0.125, AfterQKV: early, Queries: a.queries}
		if deferred {
			qkv.DeferRoPE, attend.Post = true, qkv.Post()
		}
		ops, attended = append(ops, qkv, attend), append(attended, attend.Out)
	}
	run(ops...)
	for _, x := range attended {
		out = append(out, read[uint32](a.both, 1, x)...)
	}
	return out
}

// Attention that starts before its QKV has ended gives the same bits as attention that starts
// after it, after each kernel that QKV has. So does attention that waits.
func TestCUDAAttendAfterQKV(t *testing.T) { testAttendAfterQKV(newBoth(t)) }

// The same with kernels that are delayed at random.
func TestCUDAAttendAfterLateQKV(t *testing.T) { testAttendAfterQKV(bothOf(t, "late")) }

func testAttendAfterQKV(b *both) {
	for _, c := range []struct {
		rows            int
		rounded, biased bool
	}{{1, false, false}, {1, false, true}, {8, false, false}, {12, false, false}, {12, true, true},
		{40, false, false}, {40, true, false}, {150, true, false}, {150, true, true}} {
		a := newAfterQKV(b, c.rows, c.rounded, c.biased)
		steps := a.steps()
		want := a.results(false, false, steps, a.oneByOne)
		for i := range 4 {
			early, deferred := i%2 == 1, i/2 == 1
			if deferred && !c.biased {
				break
			}
			name := fmt.Sprintf("%+v, early %t, deferred RoPE %t", c, early, deferred)
			a.equal(name, a.results(early, deferred, steps, a.onGPU), want)
			a.equal(name+", replayed", a.results(early, deferred, steps, a.replay), want)
		}
	}
}

// A prompt's attention reads its rows, which the first op of the step stages, before its QKV has
// ended.
func TestCUDAPrefillAttendAfterQKV(t *testing.T) { testPrefillAttendAfterQKV(newBoth(t)) }

// The same with kernels that are delayed at random.
func TestCUDAPrefillAttendAfterLateQKV(t *testing.T) { testPrefillAttendAfterQKV(bothOf(t, "late")) }

func testPrefillAttendAfterQKV(b *both) {
	for _, c := range []struct {
		rows                      int
		rounded, partials, biased bool
	}{{1, true, true, false}, {12, false, false, false}, {12, true, true, true}, {40, false, false, false},
		{40, true, false, true}, {40, true, true, false}, {100, true, true, true}, {230, true, true, false}} {
		a := newStagedPrompt(b, c.rows, c.rounded, c.partials, c.biased)
		want := a.results(true, false, a.oneByOne)
		for range 5 {
			a.equal(fmt.Sprintf("%+v", c), a.results(true, true, a.onGPU), want)
			a.equal(fmt.Sprintf("%+v, replayed", c), a.results(true, true, a.replay), want)
		}
	}
}

// Directly after the op that stages its rows attention may not read them early. If it does, it
// attends for other rows, and the result differs. So the tests above notice such reads after a
// QKV. GPUs before 9.0 start no kernel early, and fail this test.
func TestCUDAPrefillAttendNoticesAFalseAfterQKV(t *testing.T) {
	a := newStagedPrompt(newBoth(t), 40, true, true, false)
	a.results(true, false, a.oneByOne) // writes the queries
	want := a.results(false, false, a.oneByOne)
	for range 10 {
		a.equal("without", a.results(false, false, a.replay), want)
	}
	for range 10 {
		if !slices.Equal(a.results(false, true, a.replay), want) {
			return
		}
	}
	t.Error("a false promise changes no bits: the tests of AfterQKV see nothing of prompts")
}

// stagedPrompt is a prompt's QKV and attention after the op that stages their rows.
type stagedPrompt struct {
	*afterQKV
	stager *stager
}

func newStagedPrompt(b *both, rows int, rounded, partials, biased bool) *stagedPrompt {
	a := newAfterQKV(b, rows, rounded, biased)
	a.qkv.Class = kernels.Prefill
	if partials {
		a.qkv.Workspace.Partials = b.partialsFor(rows)
	}
	return &stagedPrompt{a, newStager(b, a.qkv.Slots.Count, a.qkv.Slots.Pages, afterContext,
		kernels.StepLayout{MaxRows: rows, MaxSamples: 1})}
}

// results returns the outputs of attention in steps over the initial pool, with or without the
// QKV before it. run launches the ops. Each step's rows have other sequences and positions.
func (a *stagedPrompt) results(products, early bool, run func(ops ...device.Op)) (out []uint32) {
	a.t.Helper()
	qkv := a.qkv
	qkv.Rows, qkv.KV.Data = a.stager.rows[1], a.load(1, bytesOf(bitsOf(a.pool)))
	var ops []device.Op
	var attended []device.Buffer
	for step := range int32(stagerRing) {
		var s kernels.Step
		for row := range int32(qkv.T) {
			s.Rows = append(s.Rows, kernels.Row{Slot: (row + step) % int32(qkv.T),
				Position: (7*row + 13*step) % afterContext})
		}
		a.stager.write(s)
		attend := kernels.Attend{Q: qkv.Out, Rows: qkv.Rows, Slots: qkv.Slots, KV: qkv.KV,
			Out: a.poisoned(qkv.T * afterHeads * qkv.KV.HeadDim)[1], Workspace: a.work,
			T: qkv.T, Layer: qkv.Layer, Heads: afterHeads, Scale: 0.125, Class: kernels.Prefill, AfterQKV: early}
		ops = append(ops, a.stager.op(1, qkv.T, 0))
		if products {
			ops = append(ops, qkv)
		}
		ops, attended = append(ops, attend), append(attended, attend.Out)
	}
	run(ops...)
	for _, x := range attended {
		out = append(out, read[uint32](a.both, 1, x)...)
	}
	return out
}

// Rows of one sequence read keys and values that their own QKV writes. If AfterQKV promises that
// they do not, results differ, so the tests above would notice a kernel that reads too early.
// Without the promise they are right. GPUs before 9.0 start no kernel early, and fail this test.
func TestCUDAAttendNoticesAFalseAfterQKV(t *testing.T) {
	a := newAfterQKV(newBoth(t), 12, false, false)
	steps := []kernels.Rows{a.rows(func(row int) kernels.Row {
		return kernels.Row{Slot: 3, Position: 26 + int32(row)}
	})}
	want := a.results(false, false, steps, a.oneByOne)
	for range 10 {
		a.equal("without", a.results(false, false, steps, a.replay), want)
	}
	for range 10 {
		if !slices.Equal(a.results(true, false, steps, a.replay), want) {
			return
		}
	}
	t.Error("a false promise changes no bits: the tests of AfterQKV see nothing")
}
