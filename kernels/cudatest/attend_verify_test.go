//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// verifying is the attention of a verify pass on both devices: groups of rows, of which some end with padding and some
// are padding altogether. The pool is NaN behind the last row of each sequence and in the trash page, and so are the
// queries of padding rows.
type verifying struct {
	*both
	name   string
	op     [2]kernels.Attend
	out    twin
	real   []bool  // whether a row is a sequence's
	values []int32 // positions of rows
}

// verifyShape is the dimensions of a verifying.
type verifyShape struct {
	groups, queries, group, kvHeads, dim, window, context int
	logits                                                bool // a random softcap, sinks or both
}

// verifyShared is how many pages hold the keys and values of all sequences before their rows.
const verifyShared = 40

func newVerifying(b *both, s verifyShape) *verifying {
	rows, heads, pages := s.groups*s.queries, s.group*s.kvHeads, (s.context+15)/16
	a := &verifying{both: b, name: fmt.Sprintf("%+v", s), real: make([]bool, rows), values: make([]int32, rows)}
	const own = 2 // pages that a group's rows may touch
	kv := kernels.KV{Pages: 1 + verifyShared + own*s.groups, PageTokens: 16, Layers: 2, Heads: s.kvHeads,
		HeadDim: s.dim}
	pool := b.normal(int(kv.PageBytes()/4)*kv.Pages, 1)
	poisonPage(pool, kv, 0, 0)
	slot, table := make([]int32, rows), make([]int32, (s.groups+1)*pages)
	for i := range slot {
		slot[i] = int32(s.groups)
	}
	for g := range s.groups {
		real := a.groupRows(s, g)
		at := a.groupPosition(s)
		for j := range real {
			row := g*s.queries + j
			slot[row], a.values[row], a.real[row] = int32(g), int32(at+j), true
		}
		for page := range min(pages, at/16+own) {
			table[g*pages+page] = 1 + b.r.Int32N(verifyShared)
			if k := page - at/16; k >= 0 {
				table[g*pages+page] = int32(1 + verifyShared + own*g + k)
				poisonPage(pool, kv, 1+verifyShared+own*g+k, max(0, at+real-16*page))
			}
		}
	}
	query := b.normal(rows*heads*s.dim, 2)
	for i := range query {
		if !a.real[i/(heads*s.dim)] {
			query[i] = float32(math.NaN())
		}
	}
	q, slots, positions, tables := put(b, query), put(b, slot), put(b, a.values), put(b, table)
	a.out = b.poisoned(rows * heads * s.dim)
	work := b.attendWorkspace(rows, heads, s.dim, s.context)
	for on := range a.op {
		a.op[on] = kernels.Attend{Q: q[on], Rows: kernels.Rows{Slot: slots[on], Position: positions[on]},
			Slots: kernels.Slots{Count: s.groups + 1, Pages: pages, Context: s.context, BlockTable: tables[on]}, KV: kv,
			Out: a.out[on], Workspace: twin{1: work}[on], T: rows, Layer: 1, Heads: heads,
			Scale: float32(1 / math.Sqrt(float64(s.dim))), Window: s.window, Queries: s.queries}
	}
	if s.logits {
		l := b.randomLogits(heads)
		for on := range a.op {
			a.op[on].Softcap, a.op[on].Sinks = l.softcap, l.sinks[on]
		}
	}
	a.op[0].KV.Data, a.op[1].KV.Data, a.op[1].KV.DType = b.load(0, bytesOf(pool)), b.load(1, bytesOf(bitsOf(pool))),
		kernels.BF16
	return a
}

// groupRows returns how many rows of group g are a sequence's.
func (a *verifying) groupRows(s verifyShape, g int) int {
	if g > 0 && a.r.IntN(6) == 0 {
		return 0
	}
	return 1 + a.r.IntN(s.queries)
}

