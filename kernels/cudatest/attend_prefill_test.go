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

// makePrompts makes the rows of a prefill step: the last tokens of each sequence, at most most of
// them. Some sequences have one row, some a few, some many.
func (a *attending) makePrompts(most int) {
	ends := a.ends()
	a.prefill, a.row = true, nil
	for i, r := range ends {
		n := 1 + a.r.IntN([]int{1, 9, 40, most}[i%4])
		for p := max(0, int(r.Position)+1-n); p <= int(r.Position); p++ {
			a.row = append(a.row, kernels.Row{Slot: r.Slot, Position: int32(p)})
		}
	}
	a.query = a.normal(len(a.row)*a.heads*a.kv[0].HeadDim, 1)
}

// The shapes of decode, and some with more query heads per KV head than a tile takes.
var prefillShapes = append(slices.Clone(attendShapes), struct{ heads, kvHeads, d, context int }{72, 1, 64, 300},
	struct{ heads, kvHeads, d, context int }{32, 32, 128, 3000})

// Queries of a tile: 0 for the launcher's choice, then all sizes.
var prefillTiles = [5]int{0, 16, 32, 64, 128}

func TestCUDAPrefillAttend(t *testing.T) {
	for _, c := range prefillShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.makePrompts(150)
		a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(30), true)
	}
}

// A few rows of each head size, for sanitizers, which are slow.
func TestCUDAPrefillAttendOfFewRows(t *testing.T) {
	for i, c := range []struct{ heads, kvHeads, d, context int }{{4, 2, 64, 200}, {2, 1, 128, 150}, {2, 2, 96, 100},
		{2, 1, 40, 70}, {2, 1, 256, 150}, {2, 1, 192, 70}} {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.window = []int{0, 20}[i%2]
		a.makePrompts(60)
		a.attend(indices(len(a.row)), len(a.row)+3, true)
	}
}

// A row's result has the same bits alone, in a batch in any order, and padded.
func TestCUDAPrefillAttendIsBatchInvariant(t *testing.T) {
	for _, c := range prefillShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.makePrompts(100)
		width, all := c.heads*c.d, indices(len(a.row))
		want := a.attend(all, len(all), false)
		a.equal("padded", bits32(a.attend(all, len(all)+70, false)), bits32(want))
		for range 50 {
			r := a.r.IntN(len(all))
			a.equal("alone", bits32(a.attend([]int{r}, 1+a.r.IntN(5), false)), bits32(want[r*width:(r+1)*width]))
		}
		shuffled := a.r.Perm(len(all))
		got := a.attend(shuffled, len(all), false)
		for i, r := range shuffled {
			a.equal("shuffled", bits32(got[i*width:(i+1)*width]), bits32(want[r*width:(r+1)*width]))
		}
	}
}

// A prompt has the same bits in chunks of any size, over one split of the context and over
// several, in tiles of any size, and with splits computed in parallel or one after another.
func TestCUDAPrefillAttendDoesNotDependOnChunks(t *testing.T) {
	defer func() { tune.ParallelSplits, tune.ShareMerge, tune.PrefillQueries = true, true, 0 }()
	for i, c := range prefillShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, []int{1100, 200, 2300, 4400}[i%4])
		a.row = nil
		for p := range a.slots[0].Context {
			a.row = append(a.row, kernels.Row{Slot: 1, Position: int32(p)})
		}
		a.query = a.normal(len(a.row)*c.heads*c.d, 1)
		want := a.chunks(len(a.row))
		a.numbers(want)
		for _, n := range []int{1, 7, 20, 64, 128, 512} {
			name := fmt.Sprintf("%d heads over %d of size %d, %d tokens, %d at a time", c.heads, c.kvHeads, c.d,
				len(a.row), n)
			for _, tune.PrefillQueries = range prefillTiles {
				a.equal(fmt.Sprintf("%s, tiles of %d", name, tune.PrefillQueries), a.chunks(n), want)
			}
			tune.PrefillQueries, tune.ShareMerge = 0, false
			a.equal(name+", splits merged by one block", a.chunks(n), want)
			tune.ShareMerge, tune.ParallelSplits = true, false
			a.equal(name+", splits one after another", a.chunks(n), want)
			tune.ParallelSplits = true
		}
	}
}

