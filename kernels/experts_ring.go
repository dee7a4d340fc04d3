package kernels

// Products of experts over quantised weights on Hopper, whose bricks come through a ring in shared memory.

// Of kernels/gemm/experts_ring.cuh and experts.cu.
const (
	expertRingThreads = 640
	expertRingStatic  = 24 << 10 // bytes of static shared memory, at most
	expertWarps       = 16       // that multiply
	downRingThreads   = 288
	downRingStatic    = 8 << 10

	// expertRingBytes is what the ring of one row's gates holds, rounded up to stages, as fewRingBytes.
	expertRingBytes = 80 << 10
)

// expertRing returns the stages and the bytes of shared memory of the kernel for units of `tiles` row tiles and up to
// `rows` rows, or no stages if they do not fit. All warps meet after a batch of units. Within it a stage is either
// used once, or by the same warps each time. Otherwise a warp could take a use of a stage that is not filled yet for
// its own, two uses later.
func expertRing(d DType, cols, rows, tiles int) (stages, shared int) {
	r := newTileRing(d, cols)
	row, sums := codesRowBytes(d, cols)
	rest := rows*row + sums
	stages = min((blockShared-expertRingStatic-rest)/r.stage, tileRingMost)
	units := expertWarps / r.parts / tiles // of a batch
	least := 2 * tiles
	if units > 1 {
		least = max(least, units*tiles*r.slices)
	}
	if rows == 1 {
		stages = min(stages, max(least, splitsOf(expertRingBytes, r.stage)))
	}
	if units == 1 && stages < tiles*r.slices {
		stages -= stages % tiles // the stages of a row tile are always its own
	}
	if stages < least {
		return 0, 0
	}
	return stages, rest + stages*r.stage
}

// expertDownRing returns those of the kernel of one row for `used` experts of at least eight bricks. A warp then takes
// each slice in turn, so uses of a stage follow each other. Of narrower experts the kernel without a ring is as fast.
func expertDownRing(d DType, cols, used int) (stages, shared int) {
	r := newTileRing(d, cols)
	row, sums := codesRowBytes(d, cols)
	rest := used*row + sums
	for _, room := range []int{halfShared, blockShared} {
		stages = min((room-downRingStatic-rest)/r.stage, tileRingMost, used*r.slices)
		if stages >= 4 && r.parts == codesParts {
			return stages, rest + stages*r.stage
		}
	}
	return 0, 0
}
