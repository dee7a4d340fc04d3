package kernels

// Products over quantised weights on Hopper that read bricks from a ring in shared memory.

// Of kernels/gemm/codes.cuh.
const (
	codesTokens = 8        // rows that a block rounds at a time, at most
	codesParts  = 8        // partial sums
	tokenPitch  = 20       // floats of a token's 16 results
	codesStatic = 26 << 10 // bytes of a block's static shared memory, at most
)

// Of kernels/gemm/brick_ring.cuh, codes_ring.cuh and codes_many.cuh.
const (
	ringTiles  = 2       // row tiles of a stage of small bricks, and of a block of few rows at a time
	ringMost   = 24      // stages
	ringLarge  = 1200    // bytes of a brick; larger ones are large
	ringStatic = 4 << 10 // bytes of static shared memory at most, and those that the driver takes
	manyTiles  = 4       // row tiles of a block of many rows at a time
	manyStatic = 2 << 10

	blockShared = 227 << 10 // bytes of shared memory that a block may use
	halfShared  = 114 << 10 // of an SM, for one of two blocks

	// fewRingBytes is what a ring of few rows holds, of one of two blocks. A larger one would take L1 from the kernels
	// before and after it, whose loads of weights are in flight there (notes/quantised.md, version 8).
	fewRingBytes = 45 << 10
)

// smsOf returns on how many of a GPU's SMs a product of few rows has a block. A block fills its SM, and in each round it
// computes perBlock units. If the product then needs no more rounds, it leaves some SMs to the next kernel, whose blocks
// could begin nowhere else before this one's end.
func smsOf(units, perBlock, sms, leaves int) int {
	rounds := func(blocks int) int { return splitsOf(units, blocks*perBlock) }
	if few := sms - leaves; few > 0 && rounds(few) == rounds(sms) {
		return few
	}
	return sms
}

// ringStages returns how many stages of a ring fit into room bytes, and the bytes of each. A stage has the bricks of
// all partial sums of two row tiles, or of half of them and one row tile if bricks are large; their stages are even in
// number (brick_ring.cuh says why).
func (d DType) ringStages(room int) (stages, stage int) {
	brick := bricks[d].bytes()
	if brick > ringLarge {
		stage = codesParts / 2 * brick
		return min(room/stage, ringMost) &^ 1, stage
	}
	stage = ringTiles * codesParts * brick
	return min(room/stage, ringMost), stage
}

// fewRing returns the stages, the bytes of shared memory and the blocks on an SM of the kernel of up to 8 rows over
// bricks of 64 columns. It returns no stages for other bricks, and if the rows leave no room.
func fewRing(d DType, rows, cols int) (stages, shared, blocks int) {
	if bricks[d].columns != quarterColumns {
		return 0, 0, 0
	}
	row, sums := codesRowBytes(d, cols)
	rest := rows*(row+2*codesParts*ringTiles*tokenPitch*4) + sums
	room, blocks := halfShared-ringStatic-rest, 2
	if room < 40<<10 {
		room, blocks = blockShared-ringStatic-rest, 1
	}
	stages, stage := d.ringStages(room)
	if stages < 4 {
		return 0, 0, 0
	}
	stages = min(stages, max(4, splitsOf(fewRingBytes*2/blocks, stage)))
	return stages, stages*stage + rest, blocks
}

// manyRing returns the stages and the bytes of shared memory of a kernel of 8·tokenTiles rounded rows.
func manyRing(d DType, tokenTiles int) (stages, shared int) {
	slots := 3
	if bricks[d].bytes() > ringLarge {
		slots = 2
	}
	slot := tokenTiles * quarterColumns * 2 * codesTokens
	if d.sumsInGroups() {
		slot += tokenTiles * quarterColumns / d.sumColumns() * codesTokens * 4
	}
	rest := codesParts*slots*slot + codesParts*manyTiles*codesTokens*tokenPitch*4
	stages, stage := d.ringStages(blockShared - manyStatic - rest)
	return stages, stages*stage + rest
}

// codesRowBytes returns the bytes of a rounded row in shared memory, and of the sums of eight.
func codesRowBytes(d DType, cols int) (row, sums int) {
	padded := paddedColumns(cols)
	return padded*2 + 2*codesGroup, padded / d.sumColumns() * codesTokens * 4
}

// codesRowsThatFit returns how many rounded rows fit beside a block's own memory, of so many bytes in all. It may be
// negative.
func codesRowsThatFit(d DType, cols, shared int) int {
	row, sums := codesRowBytes(d, cols)
	return (shared - codesStatic - sums) / row
}

// sumColumns returns the columns of which a sum of activations serves codes that share a scale (Sums<F>::COLUMNS).
func (d DType) sumColumns() int {
	if d == Q6_K {
		return codesGroup / 2
	}
	return codesGroup
}

// sumsInGroups reports whether kernels read sums of activations in each group of codes: to subtract a zero or to add a
// minimum.
func (d DType) sumsInGroups() bool {
	switch d {
	case Q4_K, Q5_K, F8, MXFP4:
		return false
	}
	return true
}
