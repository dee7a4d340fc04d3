//go:build cuda

package cudatest

import (
	"fmt"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// placedRows are rows of kernels whose blocks leave sums in places (gemm/places.cuh).
var placedRows = []struct {
	class kernels.Class
	rows  int
}{{kernels.Decode, 12}, {kernels.Decode, 32}, {kernels.Prefill, 10}, {kernels.Prefill, 50}}

// placed calls compare with projections of such rows, and the same rows by kernels without places: of one row, or of
// more. It checks that all places are empty afterwards, if empties.
func (b *both) placed(empties bool, compare func(name string, got, want []uint32)) {
	b.t.Helper()
	const most = 100
	for i, s := range manyShapes {
		w := b.matrix([]kernels.DType{kernels.BF16, kernels.F16}[i%2], s.outputs, s.cols)[1]
		x, before := put(b, b.normal(most*s.cols, 3))[1], b.normal(most*s.outputs, 1)
		workspace := b.workspaceFor(most, s.cols)
		res := b.load(1, bytesOf(before))
		one := b.alone(res, most, s.outputs, func(t int, out device.Buffer) device.Op {
			return kernels.Projection{W: w, In: row(x, t, s.cols), X: out, T: 1}
		})
		all := b.project(w, x, before, workspace, kernels.Prefill, most)
		for _, of := range placedRows {
			want := one
			if of.class == kernels.Prefill {
				want = all
			}
			for range 3 {
				name := fmt.Sprintf("%d to %d, %d rows of class %v", s.cols, s.outputs, of.rows, of.class)
				got := b.project(w, x, before, workspace, of.class, of.rows)
				compare(name, got[:of.rows*s.outputs], want[:of.rows*s.outputs])
				if empties {
					b.placesAreEmpty(name, workspace)
				}
			}
		}
	}
}

// project returns before with a projection of the first rows of x added.
func (b *both) project(w kernels.Weight, x device.Buffer, before []float32, workspace kernels.Workspace,
	class kernels.Class, rows int) []uint32 {
	b.t.Helper()
	res := b.load(1, bytesOf(before))
	b.onGPU(kernels.Projection{W: w, In: x, X: res, T: rows, Workspace: workspace, Class: class})
	return read[uint32](b, 1, res)
}

// placesAreEmpty checks that kernels have left neither counters nor sums behind.
func (b *both) placesAreEmpty(name string, workspace kernels.Workspace) {
	b.t.Helper()
	for i, word := range read[uint32](b, 1, workspace.Partials.Slice(0, kernels.ClearedBytes)) {
		if word != 0 {
			b.t.Fatalf("%s: word %d of counters and places is %#x", name, i, word)
		}
	}
}

// Sums that blocks leave for one another are those of kernels that wait for counters, and none is left behind.
func TestCUDAPlaces(t *testing.T) { testPlaces(newBoth(t)) }

// The same with kernels that are delayed at random.
func TestCUDAPlacesLate(t *testing.T) { testPlaces(bothOf(t, "late")) }

func testPlaces(b *both) {
	b.placed(true, func(name string, got, want []uint32) { b.equal(name, got, want) })
}

// Kernels that take what a place has without looking give other bits: the tests above would notice.
func TestCUDAPlacesNoticeEmptyOnes(t *testing.T) {
	differ := 0
	bothOf(t, "untagged").placed(false, func(_ string, got, want []uint32) {
		if !slices.Equal(got, want) {
			differ++
		}
	})
	if differ == 0 {
		t.Error("kernels that take empty places give the same bits: the tests of sums in places see nothing")
	}
}

// A sum that is no number is never taken for an empty place, whatever the bits of the values that it comes from.
func TestCUDAPlacesOfWhatIsNoNumber(t *testing.T) {
	b := newBoth(t)
	const most = 100
	for _, s := range manyShapes {
		w, workspace := b.matrix(kernels.BF16, s.outputs, s.cols)[1], b.workspaceFor(most, s.cols)
		for _, bits := range []uint32{0xffffffff, 0x7fffffff, 0xffffffff &^ 0x7fffff, 0x7f800000} {
			x := b.load(1, bytesOf(slices.Repeat([]uint32{bits}, most*s.cols)))
			before := slices.Repeat(viewOf[float32](bytesOf([]uint32{bits})), most*s.outputs)
			for _, of := range placedRows {
				name := fmt.Sprintf("%#x, %d to %d, %d rows of class %v", bits, s.cols, s.outputs, of.rows, of.class)
				if v, found := notNumber(viewOf[float32](bytesOf(b.project(w, x, before, workspace, of.class, of.rows)))); !found {
					t.Errorf("%s: %v", name, v)
				}
				b.placesAreEmpty(name, workspace)
			}
		}
	}
}
