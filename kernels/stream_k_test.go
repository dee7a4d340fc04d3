package kernels

import (
	"slices"
	"testing"
)

// Blocks that run side by side, as work_slices.cuh numbers them, take every slice for every
// token tile once. The slices of one output tile are in the same round, because their blocks
// wait for one another.
func TestBlocksPerSliceCoverEverySliceOnce(t *testing.T) {
	found := 0
	for side := 1; side <= 6; side++ { // CUDA wants a grid of whole clusters
		if n := clusterSize(side); side%n != 0 || side%2 == 0 && n != 2 {
			t.Errorf("%d blocks in clusters of %d", side, n)
		}
	}
	for slices := 1; slices <= 132; slices++ {
		for tiles := 1; tiles <= 140; tiles++ {
			for tokenTiles := 1; tokenTiles <= 6; tokenTiles++ {
				rounds, x, y := sliceShape{slices: slices, tiles: tiles}.grid(tokenTiles)
				if x*y > 132 || rounds > tokenTiles {
					t.Fatalf("%d slices, %d token tiles: %d rounds of %d·%d blocks", slices, tokenTiles, rounds, x, y)
				}
				if x > 1 {
					found++
					checkRounds(t, slices, tiles, tokenTiles, rounds, y)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no slices are processed side by side")
	}
	for _, c := range []struct{ slices, tiles, tokenTiles, rounds, x, y int }{{132, 172, 2, 2, 2, 66}, {128, 32, 2, 2, 2, 64},
		{132, 172, 5, 5, 1, 132}, {64, 32, 1, 1, 1, 64}, {64, 32, 2, 1, 2, 64}, {64, 32, 4, 2, 4, 32}, {32, 8, 4, 1, 4, 32},
		{96, 48, 4, 3, 4, 32}, {48, 8, 4, 2, 4, 24}} {
		if rounds, x, y := (sliceShape{slices: c.slices, tiles: c.tiles}).grid(c.tokenTiles); rounds != c.rounds || x != c.x || y != c.y {
			t.Errorf("%+v: %d rounds of %d·%d blocks", c, rounds, x, y)
		}
	}
}

func checkRounds(t *testing.T, slices, tiles, tokenTiles, rounds, abreast int) {
	t.Helper()
	roundOf := map[[2]int]int{} // by slice and token tile
	for row := range abreast {
		for round := range rounds {
			for tile := range tokenTiles {
				roundOf[[2]int{round*abreast + row, tile}] = round
			}
		}
	}
	if len(roundOf) != slices*tokenTiles {
		t.Fatalf("%d slices, %d token tiles: %d of %d processed", slices, tokenTiles, len(roundOf), slices*tokenTiles)
	}
	for at, round := range roundOf {
		if at[0] >= slices {
			t.Fatalf("%d slices, %d token tiles: slice %d", slices, tokenTiles, at[0])
		}
		if each := slices / tiles; each > 1 && slices%tiles == 0 &&
			roundOf[[2]int{at[0] / each * each, at[1]}] != round {
			t.Fatalf("%d slices of %d output tiles, %d token tiles: output tile %d is in several rounds", slices,
				tiles, tokenTiles, at[0]/each)
		}
	}
}

// Token tiles cover all tokens. None is empty or above the limit, there are as few as possible,
// and none is 8 tokens longer than an equal share.
func TestEvenTiles(t *testing.T) {
	for _, most := range []int{16, 56, 104, 208} {
		for n := 1; n <= 9000; n++ {
			tiles, tokens := evenTiles(n, most)
			if last := n - (tiles-1)*tokens; tokens%8 != 0 || tokens > most || last < 1 || last > tokens ||
				tiles > splitsOf(n, most) ||
				tokens >= splitsOf(n, splitsOf(n, most))+8 {
				t.Fatalf("%d tokens, at most %d per tile: %d tiles of %d", n, most, tiles, tokens)
			}
		}
	}
	if tiles, tokens := evenTiles(400, 208); tiles != 2 || tokens != 200 {
		t.Errorf("400 tokens are %d tiles of %d, wants 2 of 200", tiles, tokens)
	}
}

// Slices cover every K block of every output tile once, and none is empty. If each slice lies
// within one output tile, all tiles have the same number of slices.
func TestSlicesCoverEveryKBlockOnce(t *testing.T) {
	for rowTiles := 1; rowTiles <= 1500; rowTiles += 1 + rowTiles/9 {
		for i, cols := range []int{16, 64, 80, 512, 576, 2048, 4096, 11008, 16, 64, 80, 512, 576, 1040, 2048, 4096, 11008} {
			s := sliceShapeOf(rowTiles, cols, i >= 8)
			starts := s.starts()
			if len(starts) != s.slices+1 || s.slices >= maxSliceStarts || starts[0] != (sliceStart{}) ||
				starts[s.slices] != (sliceStart{s.tiles, 0}) {
				t.Fatalf("%+v: %v", s, starts)
			}
			for slice := range s.slices {
				from, to := starts[slice], starts[slice+1]
				if from.tile*s.kBlocks+from.kBlock >= to.tile*s.kBlocks+to.kBlock || from.kBlock >= s.kBlocks {
					t.Fatalf("%+v: slice %d is from %v to %v", s, slice, from, to)
				}
				if each := slicesPerTile(s.slices, s.tiles); each > 0 &&
					(from.tile != slice/each || slice%each == 0 && from.kBlock != 0) {
					t.Fatalf("%+v: slice %d starts at %v", s, slice, from)
				}
			}
		}
	}
}

// blockCost returns how long a block takes for a slice, in K blocks, as measured at 7B
// (notes/stream_k.md): 7 more for the epilogue of an output tile, 3 for storing partials, and the 7 of
// the waiting block's epilogue if the slice ends no output tile.
func blockCost(starts []sliceStart, kBlocks, slice int) int {
	from, to := starts[slice], starts[slice+1]
	took := (to.tile-from.tile)*(kBlocks+7) + to.kBlock - from.kBlock
	if to.kBlock > 0 {
		took += 3
	}
	if to.tile == from.tile {
		took += 7
	}
	return took
}

// The longest block takes no longer than with slices of equal length, but for a K block of
// rounding. For gate and up at 7B it takes less.
func TestSlicesAreBalanced(t *testing.T) {
	longest := func(starts []sliceStart, kBlocks int) (most int) {
		for slice := range len(starts) - 1 {
			most = max(most, blockCost(starts, kBlocks, slice))
		}
		return most
	}
	for tiles := 1; tiles <= 300; tiles++ {
		for _, kBlocks := range []int{14, 32, 64, 172} {
			s := sliceShapeOf(tiles*streamKTiles, kBlocks*kBlockCols, false)
			if s.tiles != tiles || s.kBlocks != kBlocks {
				t.Fatalf("%d output tiles of %d K blocks: %+v", tiles, kBlocks, s)
			}
			if got, even := longest(s.starts(), kBlocks), longest(s.even(), kBlocks); got > even+1 {
				t.Fatalf("%+v: a block takes %d K blocks, with even slices %d", s, got, even)
			}
			// In whole partial sums, or groups of them, it takes at most a partial sum or a sixteenth longer.
			parts := sliceShapeOf(tiles*streamKTiles, kBlocks*kBlockCols, true)
			most := longest(s.starts(), kBlocks) + kBlocks/sumParts + 1 + s.tiles*kBlocks/s.slices/16
			if got := longest(parts.starts(), kBlocks); got > most {
				t.Fatalf("%+v: a block takes %d K blocks, in partial sums %d", s, longest(s.starts(), kBlocks), got)
			}
		}
	}
	gateUp := sliceShape{132, 172, 64, true}
	if got, even := longest(gateUp.starts(), 64), longest(gateUp.even(), 64); got != 96 || even <= got {
		t.Errorf("gate and up: %d K blocks, even %d", got, even)
	}
	if qkv := (sliceShape{132, 96, 64, false}); !slices.Equal(qkv.starts(), qkv.even()) {
		t.Error("q, k, v do not have even slices, which are fewer")
	}
}

// Slices of weights of 16 bits are whole partial sums of the decode class where an output tile has a number of slices that
// divides theirs, and whole groups of them where slices are somewhat shorter than an output tile. The shapes of 7B, 8B and
// 1B have kernels of mixed passes; those whose output tiles have six slices, as qwen3-4b's, have not.
func TestSlicesOfWholePartialSums(t *testing.T) {
	for _, c := range []struct {
		rowTiles, cols, slices, each int // K blocks of a slice, 0: they differ
		mixes                        bool
	}{
		{3 * 256, 4096, 128, 48, true}, // 7B: QKV, output, gate and up, down
		{256, 4096, 128, 16, true},
		{2 * 688, 4096, 132, 0, true},
		{256, 11008, 128, 0, true},
		{6144 / 16, 4096, 96, 32, true}, // 8B
		{2 * 896, 4096, 132, 0, true},
		{256, 14336, 128, 56, true},
		{3072 / 16, 2048, 96, 8, true}, // 1B
		{128, 2048, 64, 8, true},
		{2 * 512, 2048, 128, 32, true},
		{128, 8192, 128, 16, true},
		{160, 9728, 120, 0, false}, // 4B: down
		{56, 896, 12, 0, false},    // 0.5B: output
	} {
		s := sliceShapeOf(c.rowTiles, c.cols, true)
		starts := s.starts()
		if s.slices != c.slices || s.mixes() != c.mixes {
			t.Errorf("%d row tiles, %d columns: %d slices, mixes: %v; wants %d, %v", c.rowTiles, c.cols, s.slices,
				s.mixes(), c.slices, c.mixes)
			continue
		}
		for i := range s.slices {
			from, to := starts[i], starts[i+1]
			if n := (to.tile-from.tile)*s.kBlocks + to.kBlock - from.kBlock; c.each > 0 && n != c.each {
				t.Errorf("%d row tiles, %d columns: slice %d has %d K blocks, wants %d", c.rowTiles, c.cols, i, n, c.each)
			}
		}
	}
	down := sliceShapeOf(256, 11008, true).starts()
	if want := []sliceStart{{0, 0}, {0, 44}, {0, 88}, {0, 132}, {1, 0}}; !slices.Equal(down[:5], want) {
		t.Errorf("down of 7B: slices begin at %v, wants %v", down[:5], want)
	}
}

// Any slices have places for one token tile, and for as many as they process side by side. Places end where the counters
// begin, and these where sums without places do.
func TestPlacesOfSlices(t *testing.T) {
	for slices := 1; slices < maxSliceStarts; slices++ {
		s := sliceShape{slices: slices, tiles: slices, kBlocks: 64}
		for _, rows := range []int{16, 56, placedRows} {
			for tiles := 1; tiles == 1 || tiles*slices < maxSliceStarts; tiles++ {
				if !s.hasPlaces(rows, tiles) {
					t.Errorf("%d slices have no places for %d tiles of %d tokens", slices, tiles, rows)
				}
			}
		}
		if s.hasPlaces(placedRows, 1+2*maxSliceStarts/slices) || !s.hasPlaces(placedRows+1, 1000) {
			t.Errorf("%d slices have places for any number of tiles, or want some without", slices)
		}
	}
	for rows, want := range map[int]uint64{placedRows: 0, placedRows + 1: ClearedBytes} {
		arrivals, sums := exchangeAt(1<<40, rows)
		if arrivals != 1<<40+ClearedBytes-arrivalBytes || sums != 1<<40+want {
			t.Errorf("%d rows: counters at %#x, sums at %#x", rows, arrivals, sums)
		}
	}
}