// groupPosition returns the position of a group's first row: often just before a page, a warp's block or a split ends.
func (a *verifying) groupPosition(s verifyShape) int {
	at := a.r.IntN(s.context)
	if a.r.IntN(2) == 0 {
		at = int(edges[a.r.IntN(len(edges))]) - a.r.IntN(s.queries+1)
	}
	return max(0, min(at, s.context-s.queries))
}

// poisonPage makes a page of float32 keys and values NaN from a token on.
func poisonPage(pool []float32, kv kernels.KV, page, from int) {
	for plane := range kv.Layers * 2 * kv.Heads {
		at := (page*kv.Layers*2*kv.Heads + plane) * kv.PageTokens * kv.HeadDim
		for i := at + min(from, kv.PageTokens)*kv.HeadDim; i < at+kv.PageTokens*kv.HeadDim; i++ {
			pool[i] = float32(math.NaN())
		}
	}
}

// compare fails if a row's bits differ from those of plain decode of that row alone.
func (a *verifying) compare() {
	a.t.Helper()
	a.onGPU(a.op[1])
	width := a.op[1].Heads * a.op[1].KV.HeadDim
	alone := a.poisoned(a.op[1].T * width)[1]
	var ops []device.Op
	for row, real := range a.real {
		if !real {
			continue
		}
		one := a.op[1]
		one.T, one.Queries = 1, 0
		part := func(x device.Buffer, each int) device.Buffer { return x.Slice(int64(4*row*each), int64(4*each)) }
		one.Q, one.Out = part(one.Q, width), part(alone, width)
		one.Rows = kernels.Rows{Slot: part(one.Rows.Slot, 1), Position: part(one.Rows.Position, 1)}
		ops = append(ops, one)
	}
	a.onGPU(ops...)
	got, want := read[float32](a.both, 1, a.out[1]), read[float32](a.both, 1, alone)
	for row, real := range a.real {
		if !real {
			continue
		}
		mine, its := got[row*width:(row+1)*width], want[row*width:(row+1)*width]
		if math.IsNaN(float64(its[0])) {
			a.t.Fatalf("%s: row %d is not a number", a.name, row)
		}
		a.equal(fmt.Sprintf("%s, row %d at %d", a.name, row, a.values[row]), bits32(mine), bits32(its))
	}
}

// near compares the rows of sequences with the host.
func (a *verifying) near() {
	a.t.Helper()
	a.run(func(on int) device.Op { return a.op[on] })
	width := a.op[1].Heads * a.op[1].KV.HeadDim
	got, want := read[float32](a.both, 1, a.out[1]), read[float32](a.both, 0, a.out[0])
	for row, real := range a.real {
		if real {
			a.closeTo(fmt.Sprintf("%s, row %d", a.name, row), got[row*width:(row+1)*width],
				want[row*width:(row+1)*width], func(int) float64 {
					seen := min(int(a.values[row])+1, 16*verifyShared)
					if a.op[1].Window > 0 {
						seen = min(seen, a.op[1].Window)
					}
					return 2e-4 + 0.03/math.Sqrt(float64(seen))
				}, 8e-3)
		}
	}
}

// randomVerify returns a random shape of so many groups at most.
func randomVerify(b *both, groups int) verifyShape {
	return verifyShape{groups: 1 + b.r.IntN(groups), queries: 2 + b.r.IntN(7), kvHeads: 1 + b.r.IntN(3),
		group: []int{1, 1, 2, 3, 4, 5, 7, 8, 12}[b.r.IntN(9)], dim: []int{32, 40, 64, 80, 96, 128, 192, 256}[b.r.IntN(8)],
		window:  []int{0, 0, 0, 1, 2, 5, 20, 131, 300}[b.r.IntN(9)],
		context: []int{20, 200, 700, 1500, 9000}[b.r.IntN(5)], logits: b.r.IntN(3) == 0}
}

