//go:build cuda

package cudatest

import (
	"fmt"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// eagleWidths are hidden sizes: below a block's threads, and those of published heads.
var eagleWidths = []int{16, 52, 1024, 2880, 4096, 5120}

// Parts of features are rows, or normed rows, as on the host; also in place.
func TestCUDACapture(t *testing.T) {
	for _, cols := range eagleWidths {
		for _, rows := range []int{1, 8, 130} {
			b := newBoth(t)
			parts, zeros := 1+b.r.IntN(3), 4*(1+b.r.IntN(cols))
			x, norm := put(b, b.normal(rows*cols, 3)), put(b, b.normal(parts*cols, 1))
			features, zero := b.poisoned(rows*parts*cols), b.poisoned(rows*zeros)
			for part := range parts {
				b.run(func(on int) device.Op {
					o := kernels.Capture{X: x[on], Features: features[on], T: rows, Cols: cols, Part: part,
						Parts: parts, Eps: 1e-5}
					if part%2 == 1 {
						o.Norm = norm[on]
					}
					if part == 0 {
						o.Zero, o.ZeroCols = zero[on], zeros
					}
					return o
				})
			}
			name := fmt.Sprintf("%d parts of %d columns, %d rows", parts, cols, rows)
			b.rowsClose(name, features, parts*cols, 1e-5, 1e-5, 1e-6)
			b.same(name+", zeros", zero)
			b.run(func(on int) device.Op {
				return kernels.Capture{X: features[on], Norm: norm[on], Features: features[on], T: rows,
					Cols: parts * cols, Parts: 1, Eps: 1e-5}
			})
			b.rowsClose(name+", normed in place", features, parts*cols, 1e-5, 1e-5, 2e-6)
		}
	}
}

// eagleStep is rows of some sequences with features in their pages, on both.
type eagleStep struct {
	*both
	rows  [2]kernels.Rows
	slots [2]kernels.Slots
	kept  [2]kernels.Features
	pool  twin
	n     int
}

func newEagleStep(b *both, sequences, cols int) *eagleStep {
	const pages, pageTokens, layers = 9, 16, 3
	s := &eagleStep{both: b}
	var slot, position, length []int32
	table := make([]int32, (sequences+1)*pages)
	for i, page := range b.r.Perm(len(table)) {
		table[i] = int32(1 + page) // each page belongs to one sequence
	}
	for i := range sequences {
		begin, n := int32(b.r.IntN(100)), int32(1+b.r.IntN(20))
		if i == 0 {
			begin = 0
		}
		for p := begin; p < begin+n; p++ {
			slot, position = append(slot, int32(i)), append(position, p)
		}
		length = append(length, begin+1+int32(b.r.IntN(int(n))))
	}
	for range b.r.IntN(3) {
		slot, position = append(slot, int32(sequences)), append(position, 0)
	}
	length = append(length, 1)
	s.n = len(slot)
	slots, positions, lengths, tables := put(b, slot), put(b, position), put(b, length), put(b, table)
	words := put(b, make([]int32, (sequences+1)*kernels.ParamWords))
	s.pool = put(b, b.normal((len(table)+1)*layers*cols, 2))
	for on := range s.rows {
		s.rows[on] = kernels.Rows{Slot: slots[on], Position: positions[on]}
		s.slots[on] = kernels.Slots{Count: sequences + 1, Pages: pages, Context: 1, BlockTable: tables[on],
			Length: lengths[on], Token: lengths[on], History: lengths[on], Params: words[on]}
		s.kept[on] = kernels.NewFeatures(len(table)+1, pageTokens, layers, 1, cols)
		s.kept[on].Pool.Data = s.pool[on]
	}
	return s
}

// A layer's input is that of the host, of each kind.
func TestCUDAJoin(t *testing.T) {
	for i, cols := range slices.Concat(eagleWidths, eagleWidths) {
		newBoth(t).join(cols, i%2 == 1)
	}
}

// join checks inputs of a layer, of each kind.
func (b *both) join(cols int, normed bool) {
	b.t.Helper()
	s := newEagleStep(b, 1+b.r.IntN(8), cols)
	embedded, features := put(b, b.normal(s.n*cols, 0.02)), put(b, b.normal(s.n*cols, 3))
	norm, output := put(b, b.normal(2*cols, 1)), put(b, b.normal(cols, 1))
	x, out := put(b, b.normal(s.n*cols, 2)), b.poisoned(2*s.n*cols)
	for kind := range 4 {
		b.run(func(on int) device.Op {
			o := kernels.Join{Embedded: embedded[on], Norm: norm[on], X: x[on], Out: out[on], Rows: s.rows[on],
				Slots: s.slots[on], Kept: s.kept[on], T: s.n, Cols: cols, Eps: 1e-5, NormedResidual: normed}
			switch kind {
			case 0:
				o.Features = features[on]
			case 2:
				o.Own = true
			case 3:
				o.Own, o.Output = true, output[on]
			}
			return o
		})
		name := fmt.Sprintf("%d columns, kind %d", cols, kind)
		b.rowsClose(name+", x", x, cols, 1e-5, 1e-5, 5e-6)
		b.rowsClose(name+", out", out, 2*cols, 1e-5, 1e-5, 5e-6)
	}
}

// Pages keep the same features as on the host, and no others change.
func TestCUDAKeep(t *testing.T) {
	for _, cols := range eagleWidths {
		b := newBoth(t)
		s := newEagleStep(b, 1+b.r.IntN(8), cols)
		features := put(b, b.normal(s.n*cols, 3))
		b.run(func(on int) device.Op {
			return kernels.Keep{X: features[on], Rows: s.rows[on], Slots: s.slots[on], Kept: s.kept[on], T: s.n}
		})
		b.same(fmt.Sprintf("%d columns", cols), s.pool)
	}
}

// Views are those of the host: of one row a sequence and of two, with padding.
func TestCUDARecent(t *testing.T) {
	b := newBoth(t)
	for i := range 60 {
		groups, queries, pageTokens := 1+b.r.IntN(32), 1+i%2, []int{16, 64, 1}[b.r.IntN(3)]
		first, window := 1+b.r.IntN(5), 1+b.r.IntN(900)
		pages := 1 + 3000/pageTokens
		slots := kernels.Slots{Count: groups + 1, Pages: pages}
		table := put(b, b.random(slots.Count*pages, 1000))
		var slot, position []int32
		for g := range groups {
			at := int32(b.r.IntN(3000 - queries))
			for q := range queries {
				slot, position = append(slot, int32(g)), append(position, at+int32(q))
				if b.r.IntN(5) == 0 {
					slot[len(slot)-1], position[len(slot)-1] = int32(groups), 0
				}
			}
		}
		view := kernels.Slots{Count: groups + 1 + b.r.IntN(3),
			Pages: kernels.ViewPages(pageTokens, first, window, queries)}
		s, p, v := put(b, slot), put(b, position), b.poisoned(view.Count*view.Pages)
		vs, vp := b.poisoned(len(slot)), b.poisoned(len(slot))
		b.run(func(on int) device.Op {
			in, out := slots, view
			in.BlockTable, out.BlockTable = table[on], v[on]
			return kernels.Recent{Rows: kernels.Rows{Slot: s[on], Position: p[on]}, Slots: in, View: out,
				ViewRows: kernels.Rows{Slot: vs[on], Position: vp[on]}, T: len(slot), Queries: queries,
				PageTokens: pageTokens, First: first, Window: window}
		})
		b.same("block tables", v)
		b.same("slots", vs)
		b.same("positions", vp)
	}
}

// Rows that see nothing before a position equal the host's.
func TestCUDAAttendFromAPosition(t *testing.T) {
	for i, c := range attendShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.first, a.window = []int{1, 17, 129, 300}[i%4], []int{0, 40}[i%2]
		a.row = slices.DeleteFunc(a.row, func(r kernels.Row) bool { return int(r.Position) < a.first })
		if len(a.row) > 0 {
			a.query = a.normal(len(a.row)*c.heads*c.d, 1)
			a.attend(indices(len(a.row)), len(a.row), true)
		}
	}
}

