//go:build cuda

package cudatest

import (
	"fmt"
	"slices"
	"testing"

	"reel/kernels"
	"reel/kernels/device"
)

// afterQKV is a layer's QKV and the attention that follows it. The product has long
// columns and few outputs, so that attention has place and time to begin before it ends.
type afterQKV struct {
	*both
	qkv  kernels.QKV
	pool []float32 // at first
	work device.Buffer
}

const (
	afterHidden, afterHeads, afterKVHeads, afterDim = 8192, 4, 2, 64
	afterContext                                    = 64 // as newAttention has it
)

func newAfterQKV(b *both, rows int, scratch, biased bool) *afterQKV {
	a := &afterQKV{both: b, qkv: b.newAttention(kernels.BF16, kernels.BF16, rows, afterHidden, afterHeads, afterKVHeads, afterDim).op[1]}
	a.pool = b.normal(int(a.qkv.KV.Data.Bytes()/2), 1)
	a.work = b.load(1, make([]byte, kernels.AttendWorkspaceBytes(rows, afterHeads, afterDim, afterContext)))
	if scratch {
		a.qkv.Workspace.Rounded = b.roundedFor(rows, afterHidden)
	}
	if biased {
		a.qkv.Bias, a.qkv.BeforeRoPE = put(b, b.normal((afterHeads+2*afterKVHeads)*afterDim, 1))[1], b.beforeRoPE(rows, afterKVHeads, afterDim)
	}
	return a
}

// rows are those of a step.
func (a *afterQKV) rows(of func(row int) kernels.Row) kernels.Rows {
	slot, position := make([]int32, a.qkv.T), make([]int32, a.qkv.T)
	for i := range slot {
		r := of(i)
		slot[i], position[i] = r.Slot, r.Position
	}
	return kernels.Rows{Slot: a.load(1, bytesOf(slot)), Position: a.load(1, bytesOf(position))}
}

// goingOn are steps of as many sequences as there are rows, each of which goes on by a
// position a step, past one that attention reads early from then on.
func (a *afterQKV) steps() (steps []kernels.Rows) {
	for step := range int32(16) {
		steps = append(steps, a.rows(func(row int) kernels.Row { return kernels.Row{Slot: int32(row), Position: 24 + step + int32(row%8)} }))
	}
	return steps
}

