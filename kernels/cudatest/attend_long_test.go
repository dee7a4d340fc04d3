//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// prefillVariant is a way to launch prefill attention. None changes a result.
type prefillVariant struct {
	name       string
	stages     int
	even, once bool
}

func (v prefillVariant) set() {
	tune.PrefillStages, tune.EvenSplits, tune.ReadOnce = v.stages, v.even, v.once
}

// The launcher's choice, and then all variants, the first of which is as before version 10 (kernels/notes).
var (
	prefillAsChosen = prefillVariant{"as-chosen", 0, true, true}
	prefillVariants = []prefillVariant{{"as-before", 2, false, false}, {"even", 2, true, false},
		{"3-stages", 3, false, false}, {"even-3-stages", 3, true, false}, {"even-2-stages-once", 2, true, true},
		{"3-stages-once", 3, false, true}, {"4-stages", 4, true, true}}
)

// longShapes have contexts of many splits: more than blocks share them, and fewer; short ones at the first positions
// only, long ones that are no multiple of the blocks, and windows that begin within a split.
var longShapes = []struct{ heads, kvHeads, d, context, window int }{
	{32, 8, 128, 100016, 0}, {32, 8, 64, 70000, 0}, {8, 4, 96, 40500, 0}, {6, 6, 40, 33000, 0}, {32, 32, 128, 8200, 0},
	{16, 2, 128, 30000, 5000}, {16, 2, 64, 30000, 20000}, {64, 1, 64, 20000, 0}, {32, 8, 128, 4016, 0},
}

// rowsOfTwo makes the rows of a the last of the slot with the longest sequence and, for every fourth, those of another,
// n in all.
func (a *attending) rowsOfTwo(n int) {
	var ends []kernels.Row
	for i, r := range a.row {
		if i == len(a.row)-1 || a.row[i+1].Slot != r.Slot {
			ends = append(ends, r)
		}
	}
	a.prefill, a.row = true, nil
	add := func(end kernels.Row, n int) {
		for p := max(0, int(end.Position)+1-n); p <= int(end.Position); p++ {
			a.row = append(a.row, kernels.Row{Slot: end.Slot, Position: int32(p)})
		}
	}
	add(ends[1], n-n/4)
	add(ends[3], n/4)
	a.query = a.normal(len(a.row)*a.heads*a.kv[0].HeadDim, 1)
}

// A few rows of a long context have the same bits in whatever order and by however many blocks its splits are computed:
// those of one block that computes all splits in their order.
func TestCUDAPrefillAttendOfLongContexts(t *testing.T) {
	defer func() { tune.ParallelSplits, tune.ShareMerge = true, true }()
	defer prefillAsChosen.set()
	for _, c := range longShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.window = c.window
		for _, n := range []int{1, 3, 16, 33, 64} {
			a.rowsOfTwo(n)
			all := indices(len(a.row))
			tune.ParallelSplits = false
			want := bits32(a.attend(all, len(all), false))
			tune.ParallelSplits = true
			for _, tune.ShareMerge = range []bool{true, false} {
				for _, v := range append(prefillVariants, prefillAsChosen) {
					v.set()
					name := fmt.Sprintf("%d rows, %d heads over %d of size %d, window %d of %d, %s, all merge: %t", n, c.heads,
						c.kvHeads, c.d, c.window, c.context, v.name, tune.ShareMerge)
					a.equal(name, bits32(a.attend(all, len(all), false)), want)
				}
			}
		}
	}
}

// The same rows equal the host's.
func TestCUDAPrefillAttendOfLongContextsEqualsHost(t *testing.T) {
	for _, c := range []struct{ heads, kvHeads, d, context int }{{8, 2, 128, 20000}, {4, 2, 64, 40016}, {4, 1, 96, 9000}} {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.rowsOfTwo(16)
		a.attend(indices(len(a.row)), len(a.row), true)
	}
}

// BenchmarkCUDAPrefillAttendVariants measures a layer's attention by each variant, one after another in each pass, for
// the last rows of a sequence: few of a long one, and prompts, which no variant should slow down.
func BenchmarkCUDAPrefillAttendVariants(t *testing.B) {
	variants := append([]prefillVariant{prefillAsChosen}, prefillVariants...)
	for _, shape := range []struct {
		name              string
		heads, kvHeads, d int
	}{{"7B", 32, 32, 128}, {"8B", 32, 8, 128}, {"1B", 32, 8, 64}} {
		for _, c := range []struct{ rows, n, layers int }{{16, 100016, 2}, {16, 32016, 4}, {16, 8016, 8}, {16, 4016, 16},
			{128, 8192, 8}, {512, 8192, 4}, {1, 1, 16}, {10, 10, 16}, {100, 100, 16}, {400, 400, 16}} {
			if shape.name == "7B" && c.n > 8192 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d-rows-of-%d", shape.name, c.rows, c.n), func(t *testing.B) {
				b := newBoth(t)
				defer prefillAsChosen.set()
				ops := b.prefillLayers(shape.heads, shape.kvHeads, shape.d, c.rows, c.n, c.layers)
				each := make([]float64, len(variants))
				for t.Loop() {
					b.timeVariants(variants, each, ops...)
				}
				for i, v := range variants {
					t.ReportMetric(each[i]*1e6/float64(c.layers), "µs/layer-"+v.name)
				}
				bytes := 4 * float64(c.n*shape.kvHeads*shape.d*c.layers)
				t.ReportMetric(bytes/each[0]/1e9, "GB/s")
			})
		}
	}
}

// timeVariants sets each[i] to the seconds that the ops take by variants[i].
func (b *both) timeVariants(variants []prefillVariant, each []float64, ops ...device.Op) {
	for i, v := range variants {
		v.set()
		took := b.replayTimes(20, ops...)
		each[i] = took[len(took)/2].Seconds()
	}
}
