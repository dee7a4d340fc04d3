package kernels

import (
	"errors"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// Each sampled row leaves the final norm of its hidden state, and a record of its step, slot and generation. Padding
// leaves nothing.
func TestVectorOfSampledRows(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, samples, cols, eps = 6, 3, 20, 1e-6
	x, xv := g.random(samples * cols)
	norm, nv := g.random(cols)
	index, _ := g.h.Alloc(4 * samples)
	g.stage(Step{}, rows, samples) // so that the step has another place in the rings
	s := Step{Samples: []int32{4, 1}, Inits: []Init{{Slot: 2, Generation: 7}, {Slot: 5, Generation: 9}}}
	for i := range rows {
		s.Rows = append(s.Rows, Row{Slot: []int32{5, 2}[i/3], Position: int32(i % 3)})
	}
	g.stage(s, rows, samples)
	copy(g.h.Int32(index), []int32{1, 0, -1})
	vectors, records := g.poisoned(rigRing*samples*cols), g.poisoned(rigRing*samples*RecordWords)
	g.launch(Vector{X: x, Index: index, Norm: norm, Rows: g.rows, Slots: g.slots, Records: records, Vectors: vectors,
		T: samples, N: samples, Cols: cols, RingSlots: rigRing, MaxSamples: samples, Eps: eps})

	v, r := g.h.Float32(vectors), g.h.Int32(records)
	for i := range v {
		at, row := i/cols, 1-i/cols%samples
		if at/samples != 1 || row < 0 {
			if v[i] == v[i] {
				t.Fatalf("element %d was written, of no sample", i)
			}
			continue
		}
		if want := normed(xv[row*cols:][:cols], nv, eps)[i%cols]; !near(v[i], want, cols) {
			t.Errorf("element %d of the vector of row %d is %v, want %v", i%cols, row, v[i], want)
		}
	}
	want := [][]int32{{1, 0, 2, 7, 1, 0, 0, 0}, {1, 0, 5, 9, 1, 0, 0, 0}}
	for i, w := range want {
		if got := r[(samples+i)*RecordWords:][:8]; !slices.Equal(got, w) {
			t.Errorf("record %d is %v, want %v", i, got, w)
		}
	}
}

// A vector that is not finite has a record whose log-probability is no number, which the engine refuses.
func TestVectorThatIsNotFinite(t *testing.T) {
	g := newRig(t, 1, 8)
	const cols = 8
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		x, xv := g.random(cols)
		norm, _ := g.random(cols)
		xv[g.r.IntN(cols)] = bad
		copy(g.h.Float32(x), xv)
		g.stage(Step{Rows: []Row{{}}, Samples: []int32{0}, Inits: []Init{{}}}, 1, 1)
		vectors, records := g.poisoned(rigRing*cols), g.poisoned(rigRing*RecordWords)
		index, _ := g.h.Alloc(4)
		op := Vector{X: x, Index: index, Norm: norm, Rows: g.rows, Slots: g.slots, Records: records, Vectors: vectors,
			T: 1, N: 1, Cols: cols, RingSlots: rigRing, MaxSamples: 1, Eps: 1e-6}
		g.launch(op)
		at := int((g.number-1)%rigRing) * RecordWords
		if f := math.Float32frombits(uint32(g.h.Int32(records)[at+6])); f == f {
			t.Errorf("log-probability %v of a vector with %v", f, bad)
		}
	}
}

// Buffers that are too short are refused before a launch.
func TestVectorIsChecked(t *testing.T) {
	g := newRig(t, 1, 8)
	big, _ := g.random(1024)
	op := Vector{X: big, Index: big, Norm: big, Rows: g.rows, Slots: g.slots, Records: big, Vectors: big, T: 2, N: 2,
		Cols: 8, RingSlots: 2, MaxSamples: 2}
	if err := op.Check(); err != nil {
		t.Fatal(err)
	}
	for _, buffer := range []*device.Buffer{&op.X, &op.Index, &op.Norm, &op.Records, &op.Vectors} {
		whole := *buffer
		*buffer = whole.Slice(0, 4)
		if err := op.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%v, want %v", err, device.ErrBadShape)
		}
		*buffer = whole
	}
}
