package kernels

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// unit returns v/√(mean(v²)+eps) in float64.
func unit(v []float32, eps float64) (out []float64) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	by := 1 / math.Sqrt(sum/float64(len(v))+eps)
	for _, x := range v {
		out = append(out, float64(x)*by)
	}
	return out
}

// sameRows fails unless got is near want.
func (g *rig) sameRows(what string, got []float32, want []float64) {
	g.t.Helper()
	for i := range want {
		if !near(got[i], want[i], 64) {
			g.t.Fatalf("%s: element %d is %v, wants %v", what, i, got[i], want[i])
		}
	}
}

// Parts of features are copies of rows, or normed rows; zeros are set beside; other parts stay.
func TestCapture(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, cols, parts, eps = 3, 8, 2, 0.125
	x, values := g.random(rows * cols)
	norm, weights := g.random(parts * cols)
	features, zero := g.poisoned(rows*parts*cols), g.poisoned(rows*12)
	op := Capture{X: x, Features: features, Zero: zero, T: rows, Cols: cols, Parts: parts, ZeroCols: 12, Eps: eps}
	g.launch(op)
	second := op
	second.Part, second.Norm, second.Zero, second.ZeroCols = 1, norm, device.Buffer{}, 0
	g.launch(second)
	var want []float64
	for t := range rows {
		row := values[t*cols:][:cols]
		for _, v := range row {
			want = append(want, float64(v))
		}
		for i, v := range unit(row, eps) {
			want = append(want, v*float64(weights[i]))
		}
	}
	g.sameRows("features", g.h.Float32(features), want)
	g.sameRows("zeros", g.h.Float32(zero), make([]float64, rows*12))
	before := slices.Clone(g.h.Float32(features))
	g.launch(Capture{X: features, Norm: norm, Features: features, T: rows, Cols: parts * cols, Parts: 1, Eps: eps})
	want = nil
	for t := range rows {
		for i, v := range unit(before[t*parts*cols:][:parts*cols], eps) {
			want = append(want, v*float64(weights[i]))
		}
	}
	g.sameRows("features in place", g.h.Float32(features), want)
	for _, bad := range []func(o *Capture){func(o *Capture) { o.Part = 2 }, func(o *Capture) { o.Cols = 6 },
		func(o *Capture) { o.ZeroCols = 0 }, func(o *Capture) { o.T = 4 }} {
		wrong := op
		bad(&wrong)
		if err := wrong.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// eagleRig has kept features in all pages, of rows staged over three sequences.
type eagleRig struct {
	*rig
	kept Features
	cols int
}

func newEagleRig(t *testing.T) *eagleRig {
	g := &eagleRig{rig: newRig(t, 1, 8), cols: 8}
	g.kept = NewFeatures(g.kv.Pages, rigPage, 3, 1, g.cols)
	g.kept.Pool.Data, _ = g.random(g.kv.Pages * 3 * g.cols)
	step := Step{Inits: []Init{{Slot: 2}, {Slot: 5}, {Slot: 1}},
		Rows: []Row{{2, 0, 10}, {2, 1, 11}, {2, 2, 12}, {5, 6, 20}, {1, 4, 30}, {1, 5, 31}, {NoSlot, 0, 0}}}
	for i, slot := range []int32{2, 5, 1} {
		for page := range int32(rigContext / rigPage) {
			step.Pages = append(step.Pages, PageEntry{slot, page, g.pages[10*i+int(page)]})
		}
	}
	g.stage(step, 8, 0)
	return g
}

// page returns what is kept of the page that a slot has for a position.
func (g *eagleRig) page(slot, position int) []float32 {
	page := g.h.Int32(g.slots.BlockTable)[slot*g.slots.Pages+position/rigPage]
	return g.h.Float32(g.kept.Pool.Data)[(int(page)*3+1)*g.cols:][:g.cols]
}

// A row takes the feature of the row before in its sequence, else that of the page of the token before, and none at
// position 0. What comes out, normed over both halves, is both normed apart.
func TestJoin(t *testing.T) {
	g := newEagleRig(t)
	const rows, eps = 8, 0.03
	n := g.cols
	embedded, e := g.random(rows * n)
	features, f := g.random(rows * n)
	norm, w := g.random(2 * n)
	x, out := g.poisoned(rows*n), g.poisoned(2*rows*n)
	op := Join{Embedded: embedded, Features: features, Norm: norm, X: x, Out: out, Rows: g.rows, Slots: g.slots,
		Kept: g.kept, T: rows, Cols: n, Eps: eps}
	g.launch(op)
	zeros := make([]float32, n)
	want := [][]float32{zeros, f[:n], f[n : 2*n], g.page(5, 5), g.page(1, 3), f[4*n : 5*n], zeros, zeros}
	check := func(what string, want [][]float32, normed bool) {
		t.Helper()
		for row := range rows {
			feature, both := unit(want[row], eps), unit(e[row*n:][:n], eps)
			both = append(both, feature...)
			got := g.h.Float32(out)[2*row*n:][:2*n]
			for i, v := range unit(got, eps) {
				if math.Abs(v-both[i]) > 1e-5 {
					t.Fatalf("%s: row %d, column %d is %v after a norm, wants %v", what, row, i, v, both[i])
				}
			}
			residual := make([]float64, n)
			for i := range residual {
				if residual[i] = float64(want[row][i]); normed {
					residual[i] = feature[i] * float64(w[n+i])
				}
			}
			g.sameRows(what, g.h.Float32(x)[row*n:], residual)
		}
	}
	check("features", want, false)
	op.Features = device.Buffer{}
	op.NormedResidual = true
	g.launch(op)
	want[1], want[2], want[5] = g.page(2, 0), g.page(2, 1), g.page(1, 4)
	check("kept", want, true)
	op.Own, op.NormedResidual, op.Output = true, false, norm
	copy(g.h.Float32(x), f)
	g.launch(op)
	for row := range rows {
		want[row] = make([]float32, n)
		for i, v := range unit(f[row*n:][:n], eps) {
			want[row][i] = float32(v) * w[i]
		}
	}
	check("own", want, false)
	for _, bad := range []func(o *Join){func(o *Join) { o.Features = features }, func(o *Join) { o.Own = false },
		func(o *Join) { o.Cols = 6 }} {
		wrong := op
		bad(&wrong)
		if err := wrong.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// A page keeps the feature of its newest token: of the last one of a sequence, and of those at the ends of pages, but
// not of drafts that fell.
func TestKeep(t *testing.T) {
	g := newEagleRig(t)
	step := Step{Rows: []Row{{2, 2, 1}, {2, 3, 1}, {2, 4, 1}, {2, 5, 1}, {5, 6, 1}, {5, 7, 1}, {5, 8, 1},
		{NoSlot, 0, 0}}}
	g.stage(step, 8, 0)
	g.h.Int32(g.slots.Length)[5] = 7 // one of three rows stands
	features, f := g.random(8 * g.cols)
	before := slices.Clone(g.h.Float32(g.kept.Pool.Data))
	g.launch(Keep{X: features, Rows: g.rows, Slots: g.slots, Kept: g.kept, T: 8})
	for _, c := range []struct{ slot, position, row int }{{2, 3, 1}, {2, 5, 3}, {5, 6, 4}} {
		if !slices.Equal(g.page(c.slot, c.position), f[c.row*g.cols:][:g.cols]) {
			t.Errorf("slot %d keeps %v at %d, wants row %d", c.slot, g.page(c.slot, c.position), c.position, c.row)
		}
		copy(g.page(c.slot, c.position), before)
	}
	changed := 0
	for i, v := range g.h.Float32(g.kept.Pool.Data) {
		if v != before[i] {
			changed++
		}
	}
	if changed > 3*g.cols {
		t.Errorf("%d elements changed, wants %d at most", changed, 3*g.cols)
	}
	bad := Keep{X: features, Rows: g.rows, Slots: g.slots, Kept: g.kept, T: 9}
	if err := bad.Check(); !errors.Is(err, device.ErrBadShape) {
		t.Error(err)
	}
}

// A view has the first pages and those of the last tokens; positions in it lie on the same keys.
func TestRecent(t *testing.T) {
	g := newRig(t, 1, 8)
	var step Step
	for i, slot := range []int32{2, 5, 1} {
		step.Inits = append(step.Inits, Init{Slot: slot})
		for page := range int32(rigContext / rigPage) {
			step.Pages = append(step.Pages, PageEntry{slot, page, g.pages[10*i+int(page)]})
		}
	}
	step.Rows = []Row{{2, 29, 0}, {2, 30, 0}, {5, 3, 0}, {5, 4, 0}, {1, 39, 0}, {NoSlot, 0, 0}, {NoSlot, 0, 0},
		{NoSlot, 0, 0}}
	g.stage(step, 8, 0)
	for _, first := range []int{1, 2} {
		for window := 1; window < 25; window++ {
			pages := ViewPages(rigPage, first, window, 2)
			view := Slots{Count: 5, Pages: pages, Context: pages * rigPage, BlockTable: g.poisoned(5 * pages)}
			rows := Rows{Slot: g.poisoned(8), Position: g.poisoned(8)}
			g.launch(Recent{Rows: g.rows, Slots: g.slots, View: view, ViewRows: rows, T: 8, Queries: 2,
				PageTokens: rigPage, First: first, Window: window})
			at := func(s Slots, slot, position int32) [2]int32 {
				return [2]int32{g.h.Int32(s.BlockTable)[int(slot)*s.Pages+int(position)/rigPage], position % rigPage}
			}
			for t, row := range step.Rows[:5] {
				slot, position := g.h.Int32(rows.Slot)[t], g.h.Int32(rows.Position)[t]
				own := [2]int32{at(g.slots, row.Slot, row.Position)[0], row.Position % rigPage}
				if int(slot) != t/2 || at(view, slot, position) != own {
					g.t.Fatalf("window %d: row %d is at %d of %d: %v, wants %v", window, t, position, slot,
						at(view, slot, position), own)
				}
				for back := range min(int32(window), row.Position-step.Rows[t/2*2].Position+int32(window)) {
					if back <= row.Position &&
						at(view, slot, position-back)[0] != at(g.slots, row.Slot, row.Position-back)[0] {
						g.t.Fatalf("window %d of %d first pages: row %d does not see the token %d before", window,
							first, t, back)
					}
				}
				for p := range min(int32(first*rigPage), row.Position+1) {
					if at(view, slot, p) != at(g.slots, row.Slot, p) {
						g.t.Fatalf("window %d: row %d does not see token %d", window, t, p)
					}
				}
			}
			for t := 5; t < 8; t++ {
				if g.h.Int32(rows.Slot)[t] != 4 || g.h.Int32(rows.Position)[t] != 1 {
					g.t.Fatalf("padding is at %d of %d", g.h.Int32(rows.Position)[t], g.h.Int32(rows.Slot)[t])
				}
			}
		}
	}
	bad := Recent{Rows: g.rows, Slots: g.slots, T: 8, Queries: 2, PageTokens: rigPage, First: 1, Window: 4,
		View: Slots{Count: 5, Pages: 3}}
	if err := bad.Check(); !errors.Is(err, device.ErrBadShape) {
		t.Error(err)
	}
}

// Attention over a view is that over the first pages and the pages of the last tokens, in float64.
func TestAttendOverRecentPages(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 9))
	for range 60 {
		h := device.NewHost(device.HostOptions{Workers: 2})
		size, rows := []int{1, 4, 16}[r.IntN(3)], 1+r.IntN(2)
		positions, first, window := 3+r.IntN(200), 1+r.IntN(3), 1+r.IntN(60)
		a := newHostAttend(t, h, r, KV{PageTokens: size, Layers: 1, Heads: 2, HeadDim: 8}, 4, positions, rows)
		slots := a.Slots
		slots.Count = 2 // the second one would be the trash slot
		pages := ViewPages(size, first, window, rows)
		alloc := func(n int) device.Buffer {
			b, err := h.Alloc(4 * int64(n))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		o := Recent{Rows: a.Rows, Slots: slots, T: rows, Queries: rows, PageTokens: size, First: first, Window: window,
			View:     Slots{Count: 2, Pages: pages, Context: pages * size, BlockTable: alloc(2 * pages)},
			ViewRows: Rows{Slot: alloc(rows), Position: alloc(rows)}}
		o.Host(h)
		over := a
		over.Rows, over.Slots = o.ViewRows, o.View
		over.Host(h)
		oldest := (positions - rows + 1 - window) / size * size // of the last tokens, in whole pages
		for row := range rows {
			for head := range a.Heads {
				want := a.exactOver(h, row, head, func(j int) bool { return j < first*size || j >= oldest })
				for i := range want {
					if got := h.Float32(a.Out)[(row*a.Heads+head)*8+i]; math.Abs(float64(got)-want[i]) > 2e-6 {
						t.Fatalf("pages of %d, %d first, window %d, row %d of %d at %d: %v, wants %v", size, first,
							window, row, rows, positions, got, want[i])
					}
				}
			}
		}
		h.Close()
	}
}
