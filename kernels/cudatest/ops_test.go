//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Random steps leave the same rows and slots on host and GPU: new sequences, pages, several rows
// of one slot, values that only the device knows, drafts, padding behind rows and between them.
func TestCUDAStage(t *testing.T) {
	b := newBoth(t)
	const slots, pages, context = 70, 40, 640
	s := newStager(b, slots, pages, context, kernels.StepLayout{MaxRows: 300, MaxSamples: 64})
	for _, rows := range []int{1, 1, 2, 5, 64, 1, 63, 200, 300, 17} {
		T, N := min(300, rows+b.r.IntN(9)), b.r.IntN(65)
		s.stage(randomStep(b, rows, N, slots, pages, context), T, max(1, N))
		for name, x := range map[string]func(on int) device.Buffer{
			"slots of rows":  func(on int) device.Buffer { return s.rows[on].Slot.Slice(0, 4*int64(T)) },
			"positions":      func(on int) device.Buffer { return s.rows[on].Position.Slice(0, 4*int64(T)) },
			"tokens of rows": func(on int) device.Buffer { return s.rows[on].Token.Slice(0, 4*int64(T)) },
			"samples":        func(on int) device.Buffer { return s.rows[on].Sample.Slice(0, 4*int64(max(1, N))) },
			"number":         func(on int) device.Buffer { return s.rows[on].Number },
			"block table":    func(on int) device.Buffer { return s.slots[on].BlockTable },
			"lengths":        func(on int) device.Buffer { return s.slots[on].Length },
			"history":        func(on int) device.Buffer { return s.slots[on].History },
			"params":         func(on int) device.Buffer { return s.slots[on].Params },
			"counter":        func(on int) device.Buffer { return s.counter[on] },
		} {
			b.same(name, twin{x(0), x(1)})
		}
	}
}

// randomStep returns a step with runs of rows for some slots in random order.
func randomStep(b *both, rows, samples, slots, pages, context int) kernels.Step {
	var s kernels.Step
	order := b.r.Perm(slots)
	for len(s.Rows) < rows {
		slot, run := int32(order[len(s.Inits)]), min(1+b.r.IntN(20), rows-len(s.Rows))
		if len(s.Inits) == samples {
			run = rows - len(s.Rows)
		}
		s.Inits = append(s.Inits, kernels.Init{Slot: slot, Generation: b.r.Int32(), Prompt: b.r.Int32(),
			Sampling: kernels.Sampling{Seed: b.r.Uint64(), TopK: b.r.Int32()}})
		at := b.r.Int32N(int32(context - 300))
		for i := range run {
			r := kernels.Row{Slot: slot, Position: at + int32(i), Token: b.r.Int32N(1000)}
			switch b.r.IntN(4) {
			case 0:
				r.Position = kernels.FromDevice
			case 1:
				r.Token = kernels.FromDevice
			case 2:
				r.Token = kernels.FromDraft
			}
			s.Rows = append(s.Rows, r)
		}
		for range min(b.r.IntN(4), rows-len(s.Rows)) {
			s.Rows = append(s.Rows, kernels.Row{Slot: kernels.NoSlot, Position: -b.r.Int32N(2), Token: -b.r.Int32N(3)})
		}
	}
	for range b.r.IntN(len(s.Rows) + kernels.MaxMoves + 1) {
		s.Pages = append(s.Pages, kernels.PageEntry{Slot: b.r.Int32N(int32(slots)), Index: b.r.Int32N(3),
			Page: b.r.Int32N(900)})
	}
	for range b.r.IntN(samples + 1) {
		s.Samples = append(s.Samples, b.r.Int32N(int32(rows)))
	}
	return s
}

func TestCUDAFill(t *testing.T) {
	b := newBoth(t)
	for _, n := range []int64{1, 3, 257, 1_000_003} {
		x := b.poisoned(int(n) + 2)
		b.run(func(on int) device.Op { return kernels.Fill{Data: x[on].Slice(4, 4*n), Value: 0xabcd} })
		b.same("fill", x)
	}
}

