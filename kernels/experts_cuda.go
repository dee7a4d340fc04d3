//go:build cuda

package kernels

import (
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// expertLaunch is a product of the places of a step with the experts that they chose.
type expertLaunch struct {
	name        string // of the kernels, without format and variant
	w           Weight // one of the stacks
	cols, units int    // columns of a row; units of an expert
	tiles       int    // row tiles of a unit
	normed      bool
	T           int
	chosen      Chosen
}

// launchExperts launches a block for each unit and each segment that there may be; of quantised weights blocks take
// several units of a segment in turn.
func launchExperts[T any](q *cuda.Queue, p expertLaunch, args T) error {
	segments := segmentsOf(p.T, p.chosen.Used, p.chosen.Experts)
	if p.w.Rows/p.chosen.Experts%tileRows != 0 {
		return fmt.Errorf("%w: experts of %d rows, wants a multiple of %d", device.ErrBadShape,
			p.w.Rows/p.chosen.Experts, tileRows)
	}
	if p.w.DType.Quantised() {
		return launchExpertCodes(q, p, segments, args)
	}
	kind, err := elementsOf(p.w)
	if err != nil {
		return err
	}
	v, shared := p.variant()
	g := v.grid(1, p.units, p.tiles)
	g.Z, g.Shared = segments, shared
	return cuda.Launch(q, p.name+kind+v.suffix, g, args)
}

// variant returns the variant for p, and its dynamic shared memory.
func (p expertLaunch) variant() (v *variant, shared int) {
	row := p.cols * 4
	if p.normed {
		row *= 2
	}
	switch {
	case placesOf(p.T) == manyPlaces:
		return &tiled64, tiled64.shared
	case p.T == 1 && row <= gemvShared:
		return &gemv, row
	}
	return &skinny8, 0
}

// Blocks of a launch over quantised experts, if segments are all in use, for each SM: enough that they finish together.
const expertBlocks = 4

func launchExpertCodes[T any](q *cuda.Queue, p expertLaunch, segments int, args T) error {
	row, sums := codesRowBytes(p.w.DType, p.cols)
	rows := min(p.T, codesTokens, (sharedMemory(q)-codesStatic-sums)/row)
	if rows <= 0 {
		return fmt.Errorf("%w: %d columns: a row does not fit into this GPU's shared memory", device.ErrBadShape,
			p.cols)
	}
	perBlock := codesTiles / p.tiles // units that a block computes at a time
	most := (p.units + perBlock - 1) / perBlock
	g := cuda.Grid{X: min(most, max(1, expertBlocks*q.SMs()/segments)), Z: segments, Threads: codesThreads,
		Shared: rows*row + sums, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, p.name+formats[p.w.DType].kernel+"_codes8", g,
		codesArgs[T]{op: args, units: int32(p.units), atOnce: int32(rows)})
}

// CUDA launches a product whose units are a tile of 16 outputs of an expert's Gate and the same of its Up.
func (o ExpertGateUp) CUDA(q *cuda.Queue) error {
	if o.Gate.DType != o.Up.DType {
		return fmt.Errorf("%w: gates and ups of experts in two formats", device.ErrBadShape)
	}
	linear := -math.Log2E
	if o.Limit > 0 {
		linear *= clampedSlope
	}
	return launchExperts(q, expertLaunch{name: "reel_expert_gateup", w: o.Gate, cols: o.Gate.Cols,
		units: tilesOf(o.inner()), tiles: 2, normed: true, T: o.T, chosen: o.Chosen,
	}, expertGateUpArgs{gate: q.Address(o.Gate.Data), up: q.Address(o.Up.Data), gateBias: q.Address(o.GateBias),
		upBias: q.Address(o.UpBias), in: activations{x: q.Address(o.X), norm: q.Address(o.Norm),
			cols: int32(o.Gate.Cols),
			eps:  o.Eps}, out: q.Address(o.Out), chosen: o.Chosen.segmentArgs(q, o.T), linear: float32(linear),
		limit: o.Limit,
		inner: int32(o.inner())})
}

// CUDA launches a product whose units are tiles of 16 outputs of an expert, then the sum of each row's experts.
func (o ExpertDown) CUDA(q *cuda.Queue) error {
	hidden := o.hidden()
	if err := checkBuffers(need{"results", o.Workspace.Results, o.T * o.Chosen.Used * hidden}); err != nil {
		return err
	}
	args := expertDownArgs{w: q.Address(o.Down.Data), bias: q.Address(o.Bias),
		in: activations{x: q.Address(o.In), cols: int32(o.Down.Cols)}, results: q.Address(o.Workspace.Results),
		x: q.Address(o.X), chosen: o.Chosen.segmentArgs(q, o.T), hidden: int32(hidden), used: int32(o.Chosen.Used)}
	if shared := o.oneShared(); o.T == 1 && !o.Down.DType.Quantised() && hidden%tileRows == 0 && shared <= gemvShared {
		kind, err := elementsOf(o.Down)
		if err != nil {
			return err
		}
		return cuda.Launch(q, "reel_expert_down"+kind+"_one", cuda.Grid{X: tilesOf(hidden), Threads: gemv.threads,
			Shared: shared, Dependent: tune.DependentLaunch}, args)
	}
	err := launchExperts(q, expertLaunch{name: "reel_expert_down", w: o.Down, cols: o.Down.Cols, units: tilesOf(hidden),
		tiles: 1, T: o.T, chosen: o.Chosen}, args)
	if err != nil {
		return err
	}
	perBlock := 4 * elementThreads
	return cuda.Launch(q, "reel_expert_sum", cuda.Grid{X: (hidden + perBlock - 1) / perBlock, Y: o.T,
		Threads: elementThreads, Dependent: tune.DependentLaunch},
		expertSumArgs{results: args.results, rows: q.Address(o.RowIndex), x: q.Address(o.X), cols: int32(hidden),
			used: int32(o.Chosen.Used)})
}

// oneShared returns the shared memory of the kernel of one row: the results of its experts' gates, and partial sums.
func (o ExpertDown) oneShared() int {
	const partials = 4 * 16 * tileRows
	return o.Chosen.Used * (4*o.Down.Cols + partials)
}
