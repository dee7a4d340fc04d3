//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/internal/tune"
)

// longShapes have contexts of many splits: more than blocks share them, and fewer; short ones at the first positions
// only, long ones that are no multiple of the blocks, and windows that begin within a split.
var longShapes = []struct{ heads, kvHeads, d, context, window int }{
	{32, 8, 128, 100016, 0}, {32, 8, 64, 70000, 0}, {8, 4, 96, 40500, 0}, {6, 6, 40, 33000, 0}, {32, 32, 128, 8200, 0},
	{16, 2, 128, 30000, 5000}, {16, 2, 64, 30000, 20000}, {64, 1, 64, 20000, 0}, {32, 8, 128, 4016, 0},
	{8, 4, 256, 20000, 0}, {8, 2, 192, 9000, 3000},
}

// ends returns the last row of each sequence in a.
func (a *attending) ends() (ends []kernels.Row) {
	for i, r := range a.row {
		if i == len(a.row)-1 || a.row[i+1].Slot != r.Slot {
			ends = append(ends, r)
		}
	}
	return ends
}

// rowsBefore makes the rows of a the last of two sequences that end with these rows: n in all, every fourth of them of
// the second sequence.
func (a *attending) rowsBefore(first, second kernels.Row, n int) {
	a.prefill, a.row = true, nil
	add := func(end kernels.Row, n int) {
		for p := max(0, int(end.Position)+1-n); p <= int(end.Position); p++ {
			a.row = append(a.row, kernels.Row{Slot: end.Slot, Position: int32(p)})
		}
	}
	add(first, n-n/4)
	add(second, n/4)
	a.query = a.normal(len(a.row)*a.heads*a.kv[0].HeadDim, 1)
}

// A few rows of a long context have the same bits by however many blocks, and in whatever order, its splits are
// computed: those of one block that computes all splits in their order.
func TestCUDAPrefillAttendOfLongContexts(t *testing.T) {
	defer func() { tune.ParallelSplits, tune.ShareMerge, tune.PrefillQueries = true, true, 0 }()
	for _, c := range longShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.window = c.window
		ends := a.ends() // of which slot 1 has the longest sequence
		for _, n := range []int{1, 3, 16, 33, 64} {
			a.rowsBefore(ends[1], ends[3], n)
			all := indices(len(a.row))
			tune.ParallelSplits = false
			want := bits32(a.attend(all, len(all), false))
			a.numbers(want)
			tune.ParallelSplits = true
			for _, tune.ShareMerge = range []bool{true, false} {
				for _, tune.PrefillQueries = range prefillTiles {
					name := fmt.Sprintf("%d rows of %+v, tiles of %d, all merge: %t", n, c, tune.PrefillQueries,
						tune.ShareMerge)
					a.equal(name, bits32(a.attend(all, len(all), false)), want)
				}
			}
			tune.ShareMerge, tune.PrefillQueries = true, 0
		}
	}
}

// The same rows equal the host's.
func TestCUDAPrefillAttendOfLongContextsEqualsHost(t *testing.T) {
	for _, c := range []struct{ heads, kvHeads, d, context int }{{8, 2, 128, 20000}, {4, 2, 64, 40016},
		{4, 1, 96, 9000}, {4, 2, 256, 9000}} {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		ends := a.ends()
		a.rowsBefore(ends[1], ends[3], 16)
		a.attend(indices(len(a.row)), len(a.row), true)
	}
}