// A row that sees one position less than it should is noticed.
func TestCUDAAttendNoticesAnotherFirst(t *testing.T) {
	a := newAttending(newBoth(t), 8, 2, 64, 60)
	a.first, a.laterOnGPU = 1, 1
	a.row = slices.DeleteFunc(a.row, func(r kernels.Row) bool { return r.Position < 2 })
	if !a.fails(func() { a.attend(indices(len(a.row)), len(a.row), true) }) {
		t.Error("a later first position passed")
	}
}

// BenchmarkCUDAEagle measures the ops that an EAGLE-3 head adds to a verify step of one sequence, at the shape of
// Llama-3.1-8B: for each draft, and for the rows of the step.
func BenchmarkCUDAEagle(t *testing.B) {
	const cols = 4096
	for _, rows := range []int{1, 8} {
		t.Run(fmt.Sprintf("join/%d", rows), func(t *testing.B) {
			b := newBoth(t)
			s := newEagleStep(b, 1, cols)
			x, out := b.load(1, bytesOf(b.normal(rows*cols, 1))), b.load(1, bytesOf(b.normal(2*rows*cols, 1)))
			zeros := b.load(1, make([]byte, 4*rows))
			b.perLaunch(t, float64(rows*cols*4*5), kernels.Join{Embedded: x, Norm: out.Slice(0, 8*cols), X: x, Out: out,
				Rows: kernels.Rows{Slot: zeros, Position: zeros}, Slots: s.slots[1], T: rows, Cols: cols, Eps: 1e-5,
				Own: true})
		})
		t.Run(fmt.Sprintf("capture/%d", rows), func(t *testing.B) {
			b := newBoth(t)
			x, out := b.load(1, bytesOf(b.normal(rows*cols, 1))), b.load(1, bytesOf(b.normal(3*rows*cols, 1)))
			b.perLaunch(t, float64(rows*cols*8), kernels.Capture{X: x, Features: out, T: rows, Cols: cols, Parts: 3})
		})
	}
}