// Many short prompts beside one another have the same bits in tiles of 128 queries as in the smallest tiles. The two
// warpgroups of the former take prompts in turn.
func TestCUDAPrefillAttendOfManyPrompts(t *testing.T) {
	defer func() { tune.PrefillQueries = 0 }()
	for _, c := range prefillShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.prefill, a.row = true, nil
		ends := [attendSlots]int32{}
		for _, r := range a.ends() {
			ends[r.Slot] = r.Position
		}
		for i := range int32(60) {
			slot := i % attendSlots
			most := a.r.Int32N([]int32{2, 20, 70, 140}[i/2%4]) // rows before the last
			last := a.r.Int32N(ends[slot] + 1)
			for p := max(0, last-most); p <= last; p++ {
				a.row = append(a.row, kernels.Row{Slot: slot, Position: p})
			}
		}
		a.query = a.normal(len(a.row)*c.heads*c.d, 1)
		attend := func(queries int) []uint32 {
			tune.PrefillQueries = queries
			return bits32(a.attend(indices(len(a.row)), len(a.row), false))
		}
		want := attend(prefillTiles[1])
		a.numbers(want)
		a.equal("tiles of 128", attend(128), want)
	}
}

// numbers fails if a result is not a number, as where nothing was written.
func (a *attending) numbers(result []uint32) {
	a.t.Helper()
	for i, w := range result {
		if math.IsNaN(float64(math.Float32frombits(w))) {
			a.t.Fatalf("word %d of the result is not a number", i)
		}
	}
}

// chunks returns attention for all rows of a on the GPU, n rows in a step.
func (a *attending) chunks(n int) []uint32 {
	a.t.Helper()
	d, width := a.kv[1].HeadDim, a.heads*a.kv[1].HeadDim
	slot, position := make([]int32, len(a.row)), make([]int32, len(a.row))
	for i, r := range a.row {
		slot[i], position[i] = r.Slot, r.Position
	}
	q, out, slots, positions := a.load(1, bytesOf(a.query)), a.load(1, poison(4*len(a.query))),
		a.load(1, bytesOf(slot)), a.load(1, bytesOf(position))
	for first := 0; first < len(a.row); first += n {
		rows := min(n, len(a.row)-first)
		part := func(x device.Buffer, each int) device.Buffer {
			return x.Slice(int64(4*first*each), int64(4*rows*each))
		}
		a.must(a.streams[1].Launch(kernels.Attend{Q: part(q, width),
			Rows: kernels.Rows{Slot: part(slots, 1), Position: part(positions, 1)}, Slots: a.slots[1], KV: a.kv[1],
			Out: part(out, width), Workspace: a.work, T: rows, Layer: 1, Heads: a.heads, Class: kernels.Prefill,
			Scale: float32(1 / math.Sqrt(float64(d))), Window: a.window, Softcap: a.logits.softcap,
			Sinks: a.logits.sinks[1]}))
	}
	a.must(a.streams[1].Synchronize())
	return read[uint32](a.both, 1, out)
}

// BenchmarkCUDAPrefillAttend measures attention for the last rows of one sequence, in all layers
// of a model, or in four if the sequence is long.
func BenchmarkCUDAPrefillAttend(t *testing.B) {
	for _, shape := range []struct {
		name                      string
		heads, kvHeads, d, layers int
	}{{"7B", 32, 32, 128, 32}, {"8B", 32, 8, 128, 32}, {"1B", 32, 8, 64, 16}, {"Gemma 3 4B", 8, 4, 256, 34}} {
		for _, c := range []struct{ rows, n, layers int }{
			{1, 1, shape.layers}, {10, 10, shape.layers}, {50, 50, shape.layers}, {100, 100, shape.layers},
			{200, 200, shape.layers}, {400, 400, shape.layers}, {16, 4016, 8}, {16, 32016, 4}, {16, 100016, 2},
			{768, 768, 8}, {1536, 1536, 8}, {192, 1192, 8}, {192, 2000, 8},
			{400, 2000, 8}, {20, 8000, 4}, {128, 8192, 4}, {512, 8192, 4}, {2048, 8192, 4}} {
			t.Run(fmt.Sprintf("%s/%d-rows-of-%d-in-%d-layers", shape.name, c.rows, c.n, c.layers), func(t *testing.B) {
				b := newBoth(t)
				defer func() { tune.PrefillQueries = 0 }()
				ops := b.prefillLayers(shape.heads, shape.kvHeads, shape.d, 1, c.rows, c.n, c.layers)
				pairs := float64(c.rows) * (float64(c.n) - float64(c.rows-1)/2)
				var each [len(prefillTiles)]float64
				for t.Loop() {
					for i, tile := range prefillTiles {
						tune.PrefillQueries = tile
						took := b.replayTimes(20, ops...)
						each[i] = took[len(took)/2].Seconds()
					}
				}
				for i, tile := range prefillTiles[1:] {
					t.ReportMetric(each[i+1]*1e3, fmt.Sprintf("ms/pass-by-%d", tile))
				}
				t.ReportMetric(each[0]*1e3, "ms/pass")
				t.ReportMetric(each[0]*1e6/float64(c.layers), "µs/layer")
				t.ReportMetric(4*pairs*float64(shape.heads*shape.d*c.layers)/each[0]/1e12, "TFLOP/s")
			})
		}
	}
}