// results are what attention gives in steps over a pool as at first, launched by run.
func (a *afterQKV) results(early, turned bool, steps []kernels.Rows, run func(ops ...device.Op)) (out []uint32) {
	a.t.Helper()
	kv := a.qkv.KV
	kv.Data = a.load(1, bytesOf(bitsOf(a.pool)))
	var ops []device.Op
	var attended []device.Buffer
	for _, rows := range steps {
		qkv := a.qkv
		qkv.Rows, qkv.KV = rows, kv
		attend := kernels.Attend{Q: qkv.Out, Rows: rows, Slots: qkv.Slots, KV: kv, Out: a.poisoned(qkv.T * afterHeads * afterDim)[1], Workspace: a.work,
			T: qkv.T, Layer: qkv.Layer, Heads: afterHeads, Scale: 0.125, AfterQKV: early}
		if turned {
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

// Attention that reads before its QKV has ended gives the bits of attention that begins
// after it, behind each kernel that QKV has; and so does attention that waits.
func TestCUDAAttendAfterQKV(t *testing.T) { testAttendAfterQKV(newBoth(t)) }

// Also where kernels take their time.
func TestCUDAAttendAfterLateQKV(t *testing.T) { testAttendAfterQKV(bothOf(t, "late")) }

func testAttendAfterQKV(b *both) {
	for _, c := range []struct {
		rows            int
		scratch, biased bool
	}{{1, false, false}, {1, false, true}, {8, false, false}, {12, false, false}, {12, true, true}, {40, false, false}, {40, true, false}, {150, true, false}, {150, true, true}} {
		a := newAfterQKV(b, c.rows, c.scratch, c.biased)
		steps := a.steps()
		want := a.results(false, false, steps, a.oneByOne)
		for i := range 4 {
			early, turned := i%2 == 1, i/2 == 1
			if turned && !c.biased {
				break
			}
			name := fmt.Sprintf("%+v, early %t, turned in attention %t", c, early, turned)
			a.equal(name, a.results(early, turned, steps, a.onGPU), want)
			a.equal(name+", replayed", a.results(early, turned, steps, a.replay), want)
		}
	}
}

// A prompt's attention finds its rows, which the step's first op stages, before its QKV has
// ended.
func TestCUDAPrefillAttendAfterQKV(t *testing.T) { testPrefillAttendAfterQKV(newBoth(t)) }

// Also where kernels take their time.
func TestCUDAPrefillAttendAfterLateQKV(t *testing.T) { testPrefillAttendAfterQKV(bothOf(t, "late")) }

func testPrefillAttendAfterQKV(b *both) {
	for _, c := range []struct {
		rows                   int
		scratch, parts, biased bool
	}{{1, true, true, false}, {12, false, false, false}, {12, true, true, true}, {40, false, false, false}, {40, true, false, true}, {40, true, true, false}, {100, true, true, true}, {230, true, true, false}} {
		a := newStagedPrompt(b, c.rows, c.scratch, c.parts, c.biased)
		want := a.results(true, false, a.oneByOne)
		for range 5 {
			a.equal(fmt.Sprintf("%+v", c), a.results(true, true, a.onGPU), want)
			a.equal(fmt.Sprintf("%+v, replayed", c), a.results(true, true, a.replay), want)
		}
	}
}

// Behind the op that stages its rows attention may not read them early, and tells of other rows:
// so the tests above would see one that does behind its QKV. GPUs before 9.0 begin no kernel early,
// and fail this.
func TestCUDAPrefillAttendNoticesAFalseAfterQKV(t *testing.T) {
	a := newStagedPrompt(newBoth(t), 40, true, true, false)
	a.results(true, false, a.oneByOne) // leaves queries
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

// stagedPrompt is a prompt's QKV and attention behind the op that tells which rows they have.
type stagedPrompt struct {
	*afterQKV
	stager *stager
}

func newStagedPrompt(b *both, rows int, scratch, parts, biased bool) *stagedPrompt {
	a := newAfterQKV(b, rows, scratch, biased)
	a.qkv.Class = kernels.Prefill
	if parts {
		a.qkv.Workspace.Partials = b.partialsFor(rows)
	}
	return &stagedPrompt{a, newStager(b, a.qkv.Slots.Count, a.qkv.Slots.Pages, afterContext, kernels.StepLayout{MaxRows: rows, MaxSamples: 1})}
}

// results are what attention gives in steps over a pool as at first, with or without the QKV
// before it, launched by run. Each step's rows are of other sequences and positions.
func (a *stagedPrompt) results(products, early bool, run func(ops ...device.Op)) (out []uint32) {
	a.t.Helper()
	qkv := a.qkv
	qkv.Rows, qkv.KV.Data = a.stager.rows[1], a.load(1, bytesOf(bitsOf(a.pool)))
	var ops []device.Op
	var attended []device.Buffer
	for step := range int32(stagerRing) {
		var s kernels.Step
		for row := range int32(qkv.T) {
			s.Rows = append(s.Rows, kernels.Row{Slot: (row + step) % int32(qkv.T), Position: (7*row + 13*step) % afterContext})
		}
		a.stager.write(s)
		attend := kernels.Attend{Q: qkv.Out, Rows: qkv.Rows, Slots: qkv.Slots, KV: qkv.KV, Out: a.poisoned(qkv.T * afterHeads * afterDim)[1], Workspace: a.work,
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

// Rows of one sequence read what their QKV writes. Where AfterQKV says that they don't,
// results are others, so the tests above would see a kernel that reads too early; where it
// says nothing, they are right. GPUs before 9.0 begin no kernel early, and fail this.
func TestCUDAAttendNoticesAFalseAfterQKV(t *testing.T) {
	a := newAfterQKV(newBoth(t), 12, false, false)
	steps := []kernels.Rows{a.rows(func(row int) kernels.Row { return kernels.Row{Slot: 3, Position: 26 + int32(row)} })}
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
