package kernels

import (
	"sync"

	"reel.internal/reel/kernels/internal/tune"
)

// The stream-K prefill GEMM divides a product's work among persistent blocks. An output tile
// is streamKTiles tiles of 16 outputs; its sum over the columns is cut into K blocks. A work
// slice is a run of consecutive K blocks, over one output tile after another; blocks that
// share an output tile add split-K partials. The slices fix the order of sums, so they depend
// on the weight's shape alone, never on the number of tokens.
// (Osama et al., "Stream-K: Work-Centric Parallel Decomposition for Dense Matrix-Matrix
// Multiplication on the GPU", 2023.)
const (
	streamKTiles = 8  // tiles of 16 outputs in an output tile
	kBlockCols   = 64 // columns of a K block
	// minKBlocks is the least average length of a work slice. With shorter ones adding
	// partials takes longer than computing them.
	minKBlocks = 8
)

// Costs of a block beside multiplying, in K blocks that it could multiply meanwhile (notes/stream_k.md).
const (
	epilogueCost = 7 // passing the results of an output tile to the op
	partialsCost = 3 // storing the partials of an output tile for another block
)

// sliceShape determines a product's work slices: their number, and the output tiles of
// kBlocks K blocks each. With inParts, which is so for weights of 16 bits, the K blocks of a tile come partial sum after
// partial sum of the decode class: so a kernel of generated rows can go through the same slices (gemm/mixed.cuh). Without,
// they ascend.
type sliceShape struct {
	slices, tiles, kBlocks int
	inParts                bool
}

// sliceShapeOf returns the shape for a weight of rowTiles tiles of 16 outputs and cols
// columns. If there are several slices for each output tile, it is the same number for each.
func sliceShapeOf(rowTiles, cols int, inParts bool) sliceShape {
	s := sliceShape{tiles: splitsOf(rowTiles, streamKTiles), kBlocks: splitsOf(cols, kBlockCols), inParts: inParts}
	s.slices = mostSlices(s.tiles, s.kBlocks)
	switch each := s.slices / s.tiles; {
	case each > 1:
		s.slices = each * s.tiles
	case each == 1 && s.slicesInGroups():
		s.slices = splitsOf(s.tiles*sumGroups, s.groupsOfSlice())
	}
	return s
}

// sumGroups is how many groups an output tile's partial sums have in the decode class.
const sumGroups = 4

// slicesInGroups reports whether slices are whole groups of partial sums. These are slices shorter than an output tile: a
// block that goes on with another one's tile then needs its sums for generated rows as late as possible. They take at most
// a sixteenth longer than slices of equal length.
func (s sliceShape) slicesInGroups() bool {
	return s.inParts && s.kBlocks >= sumParts && s.slices > s.tiles && s.slices < 2*s.tiles &&
		16*s.groupsOfSlice()*s.slices <= 17*sumGroups*s.tiles
}

// groupsOfSlice returns how many groups such a slice has.
func (s sliceShape) groupsOfSlice() int { return splitsOf(s.tiles*sumGroups, s.slices) }

// partStart returns how many K blocks come before partial sum p of an output tile.
func (s sliceShape) partStart(p int) int { return p*(s.kBlocks/sumParts) + min(p, s.kBlocks%sumParts) }

// mostSlices returns the most work slices of a product with so many output tiles, or fewer.
func mostSlices(tiles, kBlocks int) int {
	return min(tune.MaxWorkSlices, max(1, tiles*kBlocks/minKBlocks))
}

// slicesPerTile returns how many slices each output tile has if every slice lies within one
// tile, else 0. The blocks of such a tile each pass a share of its results to the op.
func slicesPerTile(slices, tiles int) int {
	if slices > tiles && slices%tiles == 0 {
		return slices / tiles
	}
	return 0
}

// slicesAbreast returns how many slices blocks process at the same time if each has a block for every tile of tokens,
// so that weights are read from memory once; or 0 if that takes more rounds than blocks that process a slice each, for
// one token tile after another. Blocks that share an output tile wait for one another, so they must run in the same
// round.
func slicesAbreast(slices, tiles, tokenTiles int) int {
	each := max(1, slicesPerTile(slices, tiles))
	for n := min(slices, tune.MaxWorkSlices/tokenTiles); n*tokenTiles >= slices; n-- {
		if slices%n == 0 && n%each == 0 {
			return n
		}
	}
	return 0
}

// grid returns the blocks side by side of a slice, and the slices side by side, and in how many rounds they process all
// slices for all token tiles.
func (s sliceShape) grid(tokenTiles int) (rounds, x, y int) {
	if n := slicesAbreast(s.slices, s.tiles, tokenTiles); n > 0 {
		return s.slices / n, tokenTiles, n
	}
	return tokenTiles, 1, s.slices
}

// clusterSize returns the thread block cluster for n blocks per slice. Two blocks of a cluster
// are close together, so one finds the weights that the other read in a near cache. Larger
// clusters do not fit everywhere: an H200 has room for only 30 clusters of four.
func clusterSize(n int) int { return 2 - n%2 }

// evenTiles divides n tokens into the fewest tiles of at most most tokens, all of one size but
// the last, which may be smaller. The size is a multiple of 8, as tensor cores take tokens.
// Even tiles are fastest because blocks wait for the longest one.
func evenTiles(n, most int) (tiles, tokens int) {
	tokens = splitsOf(splitsOf(n, splitsOf(n, most)), 8) * 8
	return splitsOf(n, tokens), tokens
}

// sliceStart is the first K block of a slice: an output tile, and a K block of it.
type sliceStart struct{ tile, kBlock int }

// sliceStarts caches the starts by sliceShape: each capture asks for them again.
var sliceStarts sync.Map

