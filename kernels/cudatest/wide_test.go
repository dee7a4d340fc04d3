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

// wideShapes are heads that are wider than those of most kernels, among them Gemma 4's.
var wideShapes = []struct{ heads, kvHeads, d, context int }{
	{16, 2, 512, 4300}, {32, 4, 512, 700}, {8, 1, 512, 300}, {8, 2, 512, 1500}, {20, 1, 320, 9000}, {6, 3, 272, 1},
	{4, 4, 416, 130},
}

// inTurnToo calls f with keys and values in shared memory at once, and one after another as on smaller GPUs.
func inTurnToo(f func()) {
	f()
	tune.WideTogether = false
	defer func() { tune.WideTogether = true }()
	f()
}

// Attention of wide heads equals the host's, in both classes, in windows, from a position on, with softcap and sinks.
func TestCUDAWideAttend(t *testing.T) {
	inTurnToo(func() {
		for i, c := range wideShapes {
			for _, window := range []int{0, 1, 20, 300} {
				a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
				if a.window = window; (i+window)%2 == 1 {
					a.logits = a.randomLogits(c.heads)
				}
				a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(3), true)
				a.makePrompts(100)
				a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(30), true)
			}
		}
	})
}

// A row that sees one position more or less than its window, or than from its first one on, is noticed.
func TestCUDAWideAttendNoticesAPosition(t *testing.T) {
	for _, plant := range []func(a *attending){
		func(a *attending) { a.window, a.widerOnGPU = 20, 1 }, func(a *attending) { a.window, a.widerOnGPU = 300, -1 },
		func(a *attending) { a.window, a.widerOnGPU = 1, 1 }, func(a *attending) { a.laterOnGPU = 1 },
	} {
		a := newAttending(newBoth(t), 8, 2, 512, 1300)
		plant(a)
		if !a.fails(func() { a.attend(indices(len(a.row)), len(a.row), true) }) {
			t.Errorf("a window of %d, on the GPU %d more, from %d on, passed", a.window, a.widerOnGPU, a.laterOnGPU)
		}
	}
}

// A row of wide heads has the same bits alone, in a batch of any size, in either class, and however many blocks share its
// splits.
func TestCUDAWideAttendIsBatchInvariant(t *testing.T) {
	for i, c := range wideShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.window = []int{0, 0, 100}[i%3]
		width, all := c.heads*c.d, indices(len(a.row))
		want := a.attend(all, len(all), false)
		inTurnToo(func() {
			for _, T := range []int{max(65, len(all)), 200} {
				a.equal("padded", bits32(a.attend(all, T, false)), bits32(want))
			}
			for _, r := range a.r.Perm(len(all))[:min(10, len(all))] {
				a.equal("alone", bits32(a.attend([]int{r}, 1, false)), bits32(want[r*width:(r+1)*width]))
			}
			for _, T := range []int{2, 3, 7, 33, 64} {
				some := all[:min(T, len(all))]
				a.equal(fmt.Sprintf("%d rows", T), bits32(a.attend(some, T, false)), bits32(want[:len(some)*width]))
			}
			a.prefill = true
			a.equal("of prompts", bits32(a.attend(all, len(all), false)), bits32(want))
			a.prefill = false
		})
	}
}

// Rows of prompts that a block has together have the bits of rows alone, also in windows that few of them share, over
// several sequences, and where positions fall.
func TestCUDAWideRowsTogether(t *testing.T) {
	defer func() { tune.WideRows = true }()
	for i, c := range wideShapes {
		for _, window := range []int{0, 1, 20, 70, 300} {
			a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
			if a.window = window; i%2 == 1 {
				a.logits = a.randomLogits(c.heads)
			}
			a.makePrompts(100)
			rows := indices(len(a.row))
			for n := range len(rows) / 3 { // some in another order
				j := a.r.IntN(len(rows))
				rows[n], rows[j] = rows[j], rows[n]
			}
			T := max(kernels.AttendSplitRows+1, len(rows)) + a.r.IntN(7)
			tune.WideRows = true
			got := a.attend(rows, T, false)
			tune.WideRows = false
			a.equal(fmt.Sprintf("%+v, window %d", c, window), bits32(got), bits32(a.attend(rows, T, false)))
		}
	}
}

// Each row of a verify pass has the bits of plain decode.
func TestCUDAWideAttendVerify(t *testing.T) {
	b := newBoth(t)
	for range 20 {
		s := randomVerify(b, 8)
		s.dim = []int{512, 512, 320}[b.r.IntN(3)]
		newVerifying(b, s).compare()
		newVerifying(b, s).near()
	}
}

