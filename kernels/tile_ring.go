package kernels

// Rings of slices of row tiles over quantised weights in shared memory (kernels/gemm/tile_ring.cuh).

const (
	tileRingMost = 48   // stages
	sliceColumns = 1024 // of a stage, at least those of eight bricks
)

// tileRing is a ring for row tiles of a format and a number of columns.
type tileRing struct {
	parts  int // partial sums that have bricks
	slices int // stages of a row tile
	stage  int // bytes of a stage
}

// newTileRing returns the ring for row tiles of cols columns.
func newTileRing(d DType, cols int) tileRing {
	b := &bricks[d]
	n, most := b.count(cols), max(codesParts, sliceColumns/b.columns)
	return tileRing{parts: min(codesParts, n), slices: (n + most - 1) / most, stage: min(n, most) * b.bytes()}
}
