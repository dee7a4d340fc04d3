package kernels

import "testing"

// Slices cover every partial sum of every output tile once, in order. There are no more than blocks, and none is
// empty. Whether a slice lies within an output tile is the same for all.
func TestSlicesOfManyRowsCoverEveryPartialSumOnce(t *testing.T) {
	for _, blocks := range []int{1, 2, 7, 33, 66, 114, 132} {
		for tiles := 1; tiles <= 1300; tiles += 1 + tiles/40 {
			s := cutMany(tiles, blocks)
			if n := s.count(); n < 1 || n > blocks || n+1 > maxSliceStarts {
				t.Fatalf("%d tiles, %d blocks: %d slices", tiles, blocks, n)
			}
			if first, last := s.starts[0], s.starts[s.count()]; first != (partStart{}) || last != (partStart{tiles, 0}) {
				t.Fatalf("%d tiles, %d blocks: from %v to %v", tiles, blocks, first, last)
			}
			for i, start := range s.starts[1:] {
				checkManySlice(t, s, tiles, blocks, s.starts[i], start)
			}
		}
	}
}

// checkManySlice checks what the kernel assumes of a slice. A block goes through its output tiles from the last one
// on. What it leaves of the last one must not wait for another block longer than that one needs for its own share: so
// it begins the tile, or the slice begins and ends with a group of four.
func checkManySlice(t *testing.T, s manySlices, tiles, blocks int, from, to partStart) {
	t.Helper()
	length := to.tile*sumParts + to.part - from.tile*sumParts - from.part
	within := to.tile == from.tile || to.tile == from.tile+1 && to.part == 0
	groups := from.part%4 == 0 && to.part%4 == 0
	switch {
	case length <= 0:
		t.Fatalf("%d tiles, %d blocks: a slice from %v to %v", tiles, blocks, from, to)
	case s.perTile > 0 && (!within || length*s.perTile != sumParts):
		t.Fatalf("%d tiles, %d blocks: %d slices of each tile, one from %v to %v", tiles, blocks, s.perTile, from, to)
	case s.perTile == 0 && to.tile == from.tile && !groups:
		t.Fatalf("%d tiles, %d blocks: a slice from %v to %v", tiles, blocks, from, to)
	}
}

// Blocks take about as long as one another: the slowest at most a tenth longer than all together need.
func TestSlicesOfManyRowsAreEven(t *testing.T) {
	for _, tiles := range []int{172, 250, 1002} {
		s, most := cutMany(tiles, 132), 0
		for i, to := range s.starts[1:] {
			from := s.starts[i]
			took := 100*(to.tile*sumParts+to.part-from.tile*sumParts-from.part) + manyFinishCost*(to.tile-from.tile)
			if to.part > 0 {
				took += manyPassCost
			}
			most = max(most, took)
		}
		if all := tiles * (100*sumParts + manyFinishCost); most*132 > all+all/10 {
			t.Errorf("%d tiles: a block takes %d, all %d", tiles, most, all/132)
		}
	}
}

// 7B's products have slices for nearly all SMs.
func TestSlicesOf7B(t *testing.T) {
	for _, c := range []struct{ tiles, count, perTile int }{{96, 128, 0}, {32, 128, 4}, {172, 129, 0}, {250, 130, 0},
		{16, 128, 8}} {
		if s := cutMany(c.tiles, 132); s.count() < c.count || s.perTile != c.perTile {
			t.Errorf("%d tiles: %d slices, %d per tile; wants %d at least, and %d", c.tiles, s.count(), s.perTile, c.count,
				c.perTile)
		}
	}
}

// A block of every kernel of many rows fits into an SM's shared memory.
func TestManyKernelsFit(t *testing.T) {
	for _, k := range manyKernels {
		if n := k.shared(); n > 227<<10 {
			t.Errorf("%+v: %d bytes", k, n)
		}
	}
}