// In a mixed pass generated rows and rows of prompts have the bits that each has alone.
func TestCUDAWideAttendInAMixedPass(t *testing.T) {
	b := newBoth(t)
	a := newAttending(b, 16, 2, 512, 1300)
	width, ends := 16*512, a.ends()
	for len(ends)%8 != 0 {
		ends = append(ends, kernels.Row{Slot: attendSlots})
	}
	rows := slices.Concat(ends, a.row)
	op, query := a.mixedOf(rows)
	op.Generated = kernels.Generated(len(ends))
	b.onGPU(op)
	got := read[uint32](b, 1, op.Out)
	for _, r := range []int{0, 1, len(ends), len(rows) - 1} {
		if int(rows[r].Slot) == attendSlots {
			continue
		}
		one, _ := a.mixedOf(rows[r : r+1])
		one.Q, one.Class = b.load(1, bytesOf(query[r*width:(r+1)*width])), kernels.Decode
		b.onGPU(one)
		b.equal(fmt.Sprintf("row %d", r), got[r*width:(r+1)*width], read[uint32](b, 1, one.Out))
	}
}

// mixedOf returns attention on the GPU of these rows, of the prefill class, and its queries.
func (a *attending) mixedOf(rows []kernels.Row) (kernels.Attend, []float32) {
	d := a.kv[1].HeadDim
	query, slot, position := a.normal(len(rows)*a.heads*d, 1), make([]int32, len(rows)), make([]int32, len(rows))
	for i, r := range rows {
		slot[i], position[i] = r.Slot, r.Position
	}
	return kernels.Attend{Q: a.load(1, bytesOf(query)), Rows: kernels.Rows{Slot: a.load(1, bytesOf(slot)),
		Position: a.load(1, bytesOf(position))}, Slots: a.slots[1], KV: a.kv[1],
		Out: a.poisoned(len(rows) * a.heads * d)[1], Workspace: a.work, T: len(rows), Layer: 1, Heads: a.heads,
		Scale: float32(1 / math.Sqrt(float64(d))), Class: kernels.Prefill}, query
}

// Attention of wide heads that starts before the ops of its queries and keys have ended has the same bits as attention that
// starts after them.
func TestCUDAWideAttendAfterQKV(t *testing.T) { testWideAttendAfterQKV(newBoth(t)) }

// The same with kernels that are delayed at random.
func TestCUDAWideAttendAfterLateQKV(t *testing.T) { testWideAttendAfterQKV(bothOf(t, "late")) }

func testWideAttendAfterQKV(b *both) {
	for _, rows := range []int{1, 8, 40, 72} {
		for _, biased := range []bool{false, true} {
			a := newAfterQKVOf(b, rows, 512, false, biased)
			steps := a.steps()
			want := a.results(false, false, steps, a.oneByOne)
			for _, early := range []bool{false, true} {
				inTurnToo(func() {
					name := fmt.Sprintf("%d rows, biased %t, early %t", rows, biased, early)
					a.equal(name, a.results(early, false, steps, a.onGPU), want)
					a.equal(name+", replayed", a.results(early, false, steps, a.replay), want)
				})
			}
		}
	}
}

// Norms of values, queries alone, and heads of 512 before attention equal the host's, and a QKV of queries alone leaves the
// pool as it is. So they do in pages whose layers differ.
func TestCUDAQKVOfLayersThatDiffer(t *testing.T) {
	b := newBoth(t)
	for i, rows := range oddRows {
		hidden, dim, dtype := []int{512, 1024, 2048}[i%3], []int{64, 256, 512, 320}[i%4], []kernels.DType{kernels.BF16,
			kernels.Q4_K}[i%2]
		kvHeads, group := 1+i%2, []int{1, 2, 4, 8}[i/2%4]
		heads := kvHeads * group
		for kind := range 8 {
			prefill, own, differ := kind&1 > 0, kind&2 > 0, kind&4 > 0
			a := b.newAttention(dtype, kernels.BF16, rows, hidden, heads, kvHeads, dim)
			norms, raw := put(b, b.powers(3*dim)), b.beforeRoPE(rows, kvHeads, dim)
			layers := kernels.KVLayers{{Heads: kvHeads, HeadDim: dim}, {Heads: kvHeads, HeadDim: dim}}
			if differ {
				layers[0].HeadDim *= 2
			}
			for on := range a.op {
				o := &a.op[on]
				o.Class, o.BeforeRoPE, o.HeadNorms, o.ValueNorms, o.QueriesOnly = classOf(prefill), raw, norms[on], own, !own
				if !own {
					o.K, o.V, o.HeadNorms = kernels.Weight{}, kernels.Weight{}, norms[on].Slice(0, int64(4*dim))
				}
				o.KV = layers.Of(o.KV, 1)
				o.KV.Data = b.load(on, poison(int(o.KV.PageBytes())*o.KV.Pages))
			}
			if workspace := i%3 > 0; workspace {
				a.op[1].Workspace = kernels.Workspace{Rounded: b.roundedFor(rows, hidden), Partials: b.partialsFor(rows)}
			}
			name := fmt.Sprintf("%v, %d rows of %d, %d heads of %d for each of %d, prefill %t, own %t, differ %t", dtype, rows,
				hidden, group, dim, kvHeads, prefill, own, differ)
			b.run(func(on int) device.Op { return a.op[on] })
			tolerance := 8 * sums(hidden)
			if dtype.Quantised() {
				tolerance = 0.05
			}
			b.close(name+": q", a.out, tolerance, 1e-3)
			nearOrNaN(t, name+": pool", asFloat32(kernels.BF16, read[byte](b, 1, a.op[1].KV.Data)),
				read[float32](b, 0, a.op[0].KV.Data), tolerance)
		}
	}
}

