package kernels

// Products of experts over quantised weights on Hopper, whose bricks come through a ring in shared memory.

// Of kernels/gemm/experts_ring.cuh and experts.cu.
const (
	expertRingThreads = 640
	expertRingStatic  = 24 << 10 // bytes of static shared memory, at most
	expertRingMost    = 48       // stages
	expertWarps       = 16       // that multiply
	downRingThreads   = 288
	downRingStatic    = 8 << 10
	sliceColumns      = 1024 // of a stage, at least those of eight bricks
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

// expertRing returns the stages and the bytes of shared memory of the kernel for units of tiles row tiles and up to rows
// rows. It returns no stages if they do not fit. All warps meet after a batch of units, and before it none is ahead of
// another by more than the batch: a stage is either used once in it, or by the same warps each time. Otherwise a warp could
// take a use of a stage that is not filled for its own, two uses later.
func expertRing(d DType, cols, rows, tiles int) (stages, shared int) {
	r := newTileRing(d, cols)
	row, sums := codesRowBytes(d, cols)
	rest := rows*row + sums
	stages = min((blockShared-expertRingStatic-rest)/r.stage, expertRingMost)
	units := expertWarps / r.parts / tiles // of a batch
	if units == 1 && stages < tiles*r.slices {
		stages -= stages % tiles // the stages of a row tile are always its own
	}
	if stages < 2*tiles || units > 1 && stages < units*tiles*r.slices {
		return 0, 0
	}
	return stages, rest + stages*r.stage
}

// expertDownRing returns those of the kernel of one row for `used` experts. A warp that has every eighth partial sum takes
// each slice in turn if there are eight; else the ring holds all slices, since it skips some.
func expertDownRing(d DType, cols, used int) (stages, shared int) {
	r := newTileRing(d, cols)
	row, sums := codesRowBytes(d, cols)
	rest, all := used*row+sums, used*r.slices
	for _, room := range []int{halfShared, blockShared} {
		stages = min((room-downRingStatic-rest)/r.stage, expertRingMost, all)
		if stages == all || stages >= 4 && r.parts == codesParts {
			return stages, rest + stages*r.stage
		}
	}
	return 0, 0
}
