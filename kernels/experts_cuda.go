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
	T           int
	chosen      Chosen
}

// Units that a persistent block of few rows computes: enough that it reads its rows and waits at its begin seldom.
const expertUnits = 4

// launchExperts launches blocks for each segment that there may be. Of few rows they take several units in turn.
func launchExperts[T any](q *cuda.Queue, p expertLaunch, args T) error {
	segments := segmentsOf(p.T, p.chosen.Used, p.chosen.Experts)
	if p.w.Rows/p.chosen.Experts%tileRows != 0 {
		return fmt.Errorf("%w: experts of %d rows, wants a multiple of %d", device.ErrBadShape,
			p.w.Rows/p.chosen.Experts, tileRows)
	}
	if p.w.DType.Quantised() {
		return launchExpertCodes(q, p, args)
	}
	kind, err := elementsOf(p.w)
	if err != nil {
		return err
	}
	v := &skinny8
	if placesOf(p.T) == manyPlaces {
		v = &tiled64
	}
	g := v.grid(1, p.units, p.tiles)
	if g.Z = segments; v == &skinny8 {
		fill := (2*q.SMs() + segments - 1) / segments // blocks of a segment that leave no SM idle
		g.X = min(g.X, max((p.units*p.tiles+2*expertUnits-1)/(2*expertUnits), fill), tune.MaxPersistentBlocks)
	}
	return cuda.Launch(q, p.name+kind+v.suffix, g, args)
}

// launchExpertCodes launches a block for each SM. Blocks take equal parts of the units of all segments.
func launchExpertCodes[T any](q *cuda.Queue, p expertLaunch, args T) error {
	rows := min(p.T, codesTokens)
	if placesOf(p.T) == fewPlaces && hopper(q) && tune.CodesRing {
		if stages, shared := expertRing(p.w.DType, p.cols, rows, p.tiles); stages > 0 {
			return launchRing(q, p, "_ring", shared,
				codesArgs[T]{op: args, units: int32(p.units), atOnce: int32(rows), stages: int32(stages)})
		}
	}
	row, sums := codesRowBytes(p.w.DType, p.cols)
	if rows = min(rows, (sharedMemory(q)-codesStatic-sums)/row); rows <= 0 {
		return fmt.Errorf("%w: %d columns: a row does not fit into this GPU's shared memory", device.ErrBadShape,
			p.cols)
	}
	return cuda.Launch(q, p.name+formats[p.w.DType].kernel+"_codes8", cuda.Grid{
		X: min(q.SMs(), tune.MaxPersistentBlocks), Threads: codesThreads, Shared: rows*row + sums,
		Dependent: tune.DependentLaunch}, codesArgs[T]{op: args, units: int32(p.units), atOnce: int32(rows)})
}

// launchRing launches a kernel with a ring.
func launchRing[T any](q *cuda.Queue, p expertLaunch, suffix string, shared int, args codesArgs[T]) error {
	return cuda.Launch(q, p.name+formats[p.w.DType].kernel+suffix, cuda.Grid{X: min(q.SMs(), tune.MaxPersistentBlocks),
		Threads: expertRingThreads, Shared: shared, Dependent: tune.DependentLaunch}, args)
}

// CUDA launches a product whose units are a tile of 16 outputs of an expert's Gate and the same of its Up.
func (o ExpertGateUp) CUDA(q *cuda.Queue) error {
	if o.Gate.DType != o.Up.DType {
		return fmt.Errorf("%w: gates and ups of experts in two formats", device.ErrBadShape)
	}
	if done, err := o.grouped(q); done || err != nil {
		return o.Spread.after(q, err)
	}
	if err := o.Chosen.sortPlaces(q, o.RowIndex, o.T); err != nil {
		return err
	}
	return o.ofSegments(q)
}

// ofSegments launches the product for places that are sorted.
func (o ExpertGateUp) ofSegments(q *cuda.Queue) error {
	args := o.args(q)
	p := expertLaunch{name: "reel_expert_gateup", w: o.Gate, cols: o.Gate.Cols, units: tilesOf(o.inner()), tiles: 2,
		T: o.T, chosen: o.Chosen}
	if done, err := p.gatesOfOne(q, args, o.Spread); done || err != nil {
		return err
	}
	return o.Spread.after(q, launchExperts(q, p, args))
}

