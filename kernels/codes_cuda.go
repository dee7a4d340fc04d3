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
	codesTiles   = 2 // row tiles that a block multiplies at a time
)

// Threads of kernels/gemm/codes_ring.cuh and codes_many.cuh.
const (
	fewRingThreads  = 288
	manyRingThreads = 384
)

// codes32 reads rows that a kernel before has rounded, on other GPUs than Hopper.
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
	if p.handover.InputIsRounded && p.class == Prefill && p.canRound(q) { // other GPUs hand nothing over
		return fmt.Errorf("%w: rounded rows were handed over to a product over quantised weights", device.ErrBadShape)
	}
	runs, err := p.runs()
	if err != nil {
		return err
	}
	a := codesArgs[T]{op: args, handover: p.codesHandover(q)}
	in, many, err := p.codesInput(q)
	if err != nil {
		return err
	}
	a.rows, a.scales = in.rows, in.scales
	for _, r := range runs {
		a.first, a.units, a.sums = int32(r.first), int32(r.units), in.sums
		if r.format.sumColumns() != codesGroup {
			a.sums = in.fineSums
		}
		if many {
			err = launchManyCodes(q, p, r, a)
		} else {
			err = launchFewCodes(q, p, r, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// codesInput returns p's rounded rows: those that the product before handed over, those of more rows than a block
// rounds itself, or none. many reports whether they are for the kernels of many rows.
func (p productLaunch) codesInput(q *cuda.Queue) (in codesRows, many bool, err error) {
	n, cols := int(p.in.n), int(p.in.cols)
	if p.takesCodes && p.handover.InputIsRounded && p.class == Decode && !p.gathered() &&
		handsCodesOver(q, p.workspace.Rounded, n, cols) {
		return handedCodes(q.Address(p.workspace.Rounded), n, cols), false, nil
	}
	if n <= codesTokens || p.workspace.Rounded.Bytes() < RoundedBytes(n, cols) {
		return codesRows{}, false, nil
	}
	in = roundedCodes(q.Address(p.workspace.Rounded), n, cols)
	return in, true, p.roundForCodes(q, in)
}

// roundForCodes launches the kernel that rounds p's rows.
func (p productLaunch) roundForCodes(q *cuda.Queue, to codesRows) error {
	tokens := (int(p.in.n) + 7) &^ 7
	name := "reel_round_codes"
	if p.in.norm != 0 {
		name += "_normed"
	}
	return cuda.Launch(q, name, cuda.Grid{X: tokens, Threads: codesThreads, Dependent: tune.DependentLaunch},
		roundCodesArgs{in: p.in, rows: to.rows, scales: to.scales, sums: to.sums, tokens: int32(tokens)})
}

// codesHandover returns where p leaves its results for the next product over quantised weights, or zeros if it does not.
func (p productLaunch) codesHandover(q *cuda.Queue) codesHandoverArgs {
	if p.class != Decode || p.gathered() {
		return codesHandoverArgs{}
	}
	return p.handover.codes(q, int(p.in.n), p.weights[0].Rows)
}

// codes returns where n rows of cols columns are left for a product over quantised weights, or zeros if they are not.
func (h Handover) codes(q *cuda.Queue, n, cols int) codesHandoverArgs {
	if h.Rounded.IsZero() || !handsCodesOver(q, h.Rounded, n, cols) {
		return codesHandoverArgs{}
	}
	to := handedCodes(q.Address(h.Rounded), n, cols)
	return codesHandoverArgs{rows: to.rows, sums: to.sums, scales: to.scales, norm: q.Address(h.Norm),
		columns: int32(cols), n: int16(n), atOnce: int16(handedAtOnce(cols))}
}

// handsCodesOver reports whether a product hands n rows of cols columns over to the next one, both over quantised
// weights, through a [Workspace].Rounded. Both have to ask for the same.
func handsCodesOver(q *cuda.Queue, workspace device.Buffer, n, cols int) bool {
	return canHandCodesOver(n, cols) && canRound(q, workspace, n, cols)
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

// fewCodes is the launch of a kernel of few rows over quantised weights.
type fewCodes struct {
	suffix       string // of the kernel's name
	grid         cuda.Grid
	rows, stages int // that a block rounds at a time; of its ring, if it has one
}

// fewCodes returns the launch for a run of p's units: persistent blocks, which round the rows themselves or take those
// that were handed over. ring allows the kernel with a ring, where there is one.
func (p productLaunch) fewCodes(q *cuda.Queue, r unitRun, ring, taken bool) (k fewCodes, err error) {
	perBlock, n, cols := codesTiles/p.tiles, int(p.in.n), int(p.in.cols)
	k.grid = cuda.Grid{X: min((r.units+perBlock-1)/perBlock, tune.MaxPersistentBlocks), Dependent: tune.DependentLaunch}
	if p.fewRing && hopper(q) && n == 1 && !p.gathered() && ring {
		if stages, shared, blocks := fewRing(r.format, n, cols); stages > 0 {
			k.suffix, k.rows, k.stages = "_ring8", n, stages
			k.grid.X, k.grid.Threads = min(k.grid.X, blocks*q.SMs()), fewRingThreads
			k.grid.Shared = shared
			return k, nil
		}
	}
	k.suffix, k.rows = "_codes8", min(n, codesTokens, codesRowsThatFit(r.format, cols, sharedMemory(q)))
	if taken {
		k.suffix, k.rows = "_taken8", min(n, handedAtOnce(cols))
	}
	if k.rows <= 0 {
		return k, fmt.Errorf("%w: %d columns: a row does not fit into this GPU's shared memory", device.ErrBadShape,
			cols)
	}
	row, sums := codesRowBytes(r.format, cols)
	k.grid.X, k.grid.Threads, k.grid.Shared = min(k.grid.X, smsOf(r.units, perBlock, q.SMs(), p.leaves)), codesThreads,
		k.rows*row+sums
	return k, nil
}

// launchFewCodes launches a product over few rows.
func launchFewCodes[T any](q *cuda.Queue, p productLaunch, r unitRun, a codesArgs[T]) error {
	k, err := p.fewCodes(q, r, tune.CodesRing, a.rows != 0)
	if err != nil {
		return err
	}
	a.atOnce, a.stages = int32(k.rows), int32(k.stages)
	return cuda.Launch(q, p.name+formats[r.format].kernel+k.suffix, k.grid, a)
}

// launchManyCodes launches a product over rounded rows.
func launchManyCodes[T any](q *cuda.Queue, p productLaunch, r unitRun, a codesArgs[T]) error {
	n, name := int(p.in.n), p.name+formats[r.format].kernel
	if !hopper(q) {
		return cuda.Launch(q, name+codes32.suffix, codes32.grid(n, r.units, p.tiles), a)
	}
	tokenTiles, suffix := 2, "_ring16"
	if n > 16 {
		tokenTiles, suffix = 4, "_ring32"
	}
	stages, shared := manyRing(r.format, tokenTiles)
	a.stages = int32(stages)
	perBlock, x := manyTiles/p.tiles, (n+tokenTiles*codesTokens-1)/(tokenTiles*codesTokens)
	y := min((r.units+perBlock-1)/perBlock, max(1, q.SMs()/x), tune.MaxPersistentBlocks)
	return cuda.Launch(q, name+suffix, cuda.Grid{X: x, Y: y, Threads: manyRingThreads, Shared: shared,
		Dependent: tune.DependentLaunch}, a)
}

// hopper reports whether the GPU runs the kernels for sm_90a.
func hopper(q *cuda.Queue) bool {
	major, minor := q.Capability()
	return major == 9 && minor == 0
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

// roundedCodes returns those of more rows in a [Workspace].Rounded.
func roundedCodes(workspace uint64, n, cols int) codesRows {
	tokens, padded := (n+7)&^7, paddedColumns(cols)
	scales := workspace + uint64(tokens*padded*2)
	sums := scales + uint64(4*tokens)
	return codesRows{rows: workspace, scales: scales, sums: sums, fineSums: sums + uint64(4*tokens*padded/codesGroup)}
}