func TestCUDACopyPage(t *testing.T) {
	b := newBoth(t)
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F32} {
		kv := kernels.KV{DType: dtype, Pages: 7, PageTokens: 16, Layers: 3, Heads: 2, HeadDim: 24}
		raw := make([]uint32, int64(kv.Pages)*kv.PageBytes()/4)
		for i := range raw {
			raw[i] = b.r.Uint32()
		}
		x := put(b, raw)
		b.run(func(on int) device.Op {
			kv := kv
			kv.Data = x[on]
			return kernels.CopyPage{KV: kv, From: 5, To: 2}
		})
		b.same("pool after a copy", x)
	}
}

// attending is a pool, sequences in it and their queries. The last page of a sequence holds NaN
// past its end, and so does the trash page.
type attending struct {
	*both
	slots  [2]kernels.Slots
	kv     [2]kernels.KV
	work   device.Buffer
	heads  int
	row    []kernels.Row
	query  []float32
	filled []float32
	// prefill is whether rows are of the prefill class.
	prefill    bool
	window     int // positions that a row sees; 0 is all
	widerOnGPU int // additional positions that a row sees on the GPU, to plant an error
	first      int // the first position that a row sees
	laterOnGPU int // how much later that is on the GPU, to plant an error
	logits     logits
}

const attendSlots, attendPage, attendPool = 12, 16, 150

func newAttending(b *both, heads, kvHeads, d, context int) *attending {
	a := &attending{both: b, heads: heads}
	kv := kernels.KV{Pages: attendPool + attendSlots, PageTokens: attendPage, Layers: 2, Heads: kvHeads, HeadDim: d}
	a.filled = b.normal(int(kv.PageBytes()/4)*kv.Pages, 1)
	pages := (context + attendPage - 1) / attendPage
	table := make([]int32, (attendSlots+1)*pages)
	for slot := range attendSlots {
		end := b.r.IntN(context) // the position of the last token
		if slot < 3 {
			end = []int{0, context - 1, min(255, context-1)}[slot]
		}
		for i := range end/attendPage + 1 {
			table[slot*pages+i] = 1 + b.r.Int32N(attendPool-1)
		}
		table[slot*pages+end/attendPage] = int32(attendPool + slot)
		a.poison(kv, attendPool+slot, end%attendPage+1)
		a.addRows(slot, end)
	}
	a.poison(kv, 0, 0)
	tables := put(b, table)
	for on := range a.kv {
		a.slots[on] = kernels.Slots{Count: attendSlots + 1, Pages: pages, Context: context, BlockTable: tables[on]}
		a.kv[on] = kv
	}
	a.kv[0].Data, a.kv[1].Data = b.load(0, bytesOf(a.filled)), b.load(1, bytesOf(bitsOf(a.filled)))
	a.kv[1].DType = kernels.BF16
	a.work = b.attendWorkspace(kernels.AttendSplitRows, heads, d, context)
	a.query = b.normal(len(a.row)*heads*d, 1)
	return a
}

// poison makes a page NaN from a token on.
func (a *attending) poison(kv kernels.KV, page, from int) {
	for plane := range kv.Layers * 2 * kv.Heads {
		at := (page*kv.Layers*2*kv.Heads + plane) * kv.PageTokens * kv.HeadDim
		for i := at + from*kv.HeadDim; i < at+kv.PageTokens*kv.HeadDim; i++ {
			a.filled[i] = float32(math.NaN())
		}
	}
}

// addRows adds the slot's last token as a row, or its last few as in prefill.
func (a *attending) addRows(slot, end int) {
	n := 1
	if slot%3 == 1 {
		n = min(end+1, 1+a.r.IntN(30))
	}
	for p := end - n + 1; p <= end; p++ {
		a.row = append(a.row, kernels.Row{Slot: int32(slot), Position: int32(p)})
	}
}

