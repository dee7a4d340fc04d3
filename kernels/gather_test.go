package kernels

import (
	"errors"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// Products of gathered rows, with a row index, equal products of all rows. Rows for padding
// samples are not written.
func TestGatheredRows(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, samples, cols, inner = 6, 3, 8, 12
	x, xv := g.random(rows * cols)
	norm, _ := g.random(cols)
	out, _ := g.weight(BF16, cols, cols)
	gate, _ := g.weight(BF16, inner, cols)
	up, _ := g.weight(BF16, inner, cols)
	index, err := g.h.Alloc(4 * samples)
	g.must(err)
	gathered, hidden, want := g.poisoned(samples*cols), g.poisoned(samples*inner), g.poisoned(rows*inner)
	g.stage(Step{Rows: make([]Row, rows), Samples: []int32{4, 1}}, rows, samples)

	g.launch(GatherRows{X: x, Rows: g.rows, Out: gathered, Index: index, Cols: cols, T: rows, N: samples})
	if got := g.h.Int32(index); !slices.Equal(got, []int32{0, 1, -1}) {
		t.Fatalf("row index %v, wants two rows of three", got)
	}
	got := g.h.Float32(gathered)
	if !slices.Equal(got[:cols], xv[4*cols:5*cols]) || !slices.Equal(got[cols:2*cols], xv[cols:2*cols]) ||
		got[2*cols] == got[2*cols] {
		t.Fatalf("gathered %v of %v", got, xv)
	}

	g.launch(GateUp{X: gathered, RowIndex: index, Norm: norm, Gate: gate, Up: up, Out: hidden, T: samples, Eps: 1e-5})
	g.launch(GateUp{X: x, Norm: norm, Gate: gate, Up: up, Out: want, T: rows, Eps: 1e-5})
	all, some := g.h.Float32(want), g.h.Float32(hidden)
	if !slices.Equal(some[:inner], all[4*inner:5*inner]) || !slices.Equal(some[inner:2*inner], all[inner:2*inner]) ||
		some[2*inner] == some[2*inner] {
		t.Errorf("gate and up of gathered rows %v, of all %v", some, all)
	}

	residual, whole := g.random(rows * cols)
	copy(whole, xv)
	g.launch(Projection{W: out, In: x, RowIndex: g.rows.Sample, X: gathered, T: samples})
	g.launch(Projection{W: out, In: x, X: residual, T: rows})
	if !slices.Equal(got[:cols], whole[4*cols:5*cols]) || !slices.Equal(got[cols:2*cols], whole[cols:2*cols]) ||
		got[2*cols] == got[2*cols] {
		t.Errorf("output of gathered rows %v, of all %v", got, whole)
	}
}

// A row index that is too short, or in the prefill class, is refused.
func TestRowIndexIsChecked(t *testing.T) {
	g := newRig(t, 1, 8)
	w, _ := g.weight(BF16, 8, 8)
	big, _ := g.random(64)
	for _, op := range []device.Op{
		Projection{W: w, In: big, X: big, RowIndex: big.Slice(0, 4), T: 2},
		Projection{W: w, In: big, X: big, RowIndex: big, T: 2, Class: Prefill},
		GateUp{X: big, Norm: big, Gate: w, Up: w, Out: big, RowIndex: big.Slice(0, 4), T: 2},
		GateUp{X: big, Norm: big, Gate: w, Up: w, Out: big, RowIndex: big, T: 2, Class: Prefill},
		GatherRows{X: big, Rows: g.rows, Out: big.Slice(0, 8), Index: big, Cols: 8, T: 2, N: 1},
		GatherRows{X: big, Rows: g.rows, Out: big, Index: big.Slice(0, 4), Cols: 8, T: 2, N: 2},
	} {
		if err := g.stream.Launch(op); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", op.Kernel(), err)
		}
	}
}

// Products of rows that are all padding write nothing.
func TestProductsOfPadding(t *testing.T) {
	g := newRig(t, 1, 8)
	const samples, cols, inner = 3, 16, 12
	x, _ := g.random(samples * cols)
	norm, _ := g.random(cols)
	gate, _ := g.weight(BF16, inner, cols)
	down, _ := g.weight(BF16, cols, inner)
	index, err := g.h.Alloc(4 * samples)
	g.must(err)
	for i := range g.h.Int32(index) {
		g.h.Int32(index)[i] = -1
	}
	hidden, residual := g.poisoned(samples*inner), g.poisoned(samples*cols)
	g.launch(GateUp{X: x, RowIndex: index, Norm: norm, Gate: gate, Up: gate, Out: hidden, T: samples, Eps: 1e-5})
	g.launch(Projection{W: down, In: hidden, X: residual, RowIndex: index, T: samples})
	for _, v := range slices.Concat(g.h.Float32(hidden), g.h.Float32(residual)) {
		if v == v {
			t.Fatalf("%v was written", v)
		}
	}
}