// Attention that defers RoPE norms values too: its results and what it leaves in the pool have the bits of attention after
// a QKV that does all.
func TestCUDADeferredNormsOfValues(t *testing.T) {
	b := newBoth(t)
	for i, dim := range []int{64, 128, 256, 96} {
		a := newAfterQKVOf(b, 1+3*i, dim, false, false)
		a.qkv.HeadNorms, a.qkv.ValueNorms = put(b, b.powers(3*dim))[1], true
		a.qkv.BeforeRoPE = b.beforeRoPE(a.qkv.T, afterKVHeads, dim)
		steps := a.steps()
		want := a.results(false, false, steps, a.oneByOne)
		b.equal(fmt.Sprintf("heads of %d", dim), a.results(true, true, steps, a.onGPU), want)
		a.qkv.ValueNorms, a.qkv.HeadNorms = false, a.qkv.HeadNorms.Slice(0, int64(8*dim))
		if slices.Equal(a.results(true, true, steps, a.onGPU), want) {
			t.Errorf("heads of %d: norms of values change nothing", dim)
		}
	}
}

// Attention of layers of heads like most in pages whose layers differ has the bits of pages of equal layers.
func TestCUDAAttendInPagesWhoseLayersDiffer(t *testing.T) {
	for _, c := range []struct{ heads, kvHeads, d int }{{8, 2, 64}, {16, 8, 256}, {4, 1, 128}} {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, 700)
		for range 2 {
			want := a.attend(indices(len(a.row)), len(a.row), false)
			alike := a.kv
			of := kernels.LayerKV{Heads: c.kvHeads, HeadDim: c.d}
			kv := kernels.KVLayers{{Heads: c.kvHeads, HeadDim: 2 * c.d}, of, of}.Of(alike[1], 1)
			pool := poison(int(kv.PageBytes()) * kv.Pages)
			from, n := read[byte](a.both, 1, alike[1].Data), int(alike[1].PageBytes()/2)
			for page := range kv.Pages { // layer 1 of each
				copy(pool[page*int(kv.PageBytes())+int(kv.LayerStart(1)):], from[(2*page+1)*n:(2*page+2)*n])
			}
			kv.Data, a.kv[1] = a.load(1, pool), kv
			a.kv[1].Data = kv.Data
			a.equal(fmt.Sprintf("%+v, prefill %t", c, a.prefill), bits32(a.attend(indices(len(a.row)), len(a.row), false)),
				bits32(want))
			a.kv = alike
			a.makePrompts(100)
		}
	}
}

// The gate of a layer's input equals the host's, by rows and by a list of them, whose padding is left alone.
func TestCUDAPerLayerGate(t *testing.T) {
	b := newBoth(t)
	for i, cols := range []int{16, 256, 272, 1040} {
		rows, layers := []int{1, 7, 130}[i%3], 3
		x, inputs := b.normal(rows*cols, 2), put(b, b.normal(rows*layers*cols, 1))
		list := make([]int32, rows)
		for j := range list {
			list[j] = b.r.Int32N(int32(rows))
		}
		list[rows-1] = -1
		index := put(b, list)
		for kind := range 4 {
			on0 := put(b, x)
			b.run(func(on int) device.Op {
				o := kernels.PerLayerGate{X: on0[on], Inputs: inputs[on], T: rows, Cols: cols, Layer: 1 + i%2, Layers: layers,
					Activation: kernels.Activation(kind % 2), Scale: []float32{0, 0.25}[i%2]}
				if kind > 1 {
					o.RowIndex = index[on]
				}
				return o
			})
			b.close(fmt.Sprintf("%d rows of %d, kind %d", rows, cols, kind), on0, 1e-5, 1e-5)
		}
	}
}

// BenchmarkCUDAWideAttend measures attention in Gemma 4's shapes: generated rows, and a prompt.
func BenchmarkCUDAWideAttend(t *testing.B) {
	for _, c := range []struct{ rows, heads, kvHeads, n int }{{1, 16, 2, 500}, {1, 16, 2, 4000}, {1, 32, 4, 500},
		{8, 16, 2, 1000}, {400, 16, 2, 400}} {
		t.Run(fmt.Sprintf("%d-rows-of-%d-over-%d-of-%d", c.rows, c.heads, c.kvHeads, c.n), func(t *testing.B) {
			a := newAttending(newBoth(t), c.heads, c.kvHeads, 512, c.n)
			rows := make([]kernels.Row, c.rows)
			for i := range rows {
				rows[i] = kernels.Row{Slot: 1, Position: int32(c.n - c.rows + i)}
			}
			op, _ := a.mixedOf(rows)
			if c.rows < 400 {
				op.Class = kernels.Decode
			}
			a.perLaunch(t, float64(c.n*4*c.kvHeads*512), op)
		})
	}
}
