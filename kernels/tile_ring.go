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

// fewTiles returns the stages and the bytes of shared memory of the kernel of 2 to 8 rows (codes_tiles.cuh). It returns
// no stages if the rows leave no room. Two row tiles have stages in turn, so they are even in number: the same warps
// always wait for a stage, and for each of its uses.
func fewTiles(d DType, rows, cols int) (stages, shared int) {
	const static = 25 << 10 // bytes of shared memory, at most
	r := newTileRing(d, cols)
	row, sums := codesRowBytes(d, cols)
	rest := rows*row + sums
	if stages = min((blockShared-static-rest)/r.stage, tileRingMost) &^ 1; stages < 4 {
		return 0, 0
	}
	return stages, rest + stages*r.stage
}
