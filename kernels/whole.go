package kernels

import "reel.internal/reel/kernels/internal/tune"

// The kernels of whole output tiles (gemm/whole.cuh) multiply a long prompt's rows: a block computes an output tile for
// up to wholeTokens rows, slice by slice, so that the bits are those of stream-K.
const (
	wholeTokens  = 192 // rows of a token tile, at most
	wholeStages  = 3   // K blocks of activations and weights in shared memory
	wholeThreads = 512 // of a block
	// wholeFixed is the time of a K block beside that of its rows, in rows: copies of weights, and their way to
	// registers.
	wholeFixed = 85
	// leastWhole is the number of rows from which on these kernels are the faster ones whatever the product.
	leastWhole = 640
)

// wholeSuits reports whether the kernels of whole output tiles are the faster ones for n rows, by measurement: of many
// rows, and from three token tiles of stream-K on, but for products with more output tiles than slices, the gates of
// large models (notes/stream_k.md).
func (s sliceShape) wholeSuits(n int) bool {
	if tune.StreamKTokens != 0 {
		return tune.StreamKTokens == wholeTokens
	}
	return n >= leastWhole || n > 2*maxStreamKTokens && s.slices >= s.tiles
}

// wholeTiles divides n rows of a product of so many output tiles into an even number of token tiles, for clusters of two
// blocks: as many as take sms SMs the least time. The last one may come out empty.
func wholeTiles(n, outputTiles, sms int) (tiles, tokens int) {
	least := splitsOf(n, 2*wholeTokens)
	best, bestCost := least, 0
	for pairs := least; pairs <= 2*least; pairs++ {
		rounds := splitsOf(outputTiles*pairs, max(1, sms/2))
		if cost := rounds * (wholeFixed + wholeInstruction(splitsOf(n, 2*pairs))); bestCost == 0 || cost < bestCost {
			best, bestCost = pairs, cost
		}
	}
	return 2 * best, splitsOf(splitsOf(n, 2*best), 8) * 8
}

// wholeInstruction returns the rows for which a tile of so many is multiplied: those of an instruction of the kernel.
func wholeInstruction(tokens int) int {
	for _, rows := range []int{128, 160, 176} {
		if tokens <= rows {
			return rows
		}
	}
	return wholeTokens
}