// Each row of a verify pass has the bits that plain decode gives it alone: over head sizes, query heads per KV head,
// windows, positions around the edges of pages and splits, padding, and more splits than a block merges at once.
func TestCUDAAttendVerify(t *testing.T) {
	b := newBoth(t)
	for _, group := range []int{1, 4, 8} {
		for queries := 2; queries <= 8; queries++ {
			newVerifying(b, verifyShape{groups: 3, queries: queries, group: group, kvHeads: 2, dim: 128, context: 700}).
				compare()
		}
	}
	for _, s := range []verifyShape{{groups: 32, queries: 8, group: 1, kvHeads: 32, dim: 128, context: 700},
		{groups: 32, queries: 8, group: 4, kvHeads: 8, dim: 64, context: 700, window: 200},
		{groups: 1, queries: 8, group: 1, kvHeads: 32, dim: 128, context: 17000}} {
		newVerifying(b, s).compare()
	}
	for range 60 {
		newVerifying(b, randomVerify(b, 8)).compare()
	}
	for range 8 {
		newVerifying(b, randomVerify(b, 32)).compare()
	}
}

// A test that plants an error must notice it: a row that sees one position more differs.
func TestCUDAAttendVerifyNoticesAPosition(t *testing.T) {
	b := newBoth(t)
	s := verifyShape{groups: 1, queries: 4, group: 2, kvHeads: 1, dim: 64, context: 300, window: 5}
	a := newVerifying(b, s)
	for int(a.values[0]) < s.window { // the window holds all positions that there are, and so does a wider one
		a = newVerifying(b, s)
	}
	a.op[1].Window++
	a.onGPU(a.op[1])
	wider := read[uint32](b, 1, a.out[1])
	a.op[1].Window--
	a.compare()
	if !a.fails(func() { a.equal("wider", wider, read[uint32](b, 1, a.out[1])) }) {
		t.Error("a wider window changes no bits: the tests of verify passes see nothing")
	}
}

// Attention of a verify pass that starts before its QKV has ended gives the same bits as one row after another, each
// after the QKV, and as attention that waits. The rows after the first that stands are computed again by the next step,
// so attention must not read what the step before has left at their positions.
func TestCUDAAttendVerifyAfterQKV(t *testing.T) { testVerifyAfterQKV(newBoth(t)) }

// The same with kernels that are delayed at random.
func TestCUDAAttendVerifyAfterLateQKV(t *testing.T) { testVerifyAfterQKV(bothOf(t, "late")) }

func testVerifyAfterQKV(b *both) {
	for _, c := range []struct {
		groups, queries int
		rounded, biased bool
	}{{1, 8, false, false}, {1, 4, false, true}, {2, 6, true, true}, {5, 8, false, false}, {5, 8, true, false},
		{20, 8, true, false}, {20, 3, true, true}} {
		a := newAfterQKV(b, c.groups*c.queries, c.rounded, c.biased)
		a.queries = c.queries
		var steps []kernels.Rows
		for step := range int32(16) {
			steps = append(steps, a.rows(func(row int) kernels.Row {
				group, j := row/c.queries, int32(row%c.queries)
				return kernels.Row{Slot: int32(group), Position: 18 + 2*step + int32(group%8) + j}
			}))
		}
		want := a.decoded(steps)
		for _, early := range []bool{false, true} {
			name := fmt.Sprintf("%+v, early %t", c, early)
			a.equal(name, a.results(early, false, steps, a.onGPU), want)
			a.equal(name+", replayed", a.results(early, false, steps, a.replay), want)
		}
	}
}

// decoded returns what results returns, by attention that decodes row by row.
func (a *afterQKV) decoded(steps []kernels.Rows) []uint32 {
	return a.results(false, false, steps, func(ops ...device.Op) {
		for _, op := range ops {
			if o, ok := op.(kernels.Attend); ok {
				o.Queries = 0
				op = o
			}
			a.onGPU(op)
		}
	})
}