// exponent returns the coefficients of a gate in the exponent of its sigmoid, to base 2.
func (o ExpertGateUp) exponent() (linear, cubic float32) {
	if o.Limit > 0 {
		return -math.Log2E * clampedSlope, 0
	}
	return o.Activation.exponent()
}

func (o ExpertGateUp) args(q *cuda.Queue) expertGateUpArgs {
	linear, cubic := o.exponent()
	return expertGateUpArgs{gate: q.Address(o.Gate.Data), up: q.Address(o.Up.Data), gateBias: q.Address(o.GateBias),
		upBias: q.Address(o.UpBias), in: activations{x: q.Address(o.X), norm: q.Address(o.Norm),
			cols: int32(o.Gate.Cols), eps: o.Eps}, out: q.Address(o.Out), chosen: o.Chosen.segmentArgs(q, o.T),
		linear: linear, limit: o.Limit, inner: int32(o.inner()), cubic: cubic}
}

// gatesOfOne launches the kernel for one row, whose blocks take units of all its experts in turn, and the exchange of its
// results, if there is one row and it fits into shared memory.
func (p expertLaunch) gatesOfOne(q *cuda.Queue, args expertGateUpArgs, spread Exchange) (done bool, err error) {
	units := p.units * p.chosen.Used
	if p.T != 1 || p.w.Rows/p.chosen.Experts%tileRows != 0 {
		return false, nil
	}
	g := cuda.Grid{X: min(units, q.SMs(), tune.MaxPersistentBlocks), Threads: codesThreads,
		Dependent: tune.DependentLaunch}
	if p.w.DType.Quantised() {
		if stages, shared := expertRing(p.w.DType, p.cols, 1, p.tiles); stages > 0 && hopper(q) && tune.CodesRing {
			g.Threads, g.Shared = expertRingThreads, shared
			return true, launchSpreadOrThen(q, p.name+formats[p.w.DType].kernel+"_ring_one", g, g.X, spread, Exchange{},
				codesArgs[expertGateUpArgs]{op: args, units: int32(units), atOnce: 1, stages: int32(stages)})
		}
		row, sums := codesRowBytes(p.w.DType, p.cols)
		if g.Shared = row + sums; g.Shared > sharedMemory(q)-codesStatic {
			return false, nil
		}
		return true, spread.after(q, cuda.Launch(q, p.name+formats[p.w.DType].kernel+"_one", g,
			codesArgs[expertGateUpArgs]{op: args, units: int32(units), atOnce: 1}))
	}
	g.X, g.Shared = units, 8*p.cols
	kind, err := elementsOf(p.w)
	if g.Shared > gemvShared || err != nil {
		return false, err
	}
	name, blocks := p.name+kind+"_one", 2 // on an SM
	if !spread.IsZero() && units <= 2*q.SMs() {
		name, blocks = name+"_deep", 1
	}
	return true, launchSpreadOrThen(q, name, g, min(blocks*q.SMs(), tune.MaxPersistentBlocks), spread, Exchange{}, args)
}

// CUDA launches a product whose units are tiles of 16 outputs of an expert, then the sum of each row's experts; of one
// row a single kernel.
func (o ExpertDown) CUDA(q *cuda.Queue) error {
	hidden := o.hidden()
	if err := checkBuffers(need{"results", o.Workspace.Results, o.T * o.Chosen.Used * hidden}); err != nil {
		return err
	}
	args := o.args(q)
	if done, err := o.ringOfOne(q, args); done || err != nil {
		return err
	}
	if shared := o.oneShared(q); o.T == 1 && !o.isGrouped(q) && hidden%tileRows == 0 && shared > 0 {
		if !o.Down.DType.Quantised() {
			if _, err := elementsOf(o.Down); err != nil {
				return err
			}
		}
		return launchDownOfOne(q, o, "_one", cuda.Grid{Threads: gemv.threads, Shared: shared}, args)
	}
	if err := o.products(q, args); err != nil {
		return err
	}
	return o.sum(q, expertSumArgs{results: args.results, rows: q.Address(o.RowIndex), x: args.x, cols: args.hidden,
		used: args.used, stores: args.stores})
}

