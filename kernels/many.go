package kernels

import (
	"sync"

	"reel.internal/reel/kernels/internal/tune"
)

// The kernels of many generated rows (gemm/many.cuh) cut a product's work into slices, one for each block. An output
// tile is streamKTiles tiles of 16 outputs, and each has sumParts partial sums. A slice is a run of them, over one
// output tile after another. The order of sums is that of every decode kernel, whatever the slices.
const sumParts = 16

// Costs of a block beside multiplying, in percent of the time of a partial sum.
const (
	manyFinishCost = 100 // passing the results of an output tile to the op
	manyPassCost   = 50  // storing what another block finishes
)

// partStart is the first partial sum of a slice: an output tile, and a partial sum of it.
type partStart struct{ tile, part int }

// manySlices are a product's slices: the start of each, and the end of the last one. perTile is the number of slices
// of each output tile, if each slice lies within one, and otherwise 0: then a slice whose last output tile is begun
// leaves its sums to the next slice.
type manySlices struct {
	perTile int
	starts  []partStart
}

func (s manySlices) count() int { return len(s.starts) - 1 }

// manyCuts caches slices by output tiles and blocks.
var manyCuts sync.Map

// cutMany cuts a product of so many output tiles into at most blocks slices, so that all take about as long.
func cutMany(tiles, blocks int) manySlices {
	key := [2]int{tiles, blocks}
	if known, ok := manyCuts.Load(key); ok {
		return known.(manySlices)
	}
	s := cutManyNow(tiles, blocks)
	manyCuts.Store(key, s)
	return s
}

func cutManyNow(tiles, blocks int) manySlices {
	for _, each := range []int{8, 4, 2} {
		if tiles*each <= blocks {
			return cutRuns(tiles, sumParts/each, each)
		}
	}
	if tiles <= blocks {
		// Whole groups of four partial sums, so that a block that goes on with another one's output tile needs its
		// sums as late as possible.
		const group = 4
		return cutRuns(tiles, group*splitsOf(sumParts/group*tiles, blocks), 0)
	}
	return manySlices{starts: cutBalanced(tiles, blocks)}
}

// cutRuns cuts slices of length partial sums.
func cutRuns(tiles, length, perTile int) manySlices {
	s := manySlices{perTile: perTile}
	for at := 0; at < tiles*sumParts; at += length {
		s.starts = append(s.starts, partStart{at / sumParts, at % sumParts})
	}
	s.starts = append(s.starts, partStart{tiles, 0})
	return s
}

// cutBalanced cuts slices of at least sumParts partial sums, which take about as long as one another.
func cutBalanced(tiles, blocks int) []partStart {
	least, most := 0, 100*sumParts*tiles+manyFinishCost*tiles+manyPassCost
	for least < most {
		if middle := (least + most) / 2; len(cutLongest(tiles, middle)) > blocks+1 {
			least = middle + 1
		} else {
			most = middle
		}
	}
	return cutLongest(tiles, least)
}

// cutLongest cuts the longest slices that take a block no longer than most, but each at least as long as an output
// tile, so that no tile has more than two.
func cutLongest(tiles, most int) (starts []partStart) {
	most = max(most, 100*sumParts+manyFinishCost)
	at := partStart{}
	for starts = append(starts, at); at.tile < tiles; starts = append(starts, at) {
		took := 0
		for at.tile < tiles && took+100*(sumParts-at.part)+manyFinishCost <= most {
			took += 100*(sumParts-at.part) + manyFinishCost
			at = partStart{at.tile + 1, 0}
		}
		if at.tile < tiles {
			at.part += min(max(most-took-manyPassCost, 0)/100, sumParts-1-at.part)
		}
	}
	return starts
}

// manyKernel is a kernel of many generated rows: the most rows of a block, and the K blocks of rows and of weights that
// it has in shared memory.
type manyKernel struct{ rows, rowsAhead, weightsAhead int }

// manyKernels are those of REEL_PRODUCT_OF in gemm/product.cuh.
var manyKernels = []manyKernel{{16, 12, 12}, {32, 10, 10}, {64, 8, 8}, {128, 5, 5}}

// manyKernelOf returns the kernel for n rows.
func manyKernelOf(n int) manyKernel {
	for _, k := range manyKernels {
		if n <= k.rows {
			return k
		}
	}
	return manyKernels[len(manyKernels)-1]
}

// manyBytes bounds the part of [Workspace].Partials that such a kernel uses for n rows: places and counters, or two planes
// of float32 [rows][128] for each block after them.
func manyBytes(n int) int64 {
	if manyKernelOf(n).rows <= placedRows {
		return ClearedBytes
	}
	return ClearedBytes + 2*int64(tune.MaxWorkSlices)*streamKTiles*tileRows*int64(manyKernelOf(n).rows)*4
}

// shared returns the bytes of shared memory of a block: what its epilogue looks up, both rings, and sums.
func (k manyKernel) shared() int {
	const outputs, row = streamKTiles * tileRows, 2 * kBlockCols
	return roundUp1024(512+20*k.rows) + k.rowsAhead*k.rows*row + k.weightsAhead*outputs*row + 4*outputs*k.rows
}