// attend runs the given rows of a, padded to T rows, on the GPU, and if host is set on the host
// too. It returns the GPU's results for the rows.
func (a *attending) attend(rows []int, T int, host bool) []float32 {
	a.t.Helper()
	d, width := a.kv[0].HeadDim, a.heads*a.kv[0].HeadDim
	slot, position, query := make([]int32, T), make([]int32, T), a.normal(T*width, 1)
	for i := range slot {
		slot[i] = attendSlots
	}
	for i, r := range rows {
		slot[i], position[i] = a.row[r].Slot, a.row[r].Position
		copy(query[i*width:], a.query[r*width:(r+1)*width])
	}
	q, out, slots, positions := put(a.both, query), a.poisoned(T*width), put(a.both, slot), put(a.both, position)
	op := func(on int) device.Op {
		return kernels.Attend{Q: q[on], Rows: kernels.Rows{Slot: slots[on], Position: positions[on]},
			Slots: a.slots[on], KV: a.kv[on], Out: out[on],
			Workspace: twin{1: a.work}[on], T: T, Layer: 1, Heads: a.heads, Class: classOf(a.prefill),
			Scale: float32(1 / math.Sqrt(float64(d))), Window: a.window + on*a.widerOnGPU,
			First: a.first + on*a.laterOnGPU, Softcap: a.logits.softcap, Sinks: a.logits.sinks[on]}
	}
	if host {
		a.run(op)
	} else {
		a.onGPU(op(1))
	}
	got := read[float32](a.both, 1, out[1])[:len(rows)*width]
	if host {
		a.near(got, read[float32](a.both, 0, out[0])[:len(got)], position)
	}
	return got
}

// near fails if results for rows at these positions differ from the host's. The weights of the
// softmax are rounded to 8 bits, and the error of a mean decreases with the number of distinct
// positions that a row sees.
func (a *attending) near(got, want []float32, position []int32) {
	a.t.Helper()
	d, width := a.kv[0].HeadDim, a.heads*a.kv[0].HeadDim
	most := a.closeTo("attention", got, want, func(i int) float64 {
		seen := min(int(position[i/width])+1-a.first, attendPage*(attendPool-1)) // pages repeat
		if a.window > 0 {
			seen = min(seen, a.window)
		}
		return 2e-4 + 0.02/math.Sqrt(float64(seen))
	}, 8e-3)
	a.rowsWithin("attention", got, want, d, 1e-2)
	a.t.Logf("%d heads over %d of size %d, %d rows, context %d, window %d, prefill %t: at most %.1e off",
		a.heads, a.kv[0].Heads, d, len(want)/width, a.slots[0].Context, a.window, a.prefill, most)
}

// Dimensions of models, head counts and sizes that do not divide evenly, a context of one
// position, and one with more splits than a decode block merges at once.
var attendShapes = []struct{ heads, kvHeads, d, context int }{
	{8, 8, 64, 4096}, {6, 2, 96, 1000}, {8, 1, 128, 2048}, {4, 4, 128, 256}, {8, 2, 32, 1024}, {14, 2, 64, 700},
	{10, 10, 80, 300}, {20, 1, 64, 513},
	{5, 1, 128, 600}, {3, 3, 40, 1}, {32, 8, 128, 4096}, {2, 1, 32, 17000},
	{8, 4, 256, 1000}, {9, 1, 256, 4400}, {4, 2, 192, 300}, {2, 2, 136, 70},
}

func TestCUDAAttend(t *testing.T) {
	for _, c := range attendShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.attend(indices(len(a.row)), len(a.row)+a.r.IntN(3), true)
	}
}

func indices(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// A row's result has the same bits alone, in a batch in any order, padded to any number of rows,
// and if one block processes all its splits.
func TestCUDAAttendIsBatchInvariant(t *testing.T) {
	attendAsMany(t)
	for _, c := range attendShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		width, all := c.heads*c.d, indices(len(a.row))
		want := a.attend(all, len(all), false)
		for _, T := range []int{max(65, len(all)), 200} {
			a.equal("padded", bits32(a.attend(all, T, false)), bits32(want))
		}
		for r := range all {
			a.equal("alone", bits32(a.attend([]int{r}, 1, false)), bits32(want[r*width:(r+1)*width]))
		}
		for T := 2; T <= kernels.AttendSplitRows; T++ {
			some := all[:min(T, len(all))]
			a.equal(fmt.Sprintf("%d rows", T), bits32(a.attend(some, T, false)), bits32(want[:len(some)*width]))
		}
		shuffled := a.r.Perm(len(all))
		got := a.attend(shuffled, len(all), false)
		for i, r := range shuffled {
			a.equal("shuffled", bits32(got[i*width:(i+1)*width]), bits32(want[r*width:(r+1)*width]))
		}
	}
}

func bits32(v []float32) []uint32 {
	u := make([]uint32, len(v))
	for i, x := range v {
		u[i] = math.Float32bits(x)
	}
	return u
}
