//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/internal/tune"
)

// manyAttendShapes have long and short rows: more long ones than may share their splits, contexts of one split, pages
// beyond a row's end, and more query heads than a block takes.
var manyAttendShapes = []struct{ heads, kvHeads, d, context, window int }{
	{32, 32, 128, 4096, 0}, {32, 8, 128, 2300, 0}, {8, 2, 64, 4096, 300}, {12, 1, 96, 1100, 0}, {4, 4, 40, 128, 0},
	{16, 1, 128, 4000, 131}, {3, 3, 32, 700, 1}, {2, 2, 80, 9000, 0},
}

// attendAsMany has all steps of more than 8 rows go through the kernels of many rows, until the test ends.
func attendAsMany(t *testing.T) {
	before := tune.ManyAttend
	tune.ManyAttend = 0
	t.Cleanup(func() { tune.ManyAttend = before })
}

// A row of a step of many rows has the bits that it has alone, whatever the others' lengths, in any number of rows, and
// with the kernels of few rows.
func TestCUDAAttendOfManyRowsHasTheBitsOfOne(t *testing.T) {
	attendAsMany(t)
	for _, c := range manyAttendShapes {
		a := newAttending(newBoth(t), c.heads, c.kvHeads, c.d, c.context)
		a.window = c.window
		alone, width := a.alone(), c.heads*c.d
		for _, n := range []int{9, 16, 31, 64, 65, 100, 256, 700} {
			rows := make([]int, n)
			for i := range rows {
				rows[i] = a.r.IntN(len(a.row))
				if n > 90 && i%4 > 0 {
					rows[i] = a.longest()
				}
			}
			for _, tune.ManyAttend = range []int{0, math.MaxInt32} {
				got := bits32(a.attend(rows, n+a.r.IntN(3), false))
				for i, r := range rows {
					a.equal(fmt.Sprintf("%+v, row %d of %d", c, i, n), got[i*width:(i+1)*width], alone[r])
				}
			}
		}
	}
}

// alone returns the bits of each row alone.
func (a *attending) alone() (all [][]uint32) {
	for r := range a.row {
		all = append(all, bits32(a.attend([]int{r}, 1, false)))
	}
	return all
}

// longest returns the row that sees the most positions.
func (a *attending) longest() (longest int) {
	for r, row := range a.row {
		if row.Position > a.row[longest].Position {
			longest = r
		}
	}
	return longest
}

// Attention of many rows leaves its counters as it found them: the next launch, of other rows, has the same results.
func TestCUDAAttendOfManyRowsAgain(t *testing.T) {
	attendAsMany(t)
	a := newAttending(newBoth(t), 8, 8, 128, 2048)
	all, width := indices(len(a.row)), 8*128
	want := bits32(a.attend(all, len(all), true))
	for _, n := range []int{len(all), 9, 200, len(all)} {
		rows := all[:min(n, len(all))]
		a.equal("again", bits32(a.attend(rows, n, false)), want[:len(rows)*width])
		counters := read[uint32](a.both, 1, a.work)[:kernels.AttendSplitRows*a.heads+4]
		a.equal("counters", counters, make([]uint32, len(counters)))
	}
}