// starts returns the start of each slice, and after them the end of the last one.
func (s sliceShape) starts() []sliceStart {
	if known, ok := sliceStarts.Load(s); ok {
		return known.([]sliceStart)
	}
	starts := s.balanced()
	sliceStarts.Store(s, starts)
	return starts
}

// balanced cuts the slices so that all blocks finish at about the same time. The slices are
// of equal length if each lies within one output tile, or if balancing would leave some unused.
func (s sliceShape) balanced() []sliceStart {
	if s.slicesInGroups() {
		return s.inGroups()
	}
	if s.slices > 1 && slicesPerTile(s.slices, s.tiles) == 0 {
		least, most := s.tiles*s.kBlocks/s.slices, s.tiles*(s.kBlocks+epilogueCost)+partialsCost
		for least < most {
			if middle := (least + most) / 2; s.within(middle) != nil {
				most = middle
			} else {
				least = middle + 1
			}
		}
		if starts := s.within(least); len(starts) == s.slices+1 {
			return starts
		}
	}
	return s.even()
}

// inGroups cuts slices of whole groups of partial sums.
func (s sliceShape) inGroups() (starts []sliceStart) {
	for at := 0; at < s.tiles*sumGroups; at += s.groupsOfSlice() {
		starts = append(starts, sliceStart{at / sumGroups, s.partStart(at % sumGroups * (sumParts / sumGroups))})
	}
	return append(starts, sliceStart{s.tiles, 0})
}

// even cuts slices of equal length, of whole partial sums if an output tile has a number of slices that divides theirs.
func (s sliceShape) even() []sliceStart {
	starts := make([]sliceStart, s.slices+1)
	each := slicesPerTile(s.slices, s.tiles)
	wholeParts := s.inParts && each > 0 && sumParts%each == 0 && s.kBlocks >= sumParts
	for slice := range starts {
		if wholeParts {
			starts[slice] = sliceStart{slice / each, s.partStart(slice % each * sumParts / each)}
			continue
		}
		at := s.tiles * s.kBlocks * slice / s.slices
		starts[slice] = sliceStart{at / s.kBlocks, at % s.kBlocks}
	}
	return starts
}

// within cuts the longest slices that take a block no longer than most K blocks, costs
// included. It returns nil if that takes more slices than s has. A slice that contains no end
// of an output tile stores its partials as early as the block that needs them starts its
// epilogue.
func (s sliceShape) within(most int) []sliceStart {
	at := sliceStart{}
	starts := []sliceStart{at}
	for at.tile < s.tiles {
		if len(starts) > s.slices {
			return nil
		}
		took, ends := 0, false
		for at.tile < s.tiles && took+s.kBlocks-at.kBlock+epilogueCost <= most {
			took += s.kBlocks - at.kBlock + epilogueCost
			at, ends = sliceStart{at.tile + 1, 0}, true
		}
		if at.tile < s.tiles {
			more := most - took - partialsCost
			if !ends {
				more -= epilogueCost
			}
			if more = min(more, s.kBlocks-at.kBlock-1); more > partialsCost {
				at.kBlock += more
			} else if !ends {
				return nil
			}
		}
		starts = append(starts, at)
	}
	return starts
}

// maxSliceStarts is the capacity of the kernel argument slicePlan.
const maxSliceStarts = 134

// placedRows is PLACED_ROWS of gemm/places.cuh: kernels of at most so many rows leave their sums for other blocks in
// places. A slice has places for placesOfSlice rows: two planes of 64 generated rows, or one of several tiles of tokens.
const (
	placedRows    = 64
	placesOfSlice = 128
)

// [Workspace].Partials begins with places for float32 [slices][placesOfSlice][128]. After them come the arrival counters,
// through which blocks of larger kernels learn that partials are stored: two uint32 per slice and token tile.
const (
	sumPlacesBytes = (maxSliceStarts - 1) * placesOfSlice * streamKTiles * tileRows * 4
	arrivalBytes   = 1 << 16
)

// ClearedBytes is the size of the first part of [Workspace].Partials, which is zero between kernels: places and counters.
const ClearedBytes = sumPlacesBytes + arrivalBytes

// hasPlaces reports whether there are enough for kernels of so many rows, which process the given number of tiles of them.
func (s sliceShape) hasPlaces(rows, tiles int) bool {
	return rows > placedRows || s.slices*tiles*rows <= (maxSliceStarts-1)*placesOfSlice
}

// exchangeAt returns the addresses of the counters, and of the sums that blocks of kernels of so many rows leave for one
// another, in the Partials at an address.
func exchangeAt(partials uint64, rows int) (arrivals, sums uint64) {
	if rows <= placedRows {
		return partials + sumPlacesBytes, partials
	}
	return partials + sumPlacesBytes, partials + ClearedBytes
}

// maxStreamKTokens is the largest token tile of a block.
const maxStreamKTokens = 208

// PartialsBytes returns the size of [Workspace].Partials for a product over n rows of cols
// columns; outputs are the rows of each of its weights. The size is [ClearedBytes],
// then float32 [slices][tokens][128] partials, or what the kernels of many generated rows use.
func PartialsBytes(n, cols int, outputs ...int) int64 {
	tiles := 0
	for _, rows := range outputs {
		tiles += splitsOf(rows, tileRows)
	}
	return partialsBytes(n, tiles, cols)
}

func partialsBytes(n, rowTiles, cols int) int64 {
	// Weights of different formats have slices of their own, which may be more than those of all together.
	slices := mostSlices(splitsOf(rowTiles, streamKTiles), splitsOf(cols, kBlockCols))
	tokens := splitsOf(n, maxStreamKTokens) * maxStreamKTokens
	return max(ClearedBytes+int64(slices)*streamKTiles*tileRows*int64(tokens)*4, manyBytes(n))
}
