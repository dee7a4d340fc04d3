//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Of kernels/gemm/codes.cuh.
const (
	codesThreads = 512
	codesTokens  = 8        // rows that a block rounds at a time, at most
	codesTiles   = 2        // row tiles that a block multiplies at a time
	codesParts   = 8        // partial sums
	tokenPitch   = 20       // floats of a token's 16 results
	codesStatic  = 26 << 10 // bytes of a block's static shared memory, at most
)

// codes32 reads rows that a kernel before has rounded.
var codes32 = variant{suffix: "_codes32", tiles: codesTiles, tokens: 32, threads: 256}

// anyQuantised reports whether one of the weights is quantised.
func anyQuantised(weights []Weight) bool {
	for _, w := range weights {
		if w.DType.Quantised() {
			return true
		}
	}
	return false
}

// launchCodes launches a product over quantised weights: a kernel for each run of units whose weights have one format.
func launchCodes[T any](q *cuda.Queue, p productLaunch, args T) error {
	if p.handover.InputIsRounded && p.canRound(q) { // other GPUs hand nothing over
		return fmt.Errorf("%w: rounded rows were handed over to a product over quantised weights", device.ErrBadShape)
	}
	runs, err := p.runs()
	if err != nil {
		return err
	}
	a := codesArgs[T]{op: args}
	v, sums, fineSums, err := p.roundForCodes(q, &a.rows, &a.scales)
	if err != nil {
		return err
	}
	for _, r := range runs {
		a.first, a.units, a.sums = int32(r.first), int32(r.units), sums
		if r.format.sumColumns() != codesGroup {
			a.sums = fineSums
		}
		name := p.name + formats[r.format].kernel
		if v != nil {
			err = launchManyCodes(q, p, name, r.format, v, a)
		} else {
			err = launchFewCodes(q, p, name, r.format, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// roundForCodes rounds p's rows, if they are more than a block rounds itself and the workspace holds them. It sets the
// addresses of rows and scales, and returns the variant that reads them, or nil, and the addresses of the sums over
// groups of 32 and of 16 columns.
func (p productLaunch) roundForCodes(q *cuda.Queue, rows, scales *uint64) (v *variant, sums, fine uint64, err error) {
	n, cols := int(p.in.n), int(p.in.cols)
	if n <= codesTokens || p.gathered || p.workspace.Rounded.Bytes() < RoundedBytes(n, cols) {
		return nil, 0, 0, nil
	}
	tokens, padded := (n+7)&^7, paddedColumns(cols)
	*rows = q.Address(p.workspace.Rounded)
	*scales = *rows + uint64(tokens*padded*2)
	sums = *scales + uint64(4*tokens)
	name := "reel_round_codes"
	if p.in.norm != 0 {
		name += "_normed"
	}
	err = cuda.Launch(q, name, cuda.Grid{X: tokens, Threads: codesThreads, Dependent: tune.DependentLaunch},
		roundCodesArgs{in: p.in, rows: *rows, scales: *scales, sums: sums, tokens: int32(tokens)})
	return &codes32, sums, sums + uint64(4*tokens*padded/codesGroup), err
}

// unitRun is consecutive units of a product with weights of one format.
type unitRun struct {
	format       DType
	first, units int
}

// runs divides p's units by the formats of their weights. Weights that share units must have one format, and all must
// be quantised.
func (p productLaunch) runs() (runs []unitRun, err error) {
	units, shared := []int{p.units}, p.weights
	if p.unitsOf != nil {
		units, shared = p.unitsOf, nil
	}
	for _, w := range p.weights {
		if w.Layout != Codes || shared != nil && w.DType != shared[0].DType {
			return nil, fmt.Errorf("%w: the weights of %s have formats that a GPU's kernels do not mix: use --device "+
				"host, or quantise them alike", device.ErrBadShape, p.name)
		}
	}
	first := 0
	for i, n := range units {
		d := p.weights[i].DType
		if last := len(runs) - 1; last >= 0 && runs[last].format == d {
			runs[last].units += n
		} else {
			runs = append(runs, unitRun{d, first, n})
		}
		first += n
	}
	return runs, nil
}

// launchFewCodes launches persistent blocks, which round the rows themselves.
func launchFewCodes[T any](q *cuda.Queue, p productLaunch, name string, format DType, a codesArgs[T]) error {
	if g, stages := p.ring(q, format, int(a.units)); stages > 0 {
		a.atOnce, a.stages = p.in.n, int32(stages)
		return cuda.Launch(q, name+"_ring8", g, a)
	}
	row, sums := codesRowBytes(format, int(p.in.cols))
	rows := min(int(p.in.n), codesTokens, (sharedMemory(q)-codesStatic-sums)/row)
	if rows <= 0 {
		return fmt.Errorf("%w: %d columns: a row does not fit into this GPU's shared memory", device.ErrBadShape, p.in.cols)
	}
	a.atOnce = int32(rows)
	perBlock := codesTiles / p.tiles
	g := cuda.Grid{X: min((int(a.units)+perBlock-1)/perBlock, min(q.SMs(), tune.MaxPersistentBlocks)),
		Threads: codesThreads, Shared: rows*row + sums, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, name+"_codes8", g, a)
}

// Of kernels/gemm/codes_ring.cuh.
const (
	ringThreads = 288
	ringTiles   = 2       // row tiles of a block at a time
	ringStatic  = 4 << 10 // bytes of static shared memory at most, and those that the driver takes
	ringMost    = 24      // stages
	ringLarge   = 1200    // bytes of a brick; of larger ones a stage has a quarter
)

// codesRowBytes returns the bytes of a rounded row in shared memory, and of the sums of eight.
func codesRowBytes(t DType, cols int) (row, sums int) {
	padded := paddedColumns(cols)
	return padded*2 + 2*codesGroup, padded / t.sumColumns() * codesTokens * 4
}

// sumColumns returns the columns of which a sum of activations serves codes that share a scale (Sums<F>::COLUMNS).
func (d DType) sumColumns() int {
	if d == Q6_K {
		return codesGroup / 2
	}
	return codesGroup
}

// ring returns the launch of a kernel with a ring of bricks over weights of a format, and the ring's stages. It is for
// GPUs of 9.0 and rows that fit into shared memory all at once.
func (p productLaunch) ring(q *cuda.Queue, t DType, units int) (g cuda.Grid, stages int) {
	major, minor := q.Capability()
	if tune.CodesRing == 0 || major != 9 || minor != 0 || p.in.n > codesTokens || p.gathered {
		return g, 0
	}
	stage := ringTiles * codesParts * bricks[t].bytes()
	if bricks[t].bytes() > ringLarge {
		stage /= 4
	}
	row, sums := codesRowBytes(t, int(p.in.cols))
	rows := int(p.in.n)*(row+2*codesParts*ringTiles*tokenPitch*4) + sums
	const all, half = 227 << 10, 114 << 10
	// Half of the shared memory is left to the next kernel's block, or to another one of this kernel.
	room, blocks := half-ringStatic-rows, tune.CodesRing
	if room < tune.CodesRingLeast {
		room, blocks = all-ringStatic-rows, 1
	}
	stages = min(room/stage, ringMost)
	if stages < 4 {
		return g, 0
	}
	perBlock := ringTiles / p.tiles
	return cuda.Grid{X: min((units+perBlock-1)/perBlock, blocks*q.SMs(), tune.MaxPersistentBlocks),
		Threads: ringThreads, Shared: stages*stage + rows, AllShared: true, Dependent: tune.DependentLaunch}, stages
}

// launchManyCodes launches a product over rounded rows.
func launchManyCodes[T any](q *cuda.Queue, p productLaunch, name string, t DType, v *variant, a codesArgs[T]) error {
	if g, suffix, stages := p.manyRing(q, t, int(a.units)); stages > 0 {
		a.stages = int32(stages)
		return cuda.Launch(q, name+suffix, g, a)
	}
	return cuda.Launch(q, name+v.suffix, v.grid(int(p.in.n), int(a.units), p.tiles), a)
}

// Of kernels/gemm/codes_many.cuh.
const (
	manyThreads = 384
	manyTiles   = 4       // row tiles of a block at a time
	manyStatic  = 2 << 10 // bytes of static shared memory at most, and those that the driver takes
)

// manyRing returns the launch of a kernel over rounded rows with a ring of bricks, and the ring's stages, for GPUs of
// 9.0.
func (p productLaunch) manyRing(q *cuda.Queue, t DType, units int) (g cuda.Grid, suffix string, stages int) {
	major, minor := q.Capability()
	if tune.CodesRing == 0 || major != 9 || minor != 0 {
		return g, "", 0
	}
	tokenTiles, suffix := 2, "_ring16"
	if p.in.n > 16 {
		tokenTiles, suffix = 4, "_ring32"
	}
	stage, round, slots := ringTiles*codesParts*bricks[t].bytes(), manyTiles/ringTiles, 3
	if bricks[t].bytes() > ringLarge {
		stage, round, slots = stage/4, manyTiles*2, 2
	}
	slot := tokenTiles * quarterColumns * 2 * codesTokens
	if t.sumsInGroups() {
		slot += tokenTiles * quarterColumns / t.sumColumns() * codesTokens * 4
	}
	rest := codesParts*slots*slot + codesParts*manyTiles*codesTokens*tokenPitch*4
	stages = min((227<<10-manyStatic-rest)/stage, ringMost)
	if stages < round {
		return g, "", 0
	}
	perBlock, x := manyTiles/p.tiles, (int(p.in.n)+tokenTiles*codesTokens-1)/(tokenTiles*codesTokens)
	return cuda.Grid{X: x, Y: min((units+perBlock-1)/perBlock, max(1, q.SMs()/x), tune.MaxPersistentBlocks),
		Threads: manyThreads, Shared: stages*stage + rest, AllShared: true, Dependent: tune.DependentLaunch}, suffix, stages
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

// sharedMemory returns the bytes of shared memory that a block may use.
func sharedMemory(q *cuda.Queue) int {
	switch major, minor := q.Capability(); {
	case major == 8 && minor == 0:
		return 163 << 10
	case major == 9 || major == 10:
		return 227 << 10
	}
	return 99 << 10
}
