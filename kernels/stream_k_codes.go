package kernels

import "slices"

// Prompts over quantised weights. On Hopper stream-K multiplies the usual formats; the ring in shared memory holds
// their codes.

// codesTokenTiles are the token tiles of their kernels.
var codesTokenTiles = []int{16, 56, 104, 208}

// streamsCodes reports whether stream-K has kernels for all of the weights.
func streamsCodes(weights []Weight) bool {
	return !slices.ContainsFunc(weights, func(w Weight) bool {
		return w.Layout != Codes || !slices.Contains(usualFormats, w.DType)
	})
}

// tokenBlockBytes is the bytes of a token's rounded activations of a K block.
const tokenBlockBytes = 2 * kBlockCols

// codesRing returns the stages of quantised weights that fit into shared memory beside a token tile, and the bytes of
// shared memory with them; stream_k.cuh has the same numbers.
func codesRing(t DType, tokens int) (stages, shared int) {
	const most, room = 28, 227 << 10
	b := &bricks[t]
	stage := streamKTiles*(b.quarterBytes()+b.scaleBytes) + tokens*tokenBlockBytes
	header := roundUp1024(512+4*tokens) + roundUp1024(16*tokens)
	stages = min((room-header)/stage, most)
	return stages, header + stages*stage
}

// roundUp1024 rounds n up to a multiple of 1,024.
func roundUp1024(n int) int { return (n + 1023) &^ 1023 }