// BenchmarkCUDAPrefillAttendOfPrompts measures attention of the last tokens of prompts, behind others, in layers of 7B's
// shape, by tiles.
func BenchmarkCUDAPrefillAttendOfPrompts(t *testing.B) {
	for _, c := range []struct{ prompts, tokens, behind, layers int }{{1, 208, 0, 32}, {2, 104, 0, 32}, {4, 52, 0, 32},
		{13, 16, 0, 32}, {1, 416, 0, 32}, {4, 104, 0, 32}, {8, 52, 0, 32}, {13, 32, 0, 32}, {26, 16, 0, 32},
		{2, 208, 0, 32}, {2, 208, 416, 8}, {2, 208, 2000, 8}, {8, 52, 2000, 8}, {26, 16, 500, 8}, {13, 16, 2000, 8},
		{37, 16, 0, 8}, {48, 16, 0, 8}, {24, 32, 0, 8}, {12, 64, 0, 8}, {2, 384, 0, 8}, {4, 384, 0, 8}, {64, 24, 0, 8}} {
		t.Run(fmt.Sprintf("%d-of-%d-behind-%d", c.prompts, c.tokens, c.behind), func(t *testing.B) {
			b := newBoth(t)
			layers := float64(c.layers)
			ops := b.prefillLayers(32, 32, 128, c.prompts, c.tokens, c.behind+c.tokens, c.layers)
			defer func() { tune.PrefillQueries = 0 }()
			for t.Loop() {
				for _, tune.PrefillQueries = range prefillTiles {
					took := b.replayTimes(20, ops...)
					t.ReportMetric(took[len(took)/2].Seconds()*1e6/layers, fmt.Sprintf("µs/layer-by-%d", tune.PrefillQueries))
				}
			}
		})
	}
}

// prefillLayers returns an op for the last rows of each of some sequences of n tokens in each layer.
func (b *both) prefillLayers(heads, kvHeads, d, sequences, rows, n, layers int) (ops []device.Op) {
	context, all := max(8192, (n+15)/16*16), sequences*rows
	pages := (n + 15) / 16
	kv := kernels.KV{DType: kernels.BF16, Pages: 1 + sequences*pages, PageTokens: 16, Layers: layers, Heads: kvHeads,
		HeadDim: d}
	values := bitsOf(b.normal(1<<20, 1)) // random values, repeated
	pool := make([]uint16, 0, int64(kv.Pages)*kv.PageBytes()/2)
	for len(pool) < cap(pool) {
		pool = append(pool, values[:min(len(values), cap(pool)-len(pool))]...)
	}
	kv.Data = b.load(1, bytesOf(pool))
	table := make([]int32, (sequences+1)*context/16)
	for i, page := range b.r.Perm(kv.Pages - 1) {
		table[i/pages*(context/16)+i%pages] = int32(page + 1)
	}
	slot, position := make([]int32, all), make([]int32, all)
	for i := range position {
		slot[i], position[i] = int32(i/rows), int32(n-rows+i%rows)
	}
	op := kernels.Attend{Q: b.load(1, bytesOf(b.normal(all*heads*d, 1))), KV: kv, Out: b.poisoned(all * heads * d)[1],
		Workspace: b.attendWorkspace(max(all, kernels.AttendSplitRows), heads, d, context),
		Rows:      kernels.Rows{Slot: b.load(1, bytesOf(slot)), Position: b.load(1, bytesOf(position))},
		Slots: kernels.Slots{Count: sequences + 1, Pages: context / 16, Context: context,
			BlockTable: b.load(1, bytesOf(table))},
		T: all, Heads: heads, Class: kernels.Prefill, Scale: float32(1 / math.Sqrt(float64(d)))}
	for op.Layer = range layers {
		ops = append(ops, op)
	}
	return ops
}