// launchDownOfOne launches a kernel of one row, which has a block for each row tile, and the exchange of its sums.
func launchDownOfOne[T any](q *cuda.Queue, o ExpertDown, suffix string, g cuda.Grid, args T) error {
	g.X, g.Dependent = tilesOf(o.hidden()), tune.DependentLaunch
	return launchSpreadOrThen(q, "reel_expert_down"+formats[o.Down.DType].kernel+suffix, g, math.MaxInt32, o.Spread,
		o.before, args)
}

// sum launches the kernel that adds up the results of each row's experts, and the exchange of the sums: in one kernel if
// it can go as packets.
func (o ExpertDown) sum(q *cuda.Queue, args expertSumArgs) error {
	g := cuda.Grid{Threads: exchangeThreads, Dependent: tune.DependentLaunch}
	if s := o.Spread; !s.IsZero() && s.fits() {
		g.X = min(device.SignalBlocks, splitsOf(s.T*s.PartCols/2, exchangeThreads))
		return cuda.Launch(q, "reel_expert_sum_spread", g, expertSumSpreadArgs{sum: args, to: s.to(q, 0, s.T)})
	}
	g.X, g.Y, g.Threads = splitsOf(int(args.cols), 4*elementThreads), o.T, elementThreads
	return o.Spread.after(q, cuda.Launch(q, "reel_expert_sum", g, args))
}

func (o ExpertDown) args(q *cuda.Queue) expertDownArgs {
	return expertDownArgs{w: q.Address(o.Down.Data), bias: q.Address(o.Bias),
		in: activations{x: q.Address(o.In), cols: int32(o.Down.Cols)}, results: q.Address(o.Workspace.Results),
		x: q.Address(o.X), chosen: o.Chosen.segmentArgs(q, o.T), hidden: int32(o.hidden()), used: int32(o.Chosen.Used),
		stores: flag(o.Store)}
}

// ringOfOne launches the kernel of one row with a ring, if there is one row over quantised weights and it fits.
func (o ExpertDown) ringOfOne(q *cuda.Queue, args expertDownArgs) (done bool, err error) {
	hidden, d := o.hidden(), o.Down.DType
	if o.T != 1 || o.isGrouped(q) || !d.Quantised() || hidden%tileRows != 0 || o.Chosen.Used > codesTokens || !hopper(q) ||
		!tune.CodesRing {
		return false, nil
	}
	stages, g := o.ringGrid()
	if stages == 0 {
		return false, nil
	}
	return true, launchDownOfOne(q, o, "_ring_one", g, codesArgs[expertDownArgs]{op: args, stages: int32(stages)})
}

// ringGrid returns the stages of that kernel's ring, or none, and what a block needs.
func (o ExpertDown) ringGrid() (stages int, g cuda.Grid) {
	if !o.Down.DType.Quantised() {
		return 0, g
	}
	stages, shared := expertDownRing(o.Down.DType, o.Down.Cols, o.Chosen.Used)
	return stages, cuda.Grid{Threads: downRingThreads, Shared: shared, AllShared: true}
}

// products launches the kernel that leaves the result of each place in the workspace.
func (o ExpertDown) products(q *cuda.Queue, args expertDownArgs) error {
	if o.isGrouped(q) {
		return o.grouped(q, args.results)
	}
	return launchExperts(q, expertLaunch{name: "reel_expert_down", w: o.Down, cols: o.Down.Cols,
		units: tilesOf(o.hidden()), tiles: 1, T: o.T, chosen: o.Chosen}, args)
}

// oneShared returns the dynamic shared memory of the kernel of one row, or 0 if it does not fit: the rounded results of
// its experts' gates, and of weights of 16 bits partial sums.
func (o ExpertDown) oneShared(q *cuda.Queue) int {
	if o.Down.DType.Quantised() {
		row, sums := codesRowBytes(o.Down.DType, o.Down.Cols)
		shared := o.Chosen.Used*row + sums
		if o.Chosen.Used > codesTokens || shared > sharedMemory(q)-codesStatic {
			return 0
		}
		return shared
	}
	return o.sharedOfOne()
}
