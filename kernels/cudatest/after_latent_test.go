//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// afterLatent is the ops of latent attention in a layer up to attention.
type afterLatent struct {
	*both
	latentShape
	qkv    kernels.LatentQKV
	absorb kernels.HeadProduct
	pool   []byte // initial content
	work   device.Buffer
	// rowsAlone has attention take rows of a sequence for ones of different sequences.
	rowsAlone bool
}

// afterLatentSeen are the positions that a sequence has before the first step: four splits.
const afterLatentSeen = 250

func newAfterLatent(b *both, rows int) *afterLatent {
	const hidden = 4096
	s := latentShape{rows: rows, heads: 16, nope: 32, latent: 96, rope: 32, context: 320}
	kv, slots := b.latentPool(s, slices.Repeat([]int{afterLatentSeen}, rows))
	q, c := b.matrix(kernels.BF16, s.heads*(s.nope+s.rope), hidden), b.matrix(kernels.BF16, s.latent+s.rope, hidden)
	queries := b.poisoned(rows * s.heads * (s.latent + s.rope))[1]
	qkv := kernels.LatentQKV{X: put(b, b.normal(rows*hidden, 3))[1], Norm: put(b, b.powers(hidden))[1], Q: q[1], C: c[1],
		LatentNorm: put(b, b.powers(s.latent))[1], RoPE: put(b, b.randomRoPE(s.context, s.rope))[1], Slots: slots[1],
		KV: kv[1], Products: b.poisoned(rows * (q[1].Rows + c[1].Rows))[1], Out: queries,
		Identity: put(b, slices.Repeat([]float32{1, 0}, 16))[1], Zero: put(b, make([]int32, rows))[1],
		Index: put(b, counted(rows))[1], T: rows, Layer: 1, Hidden: hidden, Heads: s.heads, Nope: s.nope, Eps: 1e-5,
		LatentEps: 0.1}
	absorb := kernels.HeadProduct{W: b.matrix(kernels.BF16, s.heads*s.latent, s.nope)[1], In: qkv.Products, Out: queries,
		T: rows, Heads: s.heads, InStride: s.nope + s.rope, OutStride: s.latent + s.rope}
	return &afterLatent{b, s, qkv, absorb, read[byte](b, 1, kv[1].Data),
		b.load(1, make([]byte, kernels.LatentWorkspaceBytes(rows, s.heads, s.latent, s.context))), false}
}

// results returns the outputs of attention in steps over the initial pool, in which each sequence advances by `together`
// positions. run launches the ops.
func (a *afterLatent) results(early bool, together int, run func(ops ...device.Op)) (out []uint32) {
	a.t.Helper()
	kv := a.qkv.KV
	kv.Data = a.load(1, a.pool)
	var ops []device.Op
	var attended []device.Buffer
	for step := range 8 {
		slot, position := make([]int32, a.rows), make([]int32, a.rows)
		for i := range slot {
			slot[i], position[i] = int32(i/together), int32(afterLatentSeen+step*together+i%together)
		}
		rows := kernels.Rows{Slot: a.load(1, bytesOf(slot)), Position: a.load(1, bytesOf(position))}
		qkv := a.qkv
		qkv.Rows, qkv.KV = rows, kv
		attend := kernels.Attend{Q: qkv.Out, Rows: rows, Slots: qkv.Slots, KV: kv,
			Out: a.poisoned(a.rows * a.heads * a.latent)[1], Workspace: a.work, T: a.rows, Layer: 1, Heads: a.heads,
			Scale: float32(1 / math.Sqrt(float64(a.latent+a.rope))), AfterQKV: early, Queries: together}
		if a.rowsAlone {
			attend.Queries = 0
		}
		ops, attended = append(ops, qkv, a.absorb, attend), append(attended, attend.Out)
	}
	run(ops...)
	for _, x := range attended {
		out = append(out, read[uint32](a.both, 1, x)...)
	}
	return out
}

// Latent attention that starts before the ops of its queries and keys have ended gives the same bits as attention that
// starts after them, in verify passes too.
func TestCUDALatentAttendAfterQKV(t *testing.T) { testLatentAttendAfterQKV(newBoth(t)) }

// The same with kernels that are delayed at random.
func TestCUDALatentAttendAfterLateQKV(t *testing.T) { testLatentAttendAfterQKV(bothOf(t, "late")) }

func testLatentAttendAfterQKV(b *both) {
	for _, rows := range []int{1, 8, 40, 72} {
		a := newAfterLatent(b, rows)
		for _, together := range []int{1, 4} {
			if rows%together != 0 {
				continue
			}
			want := a.results(false, together, a.oneByOne)
			for _, early := range []bool{false, true} {
				name := fmt.Sprintf("%d rows, %d of a sequence, early %t", rows, together, early)
				a.equal(name, a.results(early, together, a.onGPU), want)
				a.equal(name+", replayed", a.results(early, together, a.replay), want)
			}
		}
	}
}

// Rows of one sequence read keys that their own pass writes. If AfterQKV promises that they do not, results differ, so
// the test above would notice a kernel that reads too early. GPUs before 9.0 start no kernel early, and fail this test.
func TestCUDALatentAttendNoticesAFalseAfterQKV(t *testing.T) {
	a := newAfterLatent(newBoth(t), 12)
	a.rowsAlone = true
	want := a.results(false, 12, a.oneByOne)
	for range 10 {
		if !slices.Equal(a.results(true, 12, a.replay), want) {
			return
		}
	}
	t.Error("a false promise changes no bits: the test of AfterQKV sees nothing")
}
